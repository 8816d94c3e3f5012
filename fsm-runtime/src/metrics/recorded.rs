//! The metrics of the engine, recorded by whatever recorder the program installed before the runtime was built.

use std::time::Duration;

use fsm_core::partition::Partition;
use metrics::{Counter, Histogram, Label, Unit, counter, gauge, histogram};

use super::measured::{AttemptOutcome, Backlog, Sizes};
use super::names::{MetricKind, NAMES};

/// The metrics of one verb of a machine. The handles are made once: a lookup by labels for each attempt would cost more than the attempt's
/// own bookkeeping.
pub(crate) struct VerbMetrics {
    succeeded: Counter,
    exhausted_calls: Counter,
    exhausted: Counter,
    retries: Counter,
    attempts: [Counter; AttemptOutcome::ALL.len()],
    duration: Histogram,
    lag: Histogram,
}

impl VerbMetrics {
    pub(crate) fn of(machine: &str, verb: &str) -> VerbMetrics {
        let labels = [("machine", machine.to_owned()), ("verb", verb.to_owned())];
        let transitions = |outcome| {
            let mut labels = labels.to_vec();
            labels.push(("outcome", String::from(outcome)));
            counter!("fsm_transitions_total", &labels)
        };
        let attempts = |outcome: AttemptOutcome| {
            let mut labels = labels.to_vec();
            labels.push(("outcome", outcome.word().to_owned()));
            counter!("fsm_attempts_total", &labels)
        };
        VerbMetrics {
            succeeded: transitions("success"),
            exhausted_calls: transitions("exhausted"),
            exhausted: counter!("fsm_exhausted_total", &labels),
            retries: counter!("fsm_retries_scheduled_total", &labels),
            attempts: AttemptOutcome::ALL.map(attempts),
            duration: histogram!("fsm_attempt_duration_seconds", &labels),
            lag: histogram!("fsm_queue_lag_seconds", &labels),
        }
    }

    /// An attempt starts, `lag` after it was due.
    pub(crate) fn attempt_started(&self, lag: Duration) {
        self.lag.record(lag);
    }

    /// An attempt has ended.
    pub(crate) fn attempt_ended(&self, outcome: AttemptOutcome) {
        self.attempts[outcome as usize].increment(1);
    }

    /// The verb of an attempt returned after that time.
    pub(crate) fn verb_took(&self, took: Duration) {
        self.duration.record(took);
    }

    /// A call succeeded, and its transition is committed.
    pub(crate) fn succeeded(&self) {
        self.succeeded.increment(1);
    }

    /// An attempt failed and another one is committed.
    pub(crate) fn retry_scheduled(&self) {
        self.retries.increment(1);
    }

    /// A call has no attempts left, and that is committed.
    pub(crate) fn exhausted(&self) {
        self.exhausted_calls.increment(1);
        self.exhausted.increment(1);
    }
}

/// Registers the kind and the description of each metric with the recorder.
pub(crate) fn describe() {
    for (name, kind, text) in NAMES {
        let unit = if name.ends_with("_seconds") { Unit::Seconds } else { Unit::Count };
        match kind {
            MetricKind::Counter => metrics::describe_counter!(*name, unit, *text),
            MetricKind::Gauge => metrics::describe_gauge!(*name, unit, *text),
            MetricKind::Histogram => metrics::describe_histogram!(*name, unit, *text),
        }
    }
    gauge!("fsm_build_info", "version" => env!("CARGO_PKG_VERSION")).set(1.0);
}

/// The labels of a gauge of one database. On a database with partitions, each has its own.
fn labels(partition: Option<Partition>, others: &[(&'static str, &str)]) -> Vec<Label> {
    let partition = partition.map(|partition| Label::new("partition", partition.number().to_string()));
    others.iter().map(|(name, value)| Label::new(*name, (*value).to_owned())).chain(partition).collect()
}

/// The attempts that run in this process, and how many may.
pub(crate) fn running(partition: Option<Partition>, attempts: usize, slots: usize) {
    gauge!("fsm_worker_running", labels(partition, &[])).set(attempts as f64);
    gauge!("fsm_worker_slots", labels(partition, &[])).set(slots as f64);
}

/// This process sent a heartbeat, or could not.
pub(crate) fn lease_renewal(is_renewed: bool) {
    counter!("fsm_lease_renewals_total", "outcome" => if is_renewed { "success" } else { "error" }).increment(1);
}

/// A group commit of that many requests took that long.
pub(crate) fn commit(requests: usize, took: Duration) {
    histogram!("fsm_commit_duration_seconds").record(took);
    histogram!("fsm_commit_batch_size").record(requests as f64);
}

/// The calls of a machine that are due.
pub(crate) fn backlog(partition: Option<Partition>, machine: &str, backlog: &Backlog) {
    let labels = labels(partition, &[("machine", machine)]);
    gauge!("fsm_due_calls", labels.clone()).set(backlog.due_calls as f64);
    gauge!("fsm_oldest_due_seconds", labels).set(backlog.oldest_due.as_secs_f64());
}

/// The calls that run under a limit, and those that wait for it.
pub(crate) fn limit(partition: Option<Partition>, name: &str, running: u32, waiting: u32) {
    let labels = labels(partition, &[("limit", name)]);
    gauge!("fsm_limit_running", labels.clone()).set(f64::from(running));
    gauge!("fsm_limit_waiting", labels).set(f64::from(waiting));
}

/// The instances and waiting events of a machine.
pub(crate) fn sizes(partition: Option<Partition>, machine: &str, sizes: &Sizes) {
    for (status, instances) in &sizes.instances {
        gauge!("fsm_instances", labels(partition, &[("machine", machine), ("status", status.as_str())])).set(*instances as f64);
    }
    let labels = labels(partition, &[("machine", machine)]);
    gauge!("fsm_inbox_events", labels.clone()).set(sizes.inbox_events as f64);
    gauge!("fsm_outbox_events", labels).set(sizes.outbox_events as f64);
}

/// The events of a partition that wait for instances of other partitions.
pub(crate) fn for_partitions(here: Partition, events: u64) {
    gauge!("fsm_partition_outbox_events", labels(Some(here), &[])).set(events as f64);
}

/// The worker sessions of the database whose lease has not ended.
pub(crate) fn workers(partition: Option<Partition>, alive: usize) {
    gauge!("fsm_workers", labels(partition, &[])).set(alive as f64);
}
