//! The servers of a database. Those of a partition change when it is moved.

use std::fmt;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, Instant};

use futures_util::future::BoxFuture;
use sqlx::postgres::{PgConnectOptions, PgConnection};
use sqlx::{ConnectOptions, Executor, Row};
use tokio::sync::{Mutex, watch};
use tokio::time::timeout;

use super::quoted;
use super::servers::Servers;
use crate::partition_place::{PartitionPlace, SharedPlace};
use crate::settings::{DirectoryEntry, Settings};
use crate::sql;

/// The directory is read at most this often.
const READ_EVERY: Duration = Duration::from_millis(200);
/// The time limit of reading it. A directory that does not answer says nothing.
const READ_WITHIN: Duration = Duration::from_secs(3);

/// The servers to which new connections go.
pub(crate) struct Location {
    current: RwLock<Current>,
    /// The entry of the directory, for a partition.
    entry: Option<Entry>,
    /// The number of moves that this process has followed.
    moves: watch::Sender<u64>,
}

#[derive(Clone)]
struct Current {
    servers: Arc<Servers>,
    /// The URL and the schema that the directory had.
    place: Option<(String, String)>,
    place_number: i64,
    name: Arc<str>,
    /// The URL. Connections to the same URL go to the same server, as the same user.
    server: Arc<str>,
}

/// The entry of a partition in its directory.
struct Entry {
    settings: Settings,
    directory: DirectoryEntry,
    is_marked: bool,
    /// True if the partition was not found at its place.
    is_missing: AtomicBool,
    read_at: Mutex<Option<Instant>>,
}

impl fmt::Debug for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Location").field(&self.name()).finish()
    }
}

/// A server of a [`Location`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Host {
    /// The number of moves before the connection was made.
    moves: u64,
    /// The index of the server in the URL.
    index: usize,
}

impl Location {
    /// The servers of a URL, for sessions with these settings. `is_marked` requests the setting that shows whether a pooler is between.
    pub(super) fn new(settings: &Settings, servers: Servers, is_marked: bool) -> Location {
        let name = name_of(&servers);
        let entry = settings.directory.clone().map(|directory| Entry {
            settings: settings.clone(),
            directory,
            is_marked,
            is_missing: AtomicBool::new(false),
            read_at: Mutex::default(),
        });
        let place = settings.schema.clone().map(|schema| (settings.url.clone(), schema));
        let place_number = entry.as_ref().map_or(0, |entry| entry.directory.place_number);
        let servers = Arc::new(configured(settings, servers, is_marked));
        let server = settings.url.as_str().into();
        Location { current: RwLock::new(Current { servers, place, place_number, name, server }), entry, moves: watch::Sender::new(0) }
    }

    /// The name of the database in messages.
    pub(crate) fn name(&self) -> Arc<str> {
        self.current().name
    }

    /// The time limit for a server that does not answer.
    pub(crate) fn connect_timeout(&self) -> Duration {
        self.current().servers.connect_timeout()
    }

    /// The server of the database, for connections that several partitions share: two locations with equal ones differ in their schemas only.
    pub(crate) fn server(&self) -> Arc<str> {
        self.current().server
    }

    /// The place of a partition; `None` without partitions.
    pub(crate) fn shared_place(&self) -> Option<SharedPlace> {
        let (entry, Current { server, place, place_number, .. }) = (self.entry.as_ref()?, self.current());
        Some(SharedPlace { server, search_path: quoted(&place?.1), itself: entry.itself(place_number) })
    }

    /// Changes with each move.
    pub(crate) fn moves(&self) -> watch::Receiver<u64> {
        self.moves.subscribe()
    }

    /// Connects to a server that fits. If the partition is not there, reads the directory and connects to its new place. The future is boxed,
    /// because those of user code would otherwise exceed the compiler's depth limit.
    pub(crate) fn connect(&self) -> BoxFuture<'_, sqlx::Result<(PgConnection, Host)>> {
        match &self.entry {
            None => Box::pin(self.connect_here()),
            Some(entry) => Box::pin(self.connect_to(entry)),
        }
    }

    async fn connect_to(&self, entry: &Entry) -> sqlx::Result<(PgConnection, Host)> {
        let refused = match entry.is_missing() {
            true => None,
            false => match self.connect_here().await {
                Ok((mut conn, host)) => match entry.is_another_place(&mut conn, self.current().place_number).await? {
                    true => None,
                    false => return Ok((conn, host)),
                },
                Err(error) => Some(error),
            },
        };
        let followed = self.follow(entry).await;
        if let Some(error) = refused.filter(|_| !matches!(followed, Ok(true))) {
            return Err(error);
        }
        let (mut conn, host) = self.connect_here().await?;
        if entry.read_itself(&mut conn).await? != Some(entry.itself(self.current().place_number)) {
            let why = followed.err().map(|error| format!("the directory cannot be read: {error}"));
            return Err(entry.missing(why.as_deref()));
        }
        entry.is_missing.store(false, Ordering::Release);
        Ok((conn, host))
    }

    /// The options of a server that fits now, for a connection that the caller makes.
    pub(crate) async fn choose(&self) -> sqlx::Result<PgConnectOptions> {
        let (conn, host) = self.connect().await?;
        let servers = self.current().servers;
        servers.released(conn).await;
        servers.options(host.index).cloned().ok_or_else(|| sqlx::Error::Io(io::ErrorKind::ConnectionReset.into()))
    }

    /// Returns once a connection to `host` cannot be expected to answer any more. Boxed like [`connect`](Location::connect).
    pub(crate) fn gone(&self, host: Host) -> BoxFuture<'_, sqlx::Error> {
        Box::pin(async move {
            let (servers, mut moves) = (self.current().servers, self.moves());
            if *moves.borrow() == host.moves {
                tokio::select! {
                    error = servers.gone(host.index) => return error,
                    _ = moves.changed() => {}
                }
            }
            sqlx::Error::Io(io::Error::new(io::ErrorKind::ConnectionReset, "the partition was moved"))
        })
    }

    /// The error of a statement. A partition whose tables are missing was moved, and the next connection looks for it.
    pub(crate) fn explained(&self, error: sqlx::Error) -> sqlx::Error {
        match &self.entry {
            Some(entry) if is_missing(&error) => {
                entry.is_missing.store(true, Ordering::Release);
                entry.missing(error.as_database_error().map(|error| error.message()))
            }
            _ => error,
        }
    }

    async fn connect_here(&self) -> sqlx::Result<(PgConnection, Host)> {
        // Read first: a connection to a place that is left meanwhile counts as one of an earlier place.
        let moves = *self.moves.borrow();
        let (conn, index) = self.current().servers.connect().await?;
        Ok((conn, Host { moves, index }))
    }

    /// Reads the directory, and goes to the place that it lists. Returns true if that is another one.
    async fn follow(&self, entry: &Entry) -> sqlx::Result<bool> {
        let before = *self.moves.borrow();
        let mut read_at = entry.read_at.lock().await;
        if read_at.is_none_or(|at| at.elapsed() >= READ_EVERY) {
            let found = timeout(READ_WITHIN, entry.read()).await;
            *read_at = Some(Instant::now());
            self.go_to(entry, found.map_err(|_| sqlx::Error::Io(io::ErrorKind::TimedOut.into()))??)?;
        }
        Ok(*self.moves.borrow() != before)
    }

    fn go_to(&self, entry: &Entry, place: PartitionPlace) -> sqlx::Result<()> {
        let settings = place.settings(&Settings { url: entry.directory.url.clone(), ..entry.settings.clone() });
        let known = Some((settings.url.clone(), place.schema.clone()));
        let current = self.current();
        if (current.place, current.place_number) == (known.clone(), place.place_number) {
            return Ok(());
        }
        let servers = Servers::parse(&settings.url).map_err(|says| sqlx::Error::Configuration(says.into()))?;
        let name = name_of(&servers);
        let servers = Arc::new(configured(&settings, servers, entry.is_marked));
        tracing::info!(partition = place.partition.number(), database = %name, "the partition was moved, and its new place is used");
        *self.current.write().unwrap_or_else(PoisonError::into_inner) =
            Current { servers, place: known, place_number: place.place_number, name, server: settings.url.into() };
        self.moves.send_modify(|moves| *moves += 1);
        Ok(())
    }

    fn current(&self) -> Current {
        self.current.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Entry {
    fn is_missing(&self) -> bool {
        self.is_missing.load(Ordering::Acquire)
    }

    /// The error while the partition is not at its place. A retry may succeed.
    fn missing(&self, why: Option<&str>) -> sqlx::Error {
        let partition = self.directory.partition;
        let says = format!("partition {} of {} is not here: it was moved, or is being moved", partition.number(), partition.of());
        let says = why.map_or_else(|| says.clone(), |why| format!("{says} ({why})"));
        sqlx::Error::Io(io::Error::new(io::ErrorKind::NotConnected, says))
    }

    /// The place in the directory.
    async fn read(&self) -> sqlx::Result<PartitionPlace> {
        let partition = self.directory.partition;
        let directory = Settings { schema: None, ..self.settings.clone() };
        let mut conn = connected(&directory, &self.directory.url).await?;
        let number = i64::from(partition.number());
        let listed = sqlx::query_as(sql::PARTITION_LISTED).bind(number).persistent(false).fetch_one(&mut conn).await?;
        let (schema, url, place_number, moving_to) = listed;
        Ok(PartitionPlace { partition, schema, url, place_number, moving_to })
    }

    /// Returns true if the schema of the session is this partition, at a place that it has left or not reached. Another partition is found when
    /// the store is opened.
    async fn is_another_place(&self, conn: &mut PgConnection, place_number: i64) -> sqlx::Result<bool> {
        let (number, of, _) = self.itself(place_number);
        Ok(self.read_itself(conn).await?.is_some_and(|known| (known.0, known.1) == (number, of) && known.2 != place_number))
    }

    /// The row that the partition has about itself at this place.
    fn itself(&self, place_number: i64) -> (i64, i64, i64) {
        let partition = self.directory.partition;
        (i64::from(partition.number()), i64::from(partition.of()), place_number)
    }

    /// The row that the schema of the session has about itself; `None` if it is no partition, or does not exist.
    async fn read_itself(&self, conn: &mut PgConnection) -> sqlx::Result<Option<(i64, i64, i64)>> {
        match conn.fetch_optional(sqlx::raw_sql(sql::PARTITION.postgres)).await {
            Ok(Some(row)) => Ok(Some((row.try_get(0)?, row.try_get(1)?, row.try_get(2)?))),
            Ok(None) => Ok(None),
            Err(error) if is_missing(&error) => Ok(None),
            Err(error) => Err(error),
        }
    }
}

/// A connection to the database with this URL, outside every pool.
pub(super) async fn connected(settings: &Settings, url: &str) -> sqlx::Result<PgConnection> {
    let servers = Servers::parse(url).map_err(|says| sqlx::Error::Configuration(says.into()))?;
    let (conn, _) = configured(settings, servers, false).connect().await?;
    Ok(conn)
}

/// The servers for sessions with these settings.
fn configured(settings: &Settings, servers: Servers, is_marked: bool) -> Servers {
    let timeout_ms = settings.deadline.as_millis().to_string();
    let options = servers.each(|options| {
        let mut options = options.disable_statement_logging();
        if !settings.statement_cache {
            options = options.statement_cache_capacity(0);
        }
        if settings.read_only {
            options = options.options([("default_transaction_read_only", "on"), ("statement_timeout", &timeout_ms)]);
        }
        if let Some(schema) = &settings.schema {
            // Without quotes, PostgreSQL would search for the name in lower case.
            options = options.options([("search_path", quoted(schema))]);
        }
        if is_marked {
            options = options.options([(sql::MARK, "on")]);
        }
        if options.get_application_name().is_none() {
            options = options.application_name("durable-fsm");
        }
        options
    });
    if settings.read_only { options.for_reading() } else { options }
}

/// True if the server has no such table or schema.
fn is_missing(error: &sqlx::Error) -> bool {
    let code = error.as_database_error().and_then(|error| error.code());
    code.is_some_and(|code| sql::MISSING_CODES.contains(&code.as_ref()))
}

/// The name of a database in messages.
fn name_of(servers: &Servers) -> Arc<str> {
    let first = servers.first();
    let name = first.get_database().unwrap_or(first.get_username());
    match first.get_socket() {
        Some(_) => format!("the PostgreSQL server at `{}`", servers.names()),
        None => format!("the PostgreSQL database `{name}` at `{}`", servers.names()),
    }
    .into()
}
