//! The databases. Each figure gets a fresh one, which is deleted afterwards.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};

use sqlx::{AssertSqlSafe, Connection, PgConnection, SqliteConnection};

use crate::Result;
use crate::install::target;
use crate::peers::Database;

/// The environment variable with the URL of the server, which xtask starts.
const VARIABLE: &str = "FSM_TEST_POSTGRES";

const SHOWN: [&str; 9] = [
    "fsync",
    "full_page_writes",
    "synchronous_commit",
    "wal_sync_method",
    "shared_buffers",
    "wal_buffers",
    "max_wal_size",
    "max_connections",
    "listen_addresses",
];

/// The server, and a description of the machine and the databases.
pub struct Databases {
    server: Option<String>,
    /// One line for the machine and one for each kind of database.
    pub described: Vec<String>,
}

/// A fresh database.
pub struct PeerDatabase {
    pub url: String,
    /// The setting `synchronous` of SQLite; `None` for PostgreSQL.
    pub synchronous: Option<&'static str>,
    server: Option<String>,
    folder: Option<PathBuf>,
}

impl Databases {
    /// Refuses a server whose commits do not reach the disk, because its durability would not be the same.
    pub async fn find(needs_server: bool) -> Result<Databases> {
        let cores = std::thread::available_parallelism()?;
        let processor = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let processor = processor.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": ")).map_or("", |(_, name)| name);
        let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
        let load = load.split(' ').next().unwrap_or_default().to_owned();
        let mut described = vec![format!("{cores} cores shared by client and database ({processor}), load average {load} at the start")];
        let mut own = None;
        if needs_server {
            let server = std::env::var(VARIABLE).map_err(|_| format!("`{VARIABLE}` names no server; `cargo xtask peers` starts one"))?;
            let mut connection = PgConnection::connect(&server).await?;
            let mut shown = vec![format!("PostgreSQL {}", setting(&mut connection, "server_version").await?)];
            for name in SHOWN {
                let value = setting(&mut connection, name).await?;
                if ["fsync", "full_page_writes", "synchronous_commit"].contains(&name) && value != "on" {
                    return Err(format!("`{name}` is {value} on that server, so what it says is done may be lost").into());
                }
                shown.push(format!("{name} {}", if value.is_empty() { "none" } else { &value }));
            }
            described.push(shown.join(", "));
            own = Some(server);
        }
        let mut connection = SqliteConnection::connect("sqlite::memory:").await?;
        let version: String = sqlx::query_scalar("select sqlite_version()").fetch_one(&mut connection).await?;
        described.push(format!("SQLite {version}, WAL, synchronous as the names say"));
        Ok(Databases { server: own, described })
    }

    pub async fn make(&self, database: Database) -> Result<PeerDatabase> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!("peers_{}_{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let synchronous = match database {
            Database::Postgres => None,
            Database::SqliteFull => Some("full"),
            Database::SqliteNormal => Some("normal"),
        };
        if synchronous.is_some() {
            let folder = target().join("databases").join(name);
            std::fs::create_dir_all(&folder)?;
            let url = format!("sqlite://{}/peer.db", folder.canonicalize()?.display());
            return Ok(PeerDatabase { url, synchronous, server: None, folder: Some(folder) });
        }
        let server = self.server.clone().ok_or("there is no server")?;
        let mut connection = PgConnection::connect(&server).await?;
        // The name is generated here.
        sqlx::raw_sql(AssertSqlSafe(format!("create database {name}"))).execute(&mut connection).await?;
        let url = format!("{}/{name}", server.rsplit_once('/').map_or(server.as_str(), |(server, _)| server));
        Ok(PeerDatabase { url, synchronous, server: Some(server), folder: None })
    }
}

impl PeerDatabase {
    pub async fn remove(self) -> Result {
        if let Some(server) = &self.server {
            let mut connection = PgConnection::connect(server).await?;
            let name = self.url.rsplit_once('/').map_or("", |(_, name)| name);
            sqlx::raw_sql(AssertSqlSafe(format!("drop database {name} with (force)"))).execute(&mut connection).await?;
            // Its dirty pages must not be written while the next database is measured.
            sqlx::raw_sql("checkpoint").execute(&mut connection).await?;
        }
        if let Some(folder) = &self.folder {
            std::fs::remove_dir_all(folder)?;
        }
        Ok(())
    }
}

async fn setting(connection: &mut PgConnection, name: &str) -> Result<String> {
    Ok(sqlx::query_scalar("select current_setting($1)").bind(name).fetch_one(connection).await?)
}
