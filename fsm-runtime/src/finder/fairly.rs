//! Chooses the due calls of a machine with `fair_by`: the first calls of each value are read, and a pure decision shares the places among them.

use std::collections::HashMap;
use std::sync::Arc;

use fsm_core::fair::{Group, choose};
use fsm_core::ids::InstanceId;
use fsm_store::claim::Places;
use fsm_store::error::StoreError;
use fsm_store::fair;

use crate::engine::Engine;

/// The number of values of which a claim reads the first calls. More values take turns.
const VALUES: u32 = 100;
/// The number of calls of each value and priority that a claim reads.
const CALLS: u32 = 32;

impl Engine {
    /// The instances whose calls a claim of this machine takes, by their fair shares. Empty for a machine without `fair_by`, and if no call of an
    /// instance with a value is due. Nothing is locked, so that another process may be faster.
    pub(super) async fn fair_choice(
        self: &Arc<Self>,
        place: usize,
        places: Places,
        except: &[String],
    ) -> Result<Vec<InstanceId>, StoreError> {
        let Some(work) = self.work.as_ref().filter(|work| work.shares.is_fair(place)) else { return Ok(Vec::new()) };
        let machine = &work.served[place].machine;
        let mut reader = self.engine_reader().await?;
        let from = work.shares.first_value(place);
        let mut values = fair::values(&mut reader.conn(), machine, &from, VALUES).await?;
        // The turn is over and begins again. Otherwise the last values would get all places of this claim.
        if values.len() < VALUES as usize && !from.is_empty() {
            let first = fair::values(&mut reader.conn(), machine, "", VALUES - values.len() as u32).await?;
            values.extend(first.into_iter().filter(|value| *value < from));
        }
        let is_all = (values.len() as u32) < VALUES;
        work.shares.set_first_value(place, if is_all { String::new() } else { values.last().cloned().unwrap_or_default() });
        let mut groups: HashMap<&str, Group> = values.iter().map(|value| (value.as_str(), Group::default())).collect();
        for (value, call) in fair::first(&mut reader.conn(), machine, &values, self.clock.now(), places.most.min(CALLS), except).await? {
            if let Some(group) = groups.get_mut(value.as_str()) {
                group.due.push(call);
            }
        }
        for running in work.running().values().filter(|running| *running.target.machine == **machine) {
            if let Some(group) = running.fair_by.as_deref().and_then(|value| groups.get_mut(value)) {
                group.running += 1;
            }
        }
        Ok(choose(groups.into_values().collect(), places.most, places.kept))
    }
}
