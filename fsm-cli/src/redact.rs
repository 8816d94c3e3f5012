//! Fields that nobody needs to see, taken out of JSON by their names.

use serde_json::Value;

/// What stands in the place of a value.
const HIDDEN: &str = "***";
/// What stands in the place of a text that is no JSON: nobody knows what is in it.
const WITHHELD: &str = "\"(withheld: it is not JSON)\"";

/// The JSON with the values of these fields hidden, however deep they are. Names are compared in whatever case.
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
