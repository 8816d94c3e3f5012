//! The promises of the product: each is a test whose name is the promise, on SQLite and on PostgreSQL with a test clock. `docs/promises.md`
//! lists them.

#![allow(clippy::unwrap_used, reason = "a test ends at its first surprise")]
#![cfg_attr(
    not(all(feature = "sqlite", feature = "postgres")),
    allow(unused, reason = "the tests of the other database are left out, and their helpers are not")
)]
mod bad_input;
mod bad_rows;
mod bad_verbs;
#[cfg(feature = "sqlite")]
mod blocking;
mod by_name;
mod catch;
mod children;
mod classified;
mod clumsy;
mod computed_timers;
mod console;
#[cfg(feature = "sqlite")]
mod console_limits;
#[cfg(feature = "postgres")]
mod console_partitions;
#[cfg(feature = "sqlite")]
mod console_routes;
mod context;
mod crash_at_every_point;
#[cfg(all(feature = "sqlite", feature = "postgres"))]
mod crash_points;
mod data_protection;
#[cfg(all(feature = "sqlite", feature = "postgres"))]
mod dropped;
mod durable;
#[cfg(all(feature = "sqlite", feature = "postgres"))]
mod encryption;
mod events;
mod exactly_once;
mod extreme_durations;
mod fair_by;
mod fair_machines;
mod family;
mod fuzz;
mod graceful_shutdown;
mod guarded;
mod health;
mod hostile_database;
mod inbox;
mod inspect;
mod internal_transitions;
mod interrupting;
mod killed_processes;
mod limits;
mod limits_by_value;
mod metrics;
mod operators;
mod otlp;
mod outage;
mod outbox;
mod outbox_shown;
mod own_sql;
mod page;
#[cfg(feature = "postgres")]
mod partition_limits;
#[cfg(feature = "postgres")]
mod partition_servers;
#[cfg(feature = "postgres")]
mod partitions;
mod payment;
mod policies;
mod priorities;
mod product;
mod prometheus;
#[cfg(feature = "postgres")]
mod remote_children;
mod retention;
mod retries;
#[cfg(feature = "postgres")]
mod roles;
#[cfg(all(feature = "sqlite", feature = "postgres"))]
mod rows_in_the_way;
mod schedules;
mod search;
#[cfg(all(feature = "sqlite", feature = "postgres"))]
mod send_in;
mod send_many;
mod senders;
mod shown;
mod shutdown_handle;
mod snapshot_cache;
mod snooze;
mod sql_runner;
mod subscription;
mod support;
mod takeover;
mod time;
mod trace_contexts;
#[cfg(all(feature = "sqlite", feature = "postgres"))]
mod trace_paths;
mod traces;
#[cfg(all(feature = "sqlite", feature = "postgres"))]
mod undelayed;
mod unsend;
mod waits;
#[cfg(all(feature = "sqlite", feature = "postgres"))]
mod wake_up;
mod watch;
