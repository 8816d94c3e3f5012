//! A SQLite connection on a thread of its own: SQLite blocks on the disk, and must not block a thread of tokio.

mod command;
mod failure;
mod whole;

use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak, mpsc};

use rusqlite::{Connection, OpenFlags};
use tokio::sync::oneshot;

pub(crate) use command::{Answer, SqliteCommand};
pub(crate) use failure::Refused;
use failure::refused;
pub(crate) use whole::{Whole, ask_in_turn, in_turn, words};

/// The number of prepared statements that are cached.
const KEPT: usize = 256;

/// A closure that the thread runs. It returns whether the thread continues.
type Order = Box<dyn FnOnce(&mut Connection) -> ControlFlow<()> + Send>;

/// A connection. When it is dropped, the thread runs the pending orders and closes it. An open transaction is rolled back then.
pub struct SqliteThread {
    orders: mpsc::Sender<Order>,
    /// The thread holds the strong reference while it runs.
    client_guard: Weak<()>,
    /// True after an order failed that ends the connection.
    ends: Arc<AtomicBool>,
    /// Resolves when the connection is closed.
    closed: oneshot::Receiver<()>,
}

/// The options for a new connection.
#[derive(Debug, Clone)]
pub(crate) struct SqliteOptions {
    pub file: PathBuf,
    /// The VFS that SQLite uses; `None` is the default one.
    pub vfs: Option<String>,
    pub is_read_only: bool,
    /// True if no process writes the file. It can then be read where SQLite cannot create lock files.
    pub is_immutable: bool,
    /// The first statements on a new connection.
    pub pragmas: String,
}

impl SqliteOptions {
    fn connect(&self) -> rusqlite::Result<Connection> {
        let access = match self.is_read_only {
            true => OpenFlags::SQLITE_OPEN_READ_ONLY,
            false => OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE,
        };
        // Only one thread uses the connection.
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

    /// The file as a URI. Only a URI can declare the file immutable.
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
    pub(crate) async fn connect(options: &SqliteOptions) -> sqlx::Result<SqliteThread> {
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

    /// Runs `order` on the thread. Once the future is polled, the order runs even if the future is dropped.
    pub(crate) async fn run<T: Send + 'static>(
        &mut self,
        order: impl FnOnce(&mut Connection) -> rusqlite::Result<T> + Send + 'static,
    ) -> sqlx::Result<T> {
        self.order(order, |_| ControlFlow::Continue(())).await
    }

    /// Sends `order` to the thread at once. The order has to end any transaction that it begins. The next order follows it directly. If
    /// this order fails, the connection ends and no later order runs.
    pub(crate) fn dedicated<T: Send + 'static, F>(&mut self, order: F) -> impl Future<Output = sqlx::Result<T>> + Send + use<T, F>
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
                // Before the result is sent: a caller that takes a connection after it must get another one.
                ends.store(true, Ordering::Release);
            }
            // The caller may have been dropped.
            let _ = answer.send(done);
            next
        });
        let ordered = self.orders.send(order).map_err(|_| sqlx::Error::WorkerCrashed);
        async move {
            ordered?;
            // No timeout here: the caller applies the deadline of one operation.
            answered.await.map_err(|_| sqlx::Error::WorkerCrashed)?.map_err(refused)
        }
    }

    /// True if its thread still runs.
    pub(crate) fn is_there(&self) -> bool {
        self.client_guard.strong_count() > 0 && !self.ends.load(Ordering::Acquire)
    }

    /// Closes the connection and waits until it is closed.
    pub(crate) async fn close(self) {
        let SqliteThread { orders, closed, .. } = self;
        drop(orders);
        // The thread sends no value; the channel closes. No timeout here: a pool and a shutdown that close it have one.
        let _ = closed.await;
    }
}

/// Runs these commands.
pub(crate) fn say(pending: &[SqliteCommand], connection: &Connection) -> rusqlite::Result<()> {
    pending.iter().try_for_each(|said| said.carry_out(connection).map(drop))
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
