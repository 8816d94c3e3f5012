//! The throw-away PostgreSQL: shared while tests run, gone when they are, however they ended.
#![cfg(unix)]
#![allow(clippy::unwrap_used, reason = "what fails here fails the test")]

use std::fs::{self, Permissions};
use std::io::{BufRead, BufReader, Lines, Read};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use fsm_store::testing::cluster::{self, ClusterError};
use sqlx::{Connection, PgConnection};

/// Says so where there is no PostgreSQL; in CI that is a failure.
macro_rules! needs_postgres {
    () => {
        if let Err(error @ ClusterError::NotInstalled) = cluster::find_programs() {
            assert!(std::env::var_os("CI").is_none(), "{error}");
            eprintln!("not tested: {error}");
            return;
        }
    };
}

/// A folder for clusters apart from the one that other tests use.
struct DedicatedConnection(PathBuf);

impl DedicatedConnection {
    fn new(name: &str) -> DedicatedConnection {
        let folder = PathBuf::from(format!("/tmp/fsm-{name}-{}", std::process::id()));
        fs::create_dir(&folder).unwrap();
        fs::set_permissions(&folder, Permissions::from_mode(0o1777)).unwrap();
        DedicatedConnection(folder)
    }

    /// Another process that takes the shared cluster here and prints its URL, then lives until it is killed or its input ends.
    fn user(&self) -> User {
        let mut process = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "a_user_of_the_shared_cluster", "--nocapture"])
            .env("FSM_CLUSTER_USER", "1")
            .env("TMPDIR", &self.0)
            .env_remove(cluster::VARIABLE)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(process.stdout.take().unwrap()).lines();
        let url = lines.by_ref().map_while(Result::ok).find_map(|line| Some(line[line.find("postgres://")?..].to_owned()));
        User { process, url: url.expect("the user prints the URL"), _output: lines }
    }

    fn is_empty(&self) -> bool {
        fs::read_dir(&self.0).unwrap().next().is_none()
    }

    fn becomes_empty(&self) -> bool {
        let begun = Instant::now();
        while !self.is_empty() && begun.elapsed() < Duration::from_secs(20) {
            std::thread::sleep(Duration::from_millis(50));
        }
        self.is_empty()
    }

    /// The only cluster here.
    fn cluster(&self) -> PathBuf {
        let site = fs::read_dir(&self.0).unwrap().next().unwrap().unwrap().path();
        fs::read_dir(site).unwrap().map(|entry| entry.unwrap().path()).find(|path| path.is_dir()).unwrap()
    }
}

impl Drop for DedicatedConnection {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

struct User {
    process: Child,
    url: String,
    /// Open, so that the process can print to its end.
    _output: Lines<BufReader<ChildStdout>>,
}

impl User {
    fn end(mut self) {
        drop(self.process.stdin.take());
        self.process.wait().unwrap();
    }

    fn kill(mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }
}

fn server_of(cluster: &Path) -> i32 {
    fs::read_to_string(cluster.join("data/postmaster.pid")).unwrap().lines().next().unwrap().parse().unwrap()
}

fn signal(signal: &str, process: i32) -> bool {
    Command::new("sh").args(["-c", &format!("kill -{signal} {process}")]).stderr(Stdio::null()).status().unwrap().success()
}

async fn number(url: &str, query: &'static str) -> i32 {
    let mut connection = PgConnection::connect(url).await.unwrap();
    sqlx::query_scalar(query).fetch_one(&mut connection).await.unwrap()
}

/// Not a test of its own: the other process of the tests here.
#[test]
fn a_user_of_the_shared_cluster() {
    if std::env::var_os("FSM_CLUSTER_USER").is_some() {
        println!("{}", cluster::url().unwrap());
        std::io::stdin().read_to_end(&mut Vec::new()).unwrap();
    }
}

#[test]
fn processes_share_one_cluster_and_leave_nothing_even_when_killed() {
    needs_postgres!();
    let dedicated = DedicatedConnection::new("shared");
    let (first, second) = std::thread::scope(|scope| {
        let other = scope.spawn(|| dedicated.user());
        (dedicated.user(), other.join().unwrap())
    });
    assert_eq!(first.url, second.url);
    let server = server_of(&dedicated.cluster());
    first.kill();
    let third = dedicated.user();
    assert_eq!(third.url, second.url);
    second.end();
    third.kill();
    assert!(dedicated.becomes_empty());
    assert!(!signal("0", server), "the server is gone");
}

#[test]
fn what_a_killed_guardian_left_is_cleared_away() {
    needs_postgres!();
    let dedicated = DedicatedConnection::new("stale");
    let first = dedicated.user();
    let stale = dedicated.cluster();
    let server = server_of(&stale);
    // The guardian is the parent of the shell that waits for the server, and leads their process group.
    let group =
        Command::new("sh").args(["-c", &format!("ps -o pgid= -p {server} || cut -d ' ' -f 5 /proc/{server}/stat")]).output().unwrap();
    let guardian: i32 = String::from_utf8(group.stdout).unwrap().trim().parse().unwrap();
    assert!(signal("KILL", guardian));
    first.kill();
    assert!(stale.exists());

    let second = dedicated.user();
    assert!(!stale.exists());
    assert!(!signal("0", server), "the server is gone");
    second.end();
    assert!(dedicated.becomes_empty());
}

#[tokio::test]
async fn a_cluster_that_was_stopped_starts_again_with_what_was_committed() {
    needs_postgres!();
    let mut cluster = cluster::start_own().unwrap();
    let url = cluster.url();
    let mut connection = PgConnection::connect(&url).await.unwrap();
    sqlx::query("create table kept as select 7 as n").execute(&mut connection).await.unwrap();
    cluster.stop().unwrap();
    assert!(sqlx::query("select 1").execute(&mut connection).await.is_err());
    assert!(PgConnection::connect(&url).await.is_err());
    cluster.start().unwrap();
    assert_eq!(cluster.url(), url);
    assert_eq!(number(&url, "select n from kept").await, 7);

    drop(cluster);
    assert!(PgConnection::connect(&url).await.is_err());
}

#[tokio::test]
async fn the_url_of_this_process_works() {
    needs_postgres!();
    assert_eq!(number(&cluster::url().unwrap(), "select 1").await, 1);
}
