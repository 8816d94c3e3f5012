//! Two partitions with the same processes: a world for each, the deliveries between them, and their places. Here are the values; the other files act on
//! them.

use std::collections::BTreeSet;
use std::fmt;

use fsm_core::commit::partition_delivery::Delivery;
use fsm_core::commit::rows::SenderNote;
use fsm_core::ids::CallId;
use fsm_core::time::Timestamp;
use uuid::Uuid;

use crate::machine::machine;
use crate::model::Model;
use crate::model::partition::PARTITIONS;
use crate::model::queue::KEYS;
use crate::model::store::Store;
use crate::model::variant::Variant;
use crate::step::{Act, End, Step};
use crate::world::{PROCESSES, World};

/// The difference between the clocks of the two databases.
const CLOCKS_DIFFER_BY_US: i64 = 37_000_000;

pub struct Pair {
    pub worlds: [World; PARTITIONS],
    pub deliveries: Vec<DeliveryInProgress>,
    pub places: [Place; PARTITIONS],
    /// The events between partitions that were seen at their receivers.
    pub taken: BTreeSet<CallId>,
    pub variant: Variant,
}

/// A claimed line that a process delivers.
pub struct DeliveryInProgress {
    pub process: usize,
    /// The partition of the senders.
    pub from: usize,
    pub delivery: Delivery,
    /// The time of the claim.
    pub begun: Timestamp,
    /// The send that is not answered yet.
    pub sending: Option<Uuid>,
    /// The number of times that the end of the claim could not be written.
    pub tries: u32,
    /// The notes that a broken engine writes at the end.
    pub late_notes: Vec<SenderNote>,
}

/// The place of a partition: what the directory and the processes know of it.
#[derive(Default)]
pub struct Place {
    /// The number of times that the directory was changed.
    pub version: u64,
    /// True if a move has renamed the schema, so that every statement fails.
    pub is_frozen: bool,
    /// The rows that a move has copied to the next place.
    pub copy: Option<Store>,
    /// The rows at the last place. Only a broken engine writes there.
    pub left: Option<Store>,
    /// The version of the directory that each process has read.
    pub known: [u64; PROCESSES],
}

impl Pair {
    pub fn new(variant: Variant) -> Pair {
        let world = |partition: usize| {
            let now = Timestamp::from_micros(1_000_000_000 + CLOCKS_DIFFER_BY_US * partition as i64);
            World::of(Model::of_partition(machine(), variant, partition as u32), now)
        };
        let worlds = std::array::from_fn(world);
        Pair { worlds, deliveries: Vec::new(), places: Default::default(), taken: BTreeSet::new(), variant }
    }
}

/// A step of a schedule of two partitions. The process and the partition are those that the act needs.
#[derive(Debug, Clone)]
pub struct Turn {
    pub partition: usize,
    pub process: usize,
    pub act: PairAct,
}

#[derive(Debug, Clone)]
pub enum PairAct {
    /// In this partition, or in both if it is about the whole process or about time.
    In(Act),
    /// The process claims the events of this partition for one receiver.
    ClaimLine { key: usize, end: End },
    /// A delivery of the process goes on: it takes an answer, sends the next event, or finishes its claim.
    DeliverNext { which: usize, end: End },
    /// The delivery waits no longer for the answer to its send.
    GiveUp { which: usize },
    /// A move begins: the schema is renamed.
    Freeze,
    /// The rows are copied.
    Copy,
    /// The directory names the new place.
    Switch,
    /// The move is given up: the copy is deleted, and the schema gets its name back.
    CancelMove,
}

impl fmt::Display for Turn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Turn { partition, process, act } = self;
        write!(f, "partition {partition}, ")?;
        match act {
            PairAct::In(act) => Step { process: *process, act: act.clone() }.fmt(f),
            PairAct::ClaimLine { key, end } => write!(f, "process {process}: claims the line for `{}`: {end:?}", KEYS[*key]),
            PairAct::DeliverNext { which, end } => write!(f, "process {process}: delivery {which} goes on: {end:?}"),
            PairAct::GiveUp { which } => write!(f, "process {process}: delivery {which} gives up its send"),
            PairAct::Freeze => f.write_str("a move: the schema is renamed"),
            PairAct::Copy => f.write_str("a move: the rows are copied"),
            PairAct::Switch => f.write_str("a move: the directory names the new place"),
            PairAct::CancelMove => f.write_str("a move is cancelled"),
        }
    }
}
