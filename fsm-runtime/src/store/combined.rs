//! Several statements about many rows combined into one, which PostgreSQL runs and commits in one round trip.

use std::fmt::Write as _;

use sqlx::postgres::PgArguments;
use sqlx::{Arguments, AssertSqlSafe, SqlSafeStr};

use super::conn::Conn;
use super::error::Result;
use super::rows::Row;
use super::sql::Many;
use super::thread::Whole;
use super::values::Batch;

/// The destination of statements about many rows.
pub(super) enum Sink<'s, 'c> {
    /// Runs each statement at once.
    Now(&'s mut Conn<'c>),
    /// Combines all statements into one. Statements without rows are left out.
    CombinedStatement(&'s mut CombinedStatement),
    /// Collects the statements for one transaction of the SQLite thread.
    Whole(&'s mut Whole),
}

impl Sink<'_, '_> {
    /// True for PostgreSQL.
    pub(super) fn is_postgres(&self) -> bool {
        match self {
            Sink::Now(conn) => conn.is_postgres(),
            Sink::CombinedStatement(_) => true,
            Sink::Whole(_) => false,
        }
    }

    /// Adds a statement whose rows do not belong to single instances. The condition of the combined statement does not apply to it.
    pub(super) async fn put_whole<const WIDTH: usize>(&mut self, sql: &Many, batch: Batch<'_, WIDTH>) -> Result<()> {
        match self {
            Sink::CombinedStatement(combined) => {
                let condition = std::mem::replace(&mut combined.condition, "true".to_owned());
                let put = combined.put(sql, batch);
                combined.condition = condition;
                put
            }
            sink => sink.put(sql, batch).await,
        }
    }

    /// Adds a statement whose answer is not needed.
    pub(super) async fn put<const WIDTH: usize>(&mut self, sql: &Many, batch: Batch<'_, WIDTH>) -> Result<()> {
        match self {
            Sink::Now(conn) => conn.put(sql, batch).await,
            Sink::CombinedStatement(combined) => combined.put(sql, batch),
            Sink::Whole(whole) => {
                whole.put(sql, &batch);
                Ok(())
            }
        }
    }
}

/// Statements combined into one: each is a part of a `with` clause. All of them see the database as it was before the combined statement.
pub(super) struct CombinedStatement {
    text: String,
    parts: usize,
    arguments: PgArguments,
    condition: String,
}

impl CombinedStatement {
    /// An empty combined statement without a condition.
    pub(super) fn new() -> CombinedStatement {
        CombinedStatement { text: String::new(), parts: 0, arguments: PgArguments::default(), condition: "true".to_owned() }
    }

    /// Sets the condition for later statements: they apply only to rows for which it holds.
    pub(super) fn only_if(&mut self, condition: String) {
        self.condition = condition;
    }

    /// Adds a statement that other parts can refer to by `name`. Left out if it has no rows.
    pub(super) fn part<const WIDTH: usize>(&mut self, name: &str, sql: &Many, batch: Batch<'_, WIDTH>) -> Result<()> {
        if batch.is_empty() {
            return Ok(());
        }
        let first = self.arguments.len() + 1;
        self.words(name, &sql.among_others(first, &self.condition));
        batch.bind(&mut self.arguments)
    }

    /// Adds a statement that no other part refers to.
    fn put<const WIDTH: usize>(&mut self, sql: &Many, batch: Batch<'_, WIDTH>) -> Result<()> {
        self.part(&format!("part_{}", self.parts), sql, batch)
    }

    /// Adds a statement without parameters.
    pub(super) fn words(&mut self, name: &str, text: &str) {
        let separator = if self.parts == 0 { "with" } else { "," };
        writeln!(self.text, "{separator} {name} as ({text})").expect("a text has room");
        self.parts += 1;
    }

    /// Runs the combined statement outside a transaction and returns the rows of `answer`. The statement commits completely or not at all.
    pub(super) async fn commit(self, conn: &mut Conn<'_>, answer: &str) -> Result<Vec<Row>> {
        let text = AssertSqlSafe(self.text + answer).into_sql_str();
        conn.commit_single_statement(text, self.arguments).await
    }
}
