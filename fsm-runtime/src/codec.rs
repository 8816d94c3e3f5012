//! What a user brings so that the database cannot be read by those who run it: a codec for payloads, records and error texts.

use std::error::Error as StdError;

use fsm_core::ids::CallId;

/// What kind of value is encoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum EncryptedField {
    /// What an event carries, as JSON.
    Payload,
    /// What an instance remembers, as JSON.
    Record,
    /// Why an attempt failed, as UTF-8.
    Error,
    /// What `ctx.once` keeps, as JSON.
    Once,
}

/// Where a value stands in the database. A value that is found in another place than it was encoded for is not to be decoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct EncryptionContext<'a> {
    /// The machine.
    pub machine: &'a str,
    /// The instance's key.
    pub key: &'a str,
    /// What it is.
    pub kind: EncryptedField,
    /// Of a payload, and of what `ctx.once` keeps: the call.
    pub call: Option<CallId>,
    /// Of what `ctx.once` keeps: its name.
    pub name: &'a str,
}

impl EncryptionContext<'_> {
    /// The place as bytes, no two places as the same: for authenticated encryption, whose associated data this is.
    pub fn to_bytes(&self) -> Vec<u8> {
        let kind = match self.kind {
            EncryptedField::Payload => "payload",
            EncryptedField::Record => "record",
            EncryptedField::Error => "error",
            EncryptedField::Once => "once",
        };
        let call = self.call.map(|call| call.0.into_bytes());
        let parts =
            [kind.as_bytes(), self.machine.as_bytes(), self.key.as_bytes(), call.as_ref().map_or(&[], |call| call), self.name.as_bytes()];
        let with_length = |part: &[u8]| [&(part.len() as u64).to_be_bytes(), part].concat();
        parts.into_iter().flat_map(with_length).collect()
    }
}

/// Encodes what is stored and decodes what is read: payloads, records, error texts and what `ctx.once` keeps. Names, keys, states
/// and times are stored as they are, for the database has to find and order by them.
///
/// Values that were written before there was a codec are read as they are. All processes on one database need the same codec.
/// Both directions are called on the engine's own threads, often, and never inside a transaction: they are to be quick.
pub trait PayloadCodec: Send + Sync + 'static {
    /// What is stored instead of `plain`.
    fn encode(&self, place: &EncryptionContext<'_>, plain: &[u8]) -> Vec<u8>;

    /// What was encoded for this place. An error when it was not: the attempt that needs it fails with its text.
    fn decode(&self, place: &EncryptionContext<'_>, encoded: &[u8]) -> Result<Vec<u8>, Box<dyn StdError + Send + Sync>>;

    /// Names of this content by which it is known again when its dedup id comes a second time, equal for equal content. The first is
    /// kept; any counts, so that what was kept under an older key is known too: at least one. Nobody without the key may guess the content by them.
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
