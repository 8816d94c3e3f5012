//! The databases to measure. Each is created for its measurement and deleted afterwards.

use std::error::Error;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use fsm::{Builder, Client, Runtime, Synchronous};
use sqlx::{Connection, PgConnection, SqliteConnection};

use crate::machine::Pulse;

type Result<T = (), E = Box<dyn Error>> = std::result::Result<T, E>;

/// The timeout of a statement. The invariants read whole tables.
const PATIENCE: Duration = Duration::from_secs(600);
/// The environment variable with the URL of the PostgreSQL server, which xtask starts.
const VARIABLE: &str = "FSM_TEST_POSTGRES";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Database {
    Postgres,
    SqliteFull,
    SqliteNormal,
}

/// A fresh database.
pub struct BenchDatabase {
    pub kind: Database,
    pub url: String,
    cluster: Option<String>,
    folder: Option<PathBuf>,
}

impl Database {
    pub fn title(self) -> &'static str {
        match self {
            Database::Postgres => "PostgreSQL, synchronous_commit = on",
            Database::SqliteFull => "SQLite, synchronous = FULL",
            Database::SqliteNormal => "SQLite, synchronous = NORMAL",
        }
    }

    pub fn is_postgres(self) -> bool {
        self == Database::Postgres
    }

    pub async fn make(self) -> Result<BenchDatabase> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!("fsm_bench_{}_{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        if self.is_postgres() {
            let cluster = std::env::var(VARIABLE).map_err(|_| format!("`{VARIABLE}` names no server; `cargo xtask bench` starts one"))?;
            let mut connection = PgConnection::connect(&cluster).await?;
            // The name is generated here.
            sqlx::raw_sql(sqlx::AssertSqlSafe(format!("create database {name}"))).execute(&mut connection).await?;
            let url = format!("{}/{name}", cluster.rsplit_once('/').map_or(cluster.as_str(), |(server, _)| server));
            return Ok(BenchDatabase { kind: self, url, cluster: Some(cluster), folder: None });
        }
        let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}_{self:?}"));
        std::fs::create_dir_all(&folder)?;
        Ok(BenchDatabase { kind: self, url: format!("sqlite://{}/bench.db", folder.display()), cluster: None, folder: Some(folder) })
    }
}

impl BenchDatabase {
    /// Returns the builder of a runtime on this database, with a slot for every caller.
    pub fn builder(&self) -> Builder {
        let synchronous = if self.kind == Database::SqliteNormal { Synchronous::Normal } else { Synchronous::Full };
        Runtime::builder().database(&self.url).only::<Pulse>().synchronous(synchronous).concurrency(4096).operation_timeout(PATIENCE)
    }

    /// Returns the path of the SQLite file.
    pub fn file(&self) -> &str {
        self.url.trim_start_matches("sqlite://")
    }

    /// Updates the statistics of PostgreSQL's planner, because the invariants join whole tables.
    pub async fn analyze(&self) -> Result<()> {
        if self.kind.is_postgres() {
            sqlx::raw_sql("analyze").execute(&mut PgConnection::connect(&self.url).await?).await?;
        }
        Ok(())
    }

    /// Describes the database and the machine, in one line each.
    pub async fn describe(&self) -> Result<Vec<String>> {
        let cores = std::thread::available_parallelism()?;
        let processor = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let processor = processor.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": ")).map_or("", |(_, name)| name);
        let version = if self.kind.is_postgres() {
            let mut connection = PgConnection::connect(&self.url).await?;
            let show = "select concat_ws(', ', 'PostgreSQL ' || current_setting('server_version'), 'fsync ' || current_setting('fsync'), \
                        'synchronous_commit ' || current_setting('synchronous_commit'), 'shared_buffers ' || current_setting('shared_buffers'), \
                        'max_wal_size ' || current_setting('max_wal_size'))";
            sqlx::query_scalar::<_, String>(show).fetch_one(&mut connection).await?
        } else {
            let mut connection = SqliteConnection::connect("sqlite::memory:").await?;
            let version: String = sqlx::query_scalar("select sqlite_version()").fetch_one(&mut connection).await?;
            format!("SQLite {version}, WAL")
        };
        Ok(vec![self.kind.title().to_owned(), format!("{cores} cores shared by client and database ({processor}); {version}")])
    }

    /// Creates the tables.
    pub async fn migrate(&self) -> Result {
        Client::connect(&self.url).await?;
        Ok(())
    }

    /// Deletes the database and creates another one of the same kind.
    pub async fn renewed(self) -> Result<BenchDatabase> {
        let kind = self.kind;
        self.remove().await?;
        kind.make().await
    }

    pub async fn remove(self) -> Result {
        if let Some(cluster) = &self.cluster {
            let mut connection = PgConnection::connect(cluster).await?;
            let name = self.url.rsplit_once('/').map_or("", |(_, name)| name);
            let drop = format!("drop database {name} with (force)");
            sqlx::raw_sql(sqlx::AssertSqlSafe(drop)).execute(&mut connection).await?;
        }
        if let Some(folder) = &self.folder {
            std::fs::remove_dir_all(folder)?;
        }
        Ok(())
    }
}
