//! The locks that the verb of the current task holds. A request that waits for one of them would wait for itself until its timeout.

use std::cell::RefCell;
use std::collections::HashSet;

use super::conn::Conn;

tokio::task_local! {
    static HELD: RefCell<Held>;
}

/// The locks of a verb.
#[derive(Default)]
struct Held {
    /// The id of the store and the address of the connection of the verb's transaction.
    transaction: Option<(usize, usize)>,
    has_writer: bool,
    /// Instances that its transaction has locked, by machine and key.
    locked: HashSet<(String, String)>,
}

/// Runs a verb's code and records the locks of its transaction.
pub async fn noting<T>(verb: impl Future<Output = T>) -> T {
    HELD.scope(RefCell::default(), verb).await
}

/// Records that the verb has opened its transaction in the store with this id.
pub fn opened(store: usize, conn: &Conn<'_>) {
    with(|held| {
        held.transaction = Some((store, conn.address()));
        held.has_writer = !conn.is_postgres();
    });
}

/// Records that the verb's transaction on this connection holds the lock of the instance until it ends.
pub fn locked(store: usize, conn: &Conn<'_>, machine: &str, key: &str) {
    with(|held| {
        if held.transaction == Some((store, conn.address())) {
            held.locked.insert((machine.to_owned(), key.to_owned()));
        }
    });
}

/// True if the verb of this task holds the only SQLite writer of that store.
pub fn has_writer(store: usize) -> bool {
    with(|held| held.has_writer && held.transaction.is_some_and(|(of, _)| of == store)).unwrap_or(false)
}

/// True if the transaction of this task's verb holds the lock of the instance.
pub fn has_locked(store: usize, machine: &str, key: &str) -> bool {
    let is_it = |held: &mut Held| {
        held.transaction.is_some_and(|(of, _)| of == store) && held.locked.iter().any(|(of, target)| of == machine && target == key)
    };
    with(is_it).unwrap_or(false)
}

fn with<T>(look: impl FnOnce(&mut Held) -> T) -> Option<T> {
    HELD.try_with(|held| look(&mut held.borrow_mut())).ok()
}
