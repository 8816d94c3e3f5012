//! The promises of the product: each is a test whose name is the promise, on SQLite and on PostgreSQL with a test clock. `docs/promises.md`
//! lists them.

#![allow(clippy::unwrap_used, reason = "a test ends at its first surprise")]
mod bad_input;
mod bad_verbs;
mod catch;
mod clumsy;
mod context;
mod crash;
mod crash_points;
mod crashes;
mod data_protection;
mod dropped;
mod durable;
mod encryption;
mod events;
mod exactly_once;
mod extreme_durations;
mod fair;
mod fuzz;
mod graceful_shutdown;
mod guarded;
mod hostile_database;
mod inbox;
mod inspect;
mod meddler;
mod operators;
mod own_sql;
mod page;
mod payment;
mod policies;
mod product;
mod retention;
mod retries;
mod roles;
mod room;
mod rows_in_the_way;
mod send_in;
mod send_many;
mod senders;
mod support;
mod time;
mod traces;
mod turns;
mod undelayed;
mod wake_up;
mod watch;
