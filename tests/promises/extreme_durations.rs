//! Every duration is accepted: zero, a nanosecond and the longest possible one saturate or give an error, and nothing panics.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use fsm::prelude::*;
use fsm::testing::TestBed;
use fsm::{Builder, Error, ErrorKind, SendOutcome};
use serde::{Deserialize, Serialize};

use crate::durable::{Load, Ship, ShipState, Stall};
use crate::support::Folder;

const EXTREMES: [Duration; 3] = [Duration::ZERO, Duration::from_nanos(1), Duration::MAX];
/// A time limit for a process that starts, works and ends.
const LIMIT: Duration = Duration::from_secs(60);

/// A setting of a runtime that is a duration.
type Setting = (&'static str, fn(Builder, Duration) -> Builder);

const SETTINGS: [Setting; 6] = [
    ("lease", Builder::lease),
    ("poll_interval", Builder::poll_interval),
    ("shutdown_timeout", Builder::shutdown_timeout),
    ("operation_timeout", Builder::operation_timeout),
    ("retention", Builder::retention),
    ("patience", Builder::patience),
];

/// Starts a runtime, runs one call and shuts down.
async fn start_work_and_shut_down(builder: Builder, key: &str) -> Result<(), Error> {
    let runtime = builder.start().await?;
    let ships = runtime.machine::<Ship>();
    ships.send(key, Load).await?;
    let ship = ships.settled(key).within(LIMIT).await?;
    assert_eq!(ship.state, Some(ShipState::Loading));
    runtime.shutdown().await
}

async fn works_with(url: &str, (name, set): Setting, duration: Duration) {
    let plain = Runtime::builder().database(url).only::<Ship>().data(Arc::new(Stall::default()));
    // A short patience, so that a setting that makes the start fail returns its error soon.
    let builder = set(plain.patience(Duration::from_secs(1)), duration);
    let ended = tokio::time::timeout(2 * LIMIT, start_work_and_shut_down(builder, &format!("{name}-{duration:?}"))).await;
    match ended.unwrap_or_else(|_| panic!("{name}({duration:?}) hangs")) {
        Ok(()) => {}
        // A database may be too slow for an operation timeout or a patience of a millisecond or less: a send fails, or the end of the attempt is
        // never stored.
        Err(error) if ["operation_timeout", "patience"].contains(&name) && duration < LIMIT => {
            assert!(matches!(error.kind(), ErrorKind::Database | ErrorKind::TimedOut), "{error}")
        }
        Err(error) => panic!("{name}({duration:?}): {error}"),
    }
}

mod every_duration_of_a_runtime_saturates {
    use super::*;

    #[cfg(feature = "sqlite")]
    #[tokio::test]
    async fn file() {
        let folder = Folder::new("extreme-settings");
        for setting in SETTINGS {
            for duration in EXTREMES {
                works_with(&folder.url("fsm.db"), setting, duration).await;
            }
        }
    }

    #[cfg(feature = "postgres")]
    #[tokio::test]
    async fn postgres() {
        let bed = TestBed::builder().only::<Ship>().data(Arc::new(Stall::default())).postgres().await;
        for setting in SETTINGS {
            works_with(bed.url(), setting, Duration::MAX).await;
        }
        works_with(bed.url(), SETTINGS[3], Duration::ZERO).await;
    }
}

#[cfg(feature = "sqlite")]
#[tokio::test]
async fn every_duration_of_a_client_saturates() {
    let folder = Folder::new("extreme-client");
    let url = folder.url("fsm.db");
    drop(Client::connect(&url).await.unwrap());
    for duration in EXTREMES {
        let client = Client::builder().patience(duration).connect(&url).await.unwrap();
        let ships = client.machine::<Ship>();
        if let Err(error) = ships.send(format!("{duration:?}"), Load).await {
            assert!(duration < LIMIT && error.is_database(), "{duration:?}: {error}");
        }
        assert!(duration == Duration::MAX || ships.settled("none").within(duration).await.unwrap_err().is_not_found());
    }
}

#[derive(Debug, Clone, Serialize, Deserialize)]
struct Wait {
    wait: Duration,
}
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Delay;

#[verb]
#[retry(3, "1s")]
async fn waiting(ctx: &mut Ctx<'_>, event: Wait) -> Result {
    if ctx.attempt() == 1 { Err(Failure::retry_after("not yet", event.wait)) } else { Ok(()) }
}

fn longest(_failed: &FailedAttempt<'_>) -> Option<Duration> {
    Some(Duration::MAX)
}

#[verb]
#[retry(max_attempts = 3, delay = longest)]
async fn delaying(_event: Delay) -> Result {
    Err(Failure::new("never"))
}

fsm! {
    machine Waiter = "waiter" {
        start waiting | delaying;
        end waiting, delaying;
    }
}

crate::support::promise! {
    async fn every_wait_of_an_attempt_saturates(bed in TestBed::builder().only::<Waiter>()) {
        let waiters = bed.machine::<Waiter>();
        for wait in EXTREMES {
            let key = format!("{wait:?}");
            waiters.send(&key, Wait { wait }).await.unwrap();
            bed.run_until_idle().await;
            let waiter = waiters.get(&key).await.unwrap().unwrap();
            assert_eq!(waiter.status == Status::Completed, wait < LIMIT, "{wait:?}");
        }
        waiters.send("delay", Delay).await.unwrap();
        bed.run_until_idle().await;
        let call = waiters.get("delay").await.unwrap().unwrap().call.unwrap();
        assert_eq!((call.attempt, call.next_at), (2, Timestamp::MAX));
    }
}

crate::support::promise! {
    async fn every_delay_of_a_send_saturates(bed in TestBed::builder().only::<Waiter>()) {
        let waiters = bed.machine::<Waiter>();
        for wait in EXTREMES {
            let sent = waiters.send(format!("after-{wait:?}"), Wait { wait: Duration::ZERO }).after(wait).await.unwrap();
            assert!(wait < LIMIT || sent.outcome == SendOutcome::Scheduled);
        }
        let far = SystemTime::UNIX_EPOCH.checked_add(Duration::from_secs(1 << 62)).unwrap();
        let long_ago = SystemTime::UNIX_EPOCH.checked_sub(Duration::from_secs(1 << 62)).unwrap();
        for (name, at) in [("far", far), ("begin", SystemTime::UNIX_EPOCH), ("long-ago", long_ago)] {
            waiters.send(name, Wait { wait: Duration::ZERO }).at(at).await.unwrap();
        }
        bed.run_until_idle().await;
        assert_eq!(waiters.get("long-ago").await.unwrap().unwrap().status, Status::Completed);
    }
}

crate::support::promise! {
    async fn a_clock_of_a_test_that_is_moved_to_its_end_stops_there(bed in TestBed::builder().only::<Waiter>()) {
        let waiters = bed.machine::<Waiter>();
        waiters.send("w", Wait { wait: Duration::from_secs(5) }).await.unwrap();
        for span in EXTREMES {
            bed.advance(span).await;
        }
        assert_eq!((bed.now(), waiters.get("w").await.unwrap().unwrap().status), (Timestamp::MAX, Status::Completed));
        bed.advance(Duration::MAX).await;
        bed.outage(Duration::MAX).await;
        assert_eq!(bed.now(), Timestamp::MAX);
    }
}
