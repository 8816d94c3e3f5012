//! The ledgers and the rows that the checker compares.

use std::collections::{BTreeMap, HashMap};

use uuid::Uuid;

use crate::ledger::{Line, ProcessLedger};
use crate::rows::{Attempt, Instance, Rows};

/// The ledgers and the rows, with indexes for the rules.
pub(super) struct Case<'a> {
    pub(super) ledgers: &'a [ProcessLedger],
    pub(super) rows: &'a Rows,
    /// The attempts of each call, by number.
    pub(super) attempts_by_call: HashMap<&'a str, Vec<&'a Attempt>>,
    /// The attempts of each instance.
    pub(super) attempts_by_instance: HashMap<Uuid, Vec<&'a Attempt>>,
}

impl<'a> Case<'a> {
    pub(super) fn new(ledgers: &'a [ProcessLedger], rows: &'a Rows) -> Case<'a> {
        let mut case = Case { ledgers, rows, attempts_by_call: HashMap::new(), attempts_by_instance: HashMap::new() };
        for attempt in &rows.attempts {
            case.attempts_by_call.entry(&attempt.call).or_default().push(attempt);
            case.attempts_by_instance.entry(attempt.instance).or_default().push(attempt);
        }
        case
    }

    pub(super) fn lines(&self) -> impl Iterator<Item = &'a Line> {
        self.ledgers.iter().flat_map(|ledger| &ledger.lines)
    }

    pub(super) fn instance(&self, id: Uuid) -> Option<&'a Instance> {
        self.rows.instances.get(&id)
    }

    /// The successful attempts of each account, in the order of their events.
    pub(super) fn successes_by_instance(&self) -> BTreeMap<Uuid, Vec<(&'a Attempt, u32, u64)>> {
        let mut taken: BTreeMap<Uuid, Vec<_>> = BTreeMap::new();
        for attempts in self.attempts_by_call.values() {
            let work = attempts[0].work.as_ref();
            for attempt in attempts.iter().filter(|attempt| attempt.state == "success") {
                let (n, cents) = work.map_or((0, 0), |work| (work.n, work.cents));
                taken.entry(attempt.instance).or_default().push((*attempt, n, cents));
            }
        }
        taken.values_mut().for_each(|all| all.sort_by_key(|(_, n, _)| *n));
        taken
    }
}
