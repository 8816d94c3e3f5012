//! The store as values, and the trip of a batch through the real decisions and the door to it. The simulation puts processes around it;
//! the differential test lets it walk beside the databases.

pub mod at_once;
pub mod board;
pub mod door;
pub mod ledger;
pub mod promise;
pub mod queue;
pub mod store;
pub mod trip;
pub mod variant;

use fsm_core::machine::Machine;
use uuid::Uuid;

use ledger::Ledger;
use store::Store;
use variant::Variant;

pub struct Model {
    pub machine: Machine,
    pub variant: Variant,
    pub store: Store,
    pub ledger: Ledger,
    /// The store changed since it was last checked.
    pub is_dirty: bool,
    ids: u128,
}

impl Model {
    pub fn new(machine: Machine, variant: Variant) -> Model {
        Model { machine, variant, store: Store::default(), ledger: Ledger::default(), is_dirty: false, ids: 0 }
    }

    /// An id that was never used. They are in order, like the ids that clients make.
    pub fn fresh(&mut self) -> Uuid {
        self.ids += 1;
        Uuid::from_u128(self.ids)
    }
}
