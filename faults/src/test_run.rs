//! One run of a scenario: its database, its processes, the repeated check of the invariants, and the final comparison.

use std::fmt;
use std::time::{Duration, Instant};

use fsm::Client;

use crate::check::check;
use crate::child::Spec;
use crate::databases::Databases;
use crate::invariant_checker::InvariantChecker;
use crate::ledger::{self, Line};
use crate::load::Load;
use crate::process::Process;
use crate::report::Report;
use crate::rows::{Db, Rows};
use crate::test_server::{Folder, Kind, TestServer};
use crate::{Failure, sql};

/// The default limit for all instances to settle.
const SETTLE_LIMIT: Duration = Duration::from_secs(120);
const POLL_INTERVAL: Duration = Duration::from_millis(100);
/// No inbox reaches this limit.
const INBOX: u64 = 1_000_000;

/// One run of a scenario.
pub struct TestRun<'g> {
    pub test_server: &'g mut TestServer,
    pub kind: Kind,
    pub folder: Folder,
    /// The URL that children use.
    pub url: String,
    /// The URL of the same database without a proxy.
    direct: String,
    pub children: Vec<Process>,
    pub lease: Duration,
    pub seed: u64,
    /// The limit for all instances to settle after the senders and faults have ended.
    pub settle_within: Duration,
    /// The prefix of the children's commands, a program that executes them.
    pub prefix: &'static [&'static str],
    invariant_checker: InvariantChecker,
    begun: Instant,
    started: usize,
    notes: Vec<String>,
    findings: Vec<String>,
}

impl<'g> TestRun<'g> {
    /// Opens a run with a fresh database and its tables.
    pub async fn open(test_server: &'g mut TestServer, name: &str, kind: Kind, seed: u64) -> Result<TestRun<'g>, Failure> {
        let folder = Folder::new(&format!("{name}-{}", kind.word()))?;
        let url = match kind {
            Kind::Sqlite => format!("sqlite://{}/faults.db", folder.path().display()),
            Kind::Postgres => test_server.database("").await?,
        };
        TestRun::at(test_server, kind, seed, folder, url).await
    }

    /// Opens a run on a database that was created elsewhere.
    pub async fn at(
        test_server: &'g mut TestServer,
        kind: Kind,
        seed: u64,
        folder: Folder,
        direct: String,
    ) -> Result<TestRun<'g>, Failure> {
        let client =
            Client::connect(if kind == Kind::Postgres { format!("{direct}?application_name=checks") } else { direct.clone() }).await?;
        Databases::connect(&direct).await?.run(sql::MAKE_BOOKS).await?;
        Ok(TestRun {
            test_server,
            kind,
            folder,
            url: direct.clone(),
            direct,
            children: Vec::new(),
            lease: Duration::from_secs(1),
            seed,
            settle_within: SETTLE_LIMIT,
            prefix: &[],
            invariant_checker: InvariantChecker::begin(client),
            begun: Instant::now(),
            started: 0,
            notes: Vec::new(),
            findings: Vec::new(),
        })
    }

    /// The settings of a child that works and sends.
    pub fn spec(&mut self, name: &str) -> Spec {
        self.started += 1;
        Spec {
            name: format!("{name}{}", self.started),
            url: self.url.clone(),
            folder: self.folder.path().to_owned(),
            runs_verbs: true,
            load: Load::default(),
            lease: self.lease,
            concurrency: 64,
            connections: 8,
            deadline: Duration::from_secs(30),
            inbox: INBOX,
            is_in_a_container: false,
            has_schedule: false,
            clock_ahead_s: 0,
            threads: 2,
            seed: self.seed.wrapping_add(self.started as u64),
        }
    }

    /// The settings of a child that only sends.
    pub fn sender(&mut self) -> Spec {
        Spec { runs_verbs: false, ..self.spec("sender") }
    }

    /// The settings of a child that only works.
    pub fn worker(&mut self) -> Spec {
        let spec = self.spec("worker");
        Spec { load: Load { callers: 0, ..spec.load.clone() }, ..spec }
    }

    /// Starts a child. Returns its index in `children`.
    pub fn start(&mut self, spec: &Spec) -> Result<usize, Failure> {
        self.start_with(spec, &[])
    }

    /// Like `start`, with these environment variables.
    pub fn start_with(&mut self, spec: &Spec, variables: &[(&str, &str)]) -> Result<usize, Failure> {
        self.children.push(Process::start_under(self.prefix, "child", &spec.name, spec, self.folder.path(), variables)?);
        Ok(self.children.len() - 1)
    }

    /// Starts another child at the index of one that was killed.
    pub fn replace(&mut self, index: usize, spec: &Spec) -> Result<(), Failure> {
        self.children[index] = Process::start_under(self.prefix, "child", &spec.name, spec, self.folder.path(), &[])?;
        Ok(())
    }

    /// A connection without the engine and without a proxy.
    pub async fn db(&self) -> Result<Db, Failure> {
        Db::connect(&self.direct).await
    }

    /// Connections to all partitions, or to the database if it has none.
    pub async fn databases(&self) -> Result<Databases, Failure> {
        Databases::connect(&self.direct).await
    }

    /// The number of committed transitions.
    pub async fn transitions(&self) -> Result<i64, Failure> {
        self.databases().await?.sum(sql::TRANSITIONS).await
    }

    /// Waits until `wanted` transitions are committed.
    pub async fn until_transitions(&self, wanted: i64) -> Result<(), Failure> {
        let limit = Instant::now() + SETTLE_LIMIT;
        while self.transitions().await? < wanted {
            if Instant::now() > limit {
                return Err(format!("{} transitions within {SETTLE_LIMIT:?}, not {wanted}", self.transitions().await?).into());
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
        Ok(())
    }

    /// The number of successful attempts of the verb that blocks its thread.
    pub async fn stalled(&self) -> Result<i64, Failure> {
        self.db().await?.number(sql::STALLED).await
    }

    /// The URL of the database at another host and port.
    pub fn url_at(&self, address: &str) -> Result<String, Failure> {
        let (_, name) = self.direct.rsplit_once('/').ok_or("a URL has a path")?;
        Ok(format!("postgres://postgres@{address}/{name}"))
    }

    /// The number of lines of the children's output that contain this word.
    pub fn output_lines_with(&self, word: &str) -> Result<usize, Failure> {
        Ok(self.lines()?.iter().filter(|line| line.contains(word)).count())
    }

    /// Stops the checks of the invariants until the end.
    pub fn check_no_more(&self) {
        self.invariant_checker.stop();
    }

    /// The lines of the output of all children.
    pub fn lines(&self) -> Result<Vec<String>, Failure> {
        let mut lines = Vec::new();
        for child in &self.children {
            let output = std::fs::read_to_string(self.folder.path().join(format!("{}.out", child.name)))?;
            lines.extend(output.lines().map(str::to_owned));
        }
        Ok(lines)
    }

    /// Adds a figure to the report.
    pub fn note(&mut self, note: impl fmt::Display) {
        self.notes.push(note.to_string());
    }

    /// Adds a finding if `is_so` is false.
    pub fn require(&mut self, is_so: bool, what: impl fmt::Display) {
        if !is_so {
            self.findings.push(format!("not so: {what}"));
        }
    }

    /// Stops the senders, waits until all instances settle, and compares the ledgers with the database.
    pub async fn finish(mut self) -> Result<(Report, Rows), Failure> {
        if let Err(error) = self.settle().await {
            self.findings.push(error.to_string());
        }
        let Ok(mut databases) = self.databases().await else { return Err("the database is away at the end".into()) };
        if self.kind == Kind::Postgres {
            let deadlocks = databases.sum(sql::DEADLOCKS).await?;
            let says = if deadlocks == 0 { String::new() } else { self.test_server.deadlocks()? };
            self.require(deadlocks == 0, format!("the server saw no deadlock, but {deadlocks}: {says}"));
        }
        for child in &mut self.children {
            let is_alive = child.is_alive();
            if !is_alive {
                self.findings.push(format!("{} died by itself; what it said is in {}", child.name, self.folder.path().display()));
            }
        }
        self.children.clear();
        let (invariant_checks, broken) = self.invariant_checker.end().await?;
        self.findings.extend(broken);
        let rows = databases.read_all().await?;
        let ledgers = ledger::read_all(self.folder.path())?;
        self.findings.extend(check(&ledgers, &rows));
        let count = |is_it: fn(&Line) -> bool| ledgers.iter().flat_map(|ledger| &ledger.lines).filter(|line| is_it(line)).count();
        let report = Report {
            took: self.begun.elapsed(),
            transitions: rows.ended("success"),
            acknowledged: count(|line| matches!(line, Line::Acknowledged { .. })),
            executed: count(|line| matches!(line, Line::AttemptStarted { .. })),
            lost: rows.ended("lost"),
            invariant_checks,
            notes: self.notes,
            findings: self.findings,
            folder: self.folder,
        };
        Ok((report, rows))
    }

    /// The number of rows that show unfinished work. Partitions are read one after the other, and an event may move to one that was read
    /// already. So they are read again.
    async fn unsettled(&self) -> Result<i64, Failure> {
        let mut databases = self.databases().await?;
        Ok(databases.sum(sql::UNSETTLED).await? + databases.sum(sql::UNSETTLED).await?)
    }

    async fn settle(&mut self) -> Result<(), Failure> {
        self.children.iter_mut().for_each(Process::stop_sending);
        self.databases().await?.run(sql::PAUSE_SCHEDULES).await?;
        let begun = Instant::now();
        let limit = begun + self.settle_within;
        loop {
            let mut at_work = 0;
            for child in &mut self.children {
                at_work += usize::from(child.is_alive() && !ledger::has_stopped_sending(self.folder.path(), &child.name));
            }
            let unsettled = if at_work == 0 { self.unsettled().await? } else { -1 };
            if at_work == 0 && unsettled == 0 {
                self.note(format!("at rest after {:.1} s", begun.elapsed().as_secs_f32()));
                return Ok(());
            }
            if Instant::now() > limit {
                let some = self.databases().await?.texts(sql::SOME_LIVE_ATTEMPTS).await?;
                return Err(format!(
                    "not at rest within {:?}: {at_work} processes still send, {unsettled} rows are to come: {some:#?}",
                    self.settle_within
                )
                .into());
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }
}
