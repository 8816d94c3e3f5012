//! The commit of a batch: read the rows of its instances, decide each request, write the changes, and carry out what follows from them
//! in the same transaction.
//!
//! This is the protocol between the engine and the database, without a database: it calls one through the trait
//! [`database::Database`]. `fsm-store` implements that trait with SQL, and the simulation of this crate with values, so that the
//! simulation runs the code that ships. The runtime groups requests into batches and opens the transactions.

pub mod batch_commit;
pub mod batch_snapshot;
pub mod database;
pub mod environment;
pub mod family_notice;
pub mod instance_key;
pub mod outcome;
pub mod partition_delivery;
pub mod request;
pub mod rows;
pub mod written;
