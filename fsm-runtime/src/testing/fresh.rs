//! A fresh PostgreSQL database for one test, copied from a migrated template, and gone with the test.

use sqlx::{Connection, PgConnection};
use uuid::Uuid;

use super::cluster;
use crate::clock::Clock;
use crate::store::open::{Settings, Store};
use crate::store::{migrate, sql};

/// Serialises those who make the template; any number that nobody else locks.
const TEMPLATE_LOCK: i64 = 0x6673_6d74_706c;

/// A database that is dropped with this value.
pub(crate) struct Fresh {
    cluster: String,
    name: String,
    url: String,
}

impl Fresh {
    /// Copies the template, which the first of all test processes makes.
    pub(crate) async fn create() -> Result<Fresh, Box<dyn std::error::Error + Send + Sync>> {
        let cluster = tokio::task::spawn_blocking(cluster::url).await??;
        let template = format!("fsm_template_{}", migrate::fingerprint());
        let name = format!("fsm_test_{}", Uuid::new_v4().simple());
        let mut connection = PgConnection::connect(&cluster).await?;
        sqlx::query(sql::LOCK_TEMPLATES).bind(TEMPLATE_LOCK).execute(&mut connection).await?;
        let is_there: bool = sqlx::query_scalar(sql::DATABASE_EXISTS).bind(&template).fetch_one(&mut connection).await?;
        if !is_there {
            // Made under another name first: a template that is there is whole.
            let half = format!("{template}_{}", std::process::id());
            execute(&mut connection, sql::drop_database(&half)).await?;
            execute(&mut connection, sql::create_database(&half, "template0")).await?;
            let store = Store::open(Settings::new(on(&cluster, &half))).await?;
            migrate::up(&store, Clock::System.now()).await?;
            store.close().await;
            execute(&mut connection, sql::rename_database(&half, &template)).await?;
        }
        execute(&mut connection, sql::create_database(&name, &template)).await?;
        connection.close().await?;
        let url = on(&cluster, &name);
        Ok(Fresh { cluster, name, url })
    }

    pub(crate) fn url(&self) -> &str {
        &self.url
    }
}

async fn execute(connection: &mut PgConnection, statement: String) -> Result<(), sqlx::Error> {
    // The names in it are our own, of letters, digits and underscores.
    sqlx::raw_sql(sqlx::AssertSqlSafe(statement)).execute(connection).await.map(drop)
}

/// The URL of another database of the cluster.
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
        // A thread of its own: a test's runtime is over, or must not be blocked.
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
