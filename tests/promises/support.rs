//! The common parts of the promise tests: each runs on all databases and checks the invariants at its end.

use fsm::testing::TestBed;

/// The number of partitions in the tests of promises. They are in two databases.
pub const PARTITIONS: u32 = 4;

/// Declares a test that runs on SQLite in memory, on a SQLite file, on PostgreSQL and on PostgreSQL with partitions, and checks the invariants
/// at its end.
macro_rules! promise {
    ($(#[doc = $doc:literal])* async fn $name:ident($bed:ident in $builder:expr) $body:block) => {
        crate::support::promise! { of_partitions: { #[cfg(feature = "postgres")] } $(#[doc = $doc])* async fn $name($bed in $builder) $body }
    };
    (of_partitions: { #[$condition:meta] } $(#[doc = $doc:literal])* async fn $name:ident($bed:ident in $builder:expr) $body:block) => {
        $(#[doc = $doc])*
        mod $name {
            #[allow(unused_imports)]
            use super::*;

            async fn check($bed: &fsm::testing::TestBed) $body

            #[cfg(feature = "sqlite")]
            #[tokio::test]
            async fn sqlite() {
                let bed = $builder.sqlite().await;
                check(&bed).await;
                crate::support::assert_invariants_hold(&bed).await;
            }

            #[cfg(feature = "sqlite")]
            #[tokio::test]
            async fn file() {
                let folder = crate::support::Folder::new(concat!("promise-", stringify!($name)));
                let bed = $builder.on(&folder.url("fsm.db")).await;
                check(&bed).await;
                crate::support::assert_invariants_hold(&bed).await;
            }

            #[cfg(feature = "postgres")]
            #[tokio::test]
            async fn postgres() {
                let bed = $builder.postgres().await;
                check(&bed).await;
                crate::support::assert_invariants_hold(&bed).await;
            }

            #[$condition]
            #[tokio::test]
            async fn partitions() {
                let bed = $builder.partitions(crate::support::PARTITIONS).await;
                check(&bed).await;
                crate::support::assert_invariants_hold(&bed).await;
            }
        }
    };
}
pub(crate) use promise;

/// Declares the same test for databases without partitions: what it is about is not the same with partitions.
#[allow(unused_macros, reason = "not every test binary needs it")]
macro_rules! promise_without_partitions {
    ($($test:tt)*) => {
        crate::support::promise! { of_partitions: { #[cfg(false)] } $($test)* }
    };
}
#[allow(unused_imports, reason = "not every test binary needs it")]
pub(crate) use promise_without_partitions;

/// Evaluates `$run` with the connection of the verb's own transaction.
macro_rules! in_own_transaction {
    ($ctx:ident, $is_postgres:expr, $conn:ident => $run:expr) => {
        match $is_postgres {
            #[cfg(feature = "postgres")]
            true => {
                let $conn = $ctx.postgres().await?;
                $run
            }
            #[cfg(feature = "sqlite")]
            false => {
                let $conn = $ctx.sqlite().await?;
                $run
            }
            #[cfg(not(all(feature = "sqlite", feature = "postgres")))]
            _ => unreachable!("the test runs on a database that it has no driver for"),
        }
    };
}
pub(crate) use in_own_transaction;

/// The number of statements from one crash to the next, in tests with a crash before each. With partitions a session has several times as many
/// statements, most of them for partitions in which nothing happens.
pub fn stride(bed: &TestBed) -> usize {
    if bed.partitions() == 1 { 1 } else { 11 }
}

/// Checks that every invariant holds.
pub async fn assert_invariants_hold(bed: &TestBed) {
    let violations = bed.check_invariants().await;
    assert!(violations.is_empty(), "{violations:#?}");
}

/// A folder for one test. It is deleted when the value is dropped.
#[allow(dead_code, reason = "not every test binary needs a folder")]
pub struct Folder(std::path::PathBuf);

#[allow(dead_code, reason = "not every test binary needs a folder")]
impl Folder {
    pub fn new(name: &str) -> Folder {
        let folder = std::env::temp_dir().join(format!("fsm-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        Folder(folder)
    }

    pub fn path(&self) -> &std::path::Path {
        &self.0
    }

    /// Returns the URL of a SQLite database in the folder.
    pub fn url(&self, file: &str) -> String {
        format!("sqlite://{}", self.0.join(file).display())
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_dir_all(&self.0) {
            eprintln!("{} was not removed: {error}", self.0.display());
        }
    }
}
