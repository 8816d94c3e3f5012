//! A worker that dies is replaced at once on the same machine. In containers, a worker that restarts again and again makes progress.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use fsm::prelude::*;
use serde::{Deserialize, Serialize};

use crate::support::Folder;

/// The environment variables that make this test program a child process: the URL of the database and the path of a file.
const URL: &str = "FSM_TEST_TAKEOVER_DATABASE";
const MARK: &str = "FSM_TEST_TAKEOVER_MARK";
/// No test waits for the end of such a lease.
const AN_HOUR: Duration = Duration::from_secs(3600);
/// The limit from the death of a worker to the next attempt, on an otherwise idle machine.
const TAKEOVER_LIMIT: Duration = Duration::from_secs(1);
/// The number of tries to observe that. Other programs may delay one of them, but hardly all.
const TRIES: u32 = 5;
/// The maximum time for anything that a test waits for.
const LIMIT: Duration = Duration::from_secs(60);

#[derive(Debug, Clone, Serialize, Deserialize)]
struct Dig;

/// The runs of the verb in this process, and the number of them that never end.
#[derive(Default)]
struct Runs {
    begun: AtomicU32,
    endless: u32,
    mark: Option<PathBuf>,
}

#[verb]
#[retry("10ms")]
async fn dug(runs: Data<Arc<Runs>>, _event: Dig) -> Result {
    let number = runs.begun.fetch_add(1, Ordering::SeqCst) + 1;
    if let Some(mark) = &runs.mark {
        std::fs::write(mark, "begun").unwrap();
    }
    if number <= runs.endless {
        std::future::pending::<()>().await;
    }
    Ok(())
}

fsm! {
    machine Mole = "mole" {
        start dug;
        end dug;
    }
}

fn builder(url: &str, runs: Runs) -> fsm::Builder {
    let builder = Runtime::builder().database(url).only::<Mole>().data(Arc::new(runs));
    builder.poll_interval(Duration::from_millis(20))
}

/// This is not a test of its own: it is the child process of the others. It sends an event, and its verb runs until the process is killed.
#[tokio::test]
async fn child() {
    let (Ok(url), Ok(mark)) = (std::env::var(URL), std::env::var(MARK)) else {
        assert!(std::env::var(URL).is_err() && std::env::var(MARK).is_err(), "a child needs both variables");
        return;
    };
    let runs = Runs { endless: 1, mark: Some(mark.into()), ..Runs::default() };
    let runtime = builder(&url, runs).lease(AN_HOUR).start().await.unwrap();
    runtime.machine::<Mole>().send("m", Dig).await.unwrap();
    std::future::pending().await
}

/// A child process whose verb runs. It is killed at the latest when this value is dropped.
struct Process(Child);

impl Process {
    async fn start(url: &str, mark: &Path) -> Process {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "takeover::child", "--nocapture"]).env(URL, url).env(MARK, mark);
        let process = Process(command.stdin(Stdio::null()).stdout(Stdio::null()).spawn().unwrap());
        let limit = Instant::now() + LIMIT;
        while !mark.exists() {
            assert!(Instant::now() < limit, "the child does not run its verb");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        process
    }

    fn kill(mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Waits until the instance has ended, and returns the time from `since` to the start of its last attempt.
async fn taken_over(runtime: &Runtime, since: fsm::Timestamp) -> Duration {
    let moles = runtime.machine::<Mole>();
    moles.settled("m").within(LIMIT).await.unwrap();
    let attempts = moles.attempts("m").await.unwrap();
    let states: Vec<_> = attempts.iter().map(|attempt| attempt.state).collect();
    assert_eq!(states, [AttemptState::Lost, AttemptState::Success]);
    assert_eq!(attempts[0].error.as_deref(), Some("attempt 1 was lost: its worker is gone"));
    attempts[1].started_at.unwrap() - since
}

/// Tries until an attempt continues within a second.
async fn at_once(mut takeover: impl AsyncFnMut(u32) -> Duration) {
    let mut took = Vec::new();
    for n in 0..TRIES {
        took.push(takeover(n).await);
        if took.last().is_some_and(|took| *took < TAKEOVER_LIMIT) {
            return println!("the attempt went on after {took:?}");
        }
    }
    panic!("no attempt went on within {TAKEOVER_LIMIT:?}, but after {took:?}");
}

fn now() -> fsm::Timestamp {
    std::time::SystemTime::now().into()
}

/// Its lease would last for an hour.
mod after_kill_9_and_a_restart_on_the_same_machine_an_attempt_goes_on_within_a_second {
    use super::*;

    async fn check(url: &str, mark: &Path) -> Duration {
        Process::start(url, mark).await.kill();
        let restarted = now();
        let runtime = builder(url, Runs::default()).lease(AN_HOUR).start().await.unwrap();
        let took = taken_over(&runtime, restarted).await;
        assert!(runtime.check_invariants().await.unwrap().is_empty());
        runtime.shutdown().await.unwrap();
        took
    }

    #[cfg(feature = "sqlite")]
    #[tokio::test]
    async fn sqlite() {
        let folder = Folder::new("takeover-sqlite");
        at_once(async |n| check(&folder.url(&format!("{n}.db")), &folder.path().join(format!("mark-{n}"))).await).await;
    }

    #[cfg(all(feature = "sqlite", feature = "postgres"))]
    #[tokio::test]
    async fn postgres() {
        let folder = Folder::new("takeover-postgres");
        at_once(async |n| {
            let bed = crate::clumsy::clumsy().postgres().await;
            check(bed.url(), &folder.path().join(format!("mark-{n}"))).await
        })
        .await;
    }
}

/// The dead worker is not restarted: a worker that ran beside it takes its attempt.
mod a_worker_takes_over_at_once_from_one_that_died_on_the_same_machine {
    use super::*;

    async fn check(url: &str, folder: &Folder) {
        let child = Process::start(url, &folder.path().join("mark")).await;
        let runtime = builder(url, Runs::default()).lease(AN_HOUR).start().await.unwrap();
        let moles = runtime.machine::<Mole>();
        assert!(moles.settled("m").within(Duration::from_millis(700)).await.is_err(), "a live process keeps its work");
        let killed = now();
        child.kill();
        let took = taken_over(&runtime, killed).await;
        println!("the attempt went on {took:?} after the death");
        runtime.shutdown().await.unwrap();
    }

    #[cfg(feature = "sqlite")]
    #[tokio::test]
    async fn sqlite() {
        let folder = Folder::new("neighbour-sqlite");
        check(&folder.url("moles.db"), &folder).await;
    }

    #[cfg(all(feature = "sqlite", feature = "postgres"))]
    #[tokio::test]
    async fn postgres() {
        let folder = Folder::new("neighbour-postgres");
        let bed = crate::clumsy::clumsy().postgres().await;
        check(bed.url(), &folder).await;
    }
}

/// No process can tell whether the process of another container exists, so the lease decides. No container here lives as long as a lease,
/// so none of them ever completes the grace period.
mod a_worker_in_a_container_that_restarts_again_and_again_makes_progress {
    use super::*;

    const LEASE: Duration = Duration::from_secs(2);

    async fn check(url: &str) {
        let start = async |endless| {
            let runs = Runs { endless, ..Runs::default() };
            builder(url, runs).in_a_container().lease(LEASE).start().await.unwrap()
        };
        let first = start(1).await;
        first.machine::<Mole>().send("m", Dig).await.unwrap();
        tokio::time::sleep(LEASE / 3).await;
        drop(first);
        let limit = Instant::now() + LIMIT;
        let mut restarts = 0;
        loop {
            assert!(Instant::now() < limit, "{restarts} containers have made no progress");
            restarts += 1;
            let next = start(0).await;
            if next.machine::<Mole>().settled("m").within(LEASE / 3).await.is_ok() {
                let state = next.machine::<Mole>().get("m").await.unwrap().unwrap().status;
                assert_eq!(state, Status::Completed);
                break next.shutdown().await.unwrap();
            }
        }
        assert!(restarts > 1, "the lease of the first one was waited for");
        println!("the attempt went on in container {restarts}");
    }

    #[cfg(feature = "sqlite")]
    #[tokio::test]
    async fn sqlite() {
        let folder = Folder::new("container-sqlite");
        check(&folder.url("moles.db")).await;
    }

    #[cfg(feature = "postgres")]
    #[tokio::test]
    async fn postgres() {
        let bed = crate::clumsy::clumsy().postgres().await;
        check(bed.url()).await;
    }
}
