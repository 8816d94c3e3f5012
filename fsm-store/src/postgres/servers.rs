//! The PostgreSQL servers of a URL, and connecting to the one that fits. The driver supports only one host.

pub(crate) mod role;
mod url;

use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use sqlx::postgres::{PgConnectOptions, PgConnection};
use sqlx::{ConnectOptions, Connection};
use tokio::sync::Mutex;

use role::{Role, Wanted};

/// The default time limit for a server that does not answer. The whole operation has its own limit, which may be shorter.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// The next host is tried after the one before has not answered for this long. While a host is silent, hosts that refused are asked again
/// at this interval: the silent one may be the old primary, and the new primary may not be ready yet.
const STAGGER: Duration = Duration::from_millis(250);
/// The result of a probe is used for this long by all callers.
const PROBE_EVERY: Duration = Duration::from_secs(1);

/// The servers of a URL, in its order. Clones remember together the server that fitted last.
#[derive(Clone)]
pub(crate) struct Servers {
    hosts: Vec<PgConnectOptions>,
    wanted: Wanted,
    connect_timeout: Duration,
    /// `load_balance_hosts=random`.
    is_random: bool,
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    /// The index of the host that fitted last. The next connection tries it first.
    latest: AtomicUsize,
    /// The time, the index and the answer of the last probe of a host.
    probed: Mutex<Option<(Instant, usize, bool)>>,
}

/// The hosts that could not be used, each with its error.
type Refusals = Vec<(usize, sqlx::Error)>;

impl Servers {
    /// The same servers, each with changed options.
    pub(crate) fn each(mut self, change: impl Fn(PgConnectOptions) -> PgConnectOptions) -> Servers {
        self.hosts = self.hosts.into_iter().map(change).collect();
        self
    }

    /// The same servers for sessions that are read-only by their own settings.
    pub(crate) fn for_reading(self) -> Servers {
        Servers { wanted: self.wanted.for_reading(), ..self }
    }

    /// The options of the first host. All hosts share the user, the database and all options that do not name a server.
    pub(crate) fn first(&self) -> &PgConnectOptions {
        &self.hosts[0]
    }

    /// The time limit for a server that does not answer.
    pub(crate) fn connect_timeout(&self) -> Duration {
        self.connect_timeout
    }

    /// All hosts, for messages.
    pub(crate) fn names(&self) -> String {
        (0..self.hosts.len()).map(|host| self.name(host)).collect::<Vec<_>>().join(", ")
    }

    fn name(&self, host: usize) -> String {
        let options = &self.hosts[host];
        match options.get_socket() {
            Some(socket) => socket.display().to_string(),
            None if options.get_host().contains(':') => format!("[{}]:{}", options.get_host(), options.get_port()),
            None => format!("{}:{}", options.get_host(), options.get_port()),
        }
    }

    /// Connects to a server that fits. Also returns its index among the hosts.
    pub(crate) async fn connect(&self) -> sqlx::Result<(PgConnection, usize)> {
        self.find().await.map_err(|refusals| self.error(refusals))
    }

    /// The options of the host with this index.
    pub(crate) fn options(&self, host: usize) -> Option<&PgConnectOptions> {
        self.hosts.get(host)
    }

    /// Closes a connection that is not needed any more.
    pub(crate) async fn released(&self, conn: PgConnection) {
        // The server was reached, so an error while closing does not matter.
        let _ = tokio::time::timeout(STAGGER, conn.close()).await;
    }

    /// Returns once a connection to `host` cannot be expected to answer any more: the host does not answer a new connection, or another
    /// server has taken its place.
    pub(crate) async fn gone(&self, host: usize) -> sqlx::Error {
        loop {
            if !self.is_there(host).await {
                return timed_out(format!("`{}` has not answered, and a new connection to it is not answered either", self.name(host)));
            }
            tokio::time::sleep(PROBE_EVERY).await;
        }
    }

    /// True if `host` answers a new connection and, if only one server can fit, is still the one that fits. One probe serves all waiting
    /// callers.
    async fn is_there(&self, host: usize) -> bool {
        let mut probed = self.shared.probed.lock().await;
        if let Some((when, which, is_there)) = *probed
            && which == host
            && when.elapsed() < PROBE_EVERY
        {
            return is_there;
        }
        let found = if self.wanted.is_exclusive() {
            self.find().await
        } else {
            self.ask(host, Wanted::Any).await.1.map(|conn| (conn, host)).map_err(|error| vec![(host, error)])
        };
        let is_there = match found {
            Ok((conn, found)) => {
                self.released(conn).await;
                found == host
            }
            // An error from a server is an answer.
            Err(refusals) => !refusals.iter().any(|(refused, error)| *refused == host && is_silence(error)),
        };
        *probed = Some((Instant::now(), host, is_there));
        is_there
    }

    async fn find(&self) -> Result<(PgConnection, usize), Refusals> {
        match self.wanted {
            Wanted::PreferStandby => match self.find_one(Wanted::Standby).await {
                Ok(found) => Ok(found),
                Err(_) => self.find_one(Wanted::Any).await,
            },
            wanted => self.find_one(wanted).await,
        }
    }

    /// Asks the hosts one after the other. A silent host does not delay the next one. Hosts that refused are asked again until the time
    /// limit of the silent one ends, because during a fail-over one of them becomes the primary.
    async fn find_one(&self, wanted: Wanted) -> Result<(PgConnection, usize), Refusals> {
        let limit = Instant::now() + self.connect_timeout;
        let mut untried = self.order();
        let mut refusals: Refusals = Vec::new();
        let mut attempts: FuturesUnordered<_> = untried.pop_front().map(|host| self.ask(host, wanted)).into_iter().collect();
        loop {
            tokio::select! {
                Some((host, answer)) = attempts.next() => match answer {
                    Ok(conn) => {
                        self.shared.latest.store(host, Ordering::Relaxed);
                        return Ok((conn, host));
                    }
                    Err(error) => {
                        refusals.retain(|(refused, _)| *refused != host);
                        refusals.push((host, error));
                        match untried.pop_front() {
                            Some(next) => attempts.push(self.ask(next, wanted)),
                            None if attempts.is_empty() => {
                                refusals.sort_by_key(|(host, _)| *host);
                                return Err(refusals);
                            }
                            None => {}
                        }
                    }
                },
                () = tokio::time::sleep(STAGGER) => match untried.pop_front() {
                    Some(next) => attempts.push(self.ask(next, wanted)),
                    None if Instant::now() < limit => {
                        attempts.extend(refusals.iter().filter(|(_, error)| !is_silence(error)).map(|(host, _)| self.ask(*host, wanted)));
                        refusals.retain(|(_, error)| is_silence(error));
                    }
                    None => {}
                },
            }
        }
    }

    /// The hosts in the order in which they are asked.
    fn order(&self) -> VecDeque<usize> {
        let mut order: VecDeque<usize> = (0..self.hosts.len()).collect();
        if self.is_random {
            let mut random = uuid::Uuid::new_v4().as_u128();
            for last in (1..order.len()).rev() {
                order.swap(last, usize::try_from(random % (last as u128 + 1)).unwrap_or(0));
                random >>= 8;
            }
        } else {
            order.rotate_left(self.shared.latest.load(Ordering::Relaxed) % self.hosts.len());
        }
        order
    }

    /// Connects to one host, and checks the role of the server if `wanted` requires one.
    async fn ask(&self, host: usize, wanted: Wanted) -> (usize, sqlx::Result<PgConnection>) {
        let asking = async {
            let mut conn = self.hosts[host].connect().await?;
            if wanted != Wanted::Any
                && let Some(refusal) = wanted.refusal(Role::of(&mut conn).await?)
            {
                return Err(sqlx::Error::Configuration(refusal.into()));
            }
            Ok(conn)
        };
        let answer = match tokio::time::timeout(self.connect_timeout, asking).await {
            Ok(answer) => answer,
            Err(_) => Err(timed_out(format!("no answer within {} s", self.connect_timeout.as_secs_f64()))),
        };
        (host, answer)
    }

    /// One error for all hosts. The error of a single host is returned unchanged.
    fn error(&self, mut refusals: Refusals) -> sqlx::Error {
        if let [(_, error)] = &refusals[..]
            && !matches!(error, sqlx::Error::Configuration(_))
        {
            return refusals.remove(0).1;
        }
        let refused = refusals.into_iter().map(|(host, error)| (self.name(host), error)).collect();
        sqlx::Error::Io(io::Error::new(io::ErrorKind::NotConnected, NoServer { wanted: self.wanted, refused }))
    }
}

impl fmt::Debug for Servers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Servers").field(&self.names()).finish()
    }
}

/// The error if no server can be used.
#[derive(Debug)]
struct NoServer {
    wanted: Wanted,
    refused: Vec<(String, sqlx::Error)>,
}

impl fmt::Display for NoServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "no server fits `target_session_attrs={}`", self.wanted.word())?;
        for (place, (name, error)) in self.refused.iter().enumerate() {
            let why = match error {
                sqlx::Error::Configuration(refusal) => refusal.to_string(),
                sqlx::Error::Io(error) => error.to_string(),
                error => error.to_string(),
            };
            write!(f, "{} `{name}`: {why}", if place == 0 { ":" } else { ";" })?;
        }
        Ok(())
    }
}

impl std::error::Error for NoServer {}

/// True if a server refused the settings of the session, as a pooler does with a setting that it does not know. A server that starts, stops
/// or is full would accept them at another time.
pub(crate) fn is_setting_refused(error: &sqlx::Error) -> bool {
    match error {
        sqlx::Error::Database(error) => {
            error.code().is_some_and(|code| !["28", "3D", "53", "57"].iter().any(|class| code.starts_with(class)))
        }
        sqlx::Error::Io(error) => {
            let none = error.get_ref().and_then(|error| error.downcast_ref::<NoServer>());
            none.is_some_and(|none| none.refused.iter().any(|(_, error)| is_setting_refused(error)))
        }
        _ => false,
    }
}

/// True if the error means that no answer came in time.
fn is_silence(error: &sqlx::Error) -> bool {
    matches!(error, sqlx::Error::Io(error) if error.kind() == io::ErrorKind::TimedOut)
}

fn timed_out(says: String) -> sqlx::Error {
    sqlx::Error::Io(io::Error::new(io::ErrorKind::TimedOut, says))
}

#[cfg(test)]
mod tests;
