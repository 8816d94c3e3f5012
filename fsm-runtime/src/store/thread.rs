//! A connection to SQLite, on a thread of its own: SQLite waits for the disk, and nothing else may wait with it.

mod command;
mod failure;
mod whole;

use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak, mpsc};

use rusqlite::{Connection, ErrorCode, OpenFlags};
use tokio::sync::oneshot;

use super::turn::Turn;

pub(super) use command::{Answer, SqliteCommand};
pub(super) use failure::Refused;
use failure::refused;
pub(super) use whole::{Whole, ask_in_turn};

/// How many statements are kept prepared.
const KEPT: usize = 256;

/// What the thread carries out, one after the other, and whether it goes on afterwards.
type Order = Box<dyn FnOnce(&mut Connection) -> ControlFlow<()> + Send>;

/// A connection. Dropped, it is closed once what was ordered is done; an open transaction is given up then.
pub struct SqliteThread {
    orders: mpsc::Sender<Order>,
    /// The thread has the other half while it goes on.
    client_guard: Weak<()>,
    /// An order failed that ends the connection.
    ends: Arc<AtomicBool>,
    /// Ends when the connection is closed.
    closed: oneshot::Receiver<()>,
}

/// How a connection is made.
#[derive(Debug, Clone)]
pub(super) struct SqliteOptions {
    pub file: PathBuf,
    /// Which file system SQLite uses; its usual one without.
    pub vfs: Option<String>,
    pub is_read_only: bool,
    /// Nobody writes the file, so that it can be read where not even locks can be written.
    pub is_immutable: bool,
    /// What it is told first.
    pub pragmas: String,
}

impl SqliteOptions {
    fn connect(&self) -> rusqlite::Result<Connection> {
        let access = match self.is_read_only {
            true => OpenFlags::SQLITE_OPEN_READ_ONLY,
            false => OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE,
        };
        // One thread has it.
        let flags = access | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let connection = match (&self.vfs, self.is_immutable) {
            (Some(vfs), _) => Connection::open_with_flags_and_vfs(&self.file, flags, vfs.as_str()),
            (None, false) => Connection::open_with_flags(&self.file, flags),
            (None, true) => Connection::open_with_flags(self.as_immutable(), flags | OpenFlags::SQLITE_OPEN_URI),
        }?;
        connection.set_prepared_statement_cache_capacity(KEPT);
        connection.execute_batch(&self.pragmas)?;
        Ok(connection)
    }

    /// The file as a URI, which alone can say so.
    fn as_immutable(&self) -> String {
        let mut uri = "file:".to_owned();
        for byte in self.file.as_os_str().as_encoded_bytes() {
            match byte {
                b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'/' | b'.' | b'-' | b'_' => uri.push(char::from(*byte)),
                byte => uri.push_str(&format!("%{byte:02x}")),
            }
        }
        uri + "?immutable=1"
    }
}

impl SqliteThread {
    /// Opens the file on a new thread.
    pub(super) async fn connect(options: &SqliteOptions) -> sqlx::Result<SqliteThread> {
        let (orders, ordered) = mpsc::channel::<Order>();
        let (opened, is_open) = oneshot::channel();
        let (ends, closed) = oneshot::channel();
        let (options, alive) = (options.clone(), Arc::new(()));
        let client_guard = Arc::downgrade(&alive);
        let carry_out = move || {
            let (_ends, _alive): (oneshot::Sender<()>, _) = (ends, alive);
            match options.connect() {
                Ok(mut connection) => {
                    if opened.send(Ok(())).is_ok() {
                        let _ = ordered.into_iter().try_for_each(|order| order(&mut connection));
                    }
                }
                Err(error) => drop(opened.send(Err(error))),
            }
        };
        std::thread::Builder::new().name("fsm-sqlite".to_owned()).spawn(carry_out).map_err(sqlx::Error::Io)?;
        is_open.await.map_err(|_| sqlx::Error::WorkerCrashed)?.map_err(refused)?;
        Ok(SqliteThread { orders, client_guard, closed, ends: Arc::default() })
    }

    /// Carries this out on the thread. Once this is polled it is carried out even if the caller goes away.
    pub(super) async fn run<T: Send + 'static>(
        &mut self,
        order: impl FnOnce(&mut Connection) -> rusqlite::Result<T> + Send + 'static,
    ) -> sqlx::Result<T> {
        self.order(order, |_| ControlFlow::Continue(())).await
    }

    /// Begins to carry this out, which ends whatever it begins. What is ordered next is carried out next; if this fails, the
    /// connection ends and nothing is.
    pub(super) fn dedicated<T: Send + 'static, F>(&mut self, order: F) -> impl Future<Output = sqlx::Result<T>> + Send + use<T, F>
    where
        F: FnOnce(&mut Connection) -> rusqlite::Result<T> + Send + 'static,
    {
        self.order(order, |done| if done.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) })
    }

    fn order<T: Send + 'static, F>(
        &mut self,
        order: F,
        and_then: fn(&rusqlite::Result<T>) -> ControlFlow<()>,
    ) -> impl Future<Output = sqlx::Result<T>> + Send + use<T, F>
    where
        F: FnOnce(&mut Connection) -> rusqlite::Result<T> + Send + 'static,
    {
        let (answer, answered) = oneshot::channel();
        let ends = Arc::clone(&self.ends);
        let order = Box::new(move |connection: &mut Connection| {
            let done = order(connection);
            let next = and_then(&done);
            if next.is_break() {
                // Before anybody hears of it: whoever asks for a connection then gets another one.
                ends.store(true, Ordering::Release);
            }
            // Who asked may have gone away.
            let _ = answer.send(done);
            next
        });
        let ordered = self.orders.send(order).map_err(|_| sqlx::Error::WorkerCrashed);
        async move {
            ordered?;
            // No bound of its own: whoever orders it has the limit on one operation.
            answered.await.map_err(|_| sqlx::Error::WorkerCrashed)?.map_err(refused)
        }
    }

    /// Whether its thread goes on.
    pub(super) fn is_there(&self) -> bool {
        self.client_guard.strong_count() > 0 && !self.ends.load(Ordering::Acquire)
    }

    /// Closes it, and waits until it is closed.
    pub(super) async fn close(self) {
        let SqliteThread { orders, closed, .. } = self;
        drop(orders);
        // The thread says nothing; it ends. No bound of its own: a pool and a shutdown that close it have one.
        let _ = closed.await;
    }
}

/// Runs a statement without values, and keeps it prepared.
pub(super) fn words(connection: &Connection, text: &str) -> rusqlite::Result<()> {
    connection.prepare_cached(text)?.raw_execute().map(drop)
}

/// Carries these out.
pub(super) fn say(pending: &[SqliteCommand], connection: &Connection) -> rusqlite::Result<()> {
    pending.iter().try_for_each(|said| said.carry_out(connection).map(drop))
}

/// Tries again while another process writes.
pub(super) fn in_turn<T>(mut attempt: impl FnMut() -> rusqlite::Result<T>) -> rusqlite::Result<T> {
    let turn = Turn::wanted();
    loop {
        let done = attempt();
        let is_busy = done.as_ref().err().and_then(rusqlite::Error::sqlite_error_code) == Some(ErrorCode::DatabaseBusy);
        match turn.next_look(is_busy) {
            Some(wait) => std::thread::sleep(wait),
            None => return done,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_is_immutable_may_have_any_name() {
        let options =
            SqliteOptions { file: "/a b/c?d#e.db".into(), vfs: None, is_read_only: true, is_immutable: true, pragmas: String::new() };
        assert_eq!(options.as_immutable(), "file:/a%20b/c%3fd%23e.db?immutable=1");
    }
}
