//! One simulation for each feature that several processes share: priorities, fair shares, limits, families and schedules. Each runs the decisions
//! of the engine with fixed seeds, and then engines with one mistake, which must break a promise.

mod fairness;
mod families;
mod limit_permits;
mod limits;
mod limits_by_value;
mod priorities;
#[allow(dead_code, reason = "the simulation uses all of it")]
#[path = "../simulation/random.rs"]
mod random;
mod remote_families;
mod schedules;

/// Returns each promise that `broken` reports for any of `seeds` seeds, once.
fn all_broken<P: PartialEq>(seeds: u64, broken: impl Fn(u64) -> Option<P>) -> Vec<P> {
    let mut found = Vec::new();
    for promise in (0..seeds).filter_map(broken) {
        if !found.contains(&promise) {
            found.push(promise);
        }
    }
    found
}
