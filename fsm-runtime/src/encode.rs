//! Checks of keys, ids and payloads that come from outside.

use fsm_core::machine::Machine;
use serde::Serialize;

use crate::error::Error;

/// The maximum length of a key, in bytes.
const LONGEST_KEY: usize = 255;

/// Checks that a key has 1 to 255 bytes and no NUL, which PostgreSQL's `text` does not accept.
pub(crate) fn check_key(key: &str) -> Result<(), Error> {
    let why = match key.len() {
        0 => "it is empty".to_owned(),
        long if long > LONGEST_KEY => format!("it has {long} bytes"),
        _ if key.contains('\0') => "it contains NUL".to_owned(),
        _ => return Ok(()),
    };
    let shown: String = key.chars().take(40).flat_map(char::escape_debug).collect();
    Err(Error::input(format!("`{shown}` is not a key: {why}; a key has 1 to {LONGEST_KEY} bytes and no NUL")))
}

/// Checks a deduplication id, by the same rule as a key.
pub(crate) fn check_dedup(dedup: &str) -> Result<(), Error> {
    check_key(dedup).map_err(|_| {
        let shown: String = dedup.chars().take(40).flat_map(char::escape_debug).collect();
        Error::input(format!("`{shown}` is not a dedup id: it has 1 to {LONGEST_KEY} bytes and no NUL"))
    })
}

/// Encodes the event as JSON. An error if it has more than `limit` bytes.
pub(crate) fn payload(event: &impl Serialize, name: &str, limit: usize) -> Result<Vec<u8>, Error> {
    let bytes = serde_json::to_vec(event).map_err(|error| Error::input(format!("the event `{name}` does not encode as JSON: {error}")))?;
    within_limit(bytes, name, limit)
}

/// Checks an event that is JSON already, by the same limit. It is stored as it was written, without the space around it.
pub(crate) fn raw_payload(json: &str, name: &str, limit: usize) -> Result<Vec<u8>, Error> {
    let json = json.trim();
    serde_json::from_str::<serde::de::IgnoredAny>(json)
        .map_err(|error| Error::input(format!("the payload of `{}` is not JSON: {error}", name.escape_debug())))?;
    within_limit(json.as_bytes().to_vec(), name, limit)
}

fn within_limit(bytes: Vec<u8>, name: &str, limit: usize) -> Result<Vec<u8>, Error> {
    if bytes.len() > limit {
        let hint = "keep large content elsewhere and send where it is, or raise the builder's `payload_limit`";
        return Err(Error::input(format!("the event `{name}` has {} bytes, over the limit of {limit}: {hint}", bytes.len())));
    }
    Ok(bytes)
}

/// Encodes a machine's definition for storage. Returns it with its hash.
pub(crate) fn definition(machine: &Machine) -> Result<(String, String), Error> {
    let definition = serde_json::to_string(machine).map_err(|error| Error::input(format!("a machine does not encode: {error}")))?;
    let hash = digest(&machine.name, definition.as_bytes()).iter().map(|byte| format!("{byte:02x}")).collect();
    Ok((definition, hash))
}

/// A digest that identifies equal content under the same name: FNV-1a over the name and the content, 128 bits.
pub(crate) fn digest(name: &str, content: &[u8]) -> Vec<u8> {
    let mut hash: u128 = 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d;
    for byte in name.bytes().chain([0]).chain(content.iter().copied()) {
        hash = (hash ^ u128::from(byte)).wrapping_mul(0x0000_0000_0100_0000_0000_0000_0000_013b);
    }
    hash.to_be_bytes().to_vec()
}
