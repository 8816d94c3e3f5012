//! Adds the numbers of children to the event `ChildrenEnded` before its verb runs.

use fsm_core::call::Attempt;
use fsm_core::machine::CHILDREN_ENDED;
use fsm_store::family;
use serde_json::Value;

use super::calling::Opened;
use crate::engine::Engine;
use crate::error::Error;

impl Engine {
    /// Returns the input with the counts, if the event is `ChildrenEnded` or was caught. The children have ended, so that each attempt gets the
    /// same numbers.
    pub(super) async fn with_counts<'b>(&self, attempt: &Attempt, opened: Result<Opened<'b>, String>) -> Result<Opened<'b>, String> {
        let is_caught = attempt.is_catch() && attempt.event.contains(CHILDREN_ENDED);
        if attempt.event != CHILDREN_ENDED && !is_caught {
            return opened;
        }
        let (payload, record) = opened?;
        let mut payload: Value = serde_json::from_slice(&payload).map_err(|error| format!("the payload cannot be read: {error}"))?;
        let event = if is_caught { payload.get_mut("event") } else { Some(&mut payload) };
        if let Some(Value::Object(event)) = event {
            let group = event.get("group").and_then(Value::as_i64);
            let counts = self
                .read(|| async { Ok::<_, Error>(family::counts(&mut self.store.reader().await?.conn(), attempt.instance, group).await?) });
            let counts = counts.await.map_err(|error| format!("the children cannot be counted: {error}"))?;
            let counts = serde_json::to_value(counts).map_err(|error| format!("the children cannot be counted: {error}"))?;
            event.insert("counts".to_owned(), counts);
        }
        Ok((payload.to_string().into_bytes().into(), record))
    }
}
