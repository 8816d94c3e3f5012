#![doc = include_str!("../README.md")]
#![cfg_attr(docsrs, feature(doc_cfg))]

pub use fsm_core::call::AttemptState;
pub use fsm_core::decide::send::SendOutcome;
pub use fsm_core::ids::{CallId, InstanceId, SessionId};
pub use fsm_core::instance::Status;
pub use fsm_core::partition::{Partition, partition_of};
pub use fsm_core::priority::Priority;
pub use fsm_core::retry::{Retry, RetryAdvice};
pub use fsm_core::retry_schedule::{Planned, RetrySchedule, Warning};
pub use fsm_core::time::Timestamp;
pub use fsm_core::trace::TraceContext;
pub use fsm_core::{diagram, duration};
pub use fsm_macros::{fsm, retry, verb};
#[cfg(feature = "aead")]
pub use fsm_runtime::aead::Aead;
pub use fsm_runtime::children::{ChildCount, ChildEnded, ChildFailed, ChildrenEnded, Relative};
pub use fsm_runtime::client::{Client, ClientBuilder};
pub use fsm_runtime::codec::{EncryptedField, EncryptionContext, PayloadCodec};
pub use fsm_runtime::context::Ctx;
pub use fsm_runtime::context::children::{ChildrenRequest, NewChildren};
pub use fsm_runtime::context::verb_requests::OutgoingEvent;
pub use fsm_runtime::data::Data;
pub use fsm_runtime::doctor::{Report, doctor};
pub use fsm_runtime::drift::Migrate;
pub use fsm_runtime::engine_access::EngineAccess;
pub use fsm_runtime::error::{Error, ErrorKind};
pub use fsm_runtime::failure::{FailedAttempt, Failure, Result, Retryable};
pub use fsm_runtime::handle::Handle;
pub use fsm_runtime::handle::activity::{Activity, OpenCall};
pub use fsm_runtime::handle::history::{HistoryEntry, HistoryEvent};
pub use fsm_runtime::handle::operate::{Bulk, BulkOutcome, BulkPlan, BulkRequest, OperateRequest};
pub use fsm_runtime::handle::send::{SendInTransaction, SendRequest, Sent};
pub use fsm_runtime::handle::send_many::{IntoSendItem, SendItem, SendMany};
pub use fsm_runtime::handle::settled::SettledRequest;
pub use fsm_runtime::handle::view::{Attempt, Count, Cursor, Filter, Instance, Page, Unreadable};
pub use fsm_runtime::handle::wait::{Wait, WaitRequest};
pub use fsm_runtime::handle::watch::WatchStream;
pub use fsm_runtime::health::{DatabaseHealth, Health, LeaseHealth, MigrationHealth};
pub use fsm_runtime::limit::{Limit, LimitSetting};
pub use fsm_runtime::metrics::names::{MetricKind, NAMES as METRICS, SECONDS_BUCKETS, SIZE_BUCKETS};
pub use fsm_runtime::progress::Progress;
pub use fsm_runtime::redact::{Redactable, RedactableKind};
pub use fsm_runtime::registry::{Accepts, EventFor, Machine};
pub use fsm_runtime::running::UnreportedAttempt;
pub use fsm_runtime::runtime::shutdown::ShutdownHandle;
pub use fsm_runtime::runtime::{Builder, Runtime};
pub use fsm_runtime::schedule::{DeclaredSchedule, Due, Missed, Schedule};
pub use fsm_runtime::schema::{Schema, schema};
#[cfg(feature = "testing")]
pub use fsm_runtime::testing;
pub use fsm_runtime::timeout::{Caught, Timeout};
pub use fsm_store::invariants::Invariant;
pub use fsm_store::overview::{InboxEvent, PendingTimer};
pub use fsm_store::settings::Synchronous;

pub use fsm_runtime::retryable;

/// The database driver, in the version that `ctx.postgres()`, `ctx.sqlite()` and `send_in` take connections of.
///
/// Use it as `fsm::sqlx`, or depend on the same version to add features, such as the macros:
///
/// ```toml
/// sqlx = { version = "0.9", default-features = false, features = ["runtime-tokio", "sqlite-bundled", "postgres", "uuid", "macros"] }
/// ```
pub use fsm_runtime::sqlx;

/// The date and time library of [`Due`], in the version that it returns values of.
pub use fsm_runtime::jiff;

/// The `fsm` command inside your own program. It has the same subcommands and options, uses the connections of your program, and knows the
/// types of your events.
///
/// ```no_run
/// # use fsm::prelude::*;
/// #[tokio::main]
/// async fn main() -> std::process::ExitCode {
///     let client = Client::connect("sqlite://payments.db").await.expect("the database can be opened");
///     fsm::cli::run(&client).await                 // `payments ls`, `payments show payment order-7`, `payments retry …`
/// }
/// ```
#[cfg(feature = "cli")]
pub mod cli {
    pub use fsm_cli::embedded::{run, run_args};
}

/// The web console: `Router::new().nest("/fsm", fsm::console(&runtime).router())`, and the probes `/livez`, `/readyz` and `/metrics`:
/// `Router::new().merge(fsm::probes(&runtime).router())`.
#[cfg(feature = "console")]
pub use fsm_console::{Access, Actor, Console, Probes, console, probes};

#[doc(hidden)]
pub use fsm_runtime::private as __private;

#[cfg(doctest)]
mod guide;

/// The imports of a program that declares machines: `use fsm::prelude::*`.
pub mod prelude {
    pub use std::time::Duration;

    pub use crate::{
        AttemptState, Caught, ChildEnded, ChildFailed, ChildrenEnded, Client, Ctx, Data, FailedAttempt, Failure, Filter, Limit, Missed,
        Priority, Result, Runtime, Schedule, Status, Timeout, Timestamp, fsm, retry, verb,
    };
}
