//! Checks of keys, ids and payloads that come from outside.

use fsm_core::decide::operate::Act;
use fsm_core::hash::fnv1a_128;
use fsm_core::machine::Machine;
use fsm_core::retry::Retry;
use fsm_core::time::micros;
use serde::Serialize;

use crate::error::{Error, ErrorKind};
use crate::guard;

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

/// The maximum length of an operator's reason, in bytes.
const LONGEST_REASON: usize = 8 * 1024;

/// Checks the name of an operator and the reason of an act. PostgreSQL's text accepts no NUL, and the history is not meant for large
/// content.
pub(crate) fn check_operator(actor: Option<&str>, reason: Option<&str>) -> Result<(), Error> {
    for (what, text, longest) in [("actor", actor, LONGEST_KEY), ("reason", reason, LONGEST_REASON)] {
        if text.is_some_and(|text| text.len() > longest || text.contains('\0')) {
            return Err(Error::input(format!("the {what} of an act has at most {longest} bytes and no NUL")));
        }
    }
    Ok(())
}

/// Checks the name of a memoised effect, by the same rule as a key. The name is part of an index.
pub(crate) fn check_once(name: &str) -> Result<(), Error> {
    check_key(name).map_err(|_| {
        let shown: String = name.chars().take(40).flat_map(char::escape_debug).collect();
        Error::input(format!("`{shown}` is no name for `ctx.once`: it has 1 to {LONGEST_KEY} bytes and no NUL"))
    })
}

/// Encodes an event as JSON. `limit` is in bytes.
pub(crate) fn payload(event: &impl Serialize, name: &str, limit: usize) -> Result<Vec<u8>, Error> {
    let encoded = guard::guarded("its `Serialize`", || serde_json::to_vec(event).map_err(|error| error.to_string())).flatten();
    let bytes = encoded.map_err(|why| Error::input(format!("the event `{name}` does not encode as JSON: {why}")))?;
    within_limit(bytes, name, limit)
}

/// Checks an event that is already JSON, with the same limit. It is stored as written, without surrounding white space.
pub(crate) fn raw_payload(json: &str, name: &str, limit: usize) -> Result<Vec<u8>, Error> {
    let json = json.trim();
    serde_json::from_str::<serde::de::IgnoredAny>(json)
        .map_err(|error| Error::input(format!("the payload of `{}` is not JSON: {error}", name.escape_debug())))?;
    within_limit(json.as_bytes().to_vec(), name, limit)
}

fn within_limit(bytes: Vec<u8>, name: &str, limit: usize) -> Result<Vec<u8>, Error> {
    if bytes.len() > limit {
        let wake_up = "keep large content elsewhere and send where it is, or raise the builder's `payload_limit`";
        return Err(Error::input(format!("the event `{name}` has {} bytes, over the limit of {limit}: {wake_up}", bytes.len())));
    }
    Ok(bytes)
}

/// Encodes a machine's definition for storage. Returns it with its hash.
pub(crate) fn definition(machine: &Machine) -> Result<(String, String), Error> {
    let definition =
        serde_json::to_string(machine).map_err(|error| Error::other(ErrorKind::Internal, format!("a machine does not encode: {error}")))?;
    let hash = digest(&machine.name, definition.as_bytes()).iter().map(|byte| format!("{byte:02x}")).collect();
    Ok((definition, hash))
}

/// A digest that identifies equal content under the same name: FNV-1a over the name and the content, 128 bits.
pub(crate) fn digest(name: &str, content: &[u8]) -> Vec<u8> {
    let hash = fnv1a_128(name.bytes().chain([0]).chain(content.iter().copied()));
    hash.to_be_bytes().to_vec()
}

/// Returns the digest that recognises an operator's act under its request id.
///
/// The digest is stored, and processes of different releases compare it. The bytes are therefore defined here, field by field, and never
/// change. A field that is added later is included only if it is set.
pub(crate) fn act_digest(act: &Act) -> Vec<u8> {
    let mut content = Vec::new();
    let word = match act {
        Act::Retry => "retry",
        Act::Cancel => "cancel",
        Act::Pause => "pause",
        Act::Resume => "resume",
        Act::Skip => "skip",
        Act::SetRetry(policy) => {
            put_policy(&mut content, policy);
            "set retry"
        }
    };
    digest(&format!("act 1: {word}"), &content)
}

/// Appends the fields of a policy, each with its name and length. Fields that are not set are left out.
fn put_policy(content: &mut Vec<u8>, policy: &Retry) {
    let Retry { max_attempts, min, max, backoff, jitter, within, give_up_on, delay, catch } = policy;
    let mut put = |name: &str, value: &[u8]| {
        for part in [name.as_bytes(), value] {
            content.extend((part.len() as u64).to_be_bytes());
            content.extend(part);
        }
    };
    if let Some(max_attempts) = max_attempts {
        put("max_attempts", &max_attempts.to_be_bytes());
    }
    put("min_us", &micros(*min).to_be_bytes());
    put("max_us", &micros(*max).to_be_bytes());
    put("backoff", &backoff.to_bits().to_be_bytes());
    put("jitter", &jitter.to_bits().to_be_bytes());
    if let Some(within) = within {
        put("within_us", &micros(*within).to_be_bytes());
    }
    give_up_on.iter().for_each(|error| put("give_up_on", error.as_bytes()));
    delay.iter().for_each(|name| put("delay", name.as_bytes()));
    catch.iter().for_each(|verb| put("catch", verb.as_bytes()));
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn hex(act: &Act) -> String {
        act_digest(act).iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// These digests are stored in databases. If one changes, a repeated act becomes a conflict.
    #[test]
    fn the_digest_of_an_act_is_the_same_in_every_release() {
        let every = Retry::every(Duration::from_secs(5));
        let full = Retry {
            max_attempts: Some(11),
            backoff: 1.5,
            jitter: 0.1,
            within: Some(Duration::from_secs(86_400)),
            give_up_on: vec!["CardDeclined".into(), "Fraud".into()],
            delay: Some("my_delay".into()),
            catch: Some("recover".into()),
            ..Retry::doubling(Duration::from_secs(5), Duration::from_secs(3600))
        };
        let acts = [
            (Act::Retry, "ea8f7595d64dd2093e12e09870bf20f0"),
            (Act::Cancel, "7dec27332ac1715fa9bde50ce26e0e28"),
            (Act::Pause, "912758d78d4dd2093e19c4e6fd58a944"),
            (Act::Resume, "45fda09264c1715f613a5f7d4d30789f"),
            (Act::Skip, "6546cbc461e22d5d7d5a48f1b5b56273"),
            (Act::SetRetry(Box::new(every)), "ac0ec89c46ce055d11c0398b58ee49f5"),
            (Act::SetRetry(Box::new(full)), "f56f9c3d9c8211d6f413201a6f5e5856"),
        ];
        let digests: Vec<_> = acts.iter().map(|(act, _)| hex(act)).collect();
        let golden: Vec<_> = acts.iter().map(|(_, golden)| *golden).collect();
        assert_eq!(digests, golden);
    }

    #[test]
    fn two_policies_have_two_digests() {
        let policy = Retry::every(Duration::from_secs(5));
        let acts = [
            Retry { delay: Some("a".into()), ..policy.clone() },
            Retry { catch: Some("a".into()), ..policy.clone() },
            Retry { give_up_on: vec!["a".into()], ..policy.clone() },
            Retry { give_up_on: vec!["a".into(), "a".into()], ..policy.clone() },
            Retry { give_up_on: vec!["aa".into()], ..policy.clone() },
            Retry { backoff: policy.backoff + f64::EPSILON * 2.0, ..policy.clone() },
            policy,
        ];
        let digests: std::collections::BTreeSet<_> = acts.iter().map(|policy| hex(&Act::SetRetry(Box::new(policy.clone())))).collect();
        assert_eq!(digests.len(), acts.len());
    }
}
