//! What all scenarios stand on: a PostgreSQL of the harness's own, and a folder for each.

use std::path::{Path, PathBuf};

use fsm::testing::cluster::{self, Cluster};
use sqlx::{AssertSqlSafe, Connection, PgConnection};

use crate::Failure;

/// Which database.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Sqlite,
    Postgres,
}

impl Kind {
    /// As the command line says it.
    pub fn word(self) -> &'static str {
        match self {
            Kind::Sqlite => "sqlite",
            Kind::Postgres => "postgres",
        }
    }
}

/// The server, once a scenario needs it.
#[derive(Default)]
pub struct TestServer {
    cluster: Option<Cluster>,
    databases: u32,
}

impl TestServer {
    /// The server, which only this harness uses and may break.
    pub fn cluster(&mut self) -> Result<&mut Cluster, Failure> {
        if self.cluster.is_none() {
            self.cluster = Some(cluster::start_own()?);
        }
        Ok(self.cluster.as_mut().expect("it was started just now"))
    }

    /// The URL of a fresh database. `how` follows its name in the statement that makes it.
    pub async fn database(&mut self, how: &str) -> Result<String, Failure> {
        self.databases += 1;
        let name = format!("faults_{}", self.databases);
        let cluster = self.cluster()?.url();
        self.run(&format!("create database {name} {how}")).await?;
        Ok(format!("{}/{name}", cluster.rsplit_once('/').map_or(cluster.as_str(), |(server, _)| server)))
    }

    /// Runs a statement of the harness's own on the server.
    pub async fn run(&mut self, statement: &str) -> Result<(), Failure> {
        let mut connection = PgConnection::connect(&self.cluster()?.url()).await?;
        sqlx::raw_sql(AssertSqlSafe(statement.to_owned())).execute(&mut connection).await?;
        Ok(connection.close().await?)
    }

    /// All that the server has said.
    pub fn log(&mut self) -> Result<String, Failure> {
        Ok(std::fs::read_to_string(self.socket()?.with_file_name("log"))?)
    }

    /// What the server's log says of deadlocks.
    pub fn deadlocks(&mut self) -> Result<String, Failure> {
        let log = self.log()?;
        let begin = log.find("deadlock detected").map_or(log.len(), |at| at.saturating_sub(200));
        Ok(log[begin..].lines().take(40).collect::<Vec<_>>().join("\n      "))
    }

    /// The server's socket.
    pub fn socket(&mut self) -> Result<PathBuf, Failure> {
        let url = self.cluster()?.url();
        let host = url.split_once('@').and_then(|(_, rest)| rest.split_once('/')).map_or("", |(host, _)| host);
        Ok(Path::new(&decoded(host)).join(".s.PGSQL.5432"))
    }
}

/// The `%2F` of a URL's host.
fn decoded(host: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = host.as_bytes();
    while let Some((&first, after)) = rest.split_first() {
        let code = (first == b'%').then(|| after.get(..2)).flatten().and_then(|hex| std::str::from_utf8(hex).ok());
        match code.and_then(|hex| u8::from_str_radix(hex, 16).ok()) {
            Some(byte) => {
                bytes.push(byte);
                rest = &after[2..];
            }
            None => {
                bytes.push(first);
                rest = after;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// The folder of one run. It is kept unless all went well.
pub struct Folder {
    path: PathBuf,
    pub is_kept: bool,
}

impl Folder {
    /// A new one among the system's temporary files.
    pub fn new(name: &str) -> Result<Folder, Failure> {
        let path = std::env::temp_dir().join(format!("fsm-faults-{name}-{}", std::process::id()));
        std::fs::create_dir(&path)?;
        Ok(Folder { path, is_kept: true })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        if !self.is_kept {
            // What is left of it does no harm there.
            let _ = std::fs::remove_dir_all(&self.path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::decoded;

    #[test]
    fn a_socket_folder_is_read_from_a_url() {
        assert_eq!(decoded("%2Ftmp%2Ffsm-1%2F7-0"), "/tmp/fsm-1/7-0");
    }
}
