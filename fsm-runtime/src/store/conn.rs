//! One connection of either database, and how a statement is run on it.

use std::collections::{HashMap, HashSet};
use std::hash::Hash;
use std::sync::{Arc, LazyLock, Mutex};
use std::time::Duration;

use futures_util::future::BoxFuture;
use sqlx::postgres::{PgArguments, PgConnection};
use sqlx::sqlite::SqliteConnection;
use sqlx::{AssertSqlSafe, Connection, Postgres, SqlSafeStr, SqlStr, Sqlite, Transaction};
use uuid::Uuid;

use super::error::{Result, StoreError};
use super::fault::Fault;
use super::lent;
use super::rows::Row;
use super::sql::{Many, Sql};
use super::sqlite::{Said, SqliteThread};

/// A connection, most often inside a transaction.
pub enum Conn<'c> {
    /// To SQLite, of ours alone.
    Sqlite(Link<'c, SqliteThread>),
    /// To SQLite, and in its transaction somebody else's statements run too.
    Lent(Link<'c, SqliteConnection>),
    /// To PostgreSQL.
    Postgres(Link<'c, PgConnection>),
}

/// A borrowed connection, with what is kept about it.
pub struct Link<'c, C> {
    conn: &'c mut C,
    pub(super) rules: Rules,
    pub(super) health: Option<&'c mut Health>,
}

/// How statements are run.
#[derive(Debug, Clone)]
pub(super) struct Rules {
    /// The limit on one operation.
    pub deadline: Duration,
    /// Statements are kept prepared. Without that (PgBouncer), each one outside a transaction is given its own.
    pub is_cached: bool,
    /// Where a test cuts the connection.
    pub fault: Fault,
}

/// Whether a connection can be used again.
#[derive(Debug, Default)]
pub(super) struct Health {
    /// A statement failed, or was abandoned half-way.
    pub is_broken: bool,
    /// A transaction was begun and not ended.
    pub is_open: bool,
    /// Somebody else's statements ran on it, and its driver counts a transaction more than there is.
    pub was_lent: bool,
    /// What SQLite is told together with what comes next.
    pub unsaid: Vec<Said>,
}

impl Rules {
    pub(super) const DEFAULT: Rules = Rules { deadline: Duration::from_secs(30), is_cached: true, fault: Fault::NEVER };
}

impl<'c> From<&'c mut SqliteConnection> for Conn<'c> {
    /// A transaction that the caller began and will end.
    fn from(conn: &'c mut SqliteConnection) -> Self {
        Conn::Lent(Link { conn, rules: Rules::DEFAULT, health: None })
    }
}

impl<'c> From<&'c mut PgConnection> for Conn<'c> {
    /// A transaction that the caller began and will end.
    fn from(conn: &'c mut PgConnection) -> Self {
        Conn::Postgres(Link { conn, rules: Rules::DEFAULT, health: None })
    }
}

impl<'c> From<&'c mut Transaction<'_, Sqlite>> for Conn<'c> {
    /// The caller ends it.
    fn from(tx: &'c mut Transaction<'_, Sqlite>) -> Self {
        Conn::from(&mut **tx)
    }
}

impl<'c> From<&'c mut Transaction<'_, Postgres>> for Conn<'c> {
    /// The caller ends it.
    fn from(tx: &'c mut Transaction<'_, Postgres>) -> Self {
        Conn::from(&mut **tx)
    }
}

impl<'c> Link<'c, SqliteConnection> {
    /// The connection itself, for a user's own statements in this transaction. The driver knows of the transaction from now on, so that
    /// a `begin` of the user's is a savepoint.
    pub(super) async fn lend(&mut self) -> Result<()> {
        self.guarded("savepoint", async |conn| counted(conn).await).await?;
        self.note_lent();
        Ok(())
    }
}

impl<'c> Link<'c, PgConnection> {
    /// The same; its statements wait for locks and are planned as others are.
    pub(super) async fn lend(&mut self) -> Result<()> {
        self.guarded("savepoint", async |conn| {
            postgres_text(conn, super::sql::AS_USUAL).await?;
            counted(conn).await
        })
        .await?;
        self.note_lent();
        Ok(())
    }

    fn is_in_transaction(&self) -> bool {
        self.health.as_ref().is_none_or(|health| health.is_open)
    }
}

impl<'c, C> Link<'c, C> {
    pub(super) fn new(conn: &'c mut C, rules: Rules, health: &'c mut Health) -> Self {
        Link { conn, rules, health: Some(health) }
    }

    fn note_lent(&mut self) {
        if let Some(health) = self.health.as_deref_mut() {
            health.was_lent = true;
        }
    }

    /// The connection itself, for statements that are not ours.
    pub fn into_inner(self) -> &'c mut C {
        self.conn
    }

    /// Runs one operation, the statement `text`, under the deadline. Unless it ends well, the connection counts as broken, also when this is dropped half-way.
    pub(super) async fn guarded<T>(&mut self, text: &str, operation: impl AsyncFnOnce(&mut C) -> sqlx::Result<T>) -> Result<T> {
        let mut ignored = Health::default();
        let health = self.health.as_deref_mut().unwrap_or(&mut ignored);
        if health.is_broken {
            return Err(StoreError::Aborted);
        }
        health.is_broken = true;
        self.rules.fault.pass(|| format!("before `{}`", about(text))).await;
        let done = within(self.rules.deadline, operation(self.conn)).await?;
        health.is_broken = false;
        Ok(done)
    }
}

/// A savepoint that the driver counts as a transaction, and that nobody ends.
fn counted<C: Connection>(conn: &mut C) -> BoxFuture<'_, sqlx::Result<()>> {
    Box::pin(async move { conn.begin_with("savepoint fsm_lent").await.map(std::mem::forget) })
}

/// What a statement does to which of our tables, in a few words: the last verb before the first table's name.
fn about(text: &str) -> String {
    let mut verb = "select";
    for word in text.split_whitespace() {
        match word {
            "select" | "insert" | "update" | "delete" => verb = word,
            table if table.starts_with("fsm_") => {
                let table = table.split(|c: char| !c.is_alphanumeric() && c != '_').next().unwrap_or(table);
                let preposition = match verb {
                    "select" | "delete" => " from",
                    "insert" => " into",
                    _ => "",
                };
                return format!("{verb}{preposition} {table}");
            }
            _ => {}
        }
    }
    text.split_whitespace().take(4).collect::<Vec<_>>().join(" ")
}

/// Waits for a database operation, at most this long.
pub(super) async fn within<T>(deadline: Duration, operation: impl Future<Output = sqlx::Result<T>>) -> Result<T> {
    match tokio::time::timeout(deadline, operation).await {
        Ok(done) => Ok(done?),
        Err(_) => Err(StoreError::Deadline(deadline)),
    }
}

/// A value on its way into a statement.
#[derive(Debug, Clone, Copy)]
pub(super) enum Value<'a> {
    Id(Option<Uuid>),
    Number(Option<i64>),
    Text(Option<&'a str>),
    Bytes(Option<&'a [u8]>),
    Flag(bool),
    /// An array, or JSON in SQLite. Not for a batch.
    Words(&'a [String]),
}

/// The values of one row.
macro_rules! values {
    ($($value:expr),* $(,)?) => { [$($crate::store::conn::Value::from($value)),*] };
}
pub(super) use values;

macro_rules! value {
    ($($variant:ident: $type:ty),*) => { $(
        impl<'a> From<$type> for Value<'a> {
            fn from(value: $type) -> Self {
                Value::$variant(Some(value))
            }
        }
        impl<'a> From<Option<$type>> for Value<'a> {
            fn from(value: Option<$type>) -> Self {
                Value::$variant(value)
            }
        }
    )* };
}

value!(Id: Uuid, Number: i64, Text: &'a str, Bytes: &'a [u8]);

impl From<bool> for Value<'_> {
    fn from(value: bool) -> Self {
        Value::Flag(value)
    }
}

/// Many rows for one statement.
#[derive(Debug)]
pub(super) struct Batch<'a, const WIDTH: usize> {
    rows: Vec<[Value<'a>; WIDTH]>,
}

impl<'a, const WIDTH: usize> Batch<'a, WIDTH> {
    pub(super) fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    pub(super) fn rows(&self) -> &[[Value<'a>; WIDTH]] {
        &self.rows
    }

    /// Binds an array for each column.
    pub(super) fn bind(&self, arguments: &mut PgArguments) -> Result<()> {
        (0..WIDTH).try_for_each(|column| bind_column(arguments, self.rows.iter().map(|row| row[column])))
    }
}

impl<'a, const WIDTH: usize> FromIterator<[Value<'a>; WIDTH]> for Batch<'a, WIDTH> {
    fn from_iter<I: IntoIterator<Item = [Value<'a>; WIDTH]>>(rows: I) -> Self {
        Batch { rows: rows.into_iter().collect() }
    }
}

impl<'a, const WIDTH: usize> From<Vec<[Value<'a>; WIDTH]>> for Batch<'a, WIDTH> {
    fn from(rows: Vec<[Value<'a>; WIDTH]>) -> Self {
        Batch { rows }
    }
}

impl Conn<'_> {
    /// Statements on it are run like those on the connections of a store.
    pub(super) fn set_rules(&mut self, rules: Rules) {
        match self {
            Conn::Sqlite(link) => link.rules = rules,
            Conn::Lent(link) => link.rules = rules,
            Conn::Postgres(link) => link.rules = rules,
        }
    }

    /// Whether this is PostgreSQL.
    pub fn is_postgres(&self) -> bool {
        matches!(self, Conn::Postgres(_))
    }

    /// Runs one statement and gives its rows.
    pub(super) async fn rows(&mut self, sql: &Sql, values: &[Value<'_>]) -> Result<Vec<Row>> {
        match self {
            Conn::Sqlite(link) => link.rows(sql.sqlite.into_sql_str(), values).await,
            Conn::Lent(link) => link.rows(sql.sqlite.into_sql_str(), values).await,
            Conn::Postgres(link) => {
                let mut arguments = PgArguments::default();
                for value in values {
                    bind_postgres(&mut arguments, value)?;
                }
                postgres_rows(link, sql.postgres.into_sql_str(), arguments).await
            }
        }
    }

    /// Runs a statement that PostgreSQL commits by itself, and gives its rows. SQLite has no such statements, and answers with none.
    pub(super) async fn commit_at_once(&mut self, text: SqlStr, arguments: PgArguments) -> Result<Vec<Row>> {
        match self {
            Conn::Sqlite(_) | Conn::Lent(_) => Ok(Vec::new()),
            Conn::Postgres(link) => {
                let rows = postgres_rows(link, text, arguments).await?;
                // It was done, and a process that dies here never hears of it.
                link.rules.fault.pass(|| "after a transaction ended, and never heard of it".to_owned()).await;
                Ok(rows)
            }
        }
    }

    /// Runs a statement about the rows of the batch, and gives the rows it answers with. Nothing is run for an empty batch.
    pub(super) async fn batch<const WIDTH: usize>(&mut self, sql: &Many, batch: Batch<'_, WIDTH>) -> Result<Vec<Row>> {
        if batch.is_empty() {
            return Ok(Vec::new());
        }
        match self {
            Conn::Sqlite(link) => link.batch(sql, &batch.rows).await,
            Conn::Lent(link) => link.batch(sql, &batch.rows).await,
            Conn::Postgres(link) => {
                let mut arguments = PgArguments::default();
                batch.bind(&mut arguments)?;
                postgres_rows(link, kept(sql, true, || sql.for_postgres()), arguments).await
            }
        }
    }

    /// Runs a statement that writes at most one row for each of these, and gives the places of those for which it wrote none. PostgreSQL
    /// answers with those that are written, by their first columns, as many as `key` takes.
    pub(super) async fn missed<const WIDTH: usize, K: Eq + Hash>(
        &mut self,
        sql: &Many,
        batch: Batch<'_, WIDTH>,
        keys: &[K],
        key: impl Fn(&Row) -> Result<K>,
    ) -> Result<Vec<usize>> {
        match self {
            _ if batch.is_empty() => Ok(Vec::new()),
            Conn::Sqlite(link) => link.missed(sql, &batch.rows).await,
            Conn::Lent(link) => link.missed(sql, &batch.rows).await,
            Conn::Postgres(_) => {
                let written = self.batch(sql, batch).await?.iter().map(key).collect::<Result<HashSet<K>>>()?;
                Ok(keys.iter().enumerate().filter(|(_, key)| !written.contains(key)).map(|(place, _)| place).collect())
            }
        }
    }

    /// Runs a statement that answers nothing. In a transaction of SQLite's it is said together with what comes next, which may be the commit.
    pub(super) async fn put<const WIDTH: usize>(&mut self, sql: &Many, batch: Batch<'_, WIDTH>) -> Result<()> {
        match self {
            _ if batch.is_empty() => Ok(()),
            Conn::Sqlite(link) if link.is_in_transaction() => {
                link.later(sql, &batch.rows);
                Ok(())
            }
            _ => self.batch(sql, batch).await.map(drop),
        }
    }

    /// The rest of the transaction waits for locks as long as the deadline allows: for those who have nobody else to look after.
    pub(crate) async fn wait_for_locks(&mut self) -> Result<()> {
        if self.is_postgres() { self.script(super::sql::PATIENT).await } else { Ok(()) }
    }

    /// Runs a script of several statements without values, inside the transaction that is open.
    pub(super) async fn script(&mut self, text: &'static str) -> Result<()> {
        match self {
            Conn::Sqlite(link) => link.script(text).await,
            Conn::Lent(link) => link.guarded(text, async |conn| lent::words(conn, text).await).await,
            Conn::Postgres(link) => link.guarded(text, async |conn| postgres_text(conn, text).await).await,
        }
    }
}

async fn postgres_rows(link: &mut Link<'_, PgConnection>, text: SqlStr, arguments: PgArguments) -> Result<Vec<Row>> {
    let (is_cached, is_alone) = (link.rules.is_cached, !link.rules.is_cached && !link.is_in_transaction());
    let said = text.clone();
    let query = sqlx::query_with::<Postgres, _>(text, arguments).persistent(is_cached);
    let rows = link
        .guarded(said.as_str(), async |conn| {
            // Without prepared statements a pooler may give each message to another server, unless a transaction holds them together.
            if is_alone {
                postgres_text(conn, super::sql::BEGIN_POSTGRES).await?;
            }
            let rows = query.fetch_all(&mut *conn).await?;
            if is_alone {
                postgres_text(conn, super::sql::COMMIT).await?;
            }
            Ok(rows)
        })
        .await?;
    link.rules.fault.answered(rows.len());
    Ok(rows.into_iter().map(Row::Postgres).collect())
}

/// Runs a text without values in PostgreSQL, in one trip.
pub(super) async fn postgres_text(conn: &mut PgConnection, text: &'static str) -> sqlx::Result<()> {
    sqlx::raw_sql(text).execute(conn).await.map(drop)
}

/// The text of a statement for one of the databases, put together once.
pub(super) fn kept(sql: &Many, is_postgres: bool, text: impl FnOnce() -> String) -> SqlStr {
    type Texts = HashMap<(usize, usize, bool), Arc<str>>;
    static TEXTS: LazyLock<Mutex<Texts>> = LazyLock::new(Mutex::default);
    let mut texts = TEXTS.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    let place = (sql.sqlite.as_ptr() as usize, sql.columns.as_ptr() as usize, is_postgres);
    AssertSqlSafe(texts.entry(place).or_insert_with(|| text().into()).clone()).into_sql_str()
}

fn bind_postgres(arguments: &mut PgArguments, value: &Value<'_>) -> Result<()> {
    use sqlx::Arguments;
    match *value {
        Value::Id(id) => arguments.add(id),
        Value::Number(number) => arguments.add(number),
        Value::Text(text) => arguments.add(text),
        Value::Bytes(bytes) => arguments.add(bytes),
        Value::Flag(flag) => arguments.add(flag),
        Value::Words(words) => arguments.add(words),
    }
    .map_err(|error| StoreError::Database(sqlx::Error::Encode(error)))
}

/// Binds one column of a batch as an array. All its values are of one variant, the first one's.
fn bind_column<'a>(arguments: &mut PgArguments, column: impl Iterator<Item = Value<'a>> + Clone) -> Result<()> {
    use sqlx::Arguments;
    macro_rules! array {
        ($variant:ident) => {
            arguments
                .add(column.filter_map(|value| if let Value::$variant(value) = value { Some(value) } else { None }).collect::<Vec<_>>())
        };
    }
    match column.clone().next() {
        None => Ok(()),
        Some(Value::Id(_)) => array!(Id),
        Some(Value::Number(_)) => array!(Number),
        Some(Value::Text(_)) => array!(Text),
        Some(Value::Bytes(_)) => array!(Bytes),
        Some(Value::Flag(_)) => array!(Flag),
        Some(Value::Words(_)) => Err("an array of arrays".into()),
    }
    .map_err(|error| StoreError::Database(sqlx::Error::Encode(error)))
}
