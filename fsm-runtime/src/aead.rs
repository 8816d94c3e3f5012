//! A codec with authenticated encryption, XChaCha20-Poly1305, and key rotation.

use std::error::Error as StdError;
use std::fmt;

use chacha20poly1305::aead::{Aead as _, Payload};
use chacha20poly1305::{Key, KeyInit, XChaCha20Poly1305, XNonce};
use hkdf::Hkdf;
use hmac::{Hmac, Mac};
use sha2::Sha256;

use crate::codec::{EncryptionContext, PayloadCodec};

/// The length of a nonce in bytes. With 24 random bytes, no two nonces are equal in practice.
const NONCE: usize = 24;
/// The maximum length of a key's name, in bytes.
const LONGEST_ID: usize = 255;

/// A [`PayloadCodec`] that encrypts values with XChaCha20-Poly1305. It encrypts with its newest key and decrypts with any of its keys. Each
/// value is bound to its place in the database: it does not decrypt after it was copied to another row or changed in any bit.
///
/// Keys have names, which are stored beside the values. To rotate the key, first start every process with the new key as one that it [also
/// reads](Aead::also_reads). Then start every process with the new key as the first one and the old key as one that it also reads. The old
/// key can be removed when no stored value needs it any more: ended instances are deleted after the retention time, and each transition
/// writes the record of a live instance again. The payloads in the history of a live instance stay encrypted with the old key until the
/// retention deletes them.
///
/// ```
/// # use fsm_runtime::aead::Aead;
/// # use fsm_runtime::runtime::Runtime;
/// # let (key, last_years) = ([7; 32], [8; 32]);
/// let builder = Runtime::builder().codec(Aead::new("2031", key).also_reads("2030", last_years));
/// ```
pub struct Aead {
    /// The keys, the newest first.
    keys: Vec<Secret>,
}

struct Secret {
    id: String,
    cipher: XChaCha20Poly1305,
    digest: Hmac<Sha256>,
}

/// The reason why a value cannot be decrypted.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Refused {
    Damaged,
    UnknownKey { id: String, known: String },
    Forged { id: String },
}

impl Aead {
    /// Creates a codec that encrypts with `key`, 32 random bytes. `id` is the key's name, 1 to 255 bytes; it is not secret.
    ///
    /// # Panics
    ///
    /// If `id` is empty or longer than 255 bytes.
    pub fn new(id: impl Into<String>, key: [u8; 32]) -> Aead {
        Aead { keys: Vec::new() }.also_reads(id, key)
    }

    /// Adds a key that decrypts values and recognises deduplicated requests, but does not encrypt.
    ///
    /// # Panics
    ///
    /// If another key has the same `id`, or if `id` is empty or longer than 255 bytes.
    pub fn also_reads(mut self, id: impl Into<String>, key: [u8; 32]) -> Aead {
        let id = id.into();
        assert!((1..=LONGEST_ID).contains(&id.len()), "the name of a key has 1 to {LONGEST_ID} bytes, and `{id}` has {}", id.len());
        assert!(self.keys.iter().all(|known| known.id != id), "two keys are named `{id}`");
        self.keys.push(Secret::new(id, key));
        self
    }
}

impl Secret {
    /// Derives two different keys from the given one, for encryption and for digests.
    fn new(id: String, key: [u8; 32]) -> Secret {
        let root = Hkdf::<Sha256>::new(Some(b"durable-fsm"), &key);
        let derived = |what: &[u8]| {
            let mut derived = [0; 32];
            root.expand(what, &mut derived).expect("32 bytes are not too many");
            derived
        };
        let cipher = XChaCha20Poly1305::new(&Key::from(derived(b"values")));
        let digest = <Hmac<Sha256> as KeyInit>::new_from_slice(&derived(b"digests")).expect("a key may have any length");
        Secret { id, cipher, digest }
    }

    fn digest(&self, content: &[u8]) -> Vec<u8> {
        self.digest.clone().chain_update(content).finalize().into_bytes().to_vec()
    }
}

impl PayloadCodec for Aead {
    /// The format: one byte with the length of the key's name, the name, the nonce, the encrypted value and its authentication tag.
    fn encode(&self, place: &EncryptionContext<'_>, plain: &[u8]) -> Vec<u8> {
        let key = self.keys.first().expect("it was made with a key");
        let mut nonce = [0; NONCE];
        getrandom::fill(&mut nonce).expect("the system has random bytes");
        let payload = Payload { msg: plain, aad: &place.to_bytes() };
        let encrypted = key.cipher.encrypt(&XNonce::from(nonce), payload).expect("nobody has 256 GiB in a value");
        let length = u8::try_from(key.id.len()).expect("it was measured when it was given");
        [&[length], key.id.as_bytes(), &nonce, &encrypted].concat()
    }

    fn decode(&self, place: &EncryptionContext<'_>, encoded: &[u8]) -> Result<Vec<u8>, Box<dyn StdError + Send + Sync>> {
        let (id, nonce, encrypted) = parts(encoded).ok_or(Refused::Damaged)?;
        let id = String::from_utf8_lossy(id).into_owned();
        let Some(key) = self.keys.iter().find(|key| key.id == id) else {
            let known = self.keys.iter().map(|key| format!("`{}`", key.id)).collect::<Vec<_>>().join(", ");
            return Err(Refused::UnknownKey { id, known }.into());
        };
        let payload = Payload { msg: encrypted, aad: &place.to_bytes() };
        Ok(key.cipher.decrypt(&XNonce::from(*nonce), payload).map_err(|_| Refused::Forged { id })?)
    }

    fn digests(&self, content: &[u8]) -> Vec<Vec<u8>> {
        self.keys.iter().map(|key| key.digest(content)).collect()
    }
}

/// Splits an encoded value into the key's name, the nonce and the encrypted value.
fn parts(encoded: &[u8]) -> Option<(&[u8], &[u8; NONCE], &[u8])> {
    let (length, rest) = encoded.split_first()?;
    let (id, rest) = rest.split_at_checked(usize::from(*length))?;
    let (nonce, encrypted) = rest.split_first_chunk::<NONCE>()?;
    Some((id, nonce, encrypted))
}

/// Shows the names of the keys only.
impl fmt::Debug for Aead {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.keys.iter().map(|key| &key.id)).finish()
    }
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refused::Damaged => f.write_str("it is damaged"),
            Refused::UnknownKey { id, known } => {
                write!(f, "it was encrypted with the key `{}`, and this process has {known}", id.escape_debug())
            }
            Refused::Forged { id } => {
                write!(
                    f,
                    "it does not decrypt with the key `{id}`: it was encrypted for another place, with another key of that name, or changed"
                )
            }
        }
    }
}

impl StdError for Refused {}

#[cfg(test)]
mod tests {
    use fsm_core::ids::CallId;
    use uuid::Uuid;

    use super::*;
    use crate::codec::EncryptedField;

    const HERE: EncryptionContext<'static> =
        EncryptionContext { machine: "payment", key: "o-1", kind: EncryptedField::Record, call: None, name: "" };
    const SECRET: &[u8] = b"{\"card\":\"4242\"}";

    fn refused(codec: &Aead, place: &EncryptionContext<'_>, encoded: &[u8]) -> String {
        codec.decode(place, encoded).unwrap_err().to_string()
    }

    #[test]
    fn what_is_encrypted_can_be_decrypted_in_its_place_only() {
        let codec = Aead::new("a", [1; 32]);
        let encoded = codec.encode(&HERE, SECRET);
        assert_eq!(codec.decode(&HERE, &encoded).unwrap(), SECRET);
        assert!(!encoded.windows(4).any(|bytes| bytes == b"4242"));
        assert_ne!(codec.encode(&HERE, SECRET), encoded, "each encryption uses a fresh nonce");
        let call = Some(CallId(Uuid::from_u128(1)));
        for there in [
            EncryptionContext { key: "o-2", ..HERE },
            EncryptionContext { kind: EncryptedField::Error, ..HERE },
            EncryptionContext { call, ..HERE },
        ] {
            assert!(refused(&codec, &there, &encoded).starts_with("it does not decrypt with the key `a`"));
        }
    }

    #[test]
    fn a_value_that_was_changed_anywhere_or_cut_is_refused() {
        let codec = Aead::new("a", [1; 32]);
        let encoded = codec.encode(&HERE, SECRET);
        for at in 0..encoded.len() {
            let mut changed = encoded.clone();
            changed[at] ^= 1;
            assert!(codec.decode(&HERE, &changed).is_err(), "byte {at}");
            assert!(codec.decode(&HERE, &encoded[..at]).is_err(), "cut at {at}");
        }
    }

    #[test]
    fn the_newest_key_encrypts_and_any_decrypts() {
        let old = Aead::new("old", [1; 32]);
        let both = Aead::new("new", [2; 32]).also_reads("old", [1; 32]);
        let new = Aead::new("new", [2; 32]);
        assert_eq!(both.decode(&HERE, &old.encode(&HERE, SECRET)).unwrap(), SECRET);
        assert_eq!(new.decode(&HERE, &both.encode(&HERE, SECRET)).unwrap(), SECRET);
        assert_eq!(refused(&new, &HERE, &old.encode(&HERE, SECRET)), "it was encrypted with the key `old`, and this process has `new`");
        assert!(refused(&Aead::new("old", [9; 32]), &HERE, &old.encode(&HERE, SECRET)).contains("another key of that name"));
    }

    #[test]
    fn content_is_known_again_under_every_key_that_knew_it() {
        let (old, both) = (Aead::new("old", [1; 32]), Aead::new("new", [2; 32]).also_reads("old", [1; 32]));
        let kept = &old.digests(SECRET)[0];
        assert!(both.digests(SECRET).contains(kept));
        assert_ne!(&both.digests(SECRET)[0], kept, "the digest of the newest key comes first");
        assert!(!both.digests(b"another").contains(kept));
    }

    #[test]
    fn no_key_is_in_a_debug_text() {
        assert_eq!(format!("{:?}", Aead::new("new", [2; 32]).also_reads("old", [1; 32])), "[\"new\", \"old\"]");
    }
}
