//! An operator's act under way.

use std::future::{Future, IntoFuture};
use std::pin::Pin;
use std::sync::Arc;

use fsm_core::decide::operate::Act;

use crate::committer::queue::{Request, What, Whose};
use crate::engine::{Engine, Life};
use crate::error::Error;

/// An operator's act, carried out when it is awaited. It is in the instance's history, with its reason.
#[must_use = "nothing happens until it is awaited"]
pub struct Operating {
    engine: Arc<Engine>,
    life: Option<Arc<Life>>,
    whose: Whose,
    act: Act,
    reason: Option<String>,
}

impl Operating {
    pub(crate) fn new(engine: Arc<Engine>, life: Option<Arc<Life>>, whose: Whose, act: Act, reason: Option<String>) -> Operating {
        Operating { engine, life, whose, act, reason }
    }

    /// Why, for the history.
    pub fn reason(mut self, reason: impl Into<String>) -> Self {
        self.reason = Some(reason.into());
        self
    }

    async fn carry_out(self) -> Result<(), Error> {
        let (engine, _life) = (self.engine, self.life);
        let what = What::Operate { act: self.act, reason: self.reason };
        let whose = self.whose.clone();
        engine.request(|reply| Request::new(whose, what, Some(reply))).await?;
        if self.act == Act::Cancel {
            engine.cancel_running(&self.whose);
        }
        Ok(())
    }
}

impl IntoFuture for Operating {
    type Output = Result<(), Error>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send>>;
    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.carry_out())
    }
}
