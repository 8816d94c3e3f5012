//! Families in a simulation: parents start children, children end, processes look at families, and processes die, one transaction at a time, with
//! the decisions of the engine. Nothing that is done as the engine does it breaks a promise. Each mistake that an engine could make breaks one.

use std::collections::{BTreeMap, BTreeSet};

use fsm_core::changes::Changes;
use fsm_core::decide::complete::complete;
use fsm_core::decide::family::{Started, all_cancelled, all_ended, start};
use fsm_core::decide::operate::{Act, Operation, operate};
use fsm_core::decide::send::{Send, send};
use fsm_core::decide::{DecisionContext, InstanceSnapshot};
use fsm_core::family::{Family, Link, Parent};
use fsm_core::ids::{CallId, InstanceId, SessionId};
use fsm_core::instance::{Instance, Status};
use fsm_core::machine::{CHILDREN_ENDED, Edge, Machine, Verb};
use fsm_core::outcome::{Child, Event, Outcome, VerbRequests};
use fsm_core::priority::Priority;
use fsm_core::time::Timestamp;
use uuid::Uuid;

use crate::random::Random;

const SEEDS: u64 = 400;
const PARENTS: usize = 3;
const PROCESSES: usize = 3;
/// The steps with accidents. After them, each process works until nothing changes.
const STEPS: u32 = 250;
/// The steps without accidents.
const LAST_STEPS: u32 = 2_000;
/// The maximum number of children of a parent.
const CHILDREN: u32 = 5;

/// The engine, or one with a mistake.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Engine {
    Ours,
    /// Only the process that committed the end of a child looks at its family.
    SweepsNoFamilies,
    /// Trusts an answer from before the transaction that tells the parent.
    TrustsTheLook,
    /// Writes although the parent's row has changed since it was read.
    WritesWithoutTheRowVersion,
    /// Keeps the number of open children in a counter, which each process decrements after the commit of an end, and repeats when it hears no
    /// answer.
    CountsInACounter,
    /// Starts the children in a transaction after that of their parent.
    StartsChildrenApart,
    /// Cancels the children in the process that cancelled their parent, and notes it nowhere.
    CancelsInOneProcess,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Promise {
    /// A parent is called when its last child has ended, and not before.
    NotBeforeTheLast,
    /// A parent is called once.
    Once,
    /// A parent whose children have ended is called at some time.
    EveryParentIsCalled,
    /// No child goes on after its parent was cancelled.
    NoChildIsLeft,
}

/// A look at a family, which a process is about to act on.
#[derive(Debug, Clone)]
struct Look {
    parent: String,
    has_open: bool,
}

/// A transaction that tells a parent: what it has read.
#[derive(Debug, Clone)]
struct Telling {
    parent: InstanceSnapshot,
    has_open: bool,
}

#[derive(Debug, Clone, Default)]
struct Process {
    changed: BTreeSet<String>,
    look: Option<Look>,
    telling: Option<Telling>,
    /// Children that are started, cancelled or counted after the commit that they belong to.
    to_start: Vec<(String, Child)>,
    to_cancel: Vec<String>,
    to_count: Vec<String>,
}

struct World {
    engine: Engine,
    random: Random,
    ids: u128,
    parents: Machine,
    children: Machine,
    rows: BTreeMap<String, InstanceSnapshot>,
    processes: Vec<Process>,
    /// The children that each parent has asked for, how often it was called, and its counter.
    asked: BTreeMap<String, u32>,
    called: BTreeMap<String, u32>,
    counters: BTreeMap<String, i64>,
    broken: Option<Promise>,
}

pub(crate) fn machine(name: &str, verbs: &[(&str, &str)], edges: Vec<Edge>, end: &str) -> Machine {
    let verb =
        |(name, event): &(&str, &str)| Verb { name: (*name).into(), event: (*event).into(), timeout: None, retry: None, limit: None };
    Machine {
        name: name.into(),
        docs: String::new(),
        verbs: verbs.iter().map(verb).collect(),
        edges,
        ends: vec![end.into()],
        record: None,
        search: Vec::new(),
        fair_by: None,
    }
}

fn key(parent: usize) -> String {
    format!("parent-{parent}")
}

impl World {
    fn new(engine: Engine, seed: u64) -> World {
        let edges = vec![
            Edge::new(None, "Ship", "shipping"),
            Edge::stay("shipping", "Extend", "extended"),
            Edge::new(Some("shipping"), CHILDREN_ENDED, "delivered"),
        ];
        let parents = machine("order", &[("shipping", "Ship"), ("extended", "Extend"), ("delivered", CHILDREN_ENDED)], edges, "delivered");
        let edges = vec![Edge::new(None, "Pack", "packed")];
        World {
            engine,
            random: Random::new(seed),
            ids: 0,
            parents,
            children: machine("parcel", &[("packed", "Pack")], edges, "packed"),
            rows: BTreeMap::new(),
            processes: vec![Process::default(); PROCESSES],
            asked: BTreeMap::new(),
            called: BTreeMap::new(),
            counters: BTreeMap::new(),
            broken: None,
        }
    }

    fn draw(&mut self, below: u64) -> u64 {
        self.random.below(below)
    }

    fn moment(&mut self) -> DecisionContext {
        self.ids += 2;
        let session = SessionId(Uuid::from_u128(1));
        DecisionContext { now: Timestamp::from_micros(self.ids as i64), grant: Some(session), fresh: CallId(Uuid::from_u128(self.ids)) }
    }

    fn row(&self, key: &str) -> Option<&Instance> {
        self.rows.get(key).map(|row| &*row.instance)
    }

    fn snapshot(&mut self, machine: &str, key: &str) -> InstanceSnapshot {
        let moment = self.moment();
        let new = || Instance::new(InstanceId(moment.fresh.0), machine, key, moment.now);
        self.rows.get(key).cloned().unwrap_or_else(|| InstanceSnapshot { is_new: true, ..InstanceSnapshot::of(new()) })
    }

    /// Commits changes to one row, and compares what they say with the promises.
    fn write(&mut self, key: &str, snapshot: InstanceSnapshot, changes: Changes) {
        if changes.open.as_ref().is_some_and(|open| open.attempt.event == CHILDREN_ENDED) {
            let called = self.called.entry(key.to_owned()).or_default();
            *called += 1;
            if *called > 1 {
                self.broken.get_or_insert(Promise::Once);
            }
            let parent = changes.instance.id;
            let ended = self.rows.values().filter(|row| is_child_of(&row.instance, parent) && row.instance.status.is_ended()).count();
            if ended != self.asked.get(key).copied().unwrap_or(0) as usize {
                self.broken.get_or_insert(Promise::NotBeforeTheLast);
            }
        }
        let mut row = snapshot;
        row.apply(changes);
        self.rows.insert(key.to_owned(), row);
    }

    fn has_open(&self, parent: &Instance) -> bool {
        self.rows.values().any(|row| is_child_of(&row.instance, parent.id) && !row.instance.status.is_ended())
    }

    /// One transaction of one process, or an accident.
    fn step(&mut self, has_accidents: bool) {
        let p = self.draw(PROCESSES as u64) as usize;
        let parent = key(self.draw(PARENTS as u64) as usize);
        match self.draw(if has_accidents { 34 } else { 30 }) {
            0..3 if has_accidents => self.send(&parent),
            3..6 => self.finish_parent(p, &parent),
            6..10 => self.end_child(p),
            10..14 => self.look(p),
            14..18 => self.read(p),
            18..22 => self.tell(p),
            22..24 => self.start_apart(p),
            24..26 => self.count(p, has_accidents),
            26..28 => self.cancel_in_one_process(p),
            28 => self.sweep(p),
            30..32 => self.processes[p] = Process::default(),
            32 if self.draw(4) == 0 => self.cancel_parent(p, &parent),
            _ => {}
        }
    }

    /// A caller starts the parent, or lets it start more children.
    fn send(&mut self, parent: &str) {
        let snapshot = self.snapshot("order", parent);
        let name = if snapshot.is_new { "Ship" } else { "Extend" };
        let moment = self.moment();
        let event = Event { name: name.into(), payload: Vec::new() };
        let send_of = Send { reject_if_busy: true, ..Send::new(moment.fresh, event, 10) };
        if let Ok(Ok(accepted)) = send(&self.parents, &snapshot, send_of, moment)
            && let Some(changes) = accepted.changes
        {
            self.write(parent, snapshot, changes);
        }
    }

    /// The parent's verb succeeds, and starts children in the same transaction.
    fn finish_parent(&mut self, p: usize, parent: &str) {
        let Some(snapshot) = self.rows.get(parent).filter(|row| row.instance.is_open).cloned() else { return };
        let Some(attempt) = snapshot.newest.clone() else { return };
        let before = self.asked.get(parent).copied().unwrap_or(0);
        let count = if attempt.event == CHILDREN_ENDED { 0 } else { 1 + self.draw(2) as u32 };
        let numbers = before..(before + count).min(CHILDREN);
        let started: Vec<Child> = numbers.map(|n| self.child(parent, n)).collect();
        let verb_requests = VerbRequests { children: started.clone(), ..VerbRequests::default() };
        let moment = self.moment();
        let outcome = Outcome::Success { record: None, verb_requests, timer: None, search: Vec::new() };
        let Ok(changes) = complete(&self.parents, &snapshot, &attempt, outcome, moment) else { return };
        self.write(parent, snapshot, changes);
        *self.asked.entry(parent.to_owned()).or_default() += started.len() as u32;
        *self.counters.entry(parent.to_owned()).or_default() += started.len() as i64;
        for child in started {
            match self.engine {
                Engine::StartsChildrenApart => self.processes[p].to_start.push((parent.to_owned(), child)),
                _ => self.start(parent, &child),
            }
        }
        self.processes[p].changed.insert(parent.to_owned());
    }

    fn child(&mut self, parent: &str, n: u32) -> Child {
        Child {
            id: self.moment().fresh,
            machine: "parcel".into(),
            key: format!("{parent}/{n}"),
            event: Event { name: "Pack".into(), payload: Vec::new() },
            search: Vec::new(),
            is_detached: false,
            priority: Priority::Normal,
            end_event: None,
            failure_event: None,
        }
    }

    fn start(&mut self, parent: &str, child: &Child) {
        let group = self.row(parent).and_then(|row| Some(Parent { id: row.id, group: row.family.group()?, partition: None }));
        let Some(link) = group.map(|parent| Link::of(child, parent)) else { return };
        let (snapshot, moment) = (self.snapshot("parcel", &child.key), self.moment());
        if let Started::New(changes) = start(&self.children, &snapshot, child, link, moment) {
            self.write(&child.key, snapshot, *changes);
        }
    }

    fn start_apart(&mut self, p: usize) {
        if let Some((parent, child)) = self.processes[p].to_start.pop() {
            self.start(&parent, &child);
        }
    }

    /// A child ends in its own transaction. Afterwards its process remembers the parent. A child whose parent was cancelled takes long: it does
    /// not end unless it is cancelled too.
    fn end_child(&mut self, p: usize) {
        let is_cancelled = |child: &str| self.row(parent_of(child)).is_some_and(|parent| parent.status == Status::Cancelled);
        let all = self.rows.values().map(|row| &row.instance).filter(|row| row.parent.is_some() && row.is_open);
        let open: Vec<String> = all.filter(|child| !is_cancelled(&child.key)).map(|child| child.key.clone()).collect();
        if open.is_empty() {
            return;
        }
        let key = &open[self.draw(open.len() as u64) as usize];
        let snapshot = self.rows[key].clone();
        let Some(attempt) = snapshot.newest.clone() else { return };
        let moment = self.moment();
        let outcome = Outcome::Success { record: None, verb_requests: VerbRequests::default(), timer: None, search: Vec::new() };
        let Ok(changes) = complete(&self.children, &snapshot, &attempt, outcome, moment) else { return };
        self.write(key, snapshot, changes);
        let parent = parent_of(key).to_owned();
        self.processes[p].to_count.push(parent.clone());
        self.processes[p].changed.insert(parent);
    }

    /// Decrements a counter after the commit of an end. An answer that is lost is repeated.
    fn count(&mut self, p: usize, has_accidents: bool) {
        if self.engine != Engine::CountsInACounter {
            self.processes[p].to_count.clear();
            return;
        }
        let Some(parent) = self.processes[p].to_count.last().cloned() else { return };
        *self.counters.entry(parent).or_default() -= 1;
        let is_lost = has_accidents && self.draw(8) == 0;
        if !is_lost {
            self.processes[p].to_count.pop();
        }
    }

    /// A process looks at a family of its list, outside of any transaction.
    fn look(&mut self, p: usize) {
        if self.processes[p].look.is_some() || self.processes[p].telling.is_some() {
            return;
        }
        let Some(parent) = self.processes[p].changed.pop_first() else { return };
        let Some(row) = self.row(&parent) else { return };
        let has_open = match self.engine {
            Engine::CountsInACounter => self.counters.get(&parent).copied().unwrap_or(0) > 0,
            _ => self.has_open(row),
        };
        match row.family {
            Family::Cancelling => self.cancel_children(p, &parent),
            Family::Open(_) if !has_open => self.processes[p].look = Some(Look { parent, has_open }),
            _ => {}
        }
    }

    /// The transaction that tells the parent reads its row, and whether a child has not ended.
    fn read(&mut self, p: usize) {
        let Some(Look { parent, has_open }) = self.processes[p].look.take() else { return };
        let Some(snapshot) = self.rows.get(&parent).cloned() else { return };
        let has_open = match self.engine {
            Engine::TrustsTheLook | Engine::CountsInACounter => has_open,
            _ => self.has_open(&snapshot.instance),
        };
        self.processes[p].telling = Some(Telling { parent: snapshot, has_open });
    }

    /// It decides, and writes if the parent's row is still the one that it has read.
    fn tell(&mut self, p: usize) {
        let Some(Telling { parent: read, has_open }) = self.processes[p].telling.take() else { return };
        let key = read.instance.key.clone();
        let is_same = self.row(&key).is_some_and(|row| row.row_version == read.instance.row_version);
        if !is_same && self.engine != Engine::WritesWithoutTheRowVersion {
            self.processes[p].changed.insert(key);
            return;
        }
        let moment = self.moment();
        let changes = if has_open { None } else { all_ended(&self.parents, &read, moment) };
        if let Some(changes) = changes {
            self.write(&key, read, changes);
        }
    }

    /// A process looks at all families that wait, for those that nobody remembers.
    fn sweep(&mut self, p: usize) {
        if self.engine == Engine::SweepsNoFamilies {
            return;
        }
        let waits = |family: Family| matches!(family, Family::Open(_) | Family::Cancelling);
        let parents: Vec<_> = self.rows.values().filter(|row| waits(row.instance.family)).map(|row| row.instance.key.clone()).collect();
        self.processes[p].changed.extend(parents);
    }

    fn cancel_parent(&mut self, p: usize, parent: &str) {
        self.operate(parent, Act::Cancel);
        let Some(row) = self.row(parent).filter(|row| row.status == Status::Cancelled) else { return };
        if self.engine == Engine::CancelsInOneProcess {
            let (id, mut row) = (row.id, self.rows[parent].clone());
            row.instance = Instance { family: Family::Past, ..Instance::clone(&row.instance) }.into();
            self.rows.insert(parent.to_owned(), row);
            let children = self.rows.values().filter(|row| is_child_of(&row.instance, id)).map(|row| row.instance.key.clone());
            self.processes[p].to_cancel = children.collect();
        } else {
            self.processes[p].changed.insert(parent.to_owned());
        }
    }

    fn cancel_in_one_process(&mut self, p: usize) {
        if let Some(child) = self.processes[p].to_cancel.pop() {
            self.operate(&child, Act::Cancel);
        }
    }

    /// One child of a cancelled parent is cancelled in each turn. When none is left, the parent's row says so.
    fn cancel_children(&mut self, p: usize, parent: &str) {
        let Some(id) = self.row(parent).map(|row| row.id) else { return };
        let open = self.rows.values().find(|row| is_child_of(&row.instance, id) && !row.instance.status.is_ended());
        match open.map(|row| row.instance.key.clone()) {
            Some(child) => {
                self.operate(&child, Act::Cancel);
                self.processes[p].changed.insert(parent.to_owned());
            }
            None => {
                let snapshot = self.rows[parent].clone();
                if let Some(changes) = all_cancelled(&snapshot) {
                    self.write(parent, snapshot, changes);
                }
            }
        }
    }

    fn operate(&mut self, key: &str, act: Act) {
        let Some(snapshot) = self.rows.get(key).cloned() else { return };
        let machine = if key.contains('/') { self.children.clone() } else { self.parents.clone() };
        let (operation, moment) = (Operation { act, reason: None, actor: None, request: None }, self.moment());
        if let Ok(Ok(Some(changes))) = operate(&machine, &snapshot, operation, moment) {
            self.write(key, snapshot, changes);
        }
    }

    /// What is not so although all work is done.
    fn left(&self) -> Option<Promise> {
        for parent in (0..PARENTS).filter_map(|parent| self.row(&key(parent))) {
            let goes_on = self.has_open(parent);
            if parent.status == Status::Cancelled && goes_on {
                return Some(Promise::NoChildIsLeft);
            }
            if parent.status == Status::Running && !goes_on && self.asked.get(&parent.key).is_some_and(|asked| *asked > 0) {
                return Some(Promise::EveryParentIsCalled);
            }
        }
        None
    }
}

fn is_child_of(instance: &Instance, parent: InstanceId) -> bool {
    instance.parent.is_some_and(|link| link.id == parent)
}

fn parent_of(key: &str) -> &str {
    key.split_once('/').map_or(key, |(parent, _)| parent)
}

/// Runs one seed. Returns the promise that is broken.
fn broken(engine: Engine, seed: u64) -> Option<Promise> {
    let mut world = World::new(engine, seed);
    for n in 0..STEPS + LAST_STEPS {
        world.step(n < STEPS);
        if world.broken.is_some() {
            return world.broken;
        }
    }
    world.left()
}

fn all_broken(engine: Engine) -> BTreeSet<Promise> {
    (0..SEEDS).filter_map(|seed| broken(engine, seed)).collect()
}

#[test]
fn no_process_that_dies_calls_a_parent_early_twice_or_never() {
    assert_eq!(all_broken(Engine::Ours), BTreeSet::new());
    // The schedules are not empty: parents are called, and others are cancelled.
    let mut called = 0;
    let mut cancelled = 0;
    for seed in 0..SEEDS {
        let mut world = World::new(Engine::Ours, seed);
        (0..STEPS + LAST_STEPS).for_each(|n| world.step(n < STEPS));
        called += world.called.len();
        cancelled += (0..PARENTS).filter_map(|parent| world.row(&key(parent))).filter(|row| row.status == Status::Cancelled).count();
    }
    assert!(called > 300 && cancelled > 100, "{called} called, {cancelled} cancelled");
}

#[test]
fn a_parent_that_nobody_remembers_is_found() {
    assert_eq!(all_broken(Engine::SweepsNoFamilies), [Promise::EveryParentIsCalled, Promise::NoChildIsLeft].into());
}

#[test]
fn a_parent_called_before_its_last_child_is_found() {
    assert!(all_broken(Engine::TrustsTheLook).contains(&Promise::NotBeforeTheLast));
    assert!(all_broken(Engine::StartsChildrenApart).contains(&Promise::NotBeforeTheLast));
}

#[test]
fn a_parent_called_twice_is_found() {
    assert!(all_broken(Engine::WritesWithoutTheRowVersion).contains(&Promise::Once));
}

#[test]
fn a_child_counted_twice_or_never_is_found() {
    let found = all_broken(Engine::CountsInACounter);
    assert!(found.is_superset(&[Promise::NotBeforeTheLast, Promise::EveryParentIsCalled].into()), "{found:?}");
}

#[test]
fn a_child_that_is_left_by_a_crash_during_a_cancellation_is_found() {
    assert_eq!(all_broken(Engine::CancelsInOneProcess), [Promise::NoChildIsLeft].into());
}
