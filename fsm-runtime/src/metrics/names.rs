//! The names, the kinds and the buckets of the metrics.

/// The name, the kind and the description of each metric.
pub const NAMES: &[(&str, MetricKind, &str)] = &[
    ("fsm_transitions_total", MetricKind::Counter, "Calls that ended: by machine, verb and outcome (success, exhausted)."),
    (
        "fsm_attempts_total",
        MetricKind::Counter,
        "Attempts that ended: by machine, verb and outcome (success, error, lost, timeout, panic, released, snoozed).",
    ),
    ("fsm_attempt_duration_seconds", MetricKind::Histogram, "The time from the start of a verb to its end: by machine and verb."),
    ("fsm_queue_lag_seconds", MetricKind::Histogram, "The time from when an attempt was due to its start: by machine and verb."),
    ("fsm_retries_scheduled_total", MetricKind::Counter, "Attempts that failed and are followed by another one: by machine and verb."),
    ("fsm_exhausted_total", MetricKind::Counter, "Calls without attempts left: by machine and verb."),
    ("fsm_inbox_events", MetricKind::Gauge, "Events that wait for their turn, counted up to a limit: by machine."),
    (
        "fsm_outbox_events",
        MetricKind::Gauge,
        "Events from verbs that wait for room in the inbox of their receiver, counted up to a limit: by machine.",
    ),
    (
        "fsm_partition_outbox_events",
        MetricKind::Gauge,
        "Events from verbs that wait for instances of other partitions, counted up to a limit: by the partition of the senders.",
    ),
    ("fsm_due_calls", MetricKind::Gauge, "Calls that are due and have not started, counted up to a limit: by machine."),
    ("fsm_oldest_due_seconds", MetricKind::Gauge, "The time that the oldest due call has waited; 0 if none is due: by machine."),
    ("fsm_limit_running", MetricKind::Gauge, "Calls that run under a limit, counted up to a limit: by limit."),
    ("fsm_limit_waiting", MetricKind::Gauge, "Calls that are due and wait for a limit, counted up to a limit: by limit."),
    ("fsm_instances", MetricKind::Gauge, "Instances, counted up to a limit: by machine and status."),
    ("fsm_workers", MetricKind::Gauge, "Worker sessions of the database whose lease has not ended."),
    ("fsm_worker_running", MetricKind::Gauge, "Attempts that run in this process."),
    ("fsm_worker_slots", MetricKind::Gauge, "Attempts that may run in this process at once."),
    ("fsm_lease_renewals_total", MetricKind::Counter, "Heartbeats of this process: by outcome (success, error)."),
    ("fsm_commit_duration_seconds", MetricKind::Histogram, "The time of one group commit."),
    ("fsm_commit_batch_size", MetricKind::Histogram, "The requests in one group commit."),
    ("fsm_database_errors_total", MetricKind::Counter, "Errors of the database: by kind, the class of docs/database-errors.md."),
    ("fsm_build_info", MetricKind::Gauge, "Always 1: by version."),
];

/// Upper bounds in seconds for the histograms whose name ends with `_seconds`: from half a millisecond to an hour. The dashboard and the alerts of
/// this project expect histograms with buckets, not summaries.
pub const SECONDS_BUCKETS: &[f64] =
    &[0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 900.0, 3600.0];

/// Upper bounds for the histogram of batch sizes.
pub const SIZE_BUCKETS: &[f64] = &[1.0, 2.0, 5.0, 10.0, 25.0, 50.0, 100.0, 250.0];

/// The kind of a metric.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MetricKind {
    /// Only grows.
    Counter,
    /// A value that goes up and down.
    Gauge,
    /// A distribution. Its unit is in its name; without one it counts.
    Histogram,
}
