//! An instance by its machine and its key, with its hash, and the hash maps of instances.

use std::cmp::Ordering;
use std::collections::{HashMap, HashSet};
use std::fmt;
use std::hash::{BuildHasher, BuildHasherDefault, Hash, Hasher, RandomState};
use std::sync::{Arc, LazyLock};

/// A map by instances. It uses the hash that each [`InstanceKey`] carries.
pub type InstanceMap<V> = HashMap<InstanceKey, V, BuildHasherDefault<StoredHash>>;
/// A set of instances.
pub type InstanceSet = HashSet<InstanceKey, BuildHasherDefault<StoredHash>>;

/// The hash function for instances. Keys come from outside, so it is SipHash with a random seed: nobody can construct keys that collide.
static HASH: LazyLock<RandomState> = LazyLock::new(RandomState::new);

/// An instance by its machine and its key.
///
/// One commit looks an instance up in about ten maps, so the hash is computed once.
#[derive(Clone)]
pub struct InstanceKey {
    hash: u64,
    /// The machine.
    pub machine: Arc<str>,
    /// The user's name for it.
    pub key: Arc<str>,
}

/// The hasher of [`InstanceMap`]: it takes the hash that the key carries.
#[derive(Debug, Default)]
pub struct StoredHash(u64);

impl InstanceKey {
    /// Computes the hash.
    pub fn new(machine: &str, key: &str) -> InstanceKey {
        InstanceKey { hash: HASH.hash_one((machine, key)), machine: machine.into(), key: key.into() }
    }
}

impl Hash for InstanceKey {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.hash);
    }
}

impl PartialEq for InstanceKey {
    fn eq(&self, other: &InstanceKey) -> bool {
        self.hash == other.hash && (Arc::ptr_eq(&self.key, &other.key) || self.key == other.key) && self.machine == other.machine
    }
}

impl Eq for InstanceKey {}

impl PartialOrd for InstanceKey {
    fn partial_cmp(&self, other: &InstanceKey) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// By machine, then by key. The order does not depend on the seed of the hash.
impl Ord for InstanceKey {
    fn cmp(&self, other: &InstanceKey) -> Ordering {
        (&self.machine, &self.key).cmp(&(&other.machine, &other.key))
    }
}

impl fmt::Debug for InstanceKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.machine, self.key)
    }
}

impl Hasher for StoredHash {
    fn write(&mut self, bytes: &[u8]) {
        // An `InstanceKey` writes one `u64`. Another key would still have a hash, but a poor one.
        for byte in bytes {
            self.0 = self.0.rotate_left(8) ^ u64::from(*byte);
        }
    }

    fn write_u64(&mut self, hash: u64) {
        self.0 = hash;
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_instances_are_one_entry_and_others_are_not() {
        let mut map = InstanceMap::default();
        map.insert(InstanceKey::new("payment", "o-1"), 1);
        map.insert(InstanceKey::new("payment", "o-1"), 2);
        map.insert(InstanceKey::new("payment", "o-2"), 3);
        map.insert(InstanceKey::new("paymento", "-1"), 4);
        assert_eq!((map.len(), map.get(&InstanceKey::new("payment", "o-1"))), (3, Some(&2)));
        let mut sorted: Vec<_> = map.into_keys().collect();
        sorted.sort();
        assert_eq!(format!("{sorted:?}"), "[payment/o-1, payment/o-2, paymento/-1]");
    }
}
