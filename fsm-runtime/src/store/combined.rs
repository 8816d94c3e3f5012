//! Several statements about many rows as one, which PostgreSQL carries out and commits in one trip.

use std::fmt::Write as _;

use sqlx::postgres::PgArguments;
use sqlx::{Arguments, AssertSqlSafe, SqlSafeStr};

use super::conn::Conn;
use super::error::{Result, StoreError};
use super::rows::Row;
use super::sql::Many;
use super::thread::Whole;
use super::values::Batch;

/// Where statements about many rows are said to.
pub(super) enum Sink<'s, 'c> {
    /// Each is run in its turn.
    Now(&'s mut Conn<'c>),
    /// All are run together, those about no row left out.
    CombinedStatement(&'s mut CombinedStatement),
    /// All are carried out by SQLite's thread, one after the other.
    Whole(&'s mut Whole),
}

impl Sink<'_, '_> {
    /// Whether this is PostgreSQL.
    pub(super) fn is_postgres(&self) -> bool {
        match self {
            Sink::Now(conn) => conn.is_postgres(),
            Sink::CombinedStatement(_) => true,
            Sink::Whole(_) => false,
        }
    }

    /// Says a statement whose answer nobody needs.
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

/// Statements that become one: `with` each of them as a part. They see the database as it was before all of them.
pub(super) struct CombinedStatement {
    text: String,
    parts: usize,
    arguments: PgArguments,
    condition: String,
}

impl CombinedStatement {
    /// None yet, and each of them is about its rows.
    pub(super) fn new() -> CombinedStatement {
        CombinedStatement { text: String::new(), parts: 0, arguments: PgArguments::default(), condition: "true".to_owned() }
    }

    /// From now on, a statement is about no row unless this holds.
    pub(super) fn only_if(&mut self, condition: String) {
        self.condition = condition;
    }

    /// One more, which others can refer to by this name. Left out if it is about no row.
    pub(super) fn part<const WIDTH: usize>(&mut self, name: &str, sql: &Many, batch: Batch<'_, WIDTH>) -> Result<()> {
        if batch.is_empty() {
            return Ok(());
        }
        let first = self.arguments.len() + 1;
        self.words(name, &sql.among_others(first, &self.condition));
        batch.bind(&mut self.arguments)
    }

    /// One more, which nobody refers to.
    fn put<const WIDTH: usize>(&mut self, sql: &Many, batch: Batch<'_, WIDTH>) -> Result<()> {
        self.part(&format!("part_{}", self.parts), sql, batch)
    }

    /// One more, about no rows.
    pub(super) fn words(&mut self, name: &str, text: &str) {
        let separator = if self.parts == 0 { "with" } else { "," };
        writeln!(self.text, "{separator} {name} as ({text})").expect("a text has room");
        self.parts += 1;
    }

    /// A number that the text can speak of, by this name.
    pub(super) fn number(&mut self, number: usize) -> Result<String> {
        let number = i64::try_from(number).expect("nothing is counted beyond 2^63");
        self.arguments.add(number).map_err(|error| StoreError::Database(sqlx::Error::Encode(error)))?;
        Ok(format!("${}", self.arguments.len()))
    }

    /// Runs them outside a transaction, and gives the rows of `answer`: all is committed with it, or nothing.
    pub(super) async fn commit(self, conn: &mut Conn<'_>, answer: &str) -> Result<Vec<Row>> {
        let text = AssertSqlSafe(self.text + answer).into_sql_str();
        conn.commit_single_statement(text, self.arguments).await
    }
}
