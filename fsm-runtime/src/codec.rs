//! The codec: the user's encryption of payloads, records and error texts before they are stored.

use std::error::Error as StdError;

use fsm_core::ids::CallId;

/// The kind of an encoded value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum EncryptedField {
    /// The payload of an event, as JSON.
    Payload,
    /// The record of an instance, as JSON.
    Record,
    /// The error text of an attempt, as UTF-8.
    Error,
    /// The result that `ctx.once` stores, as JSON.
    Once,
    /// The value that `ctx.progress` shows, as JSON.
    Progress,
}

/// The place of a value in the database. A codec must refuse to decode a value in any other place than the one it was encoded for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct EncryptionContext<'a> {
    /// The name of the machine.
    pub machine: &'a str,
    /// The key of the instance.
    pub key: &'a str,
    /// The kind of the value.
    pub kind: EncryptedField,
    /// The call, for a payload, a result of `ctx.once` or a progress.
    pub call: Option<CallId>,
    /// The name of the effect, for a result of `ctx.once`; otherwise empty.
    pub name: &'a str,
}

impl EncryptionContext<'_> {
    /// Encodes the place as bytes, different for any two places. Use it as the associated data of authenticated encryption.
    pub fn to_bytes(&self) -> Vec<u8> {
        let kind = match self.kind {
            EncryptedField::Payload => "payload",
            EncryptedField::Record => "record",
            EncryptedField::Error => "error",
            EncryptedField::Once => "once",
            EncryptedField::Progress => "progress",
        };
        let call = self.call.map(|call| call.0.into_bytes());
        let parts =
            [kind.as_bytes(), self.machine.as_bytes(), self.key.as_bytes(), call.as_ref().map_or(&[], |call| call), self.name.as_bytes()];
        let with_length = |part: &[u8]| [&(part.len() as u64).to_be_bytes(), part].concat();
        parts.into_iter().flat_map(with_length).collect()
    }
}

/// Encodes payloads, records, error texts and results of `ctx.once` before they are stored, and decodes them after they were read. Names,
/// keys, states and times are stored as they are, because the database searches and sorts by them.
///
/// All processes on one database need the same codec. Values that were written before there was a codec are read as they are.
///
/// The methods are called often, on the async tasks of senders and workers, and possibly while a transaction of the caller or of a verb is
/// open. They must be quick and must not block.
pub trait PayloadCodec: Send + Sync + 'static {
    /// Encodes `plain` for storage in `place`. A panic fails the send or the attempt.
    fn encode(&self, place: &EncryptionContext<'_>, plain: &[u8]) -> Vec<u8>;

    /// Decodes a value that was encoded for `place`. Returns an error if it was not; the attempt that needs the value fails with the
    /// error's text.
    fn decode(&self, place: &EncryptionContext<'_>, encoded: &[u8]) -> Result<Vec<u8>, Box<dyn StdError + Send + Sync>>;

    /// Returns digests that identify `content`, so that a repeated request with the same deduplication id can be compared with the first
    /// one. Equal content has equal digests. The first digest is stored, and a stored digest that equals any of them counts as equal
    /// content, so that digests of an older key are still recognised. Returns at least one. Nobody without the key may be able to guess the
    /// content from a digest.
    fn digests(&self, content: &[u8]) -> Vec<Vec<u8>>;
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    #[test]
    fn no_two_places_are_the_same_bytes() {
        let place = EncryptionContext { machine: "ab", key: "c", kind: EncryptedField::Once, call: None, name: "" };
        let call = Some(CallId(Uuid::from_u128(1)));
        let others = [
            EncryptionContext { machine: "a", key: "bc", ..place },
            EncryptionContext { key: "", name: "c", ..place },
            EncryptionContext { kind: EncryptedField::Record, ..place },
            EncryptionContext { call, ..place },
            EncryptionContext { call, name: "x", ..place },
        ];
        for (n, other) in others.iter().enumerate() {
            assert_ne!(place.to_bytes(), other.to_bytes());
            assert!(others.iter().skip(n + 1).all(|third| third.to_bytes() != other.to_bytes()));
        }
    }
}
