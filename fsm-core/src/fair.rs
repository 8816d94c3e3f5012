//! Fairness: which of the due calls of a machine start, so that the values of a field share the slots evenly.

use crate::ids::InstanceId;
use crate::priority::{Kept, Priority};
use crate::time::Timestamp;

/// A call that is due.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DueCall {
    /// Its instance.
    pub instance: InstanceId,
    /// Its priority.
    pub priority: Priority,
    /// The time since which it is due.
    pub due_at: Timestamp,
}

/// The calls of the instances with one value.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Group {
    /// The number of calls of the group that this process executes.
    pub running: usize,
    /// The first calls of each priority that are due.
    pub due: Vec<DueCall>,
}

/// Decides which calls get the places: each place goes to the group that has the fewest, and of groups with equally many to the call that has been due
/// for longest. Within a group the order is by priority, then by time. Kept places go to calls of their priority first.
pub fn choose(mut groups: Vec<Group>, places: u32, kept: Kept) -> Vec<InstanceId> {
    for group in &mut groups {
        // The last one is taken first.
        group.due.sort_by_key(|call| std::cmp::Reverse((call.priority, call.due_at)));
    }
    let mut chosen = Vec::new();
    let kept_places = [(Priority::Normal, kept.normal), (Priority::Low, kept.low)];
    for (priority, count) in kept_places {
        let next = |group: &Group| group.due.iter().rposition(|call| call.priority == priority);
        take(&mut groups, count.min(places) as usize, &mut chosen, next);
    }
    let left = (places as usize).saturating_sub(chosen.len());
    take(&mut groups, left, &mut chosen, |group| group.due.len().checked_sub(1));
    chosen.truncate(places as usize);
    chosen
}

/// Takes up to `count` calls. `next` is the place of the call in its group.
fn take(groups: &mut [Group], count: usize, chosen: &mut Vec<InstanceId>, next: impl Fn(&Group) -> Option<usize>) {
    for _ in 0..count {
        let first = |group: &Group| next(group).map(|place| (group.running, group.due[place].due_at));
        let candidates = groups.iter().enumerate().filter_map(|(number, group)| Some((first(group)?, number)));
        let Some((_, number)) = candidates.min() else { return };
        let group = &mut groups[number];
        let Some(place) = next(group) else { return };
        chosen.push(group.due.remove(place).instance);
        group.running += 1;
    }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    fn call(n: u128, priority: Priority, due_at: i64) -> DueCall {
        DueCall { instance: InstanceId(Uuid::from_u128(n)), priority, due_at: Timestamp::from_micros(due_at) }
    }

    /// The calls of a group have numbers from `first`, and are due one after the other from `since`.
    fn group(running: usize, first: u128, count: u128, since: i64) -> Group {
        Group { running, due: (0..count).map(|n| call(first + n, Priority::Normal, since + n as i64)).collect() }
    }

    fn numbers(chosen: &[InstanceId]) -> Vec<u128> {
        chosen.iter().map(|instance| instance.0.as_u128()).collect()
    }

    #[test]
    fn a_new_group_gets_the_next_place_however_many_calls_of_another_wait() {
        let flood = group(8, 1000, 6000, 0);
        assert_eq!(numbers(&choose(vec![flood.clone(), group(0, 1, 1, 99_999)], 1, Kept::default())), [1]);
        assert_eq!(numbers(&choose(vec![flood, group(0, 1, 3, 99_999)], 4, Kept::default())), [1, 2, 3, 1000]);
    }

    #[test]
    fn groups_share_the_places_evenly_and_idle_ones_leave_theirs_to_others() {
        let chosen = numbers(&choose(vec![group(0, 100, 9, 0), group(0, 200, 9, 50), group(0, 300, 1, 90)], 7, Kept::default()));
        assert_eq!(chosen, [100, 200, 300, 101, 201, 102, 202]);
        assert_eq!(choose(vec![group(3, 100, 9, 0)], 4, Kept::default()).len(), 4);
        assert_eq!(choose(Vec::new(), 4, Kept { normal: 1, low: 1 }), []);
    }

    #[test]
    fn priorities_hold_within_a_group() {
        let mixed = Group {
            running: 0,
            due: vec![call(1, Priority::Low, 0), call(2, Priority::Normal, 1), call(3, Priority::High, 2), call(4, Priority::High, 1)],
        };
        assert_eq!(numbers(&choose(vec![mixed.clone()], 4, Kept::default())), [4, 3, 2, 1]);
        assert_eq!(numbers(&choose(vec![mixed.clone()], 2, Kept { normal: 0, low: 1 })), [1, 4]);
        assert_eq!(numbers(&choose(vec![mixed], 2, Kept { normal: 1, low: 1 })), [2, 1]);
    }
}
