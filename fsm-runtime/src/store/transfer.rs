//! Whole tables on their way out of a database and into another: row by row, as they are.

use uuid::Uuid;

use super::conn::Conn;
use super::error::{Result, StoreError};
use super::rows::Row;
use super::sql::{self, Table};
use super::values::{Batch, Value, values};

/// One value of a row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Field {
    /// An id.
    Id(Option<Uuid>),
    /// A number, or a moment in microseconds.
    Number(Option<i64>),
    /// A text.
    Text(Option<String>),
    /// Bytes: JSON, or what a codec made of it.
    Bytes(Option<Vec<u8>>),
    /// Yes or no.
    Flag(bool),
}

/// What a column holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// [`Field::Id`].
    Id,
    /// [`Field::Number`].
    Number,
    /// [`Field::Text`].
    Text,
    /// [`Field::Bytes`].
    Bytes,
    /// [`Field::Flag`].
    Flag,
}

/// The tables, those that others lean on first. What processes say of themselves is left out: it is true of the one database alone.
pub const TABLES: usize = sql::TABLES.len();

/// The name of a table, without `fsm_`.
pub fn name(table: usize) -> &'static str {
    sql::TABLES[table].name
}

/// The columns of a table, in order.
pub fn columns(table: usize) -> Vec<(&'static str, Kind)> {
    let kind = |word| match word {
        "uuid" => Kind::Id,
        "bigint" => Kind::Number,
        "bytea" => Kind::Bytes,
        "boolean" => Kind::Flag,
        _ => Kind::Text,
    };
    sql::TABLES[table]
        .insert
        .columns
        .split(", ")
        .filter_map(|column| column.split_once(' '))
        .map(|(name, word)| (name, kind(word)))
        .collect()
}

/// Where a reader of a table has come to.
#[derive(Debug, Clone)]
pub struct Place(Vec<Field>);

impl Place {
    /// Before the first row.
    pub fn beginning(table: usize) -> Place {
        let lowest = |word: &&str| match *word {
            "uuid" => Field::Id(Some(Uuid::nil())),
            "bigint" => Field::Number(Some(-1)),
            _ => Field::Text(Some(String::new())),
        };
        Place(sql::TABLES[table].key.iter().map(lowest).collect())
    }
}

/// At most `limit` rows of a table after `place`, which moves on, of one machine or of all.
pub async fn read(conn: &mut Conn<'_>, table: usize, machine: Option<&str>, place: &mut Place, limit: u32) -> Result<Vec<Vec<Field>>> {
    let Table { page, key, .. } = &sql::TABLES[table];
    let mut values: Vec<Value<'_>> = vec![machine.into(), i64::from(limit).into()];
    values.extend(place.0.iter().map(value));
    let found = conn.rows(page, &values).await?;
    let columns = columns(table);
    let rows = found.iter().map(|row| columns.iter().enumerate().map(|(at, (_, kind))| field(row, at, *kind)).collect());
    let rows = rows.collect::<Result<Vec<Vec<Field>>>>()?;
    if let Some(last) = found.last() {
        // The key stands behind the columns.
        let at = |n: usize| columns.len() + n;
        let kinds = key.iter().map(|word| {
            if *word == "uuid" {
                Kind::Id
            } else if *word == "bigint" {
                Kind::Number
            } else {
                Kind::Text
            }
        });
        place.0 = kinds.enumerate().map(|(n, kind)| field(last, at(n), kind)).collect::<Result<_>>()?;
    }
    Ok(rows)
}

/// Writes rows of a table.
pub async fn write(conn: &mut Conn<'_>, table: usize, rows: &[Vec<Field>]) -> Result<()> {
    match columns(table).len() {
        4 => insert::<4>(conn, table, rows).await,
        5 => insert::<5>(conn, table, rows).await,
        6 => insert::<6>(conn, table, rows).await,
        7 => insert::<7>(conn, table, rows).await,
        8 => insert::<8>(conn, table, rows).await,
        9 => insert::<9>(conn, table, rows).await,
        18 => insert::<18>(conn, table, rows).await,
        24 => insert::<24>(conn, table, rows).await,
        other => Err(StoreError::Corrupt { what: format!("no table has {other} columns") }),
    }
}

async fn insert<const WIDTH: usize>(conn: &mut Conn<'_>, table: usize, rows: &[Vec<Field>]) -> Result<()> {
    let row = |row: &'_ Vec<Field>| -> Result<()> {
        if row.len() == WIDTH { Ok(()) } else { Err(StoreError::Corrupt { what: format!("a row has {} columns, not {WIDTH}", row.len()) }) }
    };
    rows.iter().try_for_each(row)?;
    let batch: Batch<'_, WIDTH> = rows.iter().map(|row| std::array::from_fn(|at| value(&row[at]))).collect();
    conn.batch(&sql::TABLES[table].insert, batch).await.map(drop)
}

/// How many rows there are about; nothing if the database has no idea.
pub async fn about(conn: &mut Conn<'_>) -> Result<Option<u64>> {
    let rows = conn.rows(&sql::ROWS_ABOUT, &[]).await?;
    let count = rows.first().map(|row| row.get::<Option<i64>>(0)).transpose()?.flatten();
    Ok(count.and_then(|count| u64::try_from(count).ok()))
}

/// Holds off every process that would migrate or import, until the transaction ends.
pub async fn lock(conn: &mut Conn<'_>) -> Result<()> {
    conn.rows(&sql::MIGRATION_LOCK, &[]).await.map(drop)
}

/// Whether there is an instance of the machine.
pub async fn has_instances(conn: &mut Conn<'_>, machine: &str) -> Result<bool> {
    let rows = conn.rows(&sql::COUNT_UP_TO, &values![machine, 1_i64]).await?;
    Ok(rows.first().map(|row| row.get::<i64>(0)).transpose()?.unwrap_or(0) > 0)
}

fn value(field: &Field) -> Value<'_> {
    match field {
        Field::Id(id) => Value::Id(*id),
        Field::Number(number) => Value::Number(*number),
        Field::Text(text) => Value::Text(text.as_deref()),
        Field::Bytes(bytes) => Value::Bytes(bytes.as_deref()),
        Field::Flag(flag) => Value::Flag(*flag),
    }
}

fn field(row: &Row, at: usize, kind: Kind) -> Result<Field> {
    Ok(match kind {
        Kind::Id => Field::Id(row.get(at)?),
        Kind::Number => Field::Number(row.get(at)?),
        Kind::Text => Field::Text(row.get(at)?),
        Kind::Bytes => Field::Bytes(row.get(at)?),
        Kind::Flag => Field::Flag(row.get(at)?),
    })
}
