//! Verbs that block a thread, verbs that show how far they are, and the limit on a verb that shows nothing.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use fsm::prelude::*;
use fsm::testing::{TestBed, TestBedBuilder};
use serde::{Deserialize, Serialize};

use crate::support::{Folder, assert_invariants_hold};

#[derive(Debug, Clone, Serialize, Deserialize)]
enum Work {
    Succeed,
    Fail,
    Panic,
    AskForATransaction,
    Overrun,
}
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Told;
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Import {
    rows: u32,
}
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Freeze;

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
struct Sums {
    runs: u32,
}

/// The work of the threads of a test.
#[derive(Default)]
struct Threads {
    running: AtomicU32,
    most: AtomicU32,
    /// A thread returns when a value is sent.
    gate: Mutex<Option<std::sync::mpsc::Receiver<()>>>,
}

/// Computes on a thread of its own.
#[verb(blocking, timeout = "2s")]
#[retry(1, "1s")]
fn computed(ctx: &mut Ctx<'_>, sums: &mut Sums, threads: Data<Arc<Threads>>, event: Work) -> Result {
    let running = threads.running.fetch_add(1, Ordering::SeqCst) + 1;
    threads.most.fetch_max(running, Ordering::SeqCst);
    sums.runs += 1;
    let done = match event {
        Work::Succeed => {
            std::thread::sleep(Duration::from_millis(2));
            assert!(!ctx.is_cancelled());
            ctx.next(Told).map_err(Failure::from)
        }
        Work::Fail => Err(Failure::new("the file is damaged")),
        Work::Panic => panic!("out of range"),
        Work::AskForATransaction => {
            let handle = tokio::runtime::Handle::current();
            match handle.block_on(ctx.sqlite()) {
                Ok(_) => Ok(()),
                Err(error) => Err(Failure::new(error.to_string())),
            }
        }
        Work::Overrun => {
            let gate = threads.gate.lock().unwrap().take();
            gate.map_or(Ok(()), |gate| gate.recv_timeout(Duration::from_secs(60)).map_err(Failure::new))
        }
    };
    threads.running.fetch_sub(1, Ordering::SeqCst);
    done
}

#[verb]
async fn told(_event: Told) -> Result {
    Ok(())
}

/// Shows how far it is.
#[verb]
async fn imported(ctx: &mut Ctx<'_>, event: Import) -> Result {
    for row in 1..=event.rows {
        ctx.progress(serde_json::json!({ "rows": row, "of": event.rows }))?;
    }
    let text = "x".repeat(5000);
    let error = ctx.progress(&text).unwrap_err();
    assert_eq!(error.to_string(), "the progress has 5002 bytes of JSON; at most 4096 are stored");
    ctx.cancelled().await;
    Err(Failure::new("cancelled"))
}

/// Shows progress twice, and then none at its first attempt.
#[verb(heartbeat = "150ms")]
#[retry(1, "10ms")]
async fn frozen(ctx: &mut Ctx<'_>, _event: Freeze) -> Result {
    for sign in 0..2 {
        tokio::time::sleep(Duration::from_millis(100)).await;
        ctx.progress(sign)?;
    }
    if ctx.attempt() == 1 { std::future::pending().await } else { Ok(()) }
}

fsm! {
    machine Mill = "mill" {
        keeps Sums;
        start computed | imported | frozen;
        computed -> told;
        end told, imported, frozen;
    }
}

fn mills(threads: &Arc<Threads>) -> TestBedBuilder {
    TestBed::builder().only::<Mill>().data(Arc::clone(threads)).with(|builder| builder.blocking_threads(2))
}

macro_rules! on_both {
    ($(async fn $name:ident($bed:ident, $threads:ident) $body:block)*) => { $(
        mod $name {
            use super::*;

            async fn check($bed: &TestBed, $threads: &Arc<Threads>) $body

            #[cfg(feature = "sqlite")]
            #[tokio::test]
            async fn sqlite() {
                let threads = Arc::default();
                let bed = mills(&threads).sqlite().await;
                check(&bed, &threads).await;
                assert_invariants_hold(&bed).await;
            }

            #[cfg(feature = "postgres")]
            #[tokio::test]
            async fn postgres() {
                let threads = Arc::default();
                let bed = mills(&threads).postgres().await;
                check(&bed, &threads).await;
                assert_invariants_hold(&bed).await;
            }
        }
    )* };
}

/// The errors of the attempts of a call.
async fn errors(bed: &TestBed, key: &str) -> Vec<Option<String>> {
    bed.machine::<Mill>().attempts(key).await.unwrap().into_iter().map(|attempt| attempt.error).collect()
}

on_both! {
    async fn a_verb_that_blocks_runs_on_a_thread_and_no_more_threads_than_allowed(bed, threads) {
        let mills = bed.machine::<Mill>();
        for n in 0..10 {
            mills.send(format!("m-{n}"), Work::Succeed).await.unwrap();
        }
        bed.run_until_idle().await;
        for n in 0..10 {
            let mill = mills.get(format!("m-{n}")).await.unwrap().unwrap();
            assert_eq!((mill.state, mill.record.runs), (Some(MillState::Told), 1), "its record and its next event are committed");
        }
        assert!(threads.most.load(Ordering::SeqCst) <= 2);
    }

    async fn an_error_or_a_panic_on_a_thread_is_a_failed_attempt(bed, _threads) {
        let mills = bed.machine::<Mill>();
        mills.send("fails", Work::Fail).await.unwrap();
        mills.send("panics", Work::Panic).await.unwrap();
        mills.send("asks", Work::AskForATransaction).await.unwrap();
        bed.run_until_idle().await;
        bed.advance(Duration::from_secs(1)).await;
        assert_eq!(errors(bed, "fails").await, [Some("the file is damaged".to_owned()), Some("the file is damaged".to_owned())]);
        assert_eq!(errors(bed, "panics").await[0].as_deref(), Some("the verb panicked: out of range"));
        let asked = errors(bed, "asks").await[0].clone().unwrap();
        assert!(asked.contains("a verb that blocks its thread has no transaction") || asked.contains("this runtime is on PostgreSQL"), "{asked}");
    }

    async fn an_attempt_that_times_out_ends_and_its_thread_keeps_its_place(bed, threads) {
        let (open, gate) = std::sync::mpsc::channel();
        *threads.gate.lock().unwrap() = Some(gate);
        let mills = bed.machine::<Mill>();
        mills.send("m", Work::Overrun).await.unwrap();
        bed.run_until_idle().await;
        assert_eq!(errors(bed, "m").await[0].as_deref(), Some("the attempt took longer than its timeout of 2s"));
        assert_eq!(threads.running.load(Ordering::SeqCst), 1, "the thread cannot be stopped");
        for n in 0..5 {
            mills.send(format!("n-{n}"), Work::Succeed).await.unwrap();
        }
        bed.run_until_idle().await;
        assert_eq!(threads.most.load(Ordering::SeqCst), 2);
        open.send(()).unwrap();
        bed.advance(Duration::from_secs(1)).await;
        assert_eq!(mills.get("m").await.unwrap().unwrap().record.runs, 1, "what the thread did after its attempt is forgotten");
    }
}

mod progress_is_shown_and_a_verb_without_progress_ends {
    use super::*;

    async fn check(url: &str) {
        let builder = Runtime::builder().database(url).only::<Mill>().data(Arc::<Threads>::default());
        let runtime = builder.start().await.unwrap();
        let mills = runtime.machine::<Mill>();
        mills.send("i", Import { rows: 3 }).await.unwrap();
        let limit = Instant::now() + Duration::from_secs(30);
        let call = loop {
            assert!(Instant::now() < limit, "no progress is shown");
            let call = mills.get("i").await.unwrap().unwrap().call.unwrap();
            if call.progress.as_ref().is_some_and(|progress| progress.value["rows"] == 3) {
                break call;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        };
        let progress = call.progress.unwrap();
        assert_eq!(progress.value, serde_json::json!({ "rows": 3, "of": 3 }));
        assert!(progress.at >= call.next_at);
        mills.cancel("i", "enough").await.unwrap();

        mills.send("f", Freeze).await.unwrap();
        let frozen = mills.settled("f").within(Duration::from_secs(30)).await.unwrap();
        assert_eq!((frozen.status, frozen.state), (Status::Completed, Some(MillState::Frozen)));
        let first = mills.attempts("f").await.unwrap().remove(0);
        assert_eq!(first.error.as_deref(), Some("the attempt showed no progress for 150ms"));
        assert!(first.took.unwrap() >= Duration::from_millis(350), "it had shown progress twice");
        runtime.shutdown().await.unwrap();
    }

    #[cfg(feature = "sqlite")]
    #[tokio::test]
    async fn sqlite() {
        let folder = Folder::new("progress");
        check(&folder.url("fsm.db")).await;
    }

    #[cfg(feature = "postgres")]
    #[tokio::test]
    async fn postgres() {
        let bed = mills(&Arc::default()).postgres().await;
        check(bed.url()).await;
    }
}
