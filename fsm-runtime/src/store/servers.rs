//! The PostgreSQL servers of a URL, and the connection to the one of them that fits: the driver knows only a single host.

pub(super) mod role;
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

/// The default time until a server that does not answer is given up. The whole operation has its own limit, which may be shorter.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// The next host is tried when the one before has not answered for this long. Hosts that refused are asked again this often while another
/// one is silent: the silent one may be the old primary, and the new one is not ready yet.
const STAGGER: Duration = Duration::from_millis(250);
/// The result of a probe is used by all who ask within this time.
const PROBE_EVERY: Duration = Duration::from_secs(1);

/// The servers of a URL, in its order. Clones share the memory of the server that fitted last.
#[derive(Clone)]
pub(super) struct Servers {
    hosts: Vec<PgConnectOptions>,
    wanted: Wanted,
    connect_timeout: Duration,
    /// `load_balance_hosts=random`.
    is_random: bool,
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    /// The host that fitted last, with which the next connection begins.
    latest: AtomicUsize,
    /// When a host was probed last, and whether it answered.
    probed: Mutex<Option<(Instant, usize, bool)>>,
}

/// A host that was refused, or that refused.
type Refusals = Vec<(usize, sqlx::Error)>;

impl Servers {
    /// The same servers, each with changed options.
    pub(super) fn each(mut self, change: impl Fn(PgConnectOptions) -> PgConnectOptions) -> Servers {
        self.hosts = self.hosts.into_iter().map(change).collect();
        self
    }

    /// The same servers for sessions that are read-only by their own settings.
    pub(super) fn for_reading(self) -> Servers {
        Servers { wanted: self.wanted.for_reading(), ..self }
    }

    /// The options of the first host. All hosts share the user, the database and what else does not name a server.
    pub(super) fn first(&self) -> &PgConnectOptions {
        &self.hosts[0]
    }

    /// The time until a server that does not answer is given up.
    pub(super) fn connect_timeout(&self) -> Duration {
        self.connect_timeout
    }

    /// All hosts as messages name them.
    pub(super) fn names(&self) -> String {
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

    /// Connects to a server that fits, and gives its place among the hosts.
    pub(super) async fn connect(&self) -> sqlx::Result<(PgConnection, usize)> {
        self.find().await.map_err(|refusals| self.error(refusals))
    }

    /// The options of a server that fits now, for a connection that somebody else makes.
    pub(super) async fn choose(&self) -> sqlx::Result<PgConnectOptions> {
        let (conn, host) = self.connect().await?;
        // The server was reached, so an error of the farewell does not matter.
        let _ = tokio::time::timeout(STAGGER, conn.close()).await;
        Ok(self.hosts[host].clone())
    }

    /// Returns once a connection to `host` cannot be expected to answer any more: the host does not answer a new connection, or another
    /// server has taken its place.
    pub(super) async fn gone(&self, host: usize) -> sqlx::Error {
        loop {
            if !self.is_there(host).await {
                return timed_out(format!("`{}` has not answered, and a new connection to it is not answered either", self.name(host)));
            }
            tokio::time::sleep(PROBE_EVERY).await;
        }
    }

    /// Whether `host` answers a new connection, and is still the server that fits if only one can. One probe serves all who wait.
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
                let _ = tokio::time::timeout(STAGGER, conn.close()).await;
                found == host
            }
            // An error that a server sends is an answer.
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

    /// Asks the hosts one after the other. A host that is silent does not keep the next one waiting, and hosts that refused are asked again
    /// until the silent one is given up: during a fail-over one of them becomes the primary.
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

    /// Connects to one host, and looks at what it is if that matters.
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

    /// One error for all hosts. A single host's own error stays what it is.
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

/// None of the servers can be used.
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

/// Whether a server said that it does not take the session as it was asked for, as a pooler does with a setting that it does not know.
/// A server that starts, stops or is full would take it at another time.
pub(super) fn is_setting_refused(error: &sqlx::Error) -> bool {
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

/// Whether this is the absence of an answer.
fn is_silence(error: &sqlx::Error) -> bool {
    matches!(error, sqlx::Error::Io(error) if error.kind() == io::ErrorKind::TimedOut)
}

fn timed_out(says: String) -> sqlx::Error {
    sqlx::Error::Io(io::Error::new(io::ErrorKind::TimedOut, says))
}

#[cfg(test)]
mod tests;
