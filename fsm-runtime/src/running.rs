//! An attempt that executes in this process, as the others see it.

use std::sync::Arc;

use fsm_core::call::Attempt;
use tokio::sync::watch;
use tokio::task::AbortHandle;

use crate::committer::request::Whose;

/// An attempt that executes in this process.
pub(crate) struct Running {
    pub(crate) attempt: Arc<Attempt>,
    pub(crate) whose: Whose,
    pub(crate) abort: AbortHandle,
    pub(crate) cancel: Arc<watch::Sender<bool>>,
}

impl Running {
    pub(crate) fn into_task(self) -> AbortHandle {
        self.abort
    }

    /// Lets the verb know that its end is wanted.
    pub(crate) fn cancel(&self) {
        self.cancel.send_replace(true);
    }
}
