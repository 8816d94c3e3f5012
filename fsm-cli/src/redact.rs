//! Redaction of JSON fields by name.

use serde_json::Value;

/// The replacement for a value.
const HIDDEN: &str = "***";
/// The replacement for a text that is not JSON, because its fields are unknown.
const WITHHELD: &str = "\"(withheld: it is not JSON)\"";

/// Returns the JSON with the values of these fields replaced at every depth. Names are compared without regard to case.
pub fn without(fields: &[String], json: &str) -> String {
    let Ok(mut value) = serde_json::from_str::<Value>(json) else { return WITHHELD.into() };
    hide(fields, &mut value);
    value.to_string()
}

fn hide(fields: &[String], value: &mut Value) {
    match value {
        Value::Object(map) => {
            for (name, value) in map {
                if fields.iter().any(|field| field.eq_ignore_ascii_case(name)) {
                    *value = HIDDEN.into();
                } else {
                    hide(fields, value);
                }
            }
        }
        Value::Array(values) => values.iter_mut().for_each(|value| hide(fields, value)),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_named_field_is_hidden_however_deep_it_is() {
        let fields = ["card".to_owned(), "pin".to_owned()];
        let cases = [
            (r#"{"cents":1,"card":"4242"}"#, r#"{"card":"***","cents":1}"#),
            (r#"[{"payer":{"Card":{"number":"4242"}}},{"pin":7}]"#, r#"[{"payer":{"Card":"***"}},{"pin":"***"}]"#),
            ("\"card\"", "\"card\""),
            ("4242 {", WITHHELD),
        ];
        for (json, expected) in cases {
            assert_eq!(without(&fields, json), expected);
        }
    }
}
