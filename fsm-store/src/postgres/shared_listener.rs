//! One listening connection for all partitions of a process that are on one server.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use sqlx::Executor;
use sqlx::postgres::PgListener;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::timeout;

use crate::error::Result;

/// A connection that was silent for this long is pinged: the machine at its other end may have vanished.
const SILENCE: Duration = Duration::from_secs(5);
/// The time limit of that ping, and of a `listen`.
const ANSWER: Duration = Duration::from_secs(2);
/// The number of partitions that may wait for the connection to listen for them, before others wait to ask.
const WAITING: usize = 16;

/// The listening connections of a process, by server. Clones share them.
#[derive(Clone, Default)]
pub struct ListeningConnections {
    by_server: Arc<Mutex<HashMap<String, Arc<OfServer>>>>,
}

impl fmt::Debug for ListeningConnections {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ListeningConnections").finish_non_exhaustive()
    }
}

/// The connection to one server, while partitions use it. The lock is held while it is opened, so that one partition opens it for all.
type OfServer = tokio::sync::Mutex<Option<mpsc::WeakSender<Request>>>;

/// A request to listen on a channel.
struct Request {
    channel: String,
    answer: oneshot::Sender<watch::Receiver<()>>,
}

/// Listens on one channel of a shared connection. The connection is closed when its last subscription is dropped.
pub(super) struct Subscription {
    notified: watch::Receiver<()>,
    _connection: mpsc::Sender<Request>,
}

impl ListeningConnections {
    /// Listens on `channel` on the connection to `server`. `open` opens it if there is none. The caller limits the time.
    pub(super) async fn subscribe(
        &self,
        server: &str,
        channel: &str,
        open: impl Future<Output = Result<PgListener>>,
    ) -> Result<Subscription> {
        let of_server = Arc::clone(self.by_server.lock().unwrap_or_else(PoisonError::into_inner).entry(server.to_owned()).or_default());
        let connection = {
            let mut current = of_server.lock().await;
            match current.as_ref().and_then(mpsc::WeakSender::upgrade).filter(|connection| !connection.is_closed()) {
                Some(connection) => connection,
                None => {
                    let (connection, requests) = mpsc::channel(WAITING);
                    tokio::spawn(listen(Box::new(open.await?), requests));
                    *current = Some(connection.downgrade());
                    connection
                }
            }
        };
        let (answer, answered) = oneshot::channel();
        connection.send(Request { channel: channel.to_owned(), answer }).await.map_err(|_| lost())?;
        let notified = answered.await.map_err(|_| lost())?;
        Ok(Subscription { notified, _connection: connection })
    }
}

impl Subscription {
    /// Waits for the next notification. Returns an error if the connection is lost.
    pub(super) async fn next_notification(&mut self) -> Result<()> {
        Ok(self.notified.changed().await.map_err(|_| lost())?)
    }
}

/// The error of a connection that is lost.
pub(super) fn lost() -> sqlx::Error {
    sqlx::Error::Io(std::io::ErrorKind::ConnectionAborted.into())
}

/// Passes the notifications on until the connection is lost or nobody needs it any more. All subscriptions end with it.
async fn listen(mut listener: Box<PgListener>, mut requests: mpsc::Receiver<Request>) {
    let mut subscriptions: HashMap<String, Vec<watch::Sender<()>>> = HashMap::new();
    loop {
        let received = tokio::select! {
            request = requests.recv() => {
                let Some(Request { channel, answer }) = request else { return };
                if !matches!(timeout(ANSWER, listener.listen(&channel)).await, Ok(Ok(()))) {
                    return;
                }
                let (notifies, notified) = watch::channel(());
                // Nobody listens if the request was given up meanwhile.
                let _ = answer.send(notified);
                let others = subscriptions.entry(channel).or_default();
                others.retain(|other| !other.is_closed());
                others.push(notifies);
                continue;
            }
            received = timeout(SILENCE, listener.try_recv()) => received,
        };
        match received {
            Ok(Ok(Some(notification))) => {
                for subscription in subscriptions.get(notification.channel()).into_iter().flatten() {
                    subscription.send_replace(());
                }
            }
            Ok(Ok(None) | Err(_)) => return,
            Err(_) if matches!(timeout(ANSWER, listener.execute("select 1")).await, Ok(Ok(_))) => {}
            Err(_) => return,
        }
    }
}
