//! The store as values, and the engine's own commit of a batch on it. The simulation puts processes around the model; the differential
//! test runs it beside the databases.

pub mod commit;
pub mod database;
pub mod ledger;
pub mod outbox;
pub mod partition;
pub mod promise;
pub mod queue;
pub mod store;
pub mod variant;
pub mod write_path;

use std::sync::Arc;

use fsm_core::machine::Machine;
use uuid::Uuid;

use ledger::Ledger;
use store::Store;
use variant::Variant;

pub struct Model {
    pub machine: Arc<Machine>,
    pub variant: Variant,
    pub store: Store,
    pub ledger: Ledger,
    /// The number of the partition, if the database has partitions.
    pub partition: Option<u32>,
    /// True if the store changed since the last check.
    pub is_dirty: bool,
    ids: u128,
}

impl Model {
    pub fn new(machine: impl Into<Arc<Machine>>, variant: Variant) -> Model {
        let (store, ledger) = (Store::default(), Ledger::default());
        Model { machine: machine.into(), variant, store, ledger, partition: None, is_dirty: false, ids: 0 }
    }

    /// The model of one partition. Its ids differ from those of the others.
    pub fn of_partition(machine: impl Into<Arc<Machine>>, variant: Variant, partition: u32) -> Model {
        Model { partition: Some(partition), ids: u128::from(partition) << 64, ..Model::new(machine, variant) }
    }

    /// Returns an unused id. The ids increase, like those that clients create.
    pub fn fresh(&mut self) -> Uuid {
        self.ids += 1;
        Uuid::from_u128(self.ids)
    }
}
