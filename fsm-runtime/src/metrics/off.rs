//! The same functions as `recorded.rs`, empty: without the feature `metrics` nothing is measured, and nothing is paid for it.

use std::time::Duration;

use fsm_core::partition::Partition;

use super::measured::{AttemptOutcome, Backlog, Sizes};

/// The metrics of one verb of a machine.
pub(crate) struct VerbMetrics;

impl VerbMetrics {
    pub(crate) fn of(_machine: &str, _verb: &str) -> VerbMetrics {
        VerbMetrics
    }

    pub(crate) fn attempt_started(&self, _lag: Duration) {}

    pub(crate) fn attempt_ended(&self, _outcome: AttemptOutcome) {}

    pub(crate) fn verb_took(&self, _took: Duration) {}

    pub(crate) fn succeeded(&self) {}

    pub(crate) fn retry_scheduled(&self) {}

    pub(crate) fn exhausted(&self) {}
}

pub(crate) fn describe() {}

pub(crate) fn running(_partition: Option<Partition>, _attempts: usize, _slots: usize) {}

pub(crate) fn lease_renewal(_is_renewed: bool) {}

pub(crate) fn commit(_requests: usize, _took: Duration) {}

pub(crate) fn backlog(_partition: Option<Partition>, _machine: &str, _backlog: &Backlog) {}

pub(crate) fn limit(_partition: Option<Partition>, _name: &str, _running: u32, _waiting: u32) {}

pub(crate) fn sizes(_partition: Option<Partition>, _machine: &str, _sizes: &Sizes) {}

pub(crate) fn for_partitions(_here: Partition, _events: u64) {}

pub(crate) fn workers(_partition: Option<Partition>, _alive: usize) {}
