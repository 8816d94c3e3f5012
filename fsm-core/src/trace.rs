//! W3C trace contexts: the trace and the span that a request comes from.

use std::fmt;

use serde::{Serialize, Serializer};

/// The trace and the span of a sender, in the form of the W3C headers `traceparent` and `tracestate`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct TraceContext {
    parent: String,
    state: Option<String>,
}

/// The maximum length of a stored `tracestate`, in bytes. A longer one is left out, as the W3C permits.
const LONGEST_STATE: usize = 512;

impl TraceContext {
    /// The context in these headers. `None` if `traceparent` is not one of version 00 with a trace and a span that are not zero.
    ///
    /// A `tracestate` that is longer than 512 bytes or has control characters is left out.
    pub fn new(traceparent: &str, tracestate: Option<&str>) -> Option<TraceContext> {
        let parts: Vec<_> = traceparent.trim().split('-').collect();
        let [version, trace, span, flags] = parts[..] else { return None };
        let is_hex = |part: &str, length: usize| part.len() == length && part.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
        let is_some = |part: &str| part.bytes().any(|byte| byte != b'0');
        let is_valid = version == "00" && is_hex(trace, 32) && is_hex(span, 16) && is_hex(flags, 2) && is_some(trace) && is_some(span);
        let is_plain = |state: &&str| !state.is_empty() && state.len() <= LONGEST_STATE && !state.chars().any(char::is_control);
        is_valid.then(|| TraceContext { parent: traceparent.trim().to_owned(), state: tracestate.filter(is_plain).map(str::to_owned) })
    }

    /// The header `traceparent`.
    pub fn traceparent(&self) -> &str {
        &self.parent
    }

    /// The header `tracestate`.
    pub fn tracestate(&self) -> Option<&str> {
        self.state.as_deref()
    }

    /// The id of the trace, 32 hexadecimal digits.
    pub fn trace_id(&self) -> &str {
        &self.parent[3..35]
    }

    /// The id of the span, 16 hexadecimal digits.
    pub fn span_id(&self) -> &str {
        &self.parent[36..52]
    }

    /// True if the sender records the trace.
    pub fn is_sampled(&self) -> bool {
        u8::from_str_radix(&self.parent[53..], 16).is_ok_and(|flags| flags & 1 == 1)
    }
}

/// The header `traceparent`.
impl fmt::Display for TraceContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.parent)
    }
}

/// Serialises as the header `traceparent`.
impl Serialize for TraceContext {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(&self.parent)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PARENT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    #[test]
    fn a_header_is_a_context_or_none() {
        let context = TraceContext::new(PARENT, Some("a=1")).unwrap();
        assert_eq!((context.trace_id(), context.span_id()), ("4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"));
        assert_eq!((context.is_sampled(), context.tracestate(), context.traceparent()), (true, Some("a=1"), PARENT));
        for wrong in [
            "",
            "00",
            "01-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7",
            "00-4BF92F3577B34DA6A3CE929D0E0E4736-00f067aa0ba902b7-01",
            "00-00000000000000000000000000000000-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01",
            "00-4bf92f3577b34da6a3ce929d0e0e47é-00f067aa0ba902b7-01",
        ] {
            assert_eq!(TraceContext::new(wrong, None), None, "{wrong}");
        }
        for long in ["x".repeat(513), "a=1\n".to_owned()] {
            assert_eq!(TraceContext::new(PARENT, Some(&long)).unwrap().tracestate(), None);
        }
    }
}
