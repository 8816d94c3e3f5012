//! The measured machine. Its verbs do nothing, or almost nothing.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::SystemTime;

use fsm::prelude::*;
use serde::{Deserialize, Serialize};

/// Creates an instance.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Begin {
    pub text: String,
}
/// One transition.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Step {
    pub text: String,
}
/// One transition that records the time between its send and the start of its verb.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Timed {
    pub sent_us: u64,
    pub text: String,
}
/// A chain of `left` further transitions, each requested by the one before it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Links {
    pub left: u32,
    pub text: String,
}
/// Fails until `due_us`, in microseconds since 1970, and is retried then.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct NotBefore {
    pub due_us: u64,
}

/// Sends one report to the instance that all report to.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Report {
    pub text: String,
}
/// A report arrives.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Reported {
    pub text: String,
}

/// The numbers of successful verbs.
#[derive(Debug, Default)]
pub struct Counters {
    pub reports: AtomicU64,
    pub links: AtomicU64,
    pub waits: AtomicU64,
    /// The times between the send and the start of each timed verb, in microseconds.
    pub began_us: Mutex<Vec<u64>>,
}

/// A text of 180 bytes, so that an encoded event has about 190.
pub fn text() -> String {
    "0123456789".repeat(18)
}

pub fn now_us() -> u64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_micros() as u64)
}

#[verb]
async fn begun(_event: Begin) -> Result {
    Ok(())
}
#[verb]
async fn stepped(_event: Step) -> Result {
    Ok(())
}
#[verb]
async fn timed(counters: Data<Arc<Counters>>, event: Timed) -> Result {
    let began_us = now_us().saturating_sub(event.sent_us);
    counters.began_us.lock().expect("no verb panics while it holds the list").push(began_us);
    Ok(())
}
#[verb]
async fn linked(ctx: &mut Ctx<'_>, counters: Data<Arc<Counters>>, event: Links) -> Result {
    counters.links.fetch_add(1, Ordering::Relaxed);
    if event.left > 0 {
        ctx.next(Links { left: event.left - 1, text: event.text })?;
    }
    Ok(())
}
#[verb]
#[retry(10, "1s", "1h")]
async fn waited(counters: Data<Arc<Counters>>, event: NotBefore) -> Result {
    let wait = Duration::from_micros(event.due_us.saturating_sub(now_us()));
    if wait > Duration::ZERO {
        return Err(Failure::retry_after("it is too early", wait));
    }
    counters.waits.fetch_add(1, Ordering::Relaxed);
    Ok(())
}

#[verb]
async fn reporting(ctx: &mut Ctx<'_>, event: Report) -> Result {
    ctx.send::<Pulse>(CENTRE, Reported { text: event.text })?;
    Ok(())
}
#[verb]
async fn reported(counters: Data<Arc<Counters>>, _event: Reported) -> Result {
    counters.reports.fetch_add(1, Ordering::Relaxed);
    Ok(())
}

/// The key of the instance that all report to.
pub const CENTRE: &str = "centre";

fsm! {
    pub machine Pulse = "bench_pulse" {
        start begun | waited | reporting;
        any(begun, stepped, timed, linked, waited, reported) -> stepped | timed | linked | waited | reported;
        reporting -> stepped;
    }
}
