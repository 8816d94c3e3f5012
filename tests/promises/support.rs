//! What the promise tests share: both databases for each test, and a healthy database after it.

use fsm::testing::Bed;

/// A test that runs once on SQLite and once on PostgreSQL, and leaves a database that breaks no invariant.
macro_rules! promise {
    ($(#[doc = $doc:literal])* async fn $name:ident($bed:ident in $builder:expr) $body:block) => {
        $(#[doc = $doc])*
        mod $name {
            #[allow(unused_imports)]
            use super::*;

            async fn kept($bed: &fsm::testing::Bed) $body

            #[tokio::test]
            async fn sqlite() {
                let bed = $builder.sqlite().await;
                kept(&bed).await;
                crate::support::healthy(&bed).await;
            }

            #[tokio::test]
            async fn postgres() {
                let bed = $builder.postgres().await;
                kept(&bed).await;
                crate::support::healthy(&bed).await;
            }
        }
    };
}
pub(crate) use promise;

/// Every invariant holds.
pub async fn healthy(bed: &Bed) {
    let violations = bed.violations().await;
    assert!(violations.is_empty(), "{violations:#?}");
}
