//! Durability: acknowledged events survive restarts and dead workers, and leases expire as they should.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use fsm::prelude::*;
use fsm::testing::{TestBed, TestBedBuilder};
use serde::{Deserialize, Serialize};
use tokio::sync::Notify;

use crate::payment::{Payment, PaymentState, checkout, failing, paid_with};
use crate::support::promise;

/// Lets a verb hang forever in its first `times` calls.
#[derive(Default)]
pub struct Stall {
    times: AtomicU32,
    pub entered: Notify,
    leave: Notify,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Load;
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Unload;

#[verb]
#[retry(2, "5s")]
async fn loading(stall: Data<Arc<Stall>>, _event: Load) -> Result {
    stall_once(&stall).await;
    Ok(())
}

#[verb]
async fn unloading(stall: Data<Arc<Stall>>, _event: Unload) -> Result {
    stall_once(&stall).await;
    Ok(())
}

impl Stall {
    /// The next verb waits once more.
    pub fn again(&self) {
        self.times.store(1, Ordering::SeqCst);
    }

    /// Lets the waiting verb continue.
    pub fn go_on(&self) {
        self.leave.notify_one();
    }
}

async fn stall_once(stall: &Stall) {
    let left = stall.times.load(Ordering::SeqCst);
    if left > 0 {
        stall.times.store(left - 1, Ordering::SeqCst);
        stall.entered.notify_one();
        stall.leave.notified().await;
    }
}

fsm! {
    /// A ship that is loaded with retries and unloaded without any.
    pub machine Ship = "ship" {
        start loading;
        loading -> unloading;
        unloading -> loading;
    }
}

pub fn stalling(stall: &Arc<Stall>) -> TestBedBuilder {
    TestBed::builder().only::<Ship>().data(Arc::clone(stall))
}

pub fn once() -> Arc<Stall> {
    stalled(1)
}

pub fn stalled(times: u32) -> Arc<Stall> {
    Arc::new(Stall { times: AtomicU32::new(times), ..Stall::default() })
}

promise! {
    async fn an_acknowledged_send_survives_the_process(bed in failing(0)) {
        let payments = bed.machine::<Payment>();
        payments.send("o-1", checkout()).await.unwrap();
        bed.restart().await;
        bed.advance(Duration::from_secs(60)).await;
        assert_eq!(payments.get("o-1").await.unwrap().unwrap().state, Some(PaymentState::Created));
        payments.send("o-1", paid_with("r")).await.unwrap();
        bed.run_until_idle().await;
        assert_eq!(payments.get("o-1").await.unwrap().unwrap().version, 2);
    }
}

mod a_dead_workers_attempt_is_lost_once_its_lease_ends_and_counts {
    use super::*;

    async fn check(bed: TestBed, stall: Arc<Stall>) {
        let ships = bed.machine::<Ship>();
        ships.send("s-1", Load).await.unwrap();
        stall.entered.notified().await;
        bed.restart().await;
        bed.run_until_idle().await;
        let call = ships.get("s-1").await.unwrap().unwrap().call.unwrap();
        assert_eq!((call.attempt, call.state), (1, AttemptState::Executing));

        bed.advance(Duration::from_secs(30)).await;
        let call = ships.get("s-1").await.unwrap().unwrap().call.unwrap();
        assert_eq!((call.attempt, call.retries_left, call.next_at - bed.now()), (2, Some(1), Duration::from_secs(5)));
        bed.advance(Duration::from_secs(5)).await;
        let states: Vec<_> = ships.attempts("s-1").await.unwrap().iter().map(|attempt| attempt.state).collect();
        assert_eq!(states, [AttemptState::Lost, AttemptState::Success]);
        crate::support::assert_invariants_hold(&bed).await;
    }

    #[cfg(feature = "sqlite")]
    #[tokio::test]
    async fn sqlite() {
        let stall = once();
        check(stalling(&stall).sqlite().await, stall).await;
    }

    #[cfg(feature = "postgres")]
    #[tokio::test]
    async fn postgres() {
        let stall = once();
        check(stalling(&stall).postgres().await, stall).await;
    }
}

mod without_a_policy_a_lost_attempt_is_not_run_again_and_a_person_may_retry {
    use super::*;

    async fn check(bed: TestBed, stall: Arc<Stall>) {
        let ships = bed.machine::<Ship>();
        ships.send("s-1", Load).await.unwrap();
        bed.run_until_idle().await;
        stall.times.store(1, Ordering::SeqCst);
        ships.send("s-1", Unload).await.unwrap();
        stall.entered.notified().await;
        bed.restart().await;
        bed.advance(Duration::from_secs(3600)).await;
        let ship = ships.get("s-1").await.unwrap().unwrap();
        assert_eq!((ship.status, ship.state), (Status::Error, Some(ShipState::Loading)));
        assert_eq!(ships.attempts("s-1").await.unwrap().last().unwrap().state, AttemptState::Lost);

        ships.retry("s-1").await.unwrap();
        bed.run_until_idle().await;
        assert_eq!(ships.get("s-1").await.unwrap().unwrap().state, Some(ShipState::Unloading));
        crate::support::assert_invariants_hold(&bed).await;
    }

    #[cfg(feature = "sqlite")]
    #[tokio::test]
    async fn sqlite() {
        let stall = Arc::new(Stall::default());
        check(stalling(&stall).sqlite().await, stall).await;
    }

    #[cfg(feature = "postgres")]
    #[tokio::test]
    async fn postgres() {
        let stall = Arc::new(Stall::default());
        check(stalling(&stall).postgres().await, stall).await;
    }
}

/// Two runtimes on one database. The first one loses its lease during an attempt.
mod a_worker_that_went_silent_cannot_complete {
    use super::*;
    use fsm::Runtime;

    async fn check(url: &str) {
        let stall = once();
        let runtime = async |lease| {
            let builder = Runtime::builder()
                .database(url)
                .only::<Ship>()
                .data(Arc::clone(&stall))
                .lease(lease)
                .poll_interval(Duration::from_millis(20));
            builder.start().await.unwrap()
        };
        let silent = runtime(Duration::from_millis(400)).await;
        let ships = silent.machine::<Ship>();
        ships.send("s-1", Load).await.unwrap();
        stall.entered.notified().await;
        // The lease of the process is no longer renewed, but its verb continues.
        silent.stop_renewing();
        let other = runtime(Duration::from_millis(400)).await;
        let seen = other.machine::<Ship>();
        while seen.attempts("s-1").await.unwrap().len() < 2 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        stall.leave.notify_one();
        let history = async || seen.history("s-1").await.unwrap().iter().map(ToString::to_string).collect::<Vec<_>>();
        while !history().await.iter().any(|line| line.contains("late: attempt 1 of `loading` reported success after it was closed")) {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        assert_eq!(seen.attempts("s-1").await.unwrap()[0].state, AttemptState::Lost);
        let ship = seen.get("s-1").await.unwrap().unwrap();
        assert_eq!((ship.state, ship.version), (None, 0), "attempt 2 waits for its 5 s, and attempt 1 changed nothing");
        assert!(other.check_invariants().await.unwrap().is_empty());
        other.shutdown().await.unwrap();
    }

    #[cfg(feature = "sqlite")]
    #[tokio::test]
    async fn sqlite() {
        let file = std::env::temp_dir().join(format!("fsm-silent-{}.db", std::process::id()));
        check(&format!("sqlite://{}", file.display())).await;
        std::fs::remove_file(file).unwrap();
    }

    #[cfg(feature = "postgres")]
    #[tokio::test]
    async fn postgres() {
        let bed = TestBed::builder().only::<Payment>().data(Arc::new(crate::payment::Gateway::failing(0))).postgres().await;
        check(bed.url()).await;
    }
}

/// A graceful shutdown releases an attempt that does not end in time, and that uses no retry.
mod a_released_attempt_uses_no_retry {
    use super::*;
    use fsm::Runtime;

    #[cfg(feature = "sqlite")]
    #[tokio::test]
    async fn sqlite() {
        let file = std::env::temp_dir().join(format!("fsm-released-{}.db", std::process::id()));
        let url = format!("sqlite://{}", file.display());
        let stall = once();
        let builder = || Runtime::builder().database(&url).only::<Ship>().data(Arc::clone(&stall));
        let leaving = builder().shutdown_timeout(Duration::from_millis(50)).start().await.unwrap();
        leaving.machine::<Ship>().send("s-1", Load).await.unwrap();
        stall.entered.notified().await;
        leaving.shutdown().await.unwrap();

        let next = builder().start().await.unwrap();
        let ships = next.machine::<Ship>();
        ships.settled("s-1").within(Duration::from_secs(20)).await.unwrap();
        let attempts = ships.attempts("s-1").await.unwrap();
        assert_eq!(attempts.iter().map(|attempt| attempt.state).collect::<Vec<_>>(), [AttemptState::Released, AttemptState::Success]);
        assert!(next.check_invariants().await.unwrap().is_empty());
        next.shutdown().await.unwrap();
        std::fs::remove_file(file).unwrap();
    }
}

/// An attempt without a retry policy is not released at shutdown, because it must never run twice.
mod an_attempt_without_a_policy_that_is_shut_down_is_an_error_and_not_run_again {
    use super::*;
    use fsm::Runtime;

    #[cfg(feature = "sqlite")]
    #[tokio::test]
    async fn sqlite() {
        let file = std::env::temp_dir().join(format!("fsm-shut-down-{}.db", std::process::id()));
        let url = format!("sqlite://{}", file.display());
        let stall = Arc::new(Stall::default());
        let builder = || Runtime::builder().database(&url).only::<Ship>().data(Arc::clone(&stall));
        let leaving = builder().shutdown_timeout(Duration::from_millis(50)).start().await.unwrap();
        let ships = leaving.machine::<Ship>();
        ships.send("s-1", Load).await.unwrap();
        ships.settled("s-1").within(Duration::from_secs(20)).await.unwrap();
        stall.times.store(1, Ordering::SeqCst);
        ships.send("s-1", Unload).await.unwrap();
        stall.entered.notified().await;
        leaving.shutdown().await.unwrap();

        let next = builder().start().await.unwrap();
        let ships = next.machine::<Ship>();
        let ship = ships.settled("s-1").within(Duration::from_secs(20)).await.unwrap();
        assert_eq!((ship.status, ship.state), (Status::Error, Some(ShipState::Loading)));
        assert_eq!(ship.error.as_deref(), Some("its process was shut down before the verb ended"));
        ships.retry("s-1").await.unwrap();
        let ship = ships.settled("s-1").within(Duration::from_secs(20)).await.unwrap();
        assert_eq!(ship.state, Some(ShipState::Unloading));
        assert!(next.check_invariants().await.unwrap().is_empty());
        next.shutdown().await.unwrap();
        std::fs::remove_file(file).unwrap();
    }
}
