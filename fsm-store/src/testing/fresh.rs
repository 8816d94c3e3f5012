//! A fresh PostgreSQL database for one test, dropped after the test. With tables, it is a copy of a migrated template.

use std::time::SystemTime;

use fsm_core::partition::Partition;
use sqlx::{Connection, PgConnection};
use uuid::Uuid;

use super::cluster;
use crate::open::Store;
use crate::partition_place::PartitionPlace;
use crate::partitions;
use crate::settings::Settings;
use crate::{migrate, sql};

/// The advisory lock of the processes that create the template. The number is arbitrary.
const TEMPLATE_LOCK: i64 = 0x6673_6d74_706c;

/// The reason why there is no database.
type Failed = Box<dyn std::error::Error + Send + Sync>;

/// A server on which tests create databases.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Server {
    /// The one that all tests use.
    First,
    /// The one that `FSM_TEST_POSTGRES_SECOND` names, or else the first one.
    Second,
}

/// A database that is dropped with this value.
pub struct Fresh {
    cluster: String,
    name: String,
    url: String,
}

impl Fresh {
    /// Creates a database without tables. An error if there is no PostgreSQL.
    pub async fn empty() -> Result<Fresh, Failed> {
        let (cluster, connection) = connect(Server::First).await?;
        Fresh::copy_of("template0", cluster, connection).await
    }

    /// Creates a database with all tables. An error if there is no PostgreSQL.
    pub async fn migrated() -> Result<Fresh, Failed> {
        let fill = async |url: &str| {
            let store = Store::open(Settings::new(url)).await?;
            migrate::up(&store, SystemTime::now().into()).await?;
            store.close().await;
            Ok(())
        };
        Fresh::of_template(Server::First, &format!("fsm_template_{}", migrate::fingerprint()), fill).await
    }

    /// Creates a database with the schemas of these partitions, and without a directory. An error if there is no PostgreSQL.
    pub async fn with_partitions(server: Server, partitions: &[Partition]) -> Result<Fresh, Failed> {
        let numbers: String = partitions.iter().map(|one| format!("_{}of{}", one.number(), one.of())).collect();
        let fill = async |url: &str| {
            for partition in partitions {
                let place = PartitionPlace::new(*partition, None);
                partitions::create_one(&Settings::new(url), &place, SystemTime::now().into()).await?;
            }
            Ok(())
        };
        Fresh::of_template(server, &format!("fsm_template_{}{numbers}", migrate::fingerprint()), fill).await
    }

    /// Creates a copy of a template, which `fill` fills if it does not exist.
    async fn of_template(server: Server, template: &str, fill: impl AsyncFn(&str) -> Result<(), Failed>) -> Result<Fresh, Failed> {
        let (cluster, mut connection) = connect(server).await?;
        sqlx::query(sql::LOCK_TEMPLATES).bind(TEMPLATE_LOCK).execute(&mut connection).await?;
        let is_there: bool = sqlx::query_scalar(sql::DATABASE_EXISTS).bind(template).fetch_one(&mut connection).await?;
        if !is_there {
            // The template is created under another name and renamed at the end, so that a template that exists is complete.
            let unfinished = format!("{template}_{}", std::process::id());
            execute(&mut connection, sql::drop_database(&unfinished)).await?;
            execute(&mut connection, sql::create_database(&unfinished, "template0")).await?;
            fill(&on(&cluster, &unfinished)).await?;
            execute(&mut connection, sql::rename_database(&unfinished, template)).await?;
        }
        Fresh::copy_of(template, cluster, connection).await
    }

    async fn copy_of(template: &str, cluster: String, mut connection: PgConnection) -> Result<Fresh, Failed> {
        let name = format!("fsm_test_{}", Uuid::new_v4().simple());
        execute(&mut connection, sql::create_database(&name, template)).await?;
        connection.close().await?;
        Ok(Fresh { url: on(&cluster, &name), cluster, name })
    }

    /// The URL of the database.
    pub fn url(&self) -> &str {
        &self.url
    }
}

/// Connects to a server for tests, whose URL is the first value.
async fn connect(server: Server) -> Result<(String, PgConnection), Failed> {
    let second = cluster::given(cluster::SECOND).filter(|_| server == Server::Second);
    let cluster = match second {
        Some(url) => url,
        None => tokio::task::spawn_blocking(cluster::url).await??,
    };
    let connection = PgConnection::connect(&cluster).await?;
    Ok((cluster, connection))
}

async fn execute(connection: &mut PgConnection, statement: String) -> Result<(), sqlx::Error> {
    // The names are generated here, from letters, digits and underscores.
    sqlx::raw_sql(sqlx::AssertSqlSafe(statement)).execute(connection).await.map(drop)
}

/// Returns the URL of another database of the cluster.
fn on(cluster: &str, database: &str) -> String {
    let (before, query) = cluster.split_once('?').map_or((cluster, None), |(before, query)| (before, Some(query)));
    let scheme_end = before.find("://").map_or(0, |at| at + 3);
    let base = before[scheme_end..].find('/').map_or(before, |at| &before[..scheme_end + at]);
    let query = query.map(|query| format!("?{query}")).unwrap_or_default();
    format!("{base}/{database}{query}")
}

impl Drop for Fresh {
    fn drop(&mut self) {
        let (cluster, statement) = (self.cluster.clone(), sql::drop_database(&self.name));
        // On a thread of its own, because the test's async runtime may have ended and must not be blocked.
        let dropping = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            runtime.block_on(async {
                let mut connection = PgConnection::connect(&cluster).await.map_err(std::io::Error::other)?;
                execute(&mut connection, statement).await.map_err(std::io::Error::other)
            })
        });
        if let Ok(Err(error)) = dropping.join() {
            eprintln!("the test database {} was not dropped: {error}", self.name);
        }
    }
}
