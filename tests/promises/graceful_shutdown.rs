//! Shutdown: a running attempt finishes, is released, or is lost, and an event that kills its process is exhausted.
#![cfg(unix)]

use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use fsm::prelude::*;
use fsm::{Attempt, Handle};
use serde::{Deserialize, Serialize};

use crate::support::Folder;

/// The environment variables that make this test program a child process: the URL of the database and the shutdown timeout.
const URL: &str = "FSM_TEST_SHUTDOWN_DATABASE";
const PATIENCE: &str = "FSM_TEST_SHUTDOWN_PATIENCE_MS";
const LEASE: Duration = Duration::from_millis(800);
const LIMIT: Duration = Duration::from_secs(60);

#[derive(Debug, Clone, Serialize, Deserialize)]
struct Fire {
    ms: u64,
}
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Crack;

#[verb]
#[retry(2, "10ms")]
async fn fired(event: Fire) -> Result {
    tokio::time::sleep(Duration::from_millis(event.ms)).await;
    Ok(())
}

/// A poison event: its verb kills the process that runs it.
#[verb]
#[retry(2, "10ms")]
async fn cracked(_event: Crack) -> Result {
    std::process::abort()
}

fsm! {
    machine Kiln = "kiln" {
        start fired | cracked;
        end fired, cracked;
    }
}

/// This is not a test of its own: it is the child process of the others.
#[tokio::test]
async fn child() {
    let (Ok(url), Ok(patience)) = (std::env::var(URL), std::env::var(PATIENCE)) else {
        assert!(std::env::var(URL).is_err(), "a child needs both variables");
        return;
    };
    let patience = Duration::from_millis(patience.parse().unwrap());
    let builder =
        Runtime::builder().database(url).only::<Kiln>().lease(LEASE).poll_interval(Duration::from_millis(20)).shutdown_timeout(patience);
    builder.start().await.unwrap().run_until_signal().await.unwrap();
}

struct Process(Child);

impl Process {
    fn start(url: &str, patience: Duration) -> Process {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "graceful_shutdown::child", "--nocapture"]).env(URL, url).env(PATIENCE, patience.as_millis().to_string());
        Process(command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap())
    }

    fn terminate(&self) {
        let sent = Command::new("kill").args(["-TERM", &self.0.id().to_string()]).status().unwrap();
        assert!(sent.success());
    }

    fn has_ended(&mut self) -> bool {
        self.0.try_wait().unwrap().is_some()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

async fn until(what: &str, mut is_so: impl AsyncFnMut() -> bool) {
    let begin = Instant::now();
    while !is_so().await {
        assert!(begin.elapsed() < LIMIT, "{what}: not within {LIMIT:?}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

async fn kilns(url: &str) -> Handle<Kiln> {
    Client::connect(url).await.unwrap().machine::<Kiln>()
}

async fn attempts(kilns: &Handle<Kiln>) -> Vec<Attempt> {
    kilns.attempts("k").await.unwrap()
}

/// A child process that runs the attempt.
async fn executing(kilns: &Handle<Kiln>, url: &str, patience: Duration) -> Process {
    let child = Process::start(url, patience);
    until("the attempt executes", async || attempts(kilns).await.iter().any(|attempt| attempt.state == AttemptState::Executing)).await;
    child
}

async fn states(kilns: &Handle<Kiln>) -> Vec<AttemptState> {
    attempts(kilns).await.iter().map(|attempt| attempt.state).collect()
}

#[cfg(feature = "sqlite")]
#[tokio::test]
async fn sigterm_lets_running_attempts_finish() {
    let folder = Folder::new("sigterm-finish");
    let url = folder.url("kiln.db");
    let kilns = kilns(&url).await;
    kilns.send("k", Fire { ms: 400 }).await.unwrap();
    let mut child = executing(&kilns, &url, Duration::from_secs(30)).await;
    child.terminate();
    until("the child ends", async || child.has_ended()).await;
    assert_eq!(states(&kilns).await, [AttemptState::Success]);
}

#[cfg(feature = "sqlite")]
#[tokio::test]
async fn sigterm_releases_attempts_that_do_not_finish_in_time() {
    let folder = Folder::new("sigterm-release");
    let url = folder.url("kiln.db");
    let kilns = kilns(&url).await;
    kilns.send("k", Fire { ms: 60_000 }).await.unwrap();
    let mut child = executing(&kilns, &url, Duration::from_millis(50)).await;
    child.terminate();
    until("the child ends", async || child.has_ended()).await;
    assert_eq!(states(&kilns).await, [AttemptState::Released, AttemptState::Scheduled]);
    let call = kilns.get("k").await.unwrap().unwrap().call.unwrap();
    assert_eq!((call.attempt, call.retries_left), (2, Some(2)), "it used no retry");
}

#[cfg(feature = "sqlite")]
#[tokio::test]
async fn a_second_signal_ends_the_process_at_once_and_its_attempts_are_lost() {
    let folder = Folder::new("sigterm-twice");
    let url = folder.url("kiln.db");
    let kilns = kilns(&url).await;
    kilns.send("k", Fire { ms: 60_000 }).await.unwrap();
    let mut child = executing(&kilns, &url, Duration::from_secs(600)).await;
    child.terminate();
    until("a second signal ends it", async || {
        child.terminate_if_alive();
        child.has_ended()
    })
    .await;
    assert_eq!(states(&kilns).await, [AttemptState::Executing]);
    let other = Process::start(&url, Duration::ZERO);
    until("the attempt is lost", async || states(&kilns).await.first() == Some(&AttemptState::Lost)).await;
    drop(other);
}

impl Process {
    fn terminate_if_alive(&mut self) {
        if !self.has_ended() {
            self.terminate();
        }
    }
}

/// Known bug 10: a poison job killed every node, one after the other.
mod a_verb_that_kills_its_process_is_exhausted_and_not_run_for_ever {
    use super::*;

    async fn check(url: &str) {
        let kilns = kilns(url).await;
        kilns.send("k", Crack).await.unwrap();
        let mut deaths = 0;
        let mut child = Process::start(url, Duration::ZERO);
        until("the instance is in error", async || {
            if child.has_ended() {
                deaths += 1;
                child = Process::start(url, Duration::ZERO);
            }
            kilns.get("k").await.unwrap().unwrap().status == Status::Error
        })
        .await;
        assert_eq!((deaths, states(&kilns).await), (3, vec![AttemptState::Lost; 3]));
        let stuck = kilns.get("k").await.unwrap().unwrap();
        assert_eq!(stuck.error.as_deref(), Some("attempt 3 was lost: its worker is gone"));
    }

    #[cfg(feature = "sqlite")]
    #[tokio::test]
    async fn sqlite() {
        let folder = Folder::new("poison");
        check(&folder.url("kiln.db")).await;
    }

    #[cfg(feature = "postgres")]
    #[tokio::test]
    async fn postgres() {
        let bed = fsm::testing::TestBed::builder().only::<Kiln>().postgres().await;
        check(bed.url()).await;
    }
}

/// Commits that are in flight when a shutdown begins may start calls after it. The shutdown waits for these calls too.
#[cfg(feature = "sqlite")]
#[tokio::test(flavor = "multi_thread")]
async fn a_shutdown_waits_for_the_calls_that_commits_in_flight_still_start() {
    for round in 0..60 {
        let runtime = Runtime::builder().database("sqlite::memory:").only::<Kiln>().start().await.unwrap();
        let kilns = runtime.machine::<Kiln>();
        let sends: Vec<_> = (0..20)
            .map(|kiln| {
                let kilns = kilns.clone();
                tokio::spawn(async move { kilns.send(format!("k-{kiln}"), Fire { ms: 1 }).await })
            })
            .collect();
        // In each round, the shutdown begins at a different moment of the commits.
        for _ in 0..round {
            tokio::task::yield_now().await;
        }
        let ended = runtime.shutdown().await;
        assert!(ended.is_ok(), "round {round}: {}", ended.unwrap_err());
        for send in sends {
            // A send that came after the shutdown began is refused.
            let _ = send.await.unwrap();
        }
    }
}
