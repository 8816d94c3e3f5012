//! Waits until an instance settles. Commits of this process wake it, and polling finds those of other processes.

use std::future::{Future, IntoFuture};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use fsm_core::duration;
use tokio::time::Instant;

use super::Handle;
use super::instance_view::InstanceView;
use super::view::Instance;
use crate::committer::request::InstanceKey;
use crate::encode;
use crate::error::{Error, ErrorKind};
use crate::registry::Machine;

/// The shortest and longest wait between two polls. The wait doubles after each poll.
const LOOKS: (Duration, Duration) = (Duration::from_millis(5), Duration::from_secs(1));

/// A wait for an instance to settle. It begins when it is awaited.
#[must_use = "nothing is waited for until it is awaited"]
pub struct SettledRequest<M: Machine> {
    handle: Handle<M>,
    key: String,
    within: Option<Duration>,
}

impl<M: Machine> SettledRequest<M> {
    pub(crate) fn new(handle: Handle<M>, key: &str) -> SettledRequest<M> {
        SettledRequest { handle, key: key.to_owned(), within: None }
    }

    /// Ends the wait with an error after `limit`. Without a limit the wait has no end. While the database is unavailable, it is polled
    /// again until the limit, or without a limit until the builder's patience ends.
    pub fn within(mut self, limit: Duration) -> Self {
        self.within = Some(limit);
        self
    }

    async fn wait(self) -> Result<Instance<M>, Error> {
        encode::check_key(&self.key)?;
        let deadline = self.within.and_then(|limit| Instant::now().checked_add(limit));
        // The watch begins before the first poll, so that no change between the two is missed.
        let mut watch = self.handle.engine.watchers.watch(InstanceKey::new(M::NAME, &self.key));
        // A call that runs in this process needs no poll, because the commit of its completion wakes this wait.
        let mut needs_look = !watch.is_running;
        let mut away_since: Option<Instant> = None;
        let mut pause = if watch.is_running { LOOKS.1 } else { LOOKS.0 };
        loop {
            if needs_look {
                match Box::pin(self.look()).await {
                    Ok(seen) if seen.is_settled() => return Ok(seen),
                    Ok(_) => away_since = None,
                    Err(error) if error.may_pass() => {
                        let away = away_since.get_or_insert_with(Instant::now).elapsed();
                        if deadline.is_none() && away >= self.handle.engine.limits.patience {
                            return Err(error);
                        }
                    }
                    Err(error) => return Err(error),
                }
            }
            needs_look = true;
            let next_look = Instant::now() + pause;
            loop {
                let until = deadline.map_or(next_look, |deadline| deadline.min(next_look));
                match tokio::time::timeout_at(until, watch.moved()).await {
                    Ok(moved) if moved.instance.is_settled() => {
                        let data_protection = &self.handle.engine.data_protection;
                        let instance = Arc::unwrap_or_clone(moved.instance);
                        return Instance::of(InstanceView::new(instance, None, None, data_protection), data_protection);
                    }
                    Ok(_) => {}
                    Err(_) => break,
                }
            }
            if deadline.is_some_and(|deadline| deadline <= Instant::now()) {
                let seen = Box::pin(self.look()).await?;
                return if seen.is_settled() { Ok(seen) } else { Err(self.timed_out(&seen)) };
            }
            pause = (pause * 2).min(LOOKS.1);
        }
    }

    async fn look(&self) -> Result<Instance<M>, Error> {
        self.handle.get(&self.key).await?.ok_or_else(|| Error::not_found(M::NAME, &self.key))
    }

    fn timed_out(&self, seen: &Instance<M>) -> Error {
        let within = self.within.map(duration::display).unwrap_or_default();
        let doing = match &seen.call {
            Some(call) => format!("attempt {} of `{}` is {}, for {}", call.attempt, call.verb, call.state, call.next_at),
            None => format!("{} events wait in its inbox", seen.inbox_len),
        };
        let text = format!("`{}` `{}` did not settle within {within}: {doing}", M::NAME, self.key.escape_debug());
        Error::other(ErrorKind::TimedOut, text)
    }
}

impl<M: Machine> Instance<M> {
    fn is_settled(&self) -> bool {
        self.status == fsm_core::instance::Status::Error || (self.call.is_none() && self.inbox_len == 0)
    }
}

impl<M: Machine> IntoFuture for SettledRequest<M> {
    type Output = Result<Instance<M>, Error>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send>>;
    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.wait())
    }
}
