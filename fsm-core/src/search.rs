//! Search fields: values of the record by which instances are found.

use std::borrow::Cow;

use serde::{Serialize, Serializer};

/// The maximum length of a stored value, in bytes.
pub const LONGEST_VALUE: usize = 255;

/// A search field of an instance.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SearchField {
    /// The name of the record's field.
    pub name: String,
    /// Its value as text: the first 255 bytes of it, cut at the end of a character.
    pub value: String,
}

impl SearchField {
    /// A field with this value, as far as it is stored.
    pub fn new(name: &str, value: &str) -> SearchField {
        SearchField { name: name.to_owned(), value: fit_value(value).into_owned() }
    }
}

/// Serialises search fields as a map from names to values.
pub fn serialize_fields<S: Serializer>(fields: &[SearchField], to: S) -> Result<S::Ok, S::Error> {
    to.collect_map(fields.iter().map(|field| (&field.name, &field.value)))
}

/// The part of a value that is stored and compared: the first 255 bytes, cut at the end of a character, without NUL, which PostgreSQL
/// rejects.
pub fn fit_value(value: &str) -> Cow<'_, str> {
    let cut = &value[..value.floor_char_boundary(LONGEST_VALUE)];
    if !cut.contains('\0') {
        return cut.into();
    }
    let mut clean = cut.replace('\0', "\u{fffd}");
    clean.truncate(clean.floor_char_boundary(LONGEST_VALUE));
    clean.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_cut_at_the_end_of_a_character_and_holds_no_nul() {
        assert_eq!(fit_value("c-77"), "c-77");
        assert_eq!(fit_value("a\0b"), "a\u{fffd}b");
        for text in ["ä".repeat(200), "\0".repeat(300), format!("x{}", "€".repeat(100))] {
            let fit = fit_value(&text);
            assert!(fit.len() <= LONGEST_VALUE && fit.len() > LONGEST_VALUE - 4 && !fit.contains('\0'), "{}", fit.len());
            assert_eq!(fit_value(&fit), fit);
        }
    }
}
