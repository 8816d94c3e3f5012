//! The encoding of encrypted values in columns, which distinguishes them from plain values that were written before there was a codec.

use fsm_core::ids::CallId;
use fsm_core::outcome::fit;
use std::borrow::Cow;
use uuid::Uuid;

// JSON never begins with one of these bytes.
const ENCRYPTED: u8 = 1;
const CAUGHT: u8 = 2;
/// The prefix of an encrypted text. The rest is hexadecimal.
const ENCRYPTED_TEXT: &str = "\u{1}encrypted:";

/// The kinds of bytes in a column.
#[derive(Debug, PartialEq)]
pub enum Kept<'a> {
    /// Plain JSON.
    Plain(&'a [u8]),
    /// The bytes that the codec made.
    Encrypted(&'a [u8]),
    /// The input of a catch verb with encrypted parts.
    Caught {
        /// The call whose last attempt failed.
        call: CallId,
        /// The number of its attempts.
        attempts: u32,
        /// The error of the last attempt, as it is stored.
        error: &'a str,
        /// The event of the call, as it is stored.
        event: &'a [u8],
    },
    /// None of the other kinds.
    Damaged,
}

/// Marks bytes as made by the codec.
pub fn mark(mut encoded: Vec<u8>) -> Vec<u8> {
    encoded.insert(0, ENCRYPTED);
    encoded
}

/// Determines the kind of the bytes.
pub fn kept(bytes: &[u8]) -> Kept<'_> {
    match bytes.split_first() {
        Some((&ENCRYPTED, encoded)) => Kept::Encrypted(encoded),
        Some((&CAUGHT, parts)) => caught(parts).unwrap_or(Kept::Damaged),
        _ => Kept::Plain(bytes),
    }
}

/// Encodes the codec's bytes for a text column.
pub fn mark_text(encoded: &[u8]) -> String {
    encoded.iter().fold(ENCRYPTED_TEXT.to_owned(), |text, byte| text + &format!("{byte:02x}"))
}

/// Decodes an encrypted text to the codec's bytes. `None` if the text is plain, `Some(Err(()))` if it is damaged.
pub fn kept_text(text: &str) -> Option<Result<Vec<u8>, ()>> {
    let digits = text.strip_prefix(ENCRYPTED_TEXT)?.as_bytes();
    let byte = |pair: &[u8]| std::str::from_utf8(pair).ok().and_then(|pair| u8::from_str_radix(pair, 16).ok()).ok_or(());
    Some(if digits.len().is_multiple_of(2) { digits.chunks(2).map(byte).collect() } else { Err(()) })
}

/// Makes a text fit its column. An encrypted text must not be cut and is not changed.
pub(crate) fn fit_text(text: &str) -> Cow<'_, str> {
    if text.starts_with(ENCRYPTED_TEXT) { text.into() } else { fit(text) }
}

/// The input of a catch verb: JSON if the payload and the error are plain. Otherwise its parts, unchanged, which only the codec can
/// combine. A payload that was deleted becomes `null`, so that the catch verb still runs.
pub(crate) fn catch(call: CallId, event: Option<&[u8]>, error: &str, attempts: u32) -> Vec<u8> {
    let is_plain = kept_text(error).is_none() && event.is_none_or(|event| matches!(kept(event), Kept::Plain(_)));
    if is_plain {
        return catch_json(event.unwrap_or(b"null"), &fit(error), attempts);
    }
    let error = fit_text(error);
    let mut parts = vec![CAUGHT];
    parts.extend_from_slice(call.0.as_bytes());
    parts.extend_from_slice(&attempts.to_be_bytes());
    parts.extend_from_slice(&u32::try_from(error.len()).unwrap_or(0).to_be_bytes());
    parts.extend_from_slice(error.as_bytes());
    parts.extend_from_slice(event.unwrap_or(b"null"));
    parts
}

/// The input of a catch verb as plain JSON.
pub fn catch_json(event: &[u8], error: &str, attempts: u32) -> Vec<u8> {
    let error = serde_json::Value::from(error);
    let mut json = b"{\"event\":".to_vec();
    json.extend_from_slice(event);
    json.extend_from_slice(format!(",\"error\":{error},\"attempts\":{attempts}}}").as_bytes());
    json
}

fn caught(parts: &[u8]) -> Option<Kept<'_>> {
    let (call, rest) = parts.split_first_chunk::<16>()?;
    let (attempts, rest) = rest.split_first_chunk::<4>()?;
    let (length, rest) = rest.split_first_chunk::<4>()?;
    let (error, event) = rest.split_at_checked(u32::from_be_bytes(*length) as usize)?;
    let error = std::str::from_utf8(error).ok()?;
    Some(Kept::Caught { call: CallId(Uuid::from_bytes(*call)), attempts: u32::from_be_bytes(*attempts), error, event })
}

#[cfg(test)]
mod tests {
    use super::*;

    const CALL: CallId = CallId(Uuid::from_u128(7));

    #[test]
    fn what_a_catch_verb_is_given_is_json() {
        let json = catch(CALL, Some(br#"{"amount":3}"#), "it said \"no\"\0", 4);
        let value: serde_json::Value = serde_json::from_slice(&json).unwrap();
        assert_eq!(value, serde_json::json!({"event": {"amount": 3}, "error": "it said \"no\"\u{fffd}", "attempts": 4}));
        assert!(catch(CALL, None, "gone", 1).starts_with(b"{\"event\":null,"));
    }

    #[test]
    fn what_a_catch_verb_is_given_keeps_its_encrypted_parts_apart() {
        let event = mark(vec![9, 9]);
        let error = mark_text(b"secret");
        let parts = catch(CALL, Some(&event), &error, 3);
        assert_eq!(kept(&parts), Kept::Caught { call: CALL, attempts: 3, error: &error, event: &event });
        for end in 0..parts.len() - event.len() {
            assert!(!matches!(kept(&parts[..end]), Kept::Caught { .. }), "cut at {end}");
        }
    }

    #[test]
    fn a_encrypted_text_is_known_again_and_never_cut() {
        let text = mark_text(&[7; 9000]);
        assert_eq!(kept_text(&fit_text(&text)), Some(Ok(vec![7; 9000])));
        assert_eq!(kept_text("the gateway is down"), None);
        for damaged in ["\u{1}encrypted:0", "\u{1}encrypted:0ä", "\u{1}encrypted:zz"] {
            assert_eq!(kept_text(damaged), Some(Err(())));
        }
    }
}
