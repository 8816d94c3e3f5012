//! The load that every peer written in Rust carries: the same jobs, the same callers, the same figures.

mod arguments;
mod figures;
mod report;
mod turn;
mod watch;

use std::error::Error;
use std::pin::Pin;

use serde::{Deserialize, Serialize};

pub use arguments::{Arguments, Figure};
pub use figures::measure;
pub use watch::started;

pub type Result<T = (), E = Box<dyn Error + Send + Sync>> = std::result::Result<T, E>;

/// How many connections each peer may have, where it lets one say: each brings one job at a time, and PostgreSQL makes one write to
/// the disk of many commits.
pub const CONNECTIONS: u32 = 32;

/// What a job carries: about 190 bytes of JSON.
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

/// How a caller learns that its job is durably done.
pub enum End {
    /// The peer tells it.
    Told(Pin<Box<dyn Future<Output = Result> + Send>>),
    /// The peer does not: the caller goes on when its job has started, and the database is asked at the end.
    Untold,
}

/// A queue or an engine, through its own API.
pub trait Peer: Clone + Send + Sync + 'static {
    /// Whether callers learn that their job is durably done.
    const TELLS: bool;
    /// Whether it takes many jobs by one call.
    const HAS_BULK: bool = true;

    /// Sends one job by the peer's call for one job. It is durable when this returns.
    fn send(&self, job: Job) -> impl Future<Output = Result<End>> + Send;

    /// Sends many by one call of the peer. They are durable when this returns.
    fn send_many(&self, _jobs: Vec<Job>) -> impl Future<Output = Result> + Send {
        async { Err("it takes one job a call".into()) }
    }

    /// How many jobs are not yet durably done, by the database's word. Only asked where the peer does not tell its callers.
    fn unfinished(&self) -> impl Future<Output = Result<u64>> + Send {
        async { Err("it tells its callers".into()) }
    }

    /// How it was set up for this figure.
    fn settings(&self) -> String;

    /// In what way the end of a job is seen.
    fn end_seen(&self) -> &'static str;
}
