//! The load of every peer that is written in Rust: the same jobs, the same callers, the same figures.

mod arguments;
mod figures;
mod measurement;
mod report;
mod starts;

use std::error::Error;
use std::pin::Pin;

use serde::{Deserialize, Serialize};

pub use arguments::{Arguments, Figure};
pub use figures::measure;
pub use starts::job_started;

pub type Result<T = (), E = Box<dyn Error + Send + Sync>> = std::result::Result<T, E>;

/// The number of connections of each peer, if it can be set. Each connection sends one job at a time, and PostgreSQL writes many commits to
/// the disk together.
pub const CONNECTIONS: u32 = 32;

/// The content of a job: about 190 bytes of JSON.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Job {
    pub number: u64,
    pub text: String,
}

impl Job {
    pub fn new(number: u64) -> Job {
        Job { number, text: "0123456789abcdef".repeat(10) }
    }
}

/// The way in which a caller learns that its job is durably done.
pub enum End {
    /// The peer reports it through this future.
    Reported(Pin<Box<dyn Future<Output = Result> + Send>>),
    /// The peer does not report it: the caller continues when its job has started, and the database is queried at the end.
    Unreported,
}

/// A queue or an engine, through its own API.
pub trait Peer: Clone + Send + Sync + 'static {
    /// True if the peer reports to callers that their job is durably done.
    const REPORTS_END: bool;
    /// True if the peer accepts many jobs in one call.
    const HAS_BULK: bool = true;

    /// Sends one job with the peer's call for one job. It is durable when this returns.
    fn send(&self, job: Job) -> impl Future<Output = Result<End>> + Send;

    /// Sends many jobs with one call of the peer. They are durable when this returns.
    fn send_many(&self, _jobs: Vec<Job>) -> impl Future<Output = Result> + Send {
        async { Err("it takes one job a call".into()) }
    }

    /// The number of jobs in the database that are not yet durably done. Used only if the peer does not report the end to its callers.
    fn unfinished(&self) -> impl Future<Output = Result<u64>> + Send {
        async { Err("it tells its callers".into()) }
    }

    /// The settings of the peer for this figure, as a text.
    fn settings(&self) -> String;

    /// The way in which the end of a job is detected, as a text.
    fn end_detection(&self) -> &'static str;
}
