//! `wait`: waits until an instance is in a state, or has ended.

use std::future::{Future, IntoFuture};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use fsm_core::duration;
use fsm_core::instance::Instance as InstanceRow;
use fsm_core::machine::Machine as Graph;

use super::instance_view::InstanceView;
use super::settled::doing;
use super::view::Instance;
use super::waiting::{Waiting, Wanted};
use crate::engine::Engine;
use crate::engines::ClientGuard;
use crate::error::{Error, ErrorKind};
use crate::registry::Machine;

/// A wait without its condition yet.
#[must_use = "say what is waited for, and await it"]
pub struct Wait<M: Machine> {
    waiting: Waiting<M>,
}

/// A wait for a state or for the end, which begins when it is awaited. It returns the instance as it is then.
///
/// An instance that passes through the state is noticed if its transition is committed in this process. A transition that another process commits
/// is found by reading the database, every 5 ms at first and later once a second; a state that is left between two reads is missed.
///
/// Errors:
/// - `is_not_found`: there is no such instance.
/// - `is_refused`: the instance cannot come to the state any more: it has ended elsewhere, or no path of edges leads from its state to the wanted one.
/// - `is_timed_out`: the time of `within` is over. The text says what the instance does. An instance in error is waited for, because an operator
///   may retry it.
/// - `is_database`: without `within`, the database could not be used for as long as the patience of the builder.
#[must_use = "nothing is waited for until it is awaited"]
pub struct WaitRequest<M: Machine> {
    waiting: Waiting<M>,
    state: Option<M::State>,
}

impl<M: Machine> Wait<M> {
    pub(crate) fn new(engine: Arc<Engine>, client_guard: Option<Arc<ClientGuard>>, key: &str) -> Wait<M> {
        Wait { waiting: Waiting::new(engine, client_guard, key) }
    }

    /// Until the instance is in `state`, whatever else it does.
    pub fn for_state(self, state: M::State) -> WaitRequest<M> {
        self.request(Some(state))
    }

    /// Until the instance is completed or cancelled.
    pub fn for_end(self) -> WaitRequest<M> {
        self.request(None)
    }

    fn request(self, state: Option<M::State>) -> WaitRequest<M> {
        WaitRequest { waiting: self.waiting, state }
    }
}

impl<M: Machine> WaitRequest<M> {
    /// Gives up after `limit`; without it, the wait has no end.
    pub fn within(mut self, limit: Duration) -> Self {
        self.waiting.within = Some(limit);
        self
    }

    async fn wait(self) -> Result<Instance<M>, Error> {
        let graph = Arc::clone(&self.waiting.engine.catalog.expect(M::NAME)?.machine);
        let state = self.state.map(|state| state.to_string());
        let wanted = Reached { graph, state, within: self.waiting.within };
        self.waiting.until(wanted).await
    }
}

/// The condition of a wait: a state, or `None` for the end.
struct Reached {
    graph: Arc<Graph>,
    state: Option<String>,
    within: Option<Duration>,
}

impl Reached {
    fn what(&self) -> String {
        self.state.as_ref().map_or_else(|| "did not end".to_owned(), |state| format!("did not come to `{state}`"))
    }
}

impl Wanted for Reached {
    fn is_not_met_while_running(&self) -> bool {
        self.state.is_none()
    }

    fn is_met(&self, row: &InstanceRow) -> Result<bool, Error> {
        let Some(wanted) = self.state.as_deref() else { return Ok(row.status.is_ended()) };
        let state = row.state.as_deref();
        if state == Some(wanted) {
            return Ok(true);
        }
        let is_foreign = state.is_some_and(|state| !self.graph.has_state(state));
        if !row.status.is_ended() && (is_foreign || self.graph.can_reach(state, wanted)) {
            return Ok(false);
        }
        let at = state.map_or_else(|| "before its first state".to_owned(), |state| format!("in `{state}`"));
        let text = format!("`{}` `{}` is {} {at} and cannot come to `{wanted}`", row.machine, row.key.escape_debug(), row.status);
        Err(Error::other(ErrorKind::Refused, text))
    }

    fn timed_out(&self, seen: &InstanceView) -> Error {
        let within = self.within.map(duration::display).unwrap_or_default();
        let (row, what, doing) = (&seen.row, self.what(), doing(seen));
        Error::other(ErrorKind::TimedOut, format!("`{}` `{}` {what} within {within}: {doing}", row.machine, row.key.escape_debug()))
    }
}

impl<M: Machine> IntoFuture for WaitRequest<M> {
    type Output = Result<Instance<M>, Error>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send>>;
    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.wait())
    }
}
