//! The name of a parent in another partition, as it is stored with its child.

use fsm_core::changes::Changes;
use serde::{Deserialize, Serialize};

/// A parent in another partition.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ParentElsewhere {
    /// The number of its partition.
    pub partition: u32,
    /// Its machine.
    pub machine: String,
    /// Its key.
    pub key: String,
}

impl ParentElsewhere {
    /// The parent of a child that these changes start.
    pub(crate) fn of(changes: &Changes) -> Option<ParentElsewhere> {
        let link = changes.link.as_deref()?;
        let name = link.elsewhere.clone()?;
        Some(ParentElsewhere { partition: link.parent.partition?, machine: name.machine, key: name.key })
    }
}
