//! The machines of this program: their definitions, which the decisions need, and their verbs.

use std::any::TypeId;
use std::collections::HashMap;
use std::sync::Arc;

use fsm_core::call::Attempt;
use fsm_core::machine::{Due, Edge, Machine, TIMEOUT, Verb, Wait, is_of_children};
use fsm_core::retry::Retry;
use fsm_core::search::SearchField;
use fsm_store::claim::Served;

use crate::data::DataMap;
use crate::error::Error;
use crate::failure::Failure;
use crate::guard;
use crate::metrics::VerbMetrics;
use crate::registry::{EdgeEntry, MachineEntry, MachineRef, PolicyEntry, RetryEntry, VerbEntry, WaitEntry};

/// A machine whose definition this process has.
pub(crate) struct KnownMachine {
    pub(crate) machine: Arc<Machine>,
    /// The machine's event types with their names.
    pub(crate) events: Arc<[(TypeId, &'static str)]>,
    /// The registered machine; `None` if only the database describes it and this program has no code for it.
    entry: Option<&'static MachineEntry>,
    verbs: HashMap<&'static str, &'static VerbEntry>,
    metrics: HashMap<&'static str, VerbMetrics>,
}

/// The known machines by name.
#[derive(Clone)]
pub(crate) struct Catalog {
    known: Arc<HashMap<String, KnownMachine>>,
    /// The names in alphabetical order.
    pub(crate) names: Arc<[String]>,
}

impl Catalog {
    /// Builds the catalog of the machines in `named` and, unless `only_named`, of all machines that are registered in this program. An
    /// error if two machines have the same name.
    pub(crate) fn new(named: &[&'static MachineEntry], only_named: bool) -> Result<Catalog, Error> {
        let registered = inventory::iter::<MachineRef>.into_iter().map(|machine| machine.0).filter(|_| !only_named);
        let mut known = HashMap::new();
        for entry in named.iter().copied().chain(registered) {
            let before = known.insert(entry.name.to_owned(), KnownMachine::new(entry)).and_then(|before| before.entry);
            if let Some(before) = before.filter(|before| !std::ptr::eq(*before, entry)) {
                let (one, other) = (before.module, entry.module);
                return Err(Error::input(format!(
                    "two machines are named \"{}\", in `{one}` and in `{other}`; give one another name",
                    entry.name
                )));
            }
        }
        Ok(Catalog::of(known))
    }

    /// Builds a catalog from definitions that the database stores. They suffice to read, to send and to operate, but not to run verbs.
    pub(crate) fn described(machines: impl IntoIterator<Item = Machine>) -> Catalog {
        let known = |machine| KnownMachine {
            machine: Arc::new(machine),
            events: Arc::new([]),
            entry: None,
            verbs: HashMap::new(),
            metrics: HashMap::new(),
        };
        Catalog::of(machines.into_iter().map(|machine| (machine.name.clone(), known(machine))).collect())
    }

    fn of(known: HashMap<String, KnownMachine>) -> Catalog {
        let mut names: Vec<_> = known.keys().cloned().collect();
        names.sort_unstable();
        Catalog { known: Arc::new(known), names: names.into() }
    }

    pub(crate) fn get(&self, machine: &str) -> Option<&KnownMachine> {
        self.known.get(machine)
    }

    /// Returns the machine, or an error that lists the machines that exist.
    pub(crate) fn expect(&self, machine: &str) -> Result<&KnownMachine, Error> {
        self.get(machine).ok_or_else(|| Error::not_served(machine, &self.names))
    }

    /// The search fields that the machine declares; none if it is not known.
    pub(crate) fn search_fields(&self, machine: &str) -> &[String] {
        self.get(machine).map_or(&[], |known| &known.machine.search)
    }

    /// The machines in alphabetical order. Every process writes the rows of the machines in this order, so that their locks cannot
    /// deadlock.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &KnownMachine> {
        self.names.iter().filter_map(|name| self.known.get(name))
    }

    /// Returns the work that a worker of this program may claim, in alphabetical order of the machines.
    pub(crate) fn served(&self) -> Vec<Served> {
        self.iter().map(KnownMachine::served).collect()
    }

    /// Returns an error that names every verb whose `Data<T>` is missing in `data`, with the type.
    pub(crate) fn check_data(&self, data: &DataMap) -> Result<(), Error> {
        let mut missing = Vec::new();
        for (known, verb) in self.iter().flat_map(|known| known.verbs.values().map(move |verb| (known, verb))) {
            for wanted in verb.data.iter().filter(|wanted| !data.has((wanted.id)())) {
                missing.push(format!("the verb `{}` of \"{}\" takes `Data<{}>`", verb.name, known.machine.name, (wanted.name)()));
            }
        }
        if missing.is_empty() {
            return Ok(());
        }
        missing.sort();
        Err(Error::input(format!("{}; give each value to the builder with `.data(…)`", missing.join(", "))))
    }
}

impl KnownMachine {
    fn new(entry: &'static MachineEntry) -> KnownMachine {
        let mut verbs = HashMap::new();
        let mut ordered: Vec<&'static VerbEntry> = Vec::new();
        let mut add = |verb: &'static VerbEntry| {
            if verbs.insert(verb.name, verb).is_none() {
                ordered.push(verb);
            }
        };
        entry.edges.iter().for_each(|edge| add(edge.verb));
        let policies = || entry.edges.iter().filter_map(|edge| policy(edge.verb, entry));
        policies().filter_map(|policy| policy.catch).for_each(&mut add);
        let machine = Machine {
            name: entry.name.to_owned(),
            docs: entry.docs.to_owned(),
            verbs: ordered.iter().map(|verb| describe_verb(verb, entry)).collect(),
            edges: entry.edges.iter().map(describe_edge).collect(),
            ends: entry.ends.iter().map(|end| (*end).to_owned()).collect(),
            record: entry.record.map(str::to_owned),
            search: entry.search.iter().flat_map(|search| search.names).map(|name| (*name).to_owned()).collect(),
            fair_by: entry.search.and_then(|search| search.fair_by).map(str::to_owned),
        };
        let events = ordered.iter().map(|verb| ((verb.event_type)(), verb.event)).collect();
        let metrics = verbs.keys().map(|verb| (*verb, VerbMetrics::of(entry.name, verb))).collect();
        KnownMachine { machine: Arc::new(machine), events, entry: Some(entry), verbs, metrics }
    }

    /// Returns the reason why `bytes` cannot be decoded as that event; `None` if they can, or if this process does not know the event type.
    pub(crate) fn why_not(&self, event: &str, bytes: &[u8]) -> Option<String> {
        let verb = self.verbs.values().find(|verb| verb.event == event)?;
        guard::guarded("its `Deserialize`", || (verb.decodes)(bytes)).unwrap_or_else(Some)
    }

    /// Returns true if the engine wrote the payload of the call, because it began with the end of a timer or of children, or if it is a catch
    /// verb's call for such a call.
    pub(crate) fn is_of_engine(&self, attempt: &Attempt) -> bool {
        let is_engines = |event: &str| event == TIMEOUT || is_of_children(event);
        // A catch verb that takes `Caught<Value>` does not say which event it is called for.
        let caught = || match attempt.event.as_str() {
            "Caught<Value>" => self.machine.verb(&attempt.to).is_some_and(|verb| is_engines(&verb.event)),
            event => event.strip_prefix("Caught<").and_then(|event| event.strip_suffix('>')).is_some_and(is_engines),
        };
        is_engines(&attempt.event) || (attempt.is_catch() && caught())
    }

    /// Calls the function of the timer of the state that the attempt enters, with the encoded record; `None` if there is none. A panic in it
    /// is a failure.
    pub(crate) fn computed_timer(&self, attempt: &Attempt, record: Option<&[u8]>) -> Result<Option<Due>, Failure> {
        if attempt.is_catch() || attempt.is_stay() { Ok(None) } else { self.timer_of(&attempt.to, record) }
    }

    /// The same for a state.
    pub(crate) fn timer_of(&self, state: &str, record: Option<&[u8]>) -> Result<Option<Due>, Failure> {
        let mut timers = self.entry.into_iter().flat_map(|entry| entry.edges).filter(|edge| edge.from == Some(state));
        let computed = timers.find_map(|edge| match edge.after {
            Some(WaitEntry::Computed { name, due }) => Some((name, due)),
            _ => None,
        });
        let Some((name, due)) = computed else { return Ok(None) };
        let due = guard::guarded(&format!("`{name}`, which computes the timer of `{state}`,"), || due(record));
        due.map_err(Failure::new)?.map(Some)
    }

    /// The search fields that change with a record: all of them if there was no record before. A panic in the user's code is a failure.
    pub(crate) fn changed_search(&self, before: Option<&[u8]>, after: Option<&[u8]>) -> Result<Vec<SearchField>, Failure> {
        let (Some(search), Some(after)) = (self.entry.and_then(|entry| entry.search), after) else { return Ok(Vec::new()) };
        if before == Some(after) {
            return Ok(Vec::new());
        }
        let values = |record: &[u8]| guard::guarded("the `Display` of a search field", || (search.values)(record)).map_err(Failure::new)?;
        let after = fields(search.names, values(after)?);
        // A record that cannot be decoded has no values that could be the same.
        let before = before.and_then(|before| values(before).ok()).map_or_else(Vec::new, |before| fields(search.names, before));
        Ok(after.into_iter().filter(|field| !before.contains(field)).collect())
    }

    pub(crate) fn verb(&self, name: &str) -> Option<&'static VerbEntry> {
        self.verbs.get(name).copied()
    }

    /// The metrics of a verb of this program.
    pub(crate) fn metrics(&self, verb: &str) -> Option<&VerbMetrics> {
        self.metrics.get(verb)
    }

    /// Returns the retry policy of a verb: its own, or the machine's default.
    pub(crate) fn policy(&self, verb: &'static VerbEntry) -> Option<&'static PolicyEntry> {
        policy(verb, self.entry?)
    }

    fn served(&self) -> Served {
        Served::of(&self.machine)
    }
}

fn fields(names: &[&str], values: Vec<String>) -> Vec<SearchField> {
    names.iter().zip(values).map(|(name, value)| SearchField::new(name, &value)).collect()
}

fn policy(verb: &VerbEntry, machine: &MachineEntry) -> Option<&'static PolicyEntry> {
    match (verb.retry, machine.retry) {
        (RetryEntry::Policy(own), _) => Some(own),
        (RetryEntry::Inherit, RetryEntry::Policy(default)) => Some(default),
        _ => None,
    }
}

fn describe_verb(verb: &VerbEntry, machine: &MachineEntry) -> Verb {
    Verb {
        name: verb.name.to_owned(),
        event: verb.event.to_owned(),
        timeout: verb.timeout,
        retry: policy(verb, machine).map(describe_policy),
        limit: verb.limit.map(str::to_owned),
    }
}

fn describe_edge(edge: &EdgeEntry) -> Edge {
    let after = edge.after.map(|wait| match wait {
        WaitEntry::Fixed(wait) => Wait::Fixed(wait),
        WaitEntry::Computed { name, .. } => Wait::Computed(name.to_owned()),
    });
    let described = match edge.from.filter(|_| edge.stays) {
        Some(state) => Edge::stay(state, edge.verb.event, edge.verb.name),
        None => Edge::new(edge.from, edge.verb.event, edge.verb.name),
    };
    Edge { interrupts: edge.interrupts, after, ..described }
}

pub(crate) fn describe_policy(policy: &PolicyEntry) -> Retry {
    Retry {
        max_attempts: policy.max_attempts,
        min: policy.min,
        max: policy.max,
        backoff: policy.backoff,
        jitter: policy.jitter,
        within: policy.within,
        give_up_on: policy.give_up_on.iter().map(|error| error.name.to_owned()).collect(),
        give_up_if: policy.give_up_if.map(str::to_owned),
        delay: policy.delay.as_ref().map(|delay| delay.name.to_owned()),
        catch: policy.catch.map(|verb| verb.name.to_owned()),
    }
}
