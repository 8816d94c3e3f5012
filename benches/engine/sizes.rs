//! The bytes that the database wrote and stores: WAL, tables and indexes.

use std::error::Error;

use sqlx::{Connection, PgConnection, SqliteConnection};

use crate::database::BenchDatabase;

type Result<T = (), E = Box<dyn Error>> = std::result::Result<T, E>;

/// The sizes at one time.
#[derive(Debug, Clone, Copy, Default)]
pub struct Sizes {
    /// The bytes that PostgreSQL has ever written to its WAL; `None` for SQLite, which reuses its WAL file.
    pub wal: Option<f64>,
    pub tables: f64,
    pub indexes: f64,
    /// The rows that wait for vacuum.
    pub dead: Option<f64>,
}

impl Sizes {
    /// Reads the sizes. PostgreSQL updates its count of dead rows with a delay.
    pub async fn of(bench_database: &BenchDatabase) -> Result<Sizes> {
        if bench_database.kind.is_postgres() {
            let sql = "select pg_wal_lsn_diff(pg_current_wal_lsn(), '0/0')::float8,
                (select coalesce(sum(pg_table_size(relid)), 0)::float8 from pg_stat_user_tables),
                (select coalesce(sum(pg_indexes_size(relid)), 0)::float8 from pg_stat_user_tables),
                (select coalesce(sum(n_dead_tup), 0)::float8 from pg_stat_user_tables)";
            let mut connection = PgConnection::connect(&bench_database.url).await?;
            let (wal, tables, indexes, dead) = sqlx::query_as(sql).fetch_one(&mut connection).await?;
            return Ok(Sizes { wal: Some(wal), tables, indexes, dead: Some(dead) });
        }
        let sql = "select (select page_count from pragma_page_count()) * (select page_size from pragma_page_size())";
        let bytes: i64 = sqlx::query_scalar(sql).fetch_one(&mut SqliteConnection::connect(&bench_database.url).await?).await?;
        Ok(Sizes { tables: bytes as f64, ..Sizes::default() })
    }

    /// Formats the growth since `before` per transition.
    pub fn each(self, before: Sizes, transitions: f64) -> String {
        let bytes = |what: &str, now: f64, then: f64| format!("{:.0} bytes of {what}", (now - then) / transitions);
        let mut words = vec![bytes("tables", self.tables, before.tables)];
        if let (Some(now), Some(then)) = (self.wal, before.wal) {
            words.push(bytes("indexes", self.indexes, before.indexes));
            words.push(bytes("WAL", now, then));
        } else {
            words[0].push_str(" and indexes");
        }
        words.join(", ")
    }

    /// Formats the total sizes.
    pub fn sum(self) -> String {
        let dead = self.dead.map(|dead| format!(", {dead:.0} dead rows")).unwrap_or_default();
        format!("tables {:.0} MB, indexes {:.0} MB{dead}", self.tables / 1e6, self.indexes / 1e6)
    }
}
