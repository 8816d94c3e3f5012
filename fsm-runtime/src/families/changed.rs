//! The families that a process looks at: those that its commits may have changed, and the next ones of the sweeper.

use std::collections::BTreeSet;
use std::sync::Mutex;

use fsm_core::ids::InstanceId;
use tokio::sync::Notify;
use uuid::Uuid;

use crate::guard;

/// An id below that of every instance.
pub(super) const FIRST: InstanceId = InstanceId(Uuid::nil());

/// The families that commits of this process may have changed.
pub(crate) struct ChangedFamilies {
    parents: Mutex<BTreeSet<InstanceId>>,
    changed: Notify,
    /// The last families that the sweeper has checked: among those that wait, and among those with events of children.
    swept: Mutex<[InstanceId; 2]>,
}

impl Default for ChangedFamilies {
    fn default() -> ChangedFamilies {
        ChangedFamilies { parents: Mutex::default(), changed: Notify::default(), swept: Mutex::new([FIRST; 2]) }
    }
}

impl ChangedFamilies {
    pub(super) fn add(&self, parents: impl IntoIterator<Item = InstanceId>) {
        guard::lock(&self.parents).extend(parents);
        self.changed.notify_one();
    }

    /// Waits for families, and takes all of them.
    pub(super) async fn next(&self) -> BTreeSet<InstanceId> {
        self.changed.notified().await;
        self.take()
    }

    pub(super) fn take(&self) -> BTreeSet<InstanceId> {
        std::mem::take(&mut *guard::lock(&self.parents))
    }

    pub(super) fn swept(&self) -> [InstanceId; 2] {
        *guard::lock(&self.swept)
    }

    pub(super) fn set_swept(&self, swept: [InstanceId; 2]) {
        *guard::lock(&self.swept) = swept;
    }
}
