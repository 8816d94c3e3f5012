//! The lines of an export: the rows of a table as JSON, and back.

use fsm_store::transfer::{self, Field, Kind};
use serde_json::{Map, Value, json};
use uuid::Uuid;

use crate::error::Error;

/// The version of the line format.
pub(super) const SHAPE: i64 = 1;
/// The number of rows that one statement reads or writes.
pub(super) const TOGETHER: u32 = 256;

pub(super) fn is_executing(table: usize, row: &[Field]) -> bool {
    transfer::name(table) == "instances" && text_of(table, row, "attempt_state") == Some("executing")
}

pub(super) fn text_of<'r>(table: usize, row: &'r [Field], column: &str) -> Option<&'r str> {
    match field_of(table, row, column)? {
        Field::Text(text) => text.as_deref(),
        _ => None,
    }
}

pub(super) fn id_of(table: usize, row: &[Field], column: &str) -> Option<Uuid> {
    match field_of(table, row, column)? {
        Field::Id(id) => *id,
        _ => None,
    }
}

/// The value of a column; `None` if the table has no such column.
pub(super) fn field_of<'r>(table: usize, row: &'r [Field], column: &str) -> Option<&'r Field> {
    transfer::position(table, column).map(|at| &row[at])
}

/// Bytes are exported as text if they are UTF-8, which most are.
pub(super) fn json_value(field: &Field) -> Value {
    match field {
        Field::Id(id) => json!(id),
        Field::Number(number) => json!(number),
        Field::Text(text) => json!(text),
        Field::Flag(flag) => json!(flag),
        Field::Bytes(None) => Value::Null,
        Field::Bytes(Some(bytes)) => match std::str::from_utf8(bytes) {
            Ok(text) => json!(text),
            Err(_) => json!({ "hex": bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>() }),
        },
    }
}

pub(super) fn parsed(table: usize, row: &Value) -> Result<Vec<Field>, Error> {
    let columns = transfer::columns(table);
    let names = row.as_object().map(Map::len).unwrap_or_default();
    if names != columns.len() {
        return Err(Error::input(format!("a row of `{}` has {} fields, not {names}", transfer::name(table), columns.len())));
    }
    let field = |(name, kind): &(&str, Kind)| {
        let value = row.get(*name);
        let read = value.and_then(|value| read(value, *kind));
        read.ok_or_else(|| Error::input(format!("`{name}` of `{}` cannot be {}", transfer::name(table), value.unwrap_or(&Value::Null))))
    };
    columns.iter().map(field).collect()
}

fn read(value: &Value, kind: Kind) -> Option<Field> {
    let is_null = value.is_null();
    match kind {
        Kind::Id if is_null => Some(Field::Id(None)),
        Kind::Number if is_null => Some(Field::Number(None)),
        Kind::Text if is_null => Some(Field::Text(None)),
        Kind::Bytes if is_null => Some(Field::Bytes(None)),
        Kind::Id => Some(Field::Id(Some(Uuid::parse_str(value.as_str()?).ok()?))),
        Kind::Number => Some(Field::Number(Some(value.as_i64()?))),
        Kind::Text => Some(Field::Text(Some(value.as_str()?.to_owned()))),
        Kind::Flag => Some(Field::Flag(value.as_bool()?)),
        Kind::Bytes => {
            let bytes = match (value.as_str(), value["hex"].as_str()) {
                (Some(text), _) => text.as_bytes().to_vec(),
                (None, Some(hex)) => unhexed(hex)?,
                (None, None) => return None,
            };
            Some(Field::Bytes(Some(bytes)))
        }
    }
}

fn unhexed(hex: &str) -> Option<Vec<u8>> {
    let digits: Option<Vec<u8>> = hex.chars().map(|c| c.to_digit(16).and_then(|digit| u8::try_from(digit).ok())).collect();
    let digits = digits.filter(|digits| digits.len() % 2 == 0)?;
    Some(digits.chunks(2).map(|pair| pair[0] << 4 | pair[1]).collect())
}
