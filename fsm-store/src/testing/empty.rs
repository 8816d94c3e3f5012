//! Databases without tables, of each kind, for the tests of the store.

#[cfg(feature = "sqlite")]
use std::path::PathBuf;

use fsm_core::time::Timestamp;
#[cfg(feature = "sqlite")]
use uuid::Uuid;

#[cfg(all(unix, feature = "postgres"))]
use super::fresh::Fresh;
use crate::migrate;
use crate::open::Store;
use crate::settings::Settings;
use crate::sql::ROWS_OF_INSTANCES;

/// A database that is deleted when this value is dropped. Its functions panic if the database fails.
pub enum EmptyDatabase {
    /// SQLite in memory.
    #[cfg(feature = "sqlite")]
    Memory,
    /// SQLite in a file.
    #[cfg(feature = "sqlite")]
    File(PathBuf),
    /// A database on the PostgreSQL server for tests.
    #[cfg(all(unix, feature = "postgres"))]
    Postgres(Fresh),
}

impl EmptyDatabase {
    /// A SQLite file with a new name, which does not exist yet.
    #[cfg(feature = "sqlite")]
    pub fn file() -> EmptyDatabase {
        EmptyDatabase::File(std::env::temp_dir().join(format!("fsm-store-{}.db", Uuid::new_v4())))
    }

    /// Creates a database on PostgreSQL.
    #[cfg(all(unix, feature = "postgres"))]
    pub async fn postgres() -> EmptyDatabase {
        EmptyDatabase::Postgres(Fresh::empty().await.expect("these tests need PostgreSQL"))
    }

    /// The URL of the database.
    pub fn url(&self) -> String {
        match self {
            #[cfg(feature = "sqlite")]
            EmptyDatabase::Memory => "sqlite::memory:".into(),
            #[cfg(feature = "sqlite")]
            EmptyDatabase::File(path) => format!("sqlite://{}", path.display()),
            #[cfg(all(unix, feature = "postgres"))]
            EmptyDatabase::Postgres(fresh) => fresh.url().to_owned(),
        }
    }

    /// Opens the database and creates the tables.
    pub async fn open(&self) -> Store {
        let store = Store::open(Settings::new(self.url())).await.expect("the database opens");
        migrate::up(&store, Timestamp::from_micros(0)).await.expect("the tables are created");
        store
    }
}

#[cfg(feature = "sqlite")]
impl Drop for EmptyDatabase {
    fn drop(&mut self) {
        if let EmptyDatabase::File(path) = self {
            for end in ["", "-wal", "-shm"] {
                let _ = std::fs::remove_file(format!("{}{end}", path.display()));
            }
        }
    }
}

/// Runs a test on each kind of database, with the tables created.
pub async fn on_each(test: impl AsyncFn(Store)) {
    let all = [
        #[cfg(feature = "sqlite")]
        EmptyDatabase::Memory,
        #[cfg(feature = "sqlite")]
        EmptyDatabase::file(),
        #[cfg(all(unix, feature = "postgres"))]
        EmptyDatabase::postgres().await,
    ];
    for database in all {
        println!("on {}", database.url());
        let store = database.open().await;
        test(store.clone()).await;
        store.close().await;
    }
}

/// The number of rows of instances in all tables.
pub async fn rows(store: &Store) -> u64 {
    let mut reader = store.reader().await.expect("the database can be read");
    let rows = reader.conn().rows(&ROWS_OF_INSTANCES, &[]).await.expect("the database answers");
    rows[0].get::<i64>(0).expect("a count is a number").unsigned_abs()
}
