//! Partitions: the fixed mapping from a key to the database schema that has its instance.
//!
//! The mapping is stored nowhere and every process computes it, so it never changes between releases. The number of partitions is fixed
//! when they are created.

use crate::hash::fnv1a_128;

/// The maximum number of partitions.
pub const MOST_PARTITIONS: u32 = 1024;

/// One of the partitions of a database.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Partition {
    number: u32,
    of: u32,
}

impl Partition {
    /// The partition `number`, counted from 0, of `of` partitions. `None` unless `number < of` and `of` is at most [`MOST_PARTITIONS`].
    pub fn new(number: u32, of: u32) -> Option<Partition> {
        (number < of && of <= MOST_PARTITIONS).then_some(Partition { number, of })
    }

    /// The number of this partition, counted from 0.
    pub fn number(self) -> u32 {
        self.number
    }

    /// The number of all partitions.
    pub fn of(self) -> u32 {
        self.of
    }

    /// Returns true if the instance with this key belongs to this partition.
    pub fn has(self, key: &str) -> bool {
        self.elsewhere(key).is_none()
    }

    /// The number of the partition of the instance with this key, if it is another one.
    pub fn elsewhere(self, key: &str) -> Option<u32> {
        Some(partition_of(key, self.of)).filter(|number| *number != self.number)
    }
}

/// The number of the partition, from 0 to `partitions` - 1, of the instance with this key. The name of the machine does not matter, so that
/// instances of several machines with one key are together.
///
/// It is FNV-1a with 128 bits over the bytes of [`placed_by`], its upper half combined with its lower half by exclusive or, modulo the number
/// of partitions.
///
/// ```
/// use fsm_core::partition::partition_of;
///
/// assert_eq!(partition_of("order-1042", 64), 52);
/// assert_eq!(partition_of("{acme}/order-1042", 64), partition_of("invoice-7-{acme}", 64));
/// ```
pub fn partition_of(key: &str, partitions: u32) -> u32 {
    let hash = fnv1a_128(placed_by(key).bytes());
    let folded = (hash >> 64) as u64 ^ hash as u64;
    u32::try_from(folded % u64::from(partitions.max(1))).expect("a remainder is below its divisor")
}

/// The part of a key that decides its partition: the text between the first `{` and the next `}`, if there is any, and otherwise the whole
/// key. Redis Cluster has the same rule for its hash tags.
pub fn placed_by(key: &str) -> &str {
    let inside = key.split_once('{').and_then(|(_, rest)| rest.split_once('}'));
    inside.map_or(key, |(tag, _)| if tag.is_empty() { key } else { tag })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tag_decides_the_partition_and_an_empty_one_does_not() {
        let placed = ["order-1", "{acme}", "{acme}/order-1", "order-{acme}-{other}", "a}b{c}d", "{}x", "{acme", "a{{b}}"].map(placed_by);
        assert_eq!(placed, ["order-1", "acme", "acme", "acme", "c", "{}x", "{acme", "{b"]);
    }

    /// The vectors of the guide. They never change: instances are stored by them.
    #[test]
    fn the_mapping_never_changes() {
        let vectors = [
            ("", 64),
            ("a", 64),
            ("order-1042", 64),
            ("{acme}/order-1042", 64),
            ("zahlung-ü-1", 64),
            ("order-1042", 7),
            ("order-1042", 1024),
        ];
        let numbers = vectors.map(|(key, of)| partition_of(key, of));
        assert_eq!(numbers, [15, 11, 52, 0, 26, 4, 180]);
    }

    #[test]
    fn similar_keys_are_spread_evenly() {
        for partitions in [2, 3, 8, 64, 100] {
            for form in ["order-{n}", "{n}", "2026-11-{n}-payment", "00000000-0000-7000-8000-{n}"] {
                let mut counts = vec![0u32; partitions as usize];
                let keys = 1000 * partitions;
                for n in 0..keys {
                    counts[partition_of(&form.replace("{n}", &format!("{n:012}")), partitions) as usize] += 1;
                }
                // The standard deviation of a random mapping is 32.
                let (least, most) = (counts.iter().min().unwrap(), counts.iter().max().unwrap());
                assert!(*least > 800 && *most < 1200, "{form} in {partitions}: {least} to {most}");
            }
        }
    }

    #[test]
    fn a_partition_is_one_of_its_number() {
        assert_eq!(Partition::new(4, 4), None);
        assert_eq!(Partition::new(0, MOST_PARTITIONS + 1), None);
        let all: Vec<_> = (0..4).map(|number| Partition::new(number, 4).unwrap()).collect();
        let of_key = |key: &str| all.iter().filter(|partition| partition.has(key)).count();
        assert!((0..100).all(|n| of_key(&format!("order-{n}")) == 1));
    }
}
