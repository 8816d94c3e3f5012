//! A commit in progress: the batch commit of the engine, on the store of the model. It pauses where other processes may act in between.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};

use fsm_core::changes::Changes;
use fsm_core::commit::batch_commit::BatchCommit;
use fsm_core::commit::batch_commit::optimistic::Speculation;
use fsm_core::commit::database::{Database as _, Fault};
use fsm_core::commit::environment::Environment;
use fsm_core::commit::instance_key::InstanceKey;
use fsm_core::commit::outcome;
use fsm_core::commit::request;
use fsm_core::commit::rows::{CachedSnapshot, FileVersion, RowSnapshot, RowVersion};
use fsm_core::commit::written::Written;
use fsm_core::decide::refusal::Refusal;
use fsm_core::ids::SessionId;
use fsm_core::machine::Machine;
use fsm_core::outcome::Outcome;
use fsm_core::priority::Priority;
use fsm_core::time::Timestamp;
use uuid::Uuid;

use super::Model;
use super::database::ModelDatabase;
use super::promise::{Broken, Promise};
use super::queue::{KEYS, Request};
use super::variant::Variant;

/// The method by which a batch is read and written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// Reads and writes under locks.
    Locked,
    /// Reads without locks, and writes in one statement if the instances still have the row versions that were read.
    AtOnce,
    /// Reads without locks at this file version, and writes under the write lock if it is still the same.
    Ahead(u64),
}

/// The progress of a commit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    /// It reads the rows of the instances.
    Rows,
    /// It reads the other rows that its requests need.
    Reads,
    /// It has decided, and will write.
    Decided,
}

/// Why a commit ends without an outcome.
#[derive(Debug)]
pub enum Stop {
    /// A promise is broken.
    Broken(Broken),
    /// Another process has changed the same rows. The batch is decided again.
    ConcurrentChange,
}

pub type CommitOutcome = outcome::CommitOutcome<ModelProcess>;
/// The outcomes of a batch, or `None` if it needs locks.
pub type Ended = Result<Option<Vec<CommitOutcome>>, Stop>;

/// The values that a commit shares with the world while it runs.
pub struct Shared {
    /// The model, while the commit is polled.
    lent: Option<Model>,
    phase: Phase,
    /// The instances that other processes have locked, one bit each.
    pub locked: u8,
    /// The file version, as the process sees it under the write lock.
    pub file_version: u64,
    /// The file version that the decision is of.
    expected: u64,
    /// The instances as they were read without locks.
    pub seen: Vec<RowSnapshot>,
    /// The changes that a broken engine writes later, in a second transaction.
    pub halves: Vec<Changes>,
}

/// A commit in progress.
pub struct Commit {
    pub batch: Vec<Request>,
    /// The session that may get the calls that the commit opens.
    pub grant: Option<SessionId>,
    pub way: Way,
    /// The instances that the commit may write, one bit each. No other commit of this process works on them meanwhile.
    pub touches: u8,
    /// The instances that exist and whose rows are locked, one bit each.
    pub locks: u8,
    now: Timestamp,
    shared: Link,
    future: Pin<Box<dyn Future<Output = Ended> + std::marker::Send>>,
}

/// The way from a commit to the model.
#[derive(Clone)]
pub struct Link(Arc<Mutex<Shared>>);

impl Link {
    pub fn with<T>(&self, act: impl FnOnce(&mut Model, &mut Shared) -> T) -> T {
        let mut shared = self.0.lock().expect("no commit panics");
        let mut model = shared.lent.take().expect("the model is lent while the commit is polled");
        let answer = act(&mut model, &mut shared);
        shared.lent = Some(model);
        answer
    }

    /// Lets the other processes act before the commit enters this phase, unless it is in it.
    pub async fn enter(&self, phase: Phase) {
        let is_new = self.with(|_, shared| {
            let before = shared.phase;
            shared.phase = before.max(phase);
            before < phase
        });
        let mut is_paused = !is_new;
        poll_fn(|_| if std::mem::replace(&mut is_paused, true) { Poll::Ready(()) } else { Poll::Pending }).await;
    }
}

/// A process as a commit sees it.
pub struct ModelProcess {
    machine: Arc<Machine>,
    link: Link,
    grants: bool,
}

/// The error of a caller, with the refusal if it is one.
#[derive(Debug)]
pub struct Refused(pub Option<Refusal>);

impl From<Refusal> for Refused {
    fn from(refusal: Refusal) -> Refused {
        Refused(Some(refusal))
    }
}

impl From<Fault> for Stop {
    fn from(fault: Fault) -> Stop {
        match fault {
            Fault::ConcurrentChange => Stop::ConcurrentChange,
            Fault::Corrupt { what } => Stop::Broken(Broken { promise: Promise::I13, says: what }),
        }
    }
}

impl Environment for ModelProcess {
    type Slot = ();
    type Refused = Refused;

    fn machine(&self, _name: &str) -> Result<&Machine, Refused> {
        Ok(&self.machine)
    }

    fn not_found(&self, _target: &InstanceKey) -> Refused {
        Refused(None)
    }

    fn partition_elsewhere(&self, key: &str) -> Option<u32> {
        self.link.with(|model, _| model.partition_elsewhere(key))
    }

    fn has_partitions(&self) -> bool {
        self.link.with(|model, _| model.partition.is_some())
    }

    fn slot_for_new_call(&self, _machine: &str, _priority: Priority) -> Option<()> {
        self.grants.then_some(())
    }

    fn may_start(&self) -> bool {
        self.grants
    }

    fn begins_calls(&self) -> bool {
        true
    }

    fn inbox_limit(&self) -> u64 {
        INBOX
    }

    fn fresh(&self) -> Uuid {
        self.link.with(|model, _| model.fresh())
    }

    fn opened(&self, _attempt: &fsm_core::call::Attempt, _now: Timestamp) {}
}

/// The maximum number of events in an inbox.
pub const INBOX: u64 = 4;

/// The version of the only SQLite file.
pub fn version(number: u64) -> FileVersion {
    FileVersion { connection: 0, data_version: 0, others: number }
}

impl Model {
    /// Begins a commit. Under locks it goes on until it has decided; without them, until it has the rows of its instances.
    pub fn begin(&mut self, mut batch: Vec<Request>, now: Timestamp, grant: Option<SessionId>, way: Way) -> Result<Commit, Ended> {
        let touches = batch.iter().fold(0, |touches, request| touches | request.touches());
        let exists = |key: &usize| self.store.instance(KEYS[*key]).is_some();
        let all = (0..KEYS.len()).filter(|key| way == Way::Locked && touches & (1 << key) != 0);
        let locks = all.filter(exists).fold(0, |locks, key| locks | (1 << key));
        batch.iter_mut().for_each(|request| self.mistake(request, way));
        let expected = if let Way::Ahead(file_version) = way { file_version } else { 0 };
        let phase = if way == Way::Locked { Phase::Reads } else { Phase::Rows };
        let shared = Shared { lent: None, phase, locked: 0, file_version: expected, expected, seen: Vec::new(), halves: Vec::new() };
        let link = Link(Arc::new(Mutex::new(shared)));
        let process = ModelProcess { machine: self.machine_of(&batch), link: link.clone(), grants: grant.is_some() };
        let database = ModelDatabase::new(link.clone(), batch.clone(), now, way, self.variant);
        let future = Box::pin(run(process, database, batch.clone(), now, grant, way, self.variant));
        let mut commit = Commit { batch, grant, way, touches, locks, now, shared: link, future };
        match self.poll(&mut commit) {
            Poll::Pending => Ok(commit),
            Poll::Ready(ended) => Err(ended),
        }
    }

    /// Continues a commit up to its next pause.
    pub fn go_on(&mut self, commit: &mut Commit, locked: u8, file_version: u64) -> Poll<Ended> {
        commit.with(|shared| {
            shared.locked = locked;
            shared.file_version = file_version;
        });
        self.poll(commit)
    }

    fn poll(&mut self, commit: &mut Commit) -> Poll<Ended> {
        let empty = Model::new(Arc::clone(&self.machine), self.variant);
        commit.with(|shared| shared.lent = Some(std::mem::replace(self, empty)));
        let polled = commit.future.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        *self = commit.with(|shared| shared.lent.take()).expect("it was lent");
        polled
    }

    /// Carries out one request at once, with nobody beside it.
    pub fn carry_out(&mut self, request: Request, now: Timestamp, grant: Option<SessionId>) -> Result<CommitOutcome, Stop> {
        let mut commit = match self.begin(vec![request], now, grant, Way::Locked) {
            Ok(commit) => commit,
            Err(Err(stop)) => return Err(stop),
            Err(Ok(_)) => unreachable!("a commit pauses before it ends"),
        };
        match self.go_on(&mut commit, 0, 0) {
            Poll::Ready(ended) => Ok(ended?.and_then(|mut outcomes| outcomes.pop()).expect("each request has an outcome")),
            Poll::Pending => unreachable!("a commit under locks pauses once"),
        }
    }

    /// True if the request would be refused now.
    pub fn refuses(&mut self, request: &Request, now: Timestamp) -> Result<bool, Stop> {
        let before = (self.store.clone(), self.ledger.clone());
        let outcome = self.carry_out(request.clone(), now, None);
        (self.store, self.ledger) = before;
        Ok(matches!(outcome?.reply, Some(Err(_))))
    }

    /// Makes the mistakes that are made before a batch is decided.
    fn mistake(&self, request: &mut Request, way: Way) {
        let newest_of = |key: usize| self.store.instance(KEYS[key]).and_then(|instance| instance.newest);
        if let (Variant::SnapshotOfAnotherFileVersion, Way::Ahead(now), Some(CachedSnapshot::RowSnapshot(seen))) =
            (self.variant, way, &mut request.request.cached)
            && matches!(seen.row_version, RowVersion::FileVersion(_))
        {
            seen.row_version = RowVersion::FileVersion(version(now));
        }
        if let (Variant::SnapshotKept, Way::AtOnce, Some(CachedSnapshot::RowSnapshot(seen))) =
            (self.variant, way, &mut request.request.cached)
            && let Some(now) = self.store.instances.get(&seen.instance.id)
        {
            Arc::make_mut(&mut seen.instance).row_version = now.row_version;
        }
        let (newest, origin) = (newest_of(request.key), request.origin);
        let request::RequestKind::Complete(report) = &mut request.request.kind else { return };
        match self.variant {
            Variant::GuardWithoutSession | Variant::LateReportById => {
                let row = newest.and_then(|newest| self.store.attempt(newest)).filter(|row| row.call == report.attempt.call);
                let is_live = |row: &&fsm_core::call::Attempt| row.worker.is_some() && row.finished_at.is_none();
                if let Some(row) = row.filter(|row| self.variant == Variant::LateReportById || is_live(row)) {
                    report.attempt = Arc::new(row.clone());
                }
                request.request.cached = None;
            }
            Variant::SweepWithoutLooking if origin == super::queue::Origin::Sweeper => request.request.cached = None,
            // An engine that does not know internal transitions takes them for self-edges.
            Variant::StayMovesTheTimer if report.attempt.is_stay() => {
                let attempt = Arc::make_mut(&mut report.attempt);
                attempt.verb.clone_from(&attempt.to);
            }
            _ => {}
        }
    }

    /// Returns the machine. For an engine that retries in spite of an interrupt, its events do not interrupt.
    fn machine_of(&self, batch: &[Request]) -> Arc<Machine> {
        let mut machine = Arc::clone(&self.machine);
        let has_failed = |request: &Request| request.report().is_some_and(|report| !matches!(report.outcome, Outcome::Success { .. }));
        if self.variant == Variant::InterruptWaits && batch.iter().any(has_failed) {
            Arc::make_mut(&mut machine).edges.iter_mut().for_each(|edge| edge.interrupts = false);
        }
        machine
    }
}

impl Commit {
    /// Reads or changes what the commit shares with the world.
    pub fn with<T>(&self, act: impl FnOnce(&mut Shared) -> T) -> T {
        act(&mut self.shared.0.lock().expect("no commit panics"))
    }

    /// True if the rows have been read, and nothing is decided.
    pub fn is_undecided(&self) -> bool {
        self.with(|shared| shared.phase < Phase::Decided)
    }

    /// The time at which the batch is decided.
    pub fn now(&self) -> Timestamp {
        self.now
    }

    /// Makes the decision one of a later file version, as a broken engine does.
    pub fn read_file_version_again(&self, file_version: u64) {
        self.with(|shared| shared.expected = file_version);
    }
}

/// `Engine::commit_on_postgres` and `Engine::commit_on_sqlite`.
async fn run(
    process: ModelProcess,
    mut database: ModelDatabase,
    batch: Vec<Request>,
    now: Timestamp,
    grant: Option<SessionId>,
    way: Way,
    variant: Variant,
) -> Ended {
    let link = process.link.clone();
    let batch: Vec<_> = batch.iter().map(|request| &request.request).collect();
    let batch_commit = BatchCommit::new(&process, now, grant);
    let outcomes = match way {
        Way::Locked => batch_commit.of(&mut database, &batch).await.map(Some)?,
        Way::AtOnce => batch_commit.single_statement(&mut database, &batch, true).await?,
        Way::Ahead(file_version) => match batch_commit.speculate(&mut database, &batch, version(file_version)).await? {
            None => None,
            Some(speculation) => {
                link.enter(Phase::Decided).await;
                let is_same = link.with(|_, shared| shared.file_version == shared.expected);
                match is_same || variant == Variant::FileVersionNotCompared {
                    true => write_speculation(&batch_commit, &mut database, &batch, speculation).await?,
                    false => None,
                }
            }
        },
    };
    if outcomes.is_some() {
        // A batch that writes nothing commits too.
        link.enter(Phase::Decided).await;
    }
    Ok(outcomes)
}

/// Writes all of a speculative decision. Returns `None` if a guard fails; the transaction is rolled back then.
async fn write_speculation(
    batch_commit: &BatchCommit<'_, ModelProcess>,
    database: &mut ModelDatabase,
    batch: &[&request::Request],
    speculation: Speculation<ModelProcess>,
) -> Result<Option<Vec<CommitOutcome>>, Stop> {
    if !speculation.fits() {
        return batch_commit.write_speculation(database, batch, speculation).await.map(Some);
    }
    let written = database.write(&speculation.changes(), false).await?;
    let is_outdated = written.contains(&Written::Outdated);
    Ok((!is_outdated).then(|| batch_commit.speculation_written(batch, speculation)))
}
