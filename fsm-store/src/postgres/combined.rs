//! Several statements about many rows combined into one, which PostgreSQL runs and commits in one round trip.

use std::fmt::Write as _;

use sqlx::postgres::PgArguments;
use sqlx::{Arguments, AssertSqlSafe, SqlSafeStr};

use crate::conn::Conn;
use crate::error::Result;
use crate::rows::Row;
use crate::sql::Many;
use crate::values::Batch;

/// Statements combined into one: each is a part of a `with` clause. All of them see the database as it was before the combined statement.
pub(crate) struct CombinedStatement {
    text: String,
    parts: usize,
    arguments: PgArguments,
    condition: String,
}

impl CombinedStatement {
    /// An empty combined statement without a condition.
    pub(crate) fn new() -> CombinedStatement {
        CombinedStatement { text: String::new(), parts: 0, arguments: PgArguments::default(), condition: "true".to_owned() }
    }

    /// Sets the condition for later statements: they apply only to rows for which it holds.
    pub(crate) fn only_if(&mut self, condition: String) {
        self.condition = condition;
    }

    /// Adds a statement that other parts can refer to by `name`. Left out if it has no rows.
    pub(crate) fn part<const WIDTH: usize>(&mut self, name: &str, sql: &Many, batch: Batch<'_, WIDTH>) -> Result<()> {
        if batch.is_empty() {
            return Ok(());
        }
        let (first, has_same) = (self.arguments.len() + 1, batch.has_same(sql));
        self.words(name, &sql.among_others(first, &self.condition, has_same));
        batch.bind(&mut self.arguments, sql.same().map(|is_same| is_same && has_same))
    }

    /// Adds a statement to which the condition does not apply.
    pub(crate) fn put_whole<const WIDTH: usize>(&mut self, sql: &Many, batch: Batch<'_, WIDTH>) -> Result<()> {
        let condition = std::mem::replace(&mut self.condition, "true".to_owned());
        let put = self.put(sql, batch);
        self.condition = condition;
        put
    }

    /// Adds a statement that no other part refers to.
    pub(crate) fn put<const WIDTH: usize>(&mut self, sql: &Many, batch: Batch<'_, WIDTH>) -> Result<()> {
        self.part(&format!("part_{}", self.parts), sql, batch)
    }

    /// Adds a statement without parameters.
    pub(crate) fn words(&mut self, name: &str, text: &str) {
        let separator = if self.parts == 0 { "with" } else { "," };
        writeln!(self.text, "{separator} {name} as ({text})").expect("a text has room");
        self.parts += 1;
    }

    /// Runs the combined statement outside a transaction and returns the rows of `answer`. The statement commits completely or not at all.
    /// SQLite has no such statements; returns no rows there.
    pub(crate) async fn commit(self, conn: &mut Conn<'_>, answer: &str) -> Result<Vec<Row>> {
        let text = AssertSqlSafe(self.text + answer).into_sql_str();
        match conn {
            #[cfg(feature = "sqlite")]
            Conn::Sqlite(_) | Conn::UserSqlite(_) => Ok(Vec::new()),
            Conn::Postgres(guarded) => guarded.commit_single_statement(text, self.arguments).await,
        }
    }
}
