//! A parent and its children in two partitions: notices start, report and cancel them, processes die, and answers are lost, one transaction at a time,
//! with the decisions and the delivery of the engine. Nothing that is done as the engine does it breaks a promise. Each mistake that an engine could
//! make breaks one.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use fsm_core::changes::Changes;
use fsm_core::commit::family_notice::{ChildReport, ChildStart, FamilyNotice};
use fsm_core::commit::partition_delivery::{ClaimedLine, Delivery, SendAnswer, WaitingEvent, claim_until};
use fsm_core::decide::complete::complete;
use fsm_core::decide::family::{Started, all_cancelled, all_ended, start};
use fsm_core::decide::operate::{Act, Operation, operate};
use fsm_core::decide::send::{Send, send};
use fsm_core::decide::{DecisionContext, InstanceSnapshot};
use fsm_core::family::{Family, Parent};
use fsm_core::ids::{CallId, InstanceId, SessionId};
use fsm_core::instance::{Instance, Status};
use fsm_core::machine::{CHILDREN_ENDED, Edge, Machine};
use fsm_core::outcome::{Child, Event, Outcome, VerbRequests};
use fsm_core::priority::Priority;
use fsm_core::time::Timestamp;
use uuid::Uuid;

use super::families::machine;
use crate::random::Random;

const SEEDS: u64 = 600;
const PROCESSES: usize = 2;
/// The steps with accidents. After them, each process works until nothing changes.
const STEPS: u32 = 250;
/// The steps without accidents.
const LAST_STEPS: u32 = 1_500;
const PARENT: &str = "order";
const CHILDREN: [&str; 3] = ["parcel-1", "parcel-2", "parcel-3"];
/// The partitions of the parent and of the children.
const OF_PARENT: usize = 0;
const OF_CHILDREN: usize = 1;
/// The longest wait for the answer to a notice.
const PATIENCE: Duration = Duration::from_secs(2);

/// The engine, or one with a mistake.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Engine {
    Ours,
    /// Writes the report of an end after the commit of the end.
    ReportsAfterTheCommit,
    /// Takes each report that arrives, also one that comes again.
    HasNoReportNumbers,
    /// Keeps the notice that starts a child after the end of the child.
    KeepsTheStart,
    /// Takes the end of a child while another process delivers the notice that starts it.
    TakesAnEndDuringTheStart,
    /// Cancels whatever has the key of the child.
    CancelsAnyInstance,
    /// Cancels the children that are there, and sends no notice.
    CancelsWithoutTheLine,
    /// Notes no refusal in the row of the child.
    ForgetsRefusals,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Promise {
    /// A child is started once, also if it was deleted.
    StartedOnce,
    /// The end of a child is counted once.
    CountedOnce,
    /// A parent is called once, and when its last child has ended.
    CalledOnceAfterTheLast,
    /// A parent is called at some time, or all of its children are cancelled with it.
    NothingIsLeft,
    /// An instance that is no child is not cancelled.
    OthersGoOn,
}

/// A row of the parent's partition that stands for a child.
#[derive(Debug, Clone)]
struct RemoteChild {
    group: i64,
    call: CallId,
    told: i64,
    has_ended: bool,
    cancel_sent: bool,
}

/// A row of an outbox.
#[derive(Debug, Clone)]
struct Row {
    receiver: String,
    waiting: WaitingEvent,
}

#[derive(Debug, Clone, Default)]
struct Process {
    delivery: Option<(usize, Delivery, Timestamp)>,
    to_report: Vec<Row>,
}

struct World {
    engine: Engine,
    random: Random,
    ids: u128,
    now: Timestamp,
    machines: [Machine; 2],
    /// The instances of the two partitions.
    rows: [BTreeMap<String, InstanceSnapshot>; 2],
    outboxes: [Vec<Row>; 2],
    remote: BTreeMap<&'static str, RemoteChild>,
    processes: Vec<Process>,
    /// The children that were started, those that have ended, and the keys that other instances have.
    started: BTreeSet<String>,
    ended: BTreeSet<String>,
    taken: BTreeSet<&'static str>,
    called: u32,
    broken: Option<Promise>,
}

impl World {
    fn new(engine: Engine, seed: u64) -> World {
        let edges = vec![Edge::new(None, "Ship", "shipping"), Edge::new(Some("shipping"), CHILDREN_ENDED, "delivered")];
        let parents = machine("order", &[("shipping", "Ship"), ("delivered", CHILDREN_ENDED)], edges, "delivered");
        let children = machine("parcel", &[("packed", "Pack")], vec![Edge::new(None, "Pack", "packed")], "packed");
        World {
            engine,
            random: Random::new(seed),
            ids: 0,
            now: Timestamp::from_micros(1_000_000),
            machines: [parents, children],
            rows: Default::default(),
            outboxes: Default::default(),
            remote: BTreeMap::new(),
            processes: vec![Process::default(); PROCESSES],
            started: BTreeSet::new(),
            ended: BTreeSet::new(),
            taken: BTreeSet::new(),
            called: 0,
            broken: None,
        }
    }

    fn draw(&mut self, below: u64) -> u64 {
        self.random.below(below)
    }

    fn moment(&mut self) -> DecisionContext {
        self.ids += 2;
        let session = SessionId(Uuid::from_u128(1));
        DecisionContext { now: self.now, grant: Some(session), fresh: CallId(Uuid::from_u128(self.ids)) }
    }

    fn snapshot(&mut self, partition: usize, key: &str) -> InstanceSnapshot {
        let moment = self.moment();
        let name = self.machines[partition].name.clone();
        let new = || Instance::new(InstanceId(moment.fresh.0), &name, key, moment.now);
        self.rows[partition].get(key).cloned().unwrap_or_else(|| InstanceSnapshot { is_new: true, ..InstanceSnapshot::of(new()) })
    }

    fn breaks(&mut self, promise: Promise) {
        self.broken.get_or_insert(promise);
    }

    /// Commits changes to one row. The report of a child that ends is written in the same transaction.
    fn write(&mut self, p: usize, partition: usize, snapshot: InstanceSnapshot, changes: Changes) {
        let key = changes.instance.key.clone();
        if changes.open.as_ref().is_some_and(|open| open.attempt.event == CHILDREN_ENDED) {
            self.called += 1;
            let are_over = self.remote.keys().all(|key| self.ended.contains(*key) || self.taken.contains(key));
            if self.called > 1 || !are_over {
                self.breaks(Promise::CalledOnceAfterTheLast);
            }
        }
        if changes.concerns_parent() && changes.instance.status.is_ended() {
            self.ended.insert(key.clone());
            let report = self.report(&changes.instance);
            match self.engine {
                Engine::ReportsAfterTheCommit => self.processes[p].to_report.push(report),
                _ => self.outboxes[partition].push(report),
            }
        }
        let mut row = snapshot;
        row.apply(changes);
        self.rows[partition].insert(key, row);
    }

    fn row(&mut self, receiver: &str, sender: InstanceId, call: CallId, event: &str, notice: FamilyNotice) -> Row {
        self.ids += 1;
        let (number, event) = (self.ids as i64, Event { name: event.to_owned(), payload: Vec::new() });
        let (priority, notice, due_at) = (Priority::Normal, Some(notice), self.now);
        Row { receiver: receiver.to_owned(), waiting: WaitingEvent { number, call, event, sender, due_at, tries: 0, priority, notice } }
    }

    fn report(&mut self, child: &Instance) -> Row {
        let parent = child.parent.expect("it is a child");
        let report = ChildReport {
            parent: parent.id,
            group: parent.group,
            machine: child.machine.clone(),
            key: child.key.clone(),
            number: child.row_version,
            state: child.state.clone(),
            status: child.status,
            at: self.now,
        };
        let call = self.moment().fresh;
        self.row(PARENT, child.id, call, "ChildEnded", FamilyNotice::Report(report))
    }

    /// One transaction of one process, or an accident.
    fn step(&mut self, has_accidents: bool) {
        let p = self.draw(PROCESSES as u64) as usize;
        match self.draw(if has_accidents { 40 } else { 32 }) {
            0..2 if has_accidents => self.send(p, OF_PARENT, PARENT, "Ship"),
            2..5 => self.finish_parent(p),
            5..8 => self.end_child(p),
            8..14 => self.claim(p),
            14..25 => self.deliver(p, has_accidents),
            25..28 => self.look(p),
            28..30 => self.now = self.now + Duration::from_millis(500),
            30 => {
                let reports = std::mem::take(&mut self.processes[p].to_report);
                self.outboxes[OF_CHILDREN].extend(reports);
            }
            31 | 32 => self.prune(),
            33 => self.processes[p] = Process::default(),
            34..36 => self.now = self.now + Duration::from_secs(4),
            36 => {
                let key = CHILDREN[self.draw(3) as usize];
                if self.draw(6) == 0 && !self.rows[OF_CHILDREN].contains_key(key) && !self.started.contains(key) {
                    self.taken.insert(key);
                    self.send(p, OF_CHILDREN, key, "Pack");
                }
            }
            37 if self.draw(6) == 0 => self.operate(p, OF_PARENT, PARENT),
            _ => {}
        }
    }

    fn send(&mut self, p: usize, partition: usize, key: &str, name: &str) {
        let (snapshot, moment) = (self.snapshot(partition, key), self.moment());
        let sent = Send { reject_if_busy: true, ..Send::new(moment.fresh, Event { name: name.into(), payload: Vec::new() }, 10) };
        if let Ok(Ok(accepted)) = send(&self.machines[partition], &snapshot, sent, moment)
            && let Some(changes) = accepted.changes
        {
            self.write(p, partition, snapshot, changes);
        }
    }

    fn finish(&mut self, p: usize, partition: usize, key: &str, children: Vec<Child>) -> bool {
        let Some(snapshot) = self.rows[partition].get(key).filter(|row| row.instance.is_open).cloned() else { return false };
        let Some(attempt) = snapshot.newest.clone() else { return false };
        let verb_requests = VerbRequests { children, ..VerbRequests::default() };
        let (outcome, moment) = (Outcome::Success { record: None, verb_requests, timer: None, search: Vec::new() }, self.moment());
        let Ok(changes) = complete(&self.machines[partition], &snapshot, &attempt, outcome, moment) else { return false };
        self.write(p, partition, snapshot, changes);
        true
    }

    /// The parent's verb succeeds. The rows of its children and the notices that start them are written in the same transaction.
    fn finish_parent(&mut self, p: usize) {
        let is_first = self.remote.is_empty();
        let mut asked = Vec::new();
        for key in CHILDREN {
            if is_first && self.draw(3) > 0 {
                asked.push((key, self.moment().fresh));
            }
        }
        let child = |(key, call): &(&str, CallId)| Child {
            id: *call,
            machine: "parcel".into(),
            key: (*key).to_owned(),
            event: Event { name: "Pack".into(), payload: Vec::new() },
            search: Vec::new(),
            is_detached: false,
            priority: Priority::Normal,
            end_event: None,
            failure_event: None,
        };
        if !self.finish(p, OF_PARENT, PARENT, asked.iter().map(child).collect()) {
            return;
        }
        let parent = self.rows[OF_PARENT][PARENT].instance.clone();
        let Some(group) = parent.family.group() else { return };
        for (key, call) in asked {
            self.remote.insert(key, RemoteChild { group, call, told: -1, has_ended: false, cancel_sent: false });
            let start =
                ChildStart { group, parent_machine: "order".into(), parent_key: PARENT.into(), is_detached: false, failure_event: None };
            let row = self.row(key, parent.id, call, "Pack", FamilyNotice::Start(start));
            self.outboxes[OF_PARENT].push(row);
        }
    }

    /// A child ends in its own transaction, unless its parent was cancelled: it does not end then unless it is cancelled too.
    fn end_child(&mut self, p: usize) {
        let is_cancelled = self.rows[OF_PARENT].get(PARENT).is_some_and(|parent| parent.instance.status == Status::Cancelled);
        let key = CHILDREN[self.draw(3) as usize];
        if !is_cancelled && self.rows[OF_CHILDREN].get(key).is_some_and(|row| row.instance.parent.is_some()) {
            self.finish(p, OF_CHILDREN, key, Vec::new());
        }
    }

    /// A child that has ended is deleted, if its report was delivered.
    fn prune(&mut self) {
        let key = CHILDREN[self.draw(3) as usize];
        let Some(row) = self.rows[OF_CHILDREN].get(key).filter(|row| row.instance.status.is_ended()) else { return };
        let id = row.instance.id;
        let waits = self.outboxes[OF_CHILDREN].iter().chain(self.processes.iter().flat_map(|one| &one.to_report));
        if !waits.into_iter().any(|row| row.waiting.sender == id) {
            self.rows[OF_CHILDREN].remove(key);
        }
    }

    /// Looks at the family, under the lock of the parent.
    fn look(&mut self, p: usize) {
        let Some(snapshot) = self.rows[OF_PARENT].get(PARENT).cloned() else { return };
        let moment = self.moment();
        let is_open = self.remote.values().any(|child| !child.has_ended);
        let changes = match snapshot.instance.family {
            Family::Cancelling if self.send_cancellations(p, &snapshot.instance) => None,
            Family::Cancelling if !is_open => all_cancelled(&snapshot),
            Family::Open(_) | Family::Ended(_) if !is_open => all_ended(&self.machines[OF_PARENT], &snapshot, moment),
            _ => None,
        };
        if let Some(changes) = changes {
            self.write(p, OF_PARENT, snapshot, changes);
        }
    }

    fn send_cancellations(&mut self, p: usize, parent: &Instance) -> bool {
        let mut sent = Vec::new();
        for (key, child) in self.remote.iter_mut().filter(|(_, child)| !child.has_ended && !child.cancel_sent) {
            child.cancel_sent = true;
            sent.push((*key, child.group));
        }
        for (key, group) in &sent {
            if self.engine == Engine::CancelsWithoutTheLine {
                self.cancel(p, key, Parent { id: parent.id, group: *group, partition: Some(0) });
                continue;
            }
            let (call, notice) = (self.moment().fresh, FamilyNotice::Cancel { group: *group, reason: String::new() });
            let row = self.row(key, parent.id, call, "Cancel", notice);
            self.outboxes[OF_PARENT].push(row);
        }
        !sent.is_empty()
    }

    fn operate(&mut self, p: usize, partition: usize, key: &str) {
        let Some(snapshot) = self.rows[partition].get(key).cloned() else { return };
        let (operation, moment) = (Operation { act: Act::Cancel, reason: None, actor: None, request: None }, self.moment());
        if let Ok(Ok(Some(changes))) = operate(&self.machines[partition], &snapshot, operation, moment) {
            self.write(p, partition, snapshot, changes);
        }
    }

    fn cancel(&mut self, p: usize, key: &str, parent: Parent) {
        let its = self.rows[OF_CHILDREN].get(key).and_then(|row| row.instance.parent);
        if its.is_some_and(|own| own.is_in_group_of(parent)) || self.engine == Engine::CancelsAnyInstance {
            if its.is_none() && self.rows[OF_CHILDREN].contains_key(key) {
                self.breaks(Promise::OthersGoOn);
            }
            self.operate(p, OF_CHILDREN, key);
        }
    }
}

/// The delivery of the notices.
impl World {
    fn claim(&mut self, p: usize) {
        let from = self.draw(2) as usize;
        if self.processes[p].delivery.is_some() || self.outboxes[from].is_empty() {
            return;
        }
        let which = self.draw(self.outboxes[from].len() as u64) as usize;
        let key = self.outboxes[from][which].receiver.clone();
        let now = self.now;
        let until = claim_until(now, PATIENCE);
        let line = self.outboxes[from].iter_mut().filter(|row| row.receiver == key).take(2).collect::<Vec<_>>();
        if line.iter().any(|row| row.waiting.due_at > now) {
            return;
        }
        let events = line.iter().map(|row| row.waiting.clone()).collect();
        line.into_iter().for_each(|row| row.waiting.due_at = until);
        let line = ClaimedLine { machine: self.machines[1 - from].name.clone(), key, events, until };
        self.processes[p].delivery = Some((from, Delivery::new(line), now));
    }

    fn deliver(&mut self, p: usize, has_accidents: bool) {
        let Some((from, mut delivery, begun)) = self.processes[p].delivery.take() else { return };
        let lasted = self.now.since(begun);
        let Some(waiting) = delivery.next(lasted, |_| true).cloned() else { return self.finish_delivery(from, &delivery, has_accidents) };
        let accident = if has_accidents { self.draw(8) } else { 2 };
        // No commit of it begins after the end of the claim. An answer may be lost after the commit.
        let answer = match accident {
            _ if self.now >= delivery.line().until => SendAnswer::Failed,
            0 => SendAnswer::Failed,
            _ => self.arrives(p, &delivery.line().key.clone(), &waiting),
        };
        delivery.answered(if accident == 1 { SendAnswer::Failed } else { answer });
        self.processes[p].delivery = Some((from, delivery, begun));
    }

    /// A notice takes effect in the partition of its receiver.
    fn arrives(&mut self, p: usize, key: &str, waiting: &WaitingEvent) -> SendAnswer {
        match waiting.notice.as_ref().expect("all of them are notices") {
            FamilyNotice::Start(notice) => {
                let first = (waiting.call, waiting.event.clone(), waiting.priority);
                let (child, link) = notice.child(key, "parcel", first, (waiting.sender, 0));
                let (snapshot, moment) = (self.snapshot(OF_CHILDREN, key), self.moment());
                match start(&self.machines[OF_CHILDREN], &snapshot, &child, link, moment) {
                    Started::New(changes) => {
                        if !self.started.insert(key.to_owned()) {
                            self.breaks(Promise::StartedOnce);
                        }
                        self.write(p, OF_CHILDREN, snapshot, *changes);
                        SendAnswer::Taken
                    }
                    Started::Same => SendAnswer::Taken,
                    Started::Refused(refusal) => SendAnswer::from(&refusal),
                }
            }
            FamilyNotice::Cancel { group, .. } => {
                self.cancel(p, key, Parent { id: waiting.sender, group: *group, partition: Some(0) });
                SendAnswer::Taken
            }
            FamilyNotice::Report(report) => {
                if self.take(report) {
                    SendAnswer::Taken
                } else {
                    SendAnswer::Failed
                }
            }
        }
    }

    /// `remote_children::hear`. Returns false if the report is to come again, because the notice that starts the child is being delivered.
    fn take(&mut self, report: &ChildReport) -> bool {
        let has_numbers = self.engine != Engine::HasNoReportNumbers;
        let Some(child) = self.remote.get_mut(&*report.key) else { return true };
        if has_numbers && (child.told >= report.number || child.has_ended) {
            return true;
        }
        let is_delivered = |row: &Row| row.waiting.call == child.call && row.waiting.due_at > self.now;
        if self.engine != Engine::TakesAnEndDuringTheStart && self.outboxes[OF_PARENT].iter().any(is_delivered) {
            return false;
        }
        let (was_counted, call) = (child.has_ended, child.call);
        (child.told, child.has_ended) = (report.number, report.status.is_ended());
        if was_counted {
            self.breaks(Promise::CountedOnce);
        }
        if self.engine != Engine::KeepsTheStart {
            self.outboxes[OF_PARENT].retain(|row| row.waiting.call != call);
        }
        true
    }

    /// `partition_outbox::finish`. Its commit may fail.
    fn finish_delivery(&mut self, from: usize, delivery: &Delivery, has_accidents: bool) {
        let (line, finish) = (delivery.line(), delivery.finish(self.now));
        let first = line.events[0].number;
        let is_claimed = self.outboxes[from].iter().any(|row| row.waiting.number == first && row.waiting.due_at == line.until);
        if !is_claimed || (has_accidents && self.draw(4) == 0) {
            return;
        }
        self.outboxes[from].retain(|row| !finish.delivered.contains(&row.waiting.call));
        if self.engine != Engine::ForgetsRefusals {
            for report in &finish.not_started {
                self.take(report);
            }
        }
        for row in self.outboxes[from].iter_mut().filter(|row| row.receiver == line.key) {
            (row.waiting.due_at, row.waiting.tries) = (finish.again.due_at, finish.again.tries);
        }
    }

    /// What is not so although all work is done.
    fn left(&self) -> Option<Promise> {
        let parent = &self.rows[OF_PARENT].get(PARENT)?.instance;
        let goes_on = self.rows[OF_CHILDREN].values().any(|row| row.instance.parent.is_some() && !row.instance.status.is_ended());
        let waits = !self.outboxes.iter().all(Vec::is_empty) || matches!(parent.family, Family::Open(_) | Family::Cancelling);
        (goes_on || waits).then_some(Promise::NothingIsLeft)
    }
}

fn run(engine: Engine, seed: u64) -> World {
    let mut world = World::new(engine, seed);
    for n in 0..STEPS + LAST_STEPS {
        world.step(n < STEPS);
        if world.broken.is_some() {
            break;
        }
    }
    world.broken = world.broken.or_else(|| world.left());
    world
}

fn all_broken(engine: Engine) -> BTreeSet<Promise> {
    (0..SEEDS).filter_map(|seed| run(engine, seed).broken).collect()
}

#[test]
fn no_process_that_dies_starts_a_child_elsewhere_twice_or_loses_its_end() {
    let (mut called, mut cancelled, mut refused) = (0, 0, 0);
    for seed in 0..SEEDS {
        let world = run(Engine::Ours, seed);
        assert_eq!(world.broken, None, "seed {seed}");
        called += world.called;
        cancelled += usize::from(world.rows[OF_PARENT].get(PARENT).is_some_and(|row| row.instance.status == Status::Cancelled));
        refused += world.remote.keys().filter(|key| world.taken.contains(*key)).count();
    }
    assert!(called > 100 && cancelled > 100 && refused > 50, "{called} called, {cancelled} cancelled, {refused} refused");
}

#[test]
fn an_end_that_is_lost_is_found() {
    assert!(all_broken(Engine::ReportsAfterTheCommit).contains(&Promise::NothingIsLeft));
}

#[test]
fn an_end_that_is_counted_twice_is_found() {
    assert_eq!(all_broken(Engine::HasNoReportNumbers), [Promise::CountedOnce].into());
}

#[test]
fn a_child_that_is_started_again_after_it_was_deleted_is_found() {
    assert!(all_broken(Engine::KeepsTheStart).contains(&Promise::StartedOnce));
    assert_eq!(all_broken(Engine::TakesAnEndDuringTheStart), [Promise::StartedOnce].into());
}

#[test]
fn an_instance_that_is_cancelled_instead_of_a_child_is_found() {
    assert_eq!(all_broken(Engine::CancelsAnyInstance), [Promise::OthersGoOn].into());
}

#[test]
fn a_cancellation_that_overtakes_the_start_is_found() {
    assert_eq!(all_broken(Engine::CancelsWithoutTheLine), [Promise::NothingIsLeft].into());
}

#[test]
fn a_refusal_that_nobody_notes_is_found() {
    assert_eq!(all_broken(Engine::ForgetsRefusals), [Promise::NothingIsLeft].into());
}
