//! Opening a PostgreSQL database.

use std::sync::Arc;

use sqlx::ConnectOptions;
use sqlx::postgres::PgConnection;

use super::pool::PostgresPool;
use super::servers::{Servers, is_setting_refused};
use crate::address::{schema_of, wrong};
use crate::error::{Result, StoreError};
use crate::guarded::StatementSettings;
use crate::pool::Pool;
use crate::settings::Settings;
use crate::shares::Purpose;
use crate::sql;

impl PostgresPool {
    /// Opens the database of the URL and makes a first connection. Also returns its name in messages.
    pub(crate) async fn open(settings: &Settings) -> Result<(String, PostgresPool)> {
        let (database, pool) = servers(settings, Servers::parse(&settings.url).map_err(|says| wrong(&settings.url, says))?).await?;
        let Some(schema) = &settings.schema else { return Ok((database, pool)) };
        if current_schema(&pool.pool).await?.as_ref() == Some(schema) {
            return Ok((database, pool));
        }
        let place = schema_of(schema, &database);
        // A pooler that ignores the setting would let the statements write to another schema.
        Err(StoreError::Partition { place, says: "does not exist, or a pooler does not pass the setting `search_path` on".into() })
    }
}

async fn servers(settings: &Settings, servers: Servers) -> Result<(String, PostgresPool)> {
    let name = servers.first().get_database().unwrap_or(servers.first().get_username());
    let place = match servers.first().get_socket() {
        Some(_) => format!("the PostgreSQL server at `{}`", servers.names()),
        None => format!("the PostgreSQL database `{name}` at `{}`", servers.names()),
    };
    let channel = settings.schema.as_ref().map_or_else(|| sql::CHANNEL.to_owned(), |schema| format!("{}_{schema}", sql::CHANNEL));
    let timeout_ms = settings.deadline.as_millis().to_string();
    let mut options = servers.each(|options| {
        let mut options = options.disable_statement_logging();
        if !settings.statement_cache {
            options = options.statement_cache_capacity(0);
        }
        if settings.read_only {
            options = options.options([("default_transaction_read_only", "on"), ("statement_timeout", &timeout_ms)]);
        }
        if let Some(schema) = &settings.schema {
            // Without quotes, PostgreSQL would search for the name in lower case.
            options = options.options([("search_path", format!("\"{}\"", schema.replace('"', "\"\"")))]);
        }
        if options.get_application_name().is_none() {
            options = options.application_name("durable-fsm");
        }
        options
    });
    if settings.read_only {
        options = options.for_reading();
    }
    let is_read_only = settings.read_only;
    let pool_of = |servers: &Arc<Servers>| {
        Pool::<PgConnection>::new(&place, Arc::clone(servers), settings.connections.max(1) as usize, settings.deadline)
    };
    if settings.statement_cache {
        // A pooler either refuses an unknown setting when a connection begins, or does not pass it on to the server.
        let servers = Arc::new(options.clone().each(|options| options.options([(sql::MARK, "on")])));
        let pool = pool_of(&servers);
        match is_marked(&pool).await {
            Ok(true) => return Ok((place, PostgresPool { pool, servers, channel, is_direct: true, is_read_only })),
            Ok(false) => {}
            Err(StoreError::Unreachable { source, .. }) if is_setting_refused(&source) => {}
            Err(error) => return Err(error),
        }
    }
    let servers = Arc::new(options);
    let pool = pool_of(&servers);
    drop(pool.take(Purpose::Short).await?);
    Ok((place, PostgresPool { pool, servers, channel, is_direct: false, is_read_only }))
}

/// The schema in which a session's statements find their tables; `None` if there is none of the name that the connection requested.
async fn current_schema(pool: &Pool<PgConnection>) -> Result<Option<String>> {
    let mut taken = pool.take(Purpose::Short).await?;
    let rows = taken.guarded(&StatementSettings::DEFAULT).rows(&sql::CURRENT_SCHEMA, &[]).await?;
    rows.first().map_or(Ok(None), |row| row.get(0))
}

/// True if a setting that the connection requested at its start is set in the session in which its statements run. No pooler is between
/// then.
async fn is_marked(pool: &Pool<PgConnection>) -> Result<bool> {
    let mut taken = pool.take(Purpose::Short).await?;
    let rows = taken.guarded(&StatementSettings::DEFAULT).rows(&sql::IS_MARKED, &[]).await?;
    rows.first().map_or(Ok(false), |row| row.get(0))
}
