//! JSON with the members of each object in a fixed order, so that equal content has equal digests. A `HashMap` is serialised in a different
//! order in each process.

/// The maximum depth. JSON that is nested deeper is left unchanged.
const DEEPEST: usize = 128;

/// Returns the JSON without white space and with the members of each object sorted by name. Numbers, strings and the order of arrays are
/// unchanged. Input that is not JSON is returned unchanged.
pub(crate) fn canonical(json: &[u8]) -> Vec<u8> {
    let mut rest = json;
    match value(&mut rest, 0) {
        Some(canonical) if trimmed(rest).is_empty() => canonical,
        _ => json.to_vec(),
    }
}

/// Parses one value at the beginning of `rest` and removes it.
fn value(rest: &mut &[u8], depth: usize) -> Option<Vec<u8>> {
    *rest = trimmed(rest);
    match rest.first()? {
        _ if depth > DEEPEST => None,
        b'{' => {
            let mut members = items(rest, b'}', |rest| {
                let name = string(rest)?;
                *rest = trimmed(rest).strip_prefix(b":")?;
                Some((name, value(rest, depth + 1)?))
            })?;
            members.sort_by_key(|(name, _)| *name);
            let members: Vec<_> = members.into_iter().map(|(name, value)| [name, &value].join(&b':')).collect();
            Some([b"{", members.join(&b',').as_slice(), b"}"].concat())
        }
        b'[' => {
            let values = items(rest, b']', |rest| value(rest, depth + 1))?;
            Some([b"[", values.join(&b',').as_slice(), b"]"].concat())
        }
        b'"' => string(rest).map(<[u8]>::to_vec),
        _ => {
            let end = rest.iter().position(|byte| matches!(byte, b',' | b'}' | b']') || byte.is_ascii_whitespace()).unwrap_or(rest.len());
            let (scalar, after) = rest.split_at(end);
            *rest = after;
            Some(scalar.to_vec())
        }
    }
}

/// Parses the items of an array or object, from the opening bracket to `close`.
fn items<'j, T>(rest: &mut &'j [u8], close: u8, mut item: impl FnMut(&mut &'j [u8]) -> Option<T>) -> Option<Vec<T>> {
    let mut items = Vec::new();
    *rest = trimmed(&rest[1..]);
    if let Some(after) = rest.strip_prefix(&[close]) {
        *rest = after;
        return Some(items);
    }
    loop {
        items.push(item(rest)?);
        let (next, after) = trimmed(rest).split_first()?;
        *rest = after;
        match *next {
            b',' => {}
            next if next == close => return Some(items),
            _ => return None,
        }
    }
}

/// Parses a string, with its quotation marks.
fn string<'j>(rest: &mut &'j [u8]) -> Option<&'j [u8]> {
    *rest = trimmed(rest);
    let mut is_escaped = false;
    let end = rest.strip_prefix(b"\"")?.iter().position(|byte| {
        let ends = *byte == b'"' && !is_escaped;
        is_escaped = *byte == b'\\' && !is_escaped;
        ends
    })?;
    let (string, after) = rest.split_at(end + 2);
    *rest = after;
    Some(string)
}

fn trimmed(rest: &[u8]) -> &[u8] {
    rest.trim_ascii_start()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(json: &str) -> String {
        String::from_utf8(canonical(json.as_bytes())).expect("it was text")
    }

    #[test]
    fn the_order_of_members_and_white_space_do_not_count() {
        let json = r#" { "b" : [ 1 , {"z":null,"a":"x, }y\" {"} , [ ] , {} ] ,
            "a\\" : -1.50e3, "a":true } "#;
        assert_eq!(text(json), r#"{"a":true,"a\\":-1.50e3,"b":[1,{"a":"x, }y\" {","z":null},[],{}]}"#);
        for json in ["1", "\"a\"", "null", "[]", "{}", "[{\"a\":1}]", "18446744073709551617"] {
            assert_eq!(text(json), json);
        }
    }

    /// Digests are computed from these bytes, so different content must never become equal.
    #[test]
    fn other_content_is_other_bytes() {
        let all =
            [r#"{"a":1}"#, r#"{"a":1.0}"#, r#"{"a":"1"}"#, r#"{"a":[1]}"#, r#"[1,2]"#, r#"[2,1]"#, r#"{"a":{"b":1}}"#, r#"{"a":{},"b":1}"#];
        let canonical: std::collections::BTreeSet<_> = all.iter().map(|json| text(json)).collect();
        assert_eq!(canonical.len(), all.len());
    }

    #[test]
    fn what_is_no_json_stays_as_it_is() {
        let deep = "[".repeat(500) + &"]".repeat(500);
        for json in ["", "{", "{\"a\"}", "[1", "[1}", "{\"a\":1}x", "\"a", "{\"a\":1,}", "\u{1}encrypted", &deep] {
            assert_eq!(text(json), json);
        }
    }
}
