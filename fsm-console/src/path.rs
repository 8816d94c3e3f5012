//! Links. Each begins at the path that the console is nested at, and keys are percent-encoded.

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

/// All but the characters that RFC 3986 leaves unreserved.
const SEGMENT: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// One segment of a path, or a value of a query, percent-encoded.
pub(crate) fn encoded(text: &str) -> String {
    // A browser would resolve the segments `.` and `..` as folders.
    match text {
        "." => "%2E".to_owned(),
        ".." => "%2E%2E".to_owned(),
        _ => utf8_percent_encode(text, SEGMENT).to_string(),
    }
}

/// The path that the console is nested at; empty at the root.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Base(pub(crate) String);

impl Base {
    pub(crate) fn overview(&self) -> String {
        if self.0.is_empty() { "/".to_owned() } else { self.0.clone() }
    }

    pub(crate) fn to(&self, path: &str) -> String {
        format!("{}{path}", self.0)
    }

    pub(crate) fn machine(&self, machine: &str) -> String {
        self.to(&format!("/m/{}", encoded(machine)))
    }

    pub(crate) fn instance(&self, machine: &str, key: &str) -> String {
        self.to(&format!("/i/{}/{}", encoded(machine), encoded(key)))
    }

    /// The console of one partition, below that of all partitions.
    pub(crate) fn partition(&self, number: u32) -> Base {
        Base(format!("{}{}", self.0, partition(number)))
    }

    /// The console of all partitions, above that of one.
    pub(crate) fn above_partition(&self, number: u32) -> Base {
        Base(self.0.strip_suffix(&partition(number)).unwrap_or(&self.0).to_owned())
    }

    /// The list of instances with these facets. Facets without a value are left out.
    pub(crate) fn instances(&self, facets: &[(&str, &str)]) -> String {
        self.to(&format!("/instances{}", query(facets)))
    }
}

/// The path of the console of one partition.
pub(crate) fn partition(number: u32) -> String {
    format!("/partition/{number}")
}

/// A query string, with `?` before it unless it is empty.
pub(crate) fn query(facets: &[(&str, &str)]) -> String {
    let given: Vec<String> =
        facets.iter().filter(|(_, value)| !value.is_empty()).map(|(name, value)| format!("{name}={}", encoded(value))).collect();
    if given.is_empty() { String::new() } else { format!("?{}", given.join("&")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_of_any_characters_is_one_segment() {
        let base = Base("/fsm".to_owned());
        assert_eq!(base.instance("payment", "a/b.c?d#é 😀"), "/fsm/i/payment/a%2Fb.c%3Fd%23%C3%A9%20%F0%9F%98%80");
        assert_eq!(base.instance("payment", ".."), "/fsm/i/payment/%2E%2E");
        assert_eq!(base.instances(&[("machine", "a&b"), ("q", "")]), "/fsm/instances?machine=a%26b");
        assert_eq!(Base::default().overview(), "/");
    }

    #[test]
    fn a_partition_is_below_the_page_of_all() {
        for base in ["", "/fsm", "/partition/1"].map(|base| Base(base.to_owned())) {
            assert_eq!(base.partition(12).0, format!("{}/partition/12", base.0));
            assert_eq!(base.partition(12).above_partition(12), base);
        }
    }
}
