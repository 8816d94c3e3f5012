//! How SQLite is told: in few trips to the thread that its connection has, and by few texts.

use std::sync::Arc;

use sqlx::sqlite::{SqliteArguments, SqliteConnection};
use sqlx::{SqlSafeStr, SqlStr, Sqlite};

use super::conn::{Link, Value, kept};
use super::error::Result;
use super::rows::Row;
use super::sql::Many;
use super::turn::Turn;

/// How many rows one text is about at most: given more, SQLite would rather read a whole table than look up each. A text has room for a power
/// of two of them, so that few texts are prepared.
pub(super) const MOST_AT_ONCE: usize = 128;

impl Link<'_, SqliteConnection> {
    /// Whether a transaction is open that will be ended by us.
    pub(super) fn is_in_our_transaction(&self) -> bool {
        self.health.as_ref().is_some_and(|health| health.is_open)
    }

    /// The statement about this row is said together with what comes next.
    pub(super) fn later(&mut self, sql: &Many, row: &[Value<'_>]) {
        let health = self.health.as_deref_mut().expect("only a transaction of ours has a later");
        bind(&mut health.unsaid.arguments, row);
        health.unsaid.text.push_str(roomy(sql, 1).as_str());
        health.unsaid.text.push_str(";\n");
    }

    /// Says what is unsaid.
    pub(super) async fn say(&mut self) -> Result<()> {
        match self.health.as_ref().is_none_or(|health| health.unsaid.is_empty()) {
            true => Ok(()),
            false => self.rows("".into_sql_str(), &[]).await.map(drop),
        }
    }

    /// Runs `text` after what is unsaid, and gives its rows. Only where nothing is unsaid may it number its values.
    pub(super) async fn rows(&mut self, text: SqlStr, values: &[Value<'_>]) -> Result<Vec<Row>> {
        let unsaid = self.health.as_deref_mut().map(|health| std::mem::take(&mut health.unsaid)).unwrap_or_default();
        let (text, mut arguments) = if unsaid.is_empty() { (text, SqliteArguments::default()) } else { unsaid.and(text.as_str()) };
        bind(&mut arguments, values);
        let (said, is_alone) = (text.clone(), self.health.as_ref().is_some_and(|health| !health.is_open));
        let run = async |conn: &mut SqliteConnection| {
            if !is_alone {
                return sqlx::query_with::<Sqlite, _>(text, arguments).fetch_all(conn).await;
            }
            let turn = Turn::wanted();
            loop {
                let done = sqlx::query_with::<Sqlite, _>(text.clone(), arguments.clone()).fetch_all(&mut *conn).await;
                if !turn.is_to_come(done.as_ref().err()).await {
                    return done;
                }
            }
        };
        let rows = self.guarded(said.as_str(), run).await?;
        self.rules.fault.answered(rows.len());
        Ok(rows.into_iter().map(Row::Sqlite).collect())
    }

    /// Runs a statement about these rows, and gives the rows it answers with.
    pub(super) async fn batch<const WIDTH: usize>(&mut self, sql: &Many, rows: &[[Value<'_>; WIDTH]]) -> Result<Vec<Row>> {
        // Together with something else only what is said often is said: few texts are prepared.
        if rows.len() > 1 {
            self.say().await?;
        }
        let mut found = Vec::new();
        for rows in rows.chunks(MOST_AT_ONCE) {
            found.append(&mut self.rows(roomy(sql, rows.len()), rows.as_flattened()).await?);
        }
        Ok(found)
    }

    /// The same, and gives how many rows it wrote.
    pub(super) async fn written<const WIDTH: usize>(&mut self, sql: &Many, rows: &[[Value<'_>; WIDTH]]) -> Result<usize> {
        self.say().await?;
        let mut written = 0;
        for rows in rows.chunks(MOST_AT_ONCE) {
            let mut arguments = SqliteArguments::default();
            bind(&mut arguments, rows.as_flattened());
            let text = roomy(sql, rows.len());
            let said = text.clone();
            let query = sqlx::query_with::<Sqlite, _>(text, arguments);
            let done = self.guarded(said.as_str(), async |conn| query.execute(conn).await).await?;
            written += usize::try_from(done.rows_affected()).unwrap_or(usize::MAX);
        }
        Ok(written)
    }
}

/// The text of a statement with room for so many rows.
pub(super) fn roomy(sql: &Many, rows: usize) -> SqlStr {
    let room = rows.next_power_of_two();
    kept(sql, room, || sql.for_sqlite(room))
}

fn bind(arguments: &mut SqliteArguments, values: &[Value<'_>]) {
    use sqlx::Arguments;
    arguments.reserve(values.len(), 0);
    for value in values {
        let bound = match *value {
            Value::Id(id) => arguments.add(id),
            Value::Number(number) => arguments.add(number),
            Value::Text(text) => arguments.add(text.map(Arc::<str>::from)),
            Value::Bytes(bytes) => arguments.add(bytes.map(<[u8]>::to_vec)),
            Value::Flag(flag) => arguments.add(flag),
            Value::Words(words) => arguments.add(serde_json::json!(words).to_string()),
        };
        bound.expect("SQLite keeps numbers, texts and bytes as they are");
    }
}
