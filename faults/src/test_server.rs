//! The resources of all scenarios: a PostgreSQL server of the harness, and a folder for each run.

use std::path::{Path, PathBuf};

use fsm::testing::cluster::{self, Cluster};
use sqlx::{AssertSqlSafe, Connection, PgConnection};

use crate::Failure;

/// The kind of a database.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Sqlite,
    Postgres,
}

impl Kind {
    /// The name in the arguments.
    pub fn word(self) -> &'static str {
        match self {
            Kind::Sqlite => "sqlite",
            Kind::Postgres => "postgres",
        }
    }
}

/// The server, which is started when a scenario first needs it.
#[derive(Default)]
pub struct TestServer {
    cluster: Option<Cluster>,
    databases: u32,
}

impl TestServer {
    /// The server. Only this harness uses it, so scenarios may break it.
    pub fn cluster(&mut self) -> Result<&mut Cluster, Failure> {
        if self.cluster.is_none() {
            self.cluster = Some(cluster::start_own()?);
        }
        Ok(self.cluster.as_mut().expect("it was started just now"))
    }

    /// Creates a database and returns its URL. `how` is appended to the `create database` statement.
    pub async fn database(&mut self, how: &str) -> Result<String, Failure> {
        self.databases += 1;
        let name = format!("faults_{}", self.databases);
        let cluster = self.cluster()?.url();
        self.run(&format!("create database {name} {how}")).await?;
        Ok(format!("{}/{name}", cluster.rsplit_once('/').map_or(cluster.as_str(), |(server, _)| server)))
    }

    /// Executes a statement of the harness on the server.
    pub async fn run(&mut self, statement: &str) -> Result<(), Failure> {
        let mut connection = PgConnection::connect(&self.cluster()?.url()).await?;
        sqlx::raw_sql(AssertSqlSafe(statement.to_owned())).execute(&mut connection).await?;
        Ok(connection.close().await?)
    }

    /// The server's log.
    pub fn log(&mut self) -> Result<String, Failure> {
        Ok(std::fs::read_to_string(self.socket()?.with_file_name("log"))?)
    }

    /// The part of the server's log about the first deadlock.
    pub fn deadlocks(&mut self) -> Result<String, Failure> {
        let log = self.log()?;
        let begin = log.find("deadlock detected").map_or(log.len(), |at| at.saturating_sub(200));
        Ok(log[begin..].lines().take(40).collect::<Vec<_>>().join("\n      "))
    }

    /// The path of the server's socket.
    pub fn socket(&mut self) -> Result<PathBuf, Failure> {
        let url = self.cluster()?.url();
        let host = url.split_once('@').and_then(|(_, rest)| rest.split_once('/')).map_or("", |(host, _)| host);
        Ok(Path::new(&decoded(host)).join(".s.PGSQL.5432"))
    }
}

/// Decodes the percent-encoded host of a URL.
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

/// The folder of one run. It is deleted only if nothing was found.
pub struct Folder {
    path: PathBuf,
    pub is_kept: bool,
}

impl Folder {
    /// Creates a folder in the directory for temporary files.
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
            // Files that could not be deleted do no harm.
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
