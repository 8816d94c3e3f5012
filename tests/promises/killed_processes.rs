//! Real processes that are killed while they run attempts, and other processes that finish their work.

use std::fs::{File, OpenOptions};
use std::future::IntoFuture;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use fsm::prelude::*;
use fsm::{Attempt, Handle};
use serde::{Deserialize, Serialize};

use crate::support::Folder;

/// The environment variables that make this test program a child process: the URL of the database and the path of the ledger.
const URL: &str = "FSM_TEST_CHILD_DATABASE";
const LEDGER: &str = "FSM_TEST_CHILD_LEDGER";
/// The maximum time for anything that a test waits for.
const LIMIT: Duration = Duration::from_secs(60);
const LOOK: Duration = Duration::from_millis(10);
const LEASE: Duration = Duration::from_secs(1);

/// A record outside the database: one line for each execution, on the disk before the verb continues.
struct Ledger(File);

impl Ledger {
    fn open(path: &Path) -> Ledger {
        Ledger(OpenOptions::new().create(true).append(true).open(path).unwrap())
    }

    fn note(&self, ctx: &Ctx<'_>) {
        let line = format!("{} {}\n", ctx.idempotency_key(), ctx.attempt());
        (&self.0).write_all(line.as_bytes()).unwrap();
        self.0.sync_data().unwrap();
    }
}

#[derive(Debug, Clone, Serialize, Deserialize)]
struct Haul {
    ms: u64,
}
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Tow {
    ms: u64,
}

/// Takes a while. It may be run again.
#[verb]
#[retry("50ms")]
async fn hauled(ctx: &mut Ctx<'_>, ledger: Data<Ledger>, event: Haul) -> Result {
    ledger.note(ctx);
    tokio::time::sleep(Duration::from_millis(event.ms)).await;
    Ok(())
}

/// Takes a while. It must not be run twice.
#[verb]
async fn towed(ctx: &mut Ctx<'_>, ledger: Data<Ledger>, event: Tow) -> Result {
    ledger.note(ctx);
    tokio::time::sleep(Duration::from_millis(event.ms)).await;
    Ok(())
}

fsm! {
    machine Truck = "truck" {
        start hauled | towed;
        end hauled, towed;
    }
}

async fn runtime(url: &str, ledger: &Path, lease: Duration) -> Runtime {
    let builder = Runtime::builder().database(url).only::<Truck>().data(Ledger::open(ledger));
    // Each of these processes waits for the leases of the others. `takeover.rs` tests those that do not have to wait.
    builder.in_a_container().lease(lease).poll_interval(Duration::from_millis(20)).concurrency(8).start().await.unwrap()
}

/// This is not a test of its own: it is the child process of the others. It sends 40 events, records each acknowledged key in a file, and
/// runs their verbs until it is killed.
#[tokio::test]
async fn child() {
    let (Ok(url), Ok(ledger)) = (std::env::var(URL), std::env::var(LEDGER)) else {
        assert!(std::env::var(URL).is_err() && std::env::var(LEDGER).is_err(), "a child needs both variables");
        return;
    };
    let runtime = runtime(&url, Path::new(&ledger), LEASE).await;
    let trucks = runtime.machine::<Truck>();
    for n in 0.. {
        let key = format!("{}-{n}", std::process::id());
        let sent = match n {
            0..30 => trucks.send(&key, Haul { ms: 40 }).await,
            30..40 => trucks.send(&key, Tow { ms: 40 }).await,
            _ => break,
        };
        sent.unwrap();
        // Only keys in this file were acknowledged.
        let mut out = OpenOptions::new().create(true).append(true).open(acknowledged(Path::new(&ledger))).unwrap();
        out.write_all(format!("{key}\n").as_bytes()).unwrap();
    }
    std::future::pending().await
}

fn acknowledged(ledger: &Path) -> PathBuf {
    ledger.with_extension("acknowledged")
}

/// A child process that is killed at the latest when this value is dropped.
struct Process(Child);

impl Process {
    fn start(url: &str, ledger: &Path) -> Process {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "killed_processes::child", "--nocapture"]).env(URL, url).env(LEDGER, ledger);
        Process(command.stdin(Stdio::null()).stdout(Stdio::null()).spawn().unwrap())
    }

    /// Kills the process with SIGKILL, so that it cannot clean up.
    fn kill(mut self) {
        assert!(self.0.try_wait().unwrap().is_none(), "it works until it is killed");
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

fn lines(file: &Path) -> Vec<String> {
    std::fs::read_to_string(file).unwrap_or_default().lines().map(str::to_owned).collect()
}

/// Repeats the check until it is true.
async fn until(what: &str, mut is_so: impl AsyncFnMut() -> bool) {
    let limit = Instant::now() + LIMIT;
    while !is_so().await {
        assert!(Instant::now() < limit, "not within {LIMIT:?}: {what}");
        tokio::time::sleep(LOOK).await;
    }
}

async fn all_of(trucks: &Handle<Truck>) -> Vec<fsm::Instance<Truck>> {
    let page = trucks.list(Filter::default().limit(1000)).await.unwrap();
    assert_eq!(page.next, None);
    page.items
}

async fn settled(trucks: &Handle<Truck>) {
    until("all are settled", async || all_of(trucks).await.iter().all(|truck| truck.call.is_none() && truck.inbox_len == 0)).await;
}

mod what_was_acknowledged_is_finished_by_others_after_kill_9 {
    use super::*;

    const KILLS: usize = 5;

    async fn check(url: &str, folder: &Folder) {
        let ledger = folder.path().join("ledger");
        // Each process is killed while it works on the attempts of all rounds so far.
        for round in 1..=KILLS {
            let known = lines(&ledger).len();
            let child = Process::start(url, &ledger);
            until("the ledger grows", async || lines(&ledger).len() >= known + 3 + 2 * round).await;
            child.kill();
        }
        let before = lines(&acknowledged(&ledger)).len();
        let last = Process::start(url, &ledger);
        let client = Client::connect(url).await.unwrap();
        let trucks = client.machine::<Truck>();
        until("the last one sends", async || lines(&acknowledged(&ledger)).len() >= before + 40).await;
        settled(&trucks).await;

        let found = all_of(&trucks).await;
        for key in lines(&acknowledged(&ledger)) {
            assert!(found.iter().any(|truck| truck.key == key), "{key} was acknowledged and is missing");
        }
        let (mut lost, mut granted) = (0, Vec::new());
        for truck in &found {
            let attempts = trucks.attempts(&truck.key).await.unwrap();
            granted.extend(attempts.iter().map(|attempt| format!("{} {}", attempt.call, attempt.number)));
            lost += attempts.iter().filter(|attempt| attempt.state == AttemptState::Lost).count();
            ended_as_its_policy_says(truck, &attempts);
        }
        let executed = lines(&ledger);
        for line in &executed {
            assert!(granted.contains(line), "execution {line} has no attempt in the database");
            assert_eq!(executed.iter().filter(|other| *other == line).count(), 1, "attempt {line} was executed more than once");
        }
        assert!(lost >= KILLS, "{lost} attempts were lost to {KILLS} kills");
        assert!(client.check_invariants().await.unwrap().is_empty());
        last.kill();
    }

    fn ended_as_its_policy_says(truck: &fsm::Instance<Truck>, attempts: &[Attempt]) {
        let key = &truck.key;
        let last = attempts.last().unwrap();
        let before = &attempts[..attempts.len() - 1];
        assert!(before.iter().all(|attempt| attempt.state == AttemptState::Lost), "{key}: {attempts:#?}");
        match (last.verb.as_str(), last.state) {
            ("hauled", AttemptState::Success) => assert_eq!((truck.status, truck.version), (Status::Completed, 1), "{key}"),
            ("towed", AttemptState::Success) => {
                assert_eq!((truck.status, truck.version, attempts.len()), (Status::Completed, 1, 1), "{key}");
            }
            ("towed", AttemptState::Lost) => {
                assert_eq!((truck.status, truck.version, attempts.len()), (Status::Error, 0, 1), "{key} is not run twice");
                assert_eq!(truck.error.as_deref(), Some("attempt 1 was lost: its worker is gone"));
            }
            other => panic!("{key} ended as {other:?}"),
        }
    }

    #[cfg(feature = "sqlite")]
    #[tokio::test]
    async fn sqlite() {
        let folder = Folder::new("killed-sqlite");
        check(&folder.url("trucks.db"), &folder).await;
    }

    #[cfg(all(feature = "sqlite", feature = "postgres"))]
    #[tokio::test]
    async fn postgres() {
        let folder = Folder::new("killed-postgres");
        let bed = crate::clumsy::clumsy().postgres().await;
        check(bed.url(), &folder).await;
    }
}

/// The next process starts long before the lease of the dead one ends, and gets a session of its own. `durable.rs` shows with a test clock
/// that it waits for the end of the lease.
mod a_process_that_restarts_sooner_than_its_lease_takes_over_once_that_ends {
    use super::*;

    async fn check(url: &str, folder: &Folder) {
        let ledger = folder.path().join("ledger");
        let first = Process::start(url, &ledger);
        until("the first one executes", async || lines(&ledger).len() >= 4).await;
        first.kill();

        let next = runtime(url, &ledger, LEASE).await;
        let trucks = next.machine::<Truck>();
        settled(&trucks).await;
        let mut all = Vec::new();
        for truck in all_of(&trucks).await {
            all.extend(trucks.attempts(&truck.key).await.unwrap());
        }
        let workers = |state| all.iter().filter(move |attempt| attempt.state == state).map(|attempt| attempt.worker.unwrap());
        let before = workers(AttemptState::Lost).next().expect("attempts were running when it was killed");
        assert!(workers(AttemptState::Lost).all(|worker| worker == before));
        let mine = workers(AttemptState::Success).find(|worker| *worker != before);
        assert!(mine.is_some(), "the next process has another session, and finished the work");
        assert!(next.check_invariants().await.unwrap().is_empty());
        next.shutdown().await.unwrap();
    }

    #[cfg(feature = "sqlite")]
    #[tokio::test]
    async fn sqlite() {
        let folder = Folder::new("soon-sqlite");
        check(&folder.url("trucks.db"), &folder).await;
    }

    #[cfg(all(feature = "sqlite", feature = "postgres"))]
    #[tokio::test]
    async fn postgres() {
        let folder = Folder::new("soon-postgres");
        let bed = crate::clumsy::clumsy().postgres().await;
        check(bed.url(), &folder).await;
    }
}

/// Many calls are due at the same time, and eight runtimes with eight slots each claim them.
mod no_attempt_is_granted_twice_to_64_claimers {
    use super::*;

    const CALLS: usize = 400;

    async fn check(url: &str, folder: &Folder) {
        let ledger = folder.path().join("ledger");
        let client = Client::connect(url).await.unwrap();
        let trucks = client.machine::<Truck>();
        let sends: Vec<_> = (0..CALLS).map(|n| tokio::spawn(trucks.send(format!("t-{n}"), Haul { ms: 1 }).into_future())).collect();
        for send in sends {
            send.await.unwrap().unwrap();
        }
        let starts: Vec<_> = (0..8)
            .map(|_| {
                let (url, ledger) = (url.to_owned(), ledger.clone());
                tokio::spawn(async move { runtime(&url, &ledger, 30 * LEASE).await })
            })
            .collect();
        let mut runtimes = Vec::new();
        for start in starts {
            runtimes.push(start.await.unwrap());
        }
        settled(&trucks).await;
        let mut executed = lines(&ledger);
        executed.sort();
        let all = executed.len();
        executed.dedup();
        assert_eq!((all, executed.len()), (CALLS, CALLS), "each call was executed once");
        let mut workers = std::collections::HashSet::new();
        for truck in all_of(&trucks).await {
            let attempts = trucks.attempts(&truck.key).await.unwrap();
            assert_eq!((attempts.len(), attempts[0].state, truck.version), (1, AttemptState::Success, 1));
            workers.extend(attempts[0].worker);
        }
        assert!(workers.len() > 1, "they shared the work");
        assert!(client.check_invariants().await.unwrap().is_empty());
        for runtime in runtimes {
            runtime.shutdown().await.unwrap();
        }
    }

    #[cfg(feature = "sqlite")]
    #[tokio::test(flavor = "multi_thread", worker_threads = 4)]
    async fn sqlite() {
        let folder = Folder::new("race-sqlite");
        check(&folder.url("trucks.db"), &folder).await;
    }

    #[cfg(all(feature = "sqlite", feature = "postgres"))]
    #[tokio::test(flavor = "multi_thread", worker_threads = 4)]
    async fn postgres() {
        let folder = Folder::new("race-postgres");
        let bed = crate::clumsy::clumsy().postgres().await;
        check(bed.url(), &folder).await;
    }
}
