//! `settled`: waits until an instance settles.

use std::future::{Future, IntoFuture};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use fsm_core::duration;
use fsm_core::instance::Instance as InstanceRow;

use super::instance_view::InstanceView;
use super::view::Instance;
use super::waiting::{Waiting, Wanted};
use crate::engine::Engine;
use crate::engines::ClientGuard;
use crate::error::{Error, ErrorKind};
use crate::registry::Machine;

/// A wait for an instance to settle. It begins when it is awaited.
#[must_use = "nothing is waited for until it is awaited"]
pub struct SettledRequest<M: Machine> {
    waiting: Waiting<M>,
}

impl<M: Machine> SettledRequest<M> {
    pub(crate) fn new(engine: Arc<Engine>, client_guard: Option<Arc<ClientGuard>>, key: &str) -> SettledRequest<M> {
        SettledRequest { waiting: Waiting::new(engine, client_guard, key) }
    }

    /// Ends the wait with an error after `limit`. Without a limit the wait has no end. While the database is unavailable, it is polled
    /// again until the limit, or without a limit until the builder's patience ends.
    pub fn within(mut self, limit: Duration) -> Self {
        self.waiting.within = Some(limit);
        self
    }
}

/// The condition of `settled`.
struct Settled {
    within: Option<Duration>,
}

impl Wanted for Settled {
    fn is_not_met_while_running(&self) -> bool {
        true
    }

    fn is_met(&self, row: &InstanceRow) -> Result<bool, Error> {
        Ok(row.is_settled())
    }

    fn timed_out(&self, seen: &InstanceView) -> Error {
        let within = self.within.map(duration::display).unwrap_or_default();
        let (row, doing) = (&seen.row, doing(seen));
        let text = format!("`{}` `{}` was not settled within {within}: {doing}", row.machine, row.key.escape_debug());
        Error::other(ErrorKind::TimedOut, text)
    }
}

/// Describes the present activity of an instance, for the error of a wait whose time is over.
pub(super) fn doing(seen: &InstanceView) -> String {
    match (&seen.call, seen.row.inbox_len()) {
        (_, _) if seen.row.error.is_some() => seen.activity().to_string(),
        (Some(call), _) => format!("attempt {} of `{}` is {}, for {}", call.attempt, call.verb, call.state, call.next_at),
        (None, 0) => seen.activity().to_string(),
        (None, waiting) => format!("{waiting} events wait in its inbox"),
    }
}

impl<M: Machine> IntoFuture for SettledRequest<M> {
    type Output = Result<Instance<M>, Error>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send>>;
    fn into_future(self) -> Self::IntoFuture {
        let wanted = Settled { within: self.waiting.within };
        Box::pin(self.waiting.until(wanted))
    }
}
