//! What SQLite has still to be told, and the texts that it is told without values.

use sqlx::sqlite::{SqliteArguments, SqliteConnection};
use sqlx::{AssertSqlSafe, SqlSafeStr, SqlStr, Sqlite};

/// Statements that answer nothing, and their values.
#[derive(Debug, Default)]
pub(super) struct Unsaid {
    pub(super) text: String,
    pub(super) arguments: SqliteArguments,
}

impl Unsaid {
    pub(super) fn is_empty(&self) -> bool {
        self.text.is_empty()
    }

    /// These statements and `text`, which numbers none of its values.
    pub(super) fn and(mut self, text: &str) -> (SqlStr, SqliteArguments) {
        self.text.push_str(text);
        (AssertSqlSafe(self.text).into_sql_str(), self.arguments)
    }
}

/// Runs a text without values in SQLite.
pub(super) async fn sqlite_text(conn: &mut SqliteConnection, text: &'static str) -> sqlx::Result<()> {
    sqlx::raw_sql(text).execute(conn).await.map(drop)
}

/// Runs what is unsaid and a text without values in SQLite, and keeps both prepared.
pub(super) async fn sqlite_texts(conn: &mut SqliteConnection, unsaid: Unsaid, text: &'static str) -> sqlx::Result<()> {
    let (text, arguments) = unsaid.and(text);
    sqlx::query_with::<Sqlite, _>(text, arguments).execute(conn).await.map(drop)
}
