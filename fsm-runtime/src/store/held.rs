//! What the verb that runs in this task holds in a database: to ask for what waits for it would wait until somebody's patience ends.

use std::cell::RefCell;
use std::collections::HashSet;

use super::conn::Conn;

tokio::task_local! {
    static HELD: RefCell<Held>;
}

/// What a verb holds.
#[derive(Default)]
struct Held {
    /// In which store, and at which address its connection is.
    transaction: Option<(usize, usize)>,
    has_writer: bool,
    /// Instances that its transaction has locked, by machine and key.
    locked: HashSet<(String, String)>,
}

/// Runs a verb's code, of whose transaction is known from now on.
pub(crate) async fn noting<T>(verb: impl Future<Output = T>) -> T {
    HELD.scope(RefCell::default(), verb).await
}

/// The verb has opened its transaction in the store with this id.
pub(crate) fn opened(store: usize, conn: &Conn<'_>) {
    with(|held| {
        held.transaction = Some((store, address(conn)));
        held.has_writer = !conn.is_postgres();
    });
}

/// The instance is locked by a transaction on this connection until that ends.
pub(crate) fn locked(store: usize, conn: &Conn<'_>, machine: &str, key: &str) {
    with(|held| {
        if held.transaction == Some((store, address(conn))) {
            held.locked.insert((machine.to_owned(), key.to_owned()));
        }
    });
}

/// Whether the verb of this task holds the one writer of that store.
pub(crate) fn has_writer(store: usize) -> bool {
    with(|held| held.has_writer && held.transaction.is_some_and(|(of, _)| of == store)).unwrap_or(false)
}

/// Whether the transaction of this task's verb has locked the instance.
pub(crate) fn has_locked(store: usize, machine: &str, key: &str) -> bool {
    let is_it = |held: &mut Held| {
        held.transaction.is_some_and(|(of, _)| of == store) && held.locked.iter().any(|(of, target)| of == machine && target == key)
    };
    with(is_it).unwrap_or(false)
}

fn with<T>(look: impl FnOnce(&mut Held) -> T) -> Option<T> {
    HELD.try_with(|held| look(&mut held.borrow_mut())).ok()
}

fn address(conn: &Conn<'_>) -> usize {
    match conn {
        Conn::Sqlite(guarded) => std::ptr::from_ref(&*guarded.conn) as usize,
        Conn::UserSqlite(guarded) => std::ptr::from_ref(&*guarded.conn) as usize,
        Conn::Postgres(guarded) => std::ptr::from_ref(&*guarded.conn) as usize,
    }
}
