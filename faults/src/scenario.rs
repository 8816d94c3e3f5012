//! The list of scenarios.

mod block;
mod clocks;
mod conditions;
mod crowd;
mod cut;
mod disk;
mod failover;
mod family;
mod fan_in;
mod interrupt;
mod kill;
mod moves;
mod outage;
mod partition;
mod pooler;
mod prune;
mod snapshot;
mod soak;
mod stop;
mod wal;
mod writers;

use std::pin::Pin;

use crate::Failure;
use crate::report::Report;
use crate::size::Size;
use crate::test_server::{Kind, TestServer};

/// The future of a running scenario.
type Running<'g> = Pin<Box<dyn Future<Output = Result<Report, Failure>> + 'g>>;

/// A fault scenario.
pub struct Scenario {
    pub name: &'static str,
    /// The fault, and the scenario's own requirement beside the checker's rules.
    pub description: &'static str,
    pub on: &'static [Kind],
    pub run: for<'g> fn(&'g mut TestServer, Kind, Size) -> Running<'g>,
}

const BOTH: &[Kind] = &[Kind::Sqlite, Kind::Postgres];
const POSTGRES: &[Kind] = &[Kind::Postgres];
const SQLITE: &[Kind] = &[Kind::Sqlite];

macro_rules! scenarios {
    ($($name:literal $on:ident $run:path, $description:literal;)*) => {
        /// All scenarios in the order in which they run.
        pub const ALL: &[Scenario] = &[$(
            Scenario { name: $name, description: $description, on: $on, run: |test_server, kind, size| Box::pin($run(test_server, kind, size)) },
        )*];
    };
}

scenarios! {
    "kill" BOTH kill::run, "processes under load are killed by SIGKILL again and again";
    "takeover" BOTH kill::takeover, "processes are killed whose leases would last for an hour: others on the machine take over at once";
    "restart" BOTH kill::restart, "no container lives longer than ten seconds: work makes progress, and nothing is lost";
    "fan-in" BOTH fan_in::run, "all send to few instances whose inboxes are full while processes are killed: nothing is lost, twice or out of order";
    "interrupt" BOTH interrupt::run, "events interrupt calls that are retried while processes are killed";
    "family" BOTH family::run, "parents wait for their children while processes are killed: each is called once, after the last one";
    "stop" BOTH stop::run, "a process stands still for three leases and goes on: its late reports change nothing";
    "crash" POSTGRES outage::crash, "the server is killed under load (immediate) and started again";
    "outage" POSTGRES outage::outage, "the server is away for three leases: no live worker's attempt is lost";
    "cut" POSTGRES cut::cut, "connections are cut before and after the commit, behind a request and inside an answer";
    "hang" POSTGRES cut::hang, "connections hang: deadlines end them, and others go on meanwhile";
    "disk" BOTH disk::run, "the disk is full, and is freed: nothing in between is half there";
    "wal" POSTGRES wal::run, "the disk of a whole cluster is full, so that the server stops, and is started once there is room";
    "conditions" BOTH conditions::run, "read-only for a while, cancelled and terminated sessions, short timeouts, locked rows, files that cannot be written: nothing hangs";
    "failover" POSTGRES failover::run, "switchovers, killed and frozen nodes of a Patroni cluster, through haproxy and a URL of several hosts";
    "partition" POSTGRES partition::run, "one of two servers is killed, frozen or cut off, and processes are killed: the partitions of the other server go on, with families and limits over all";
    "move" POSTGRES moves::run, "partitions move between two servers under load; the mover ends at any point, and another one continues or cancels";
    "drop" BOTH crowd::dropped, "one connection, and futures that are dropped half-way";
    "crowd" SQLITE crowd::crowd, "one file, four processes, eight threads each: no database is locked";
    "clocks" BOTH clocks::clocks, "workers whose clocks are an hour apart";
    "zones" BOTH clocks::zones, "processes and sessions in four time zones";
    "pooler" POSTGRES pooler::run, "all goes through PgBouncer in transaction mode";
    "writers" BOTH writers::run, "many write to few instances, in every order: no deadlock";
    "block" BOTH block::run, "a verb blocks every thread for five leases: nothing is lost";
    "prune" BOTH prune::run, "ended instances with very long calls are deleted under load: in small steps, for which no sender waits";
    "soak" BOTH soak::run, "all of it at random, for --minutes (default 60); only where it is named";
    "snapshot" BOTH snapshot::run, "an old snapshot is held under load: work goes on as fast";
}
