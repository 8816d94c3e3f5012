//! The rules of baskets and their items.

use std::collections::{BTreeMap, HashMap};

use uuid::Uuid;

use super::case::Case;
use crate::basket::item_key;
use crate::rows::Instance;

/// A basket that was called has packed all of its items, and one that was cancelled has no item that goes on.
pub(super) fn baskets_match(case: &Case<'_>) -> Vec<String> {
    let of = |machine: &'static str| case.rows.instances.iter().filter(move |(_, one)| one.machine == machine);
    let items: HashMap<&str, (&Uuid, &Instance)> = of("item").map(|(id, item)| (&*item.key, (id, item))).collect();
    let taken = case.successes_by_instance();
    let (mut broken, mut expected) = (Vec::new(), 0);
    for (_, basket) in of("basket") {
        let record = basket.record.clone().unwrap_or_default();
        let own: BTreeMap<u32, _> = record.taken.iter().filter_map(|n| Some((*n, *items.get(&*item_key(&basket.key, *n))?))).collect();
        expected += own.len();
        if own.len() != record.taken.len() {
            broken.push(format!("{} has started {:?}, and has {} items", basket.key, record.taken, own.len()));
        }
        let packed = own.values().filter(|(_, item)| item.status == "completed" && item.state.as_deref() == Some("packed")).count();
        let ended = own.values().filter(|(_, item)| matches!(&*item.status, "completed" | "cancelled")).count();
        let cents: u64 = own.values().filter_map(|(id, _)| taken.get(*id)).flatten().map(|(.., cents)| *cents).sum();
        let is_well = match (&*basket.status, basket.state.as_deref()) {
            ("completed", Some("assembled")) => packed == own.len() && cents == record.cents,
            ("cancelled", _) => ended == own.len(),
            _ => false,
        };
        if !is_well {
            let Instance { key, status, state, .. } = basket;
            broken.push(format!(
                "{key} is {status} in {state:?} with {packed} packed and {ended} ended of {} items, {cents} cents",
                own.len()
            ));
        }
    }
    if items.len() != expected {
        broken.push(format!("there are {} items, and {expected} of baskets", items.len()));
    }
    broken
}
