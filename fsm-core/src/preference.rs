//! The partitions that a process prefers: rendezvous hashing (highest random weight) over the live sessions of each partition.
//!
//! Each process computes for itself which sessions prefer a partition, and all that see the same sessions get the same answer. Nothing depends on
//! the answer for safety: any process may claim any work.

use std::time::Duration;

use crate::hash::fnv1a_64;
use crate::ids::SessionId;

/// The number of sessions that prefer a partition. If one of them ends, another one is there already.
pub const PREFERRED_BY: usize = 2;

/// The number of poll intervals between two looks of a process into a partition that it does not prefer.
const RARELY: u32 = 10;
/// The longest wait between two such looks, unless the poll interval is longer.
const LONGEST_LOOK: Duration = Duration::from_secs(30);
/// The number of poll intervals after which due work is overdue: a process that does not prefer the partition claims it then.
const OVERDUE: u32 = 2;

/// The weight of a session for a partition. The sessions with the highest weights prefer it.
///
/// It is FNV-1a with 64 bits over the 16 bytes of the session's id and the 4 bytes of the number, highest byte first, mixed by the finalizer of
/// MurmurHash3. FNV alone would rank the sessions in almost the same order for all partitions.
pub fn weight(session: SessionId, partition: u32) -> u64 {
    let hash = fnv1a_64(session.0.into_bytes().into_iter().chain(partition.to_be_bytes()));
    let hash = (hash ^ (hash >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd);
    let hash = (hash ^ (hash >> 33)).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    hash ^ (hash >> 33)
}

/// Returns true if the session `me` prefers a partition in which these other sessions live that serve the same code. It does if fewer than
/// [`PREFERRED_BY`] of them have a higher weight.
pub fn prefers(me: SessionId, others: impl IntoIterator<Item = SessionId>, partition: u32) -> bool {
    // Equal weights are decided by the ids.
    let rank = |session: SessionId| (weight(session, partition), session);
    let mine = rank(me);
    others.into_iter().filter(|other| rank(*other) > mine).take(PREFERRED_BY).count() < PREFERRED_BY
}

/// A number for the names that a process serves, in order. Sessions with the same number can do the same work, and share the partitions among
/// themselves; those with other numbers do it on their own. So each kind of process, and each version of the code, prefers all partitions.
pub fn code_of<'a>(names: impl IntoIterator<Item = &'a str>) -> i64 {
    // No name contains the byte 255.
    fnv1a_64(names.into_iter().flat_map(|name| name.bytes().chain([u8::MAX]))).cast_signed()
}

/// The time between two looks into a partition that is not preferred.
pub fn look_interval(poll: Duration) -> Duration {
    poll.saturating_mul(RARELY).min(LONGEST_LOOK).max(poll)
}

/// The time for which work is due before a process claims it in a partition that it does not prefer.
pub fn overdue_after(poll: Duration) -> Duration {
    poll.saturating_mul(OVERDUE)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use uuid::Uuid;

    use super::*;

    const PARTITIONS: u32 = 64;

    /// The session number `n` of a test.
    fn session(n: u64) -> SessionId {
        let half = |salt: u64| fnv1a_64(n.to_be_bytes().into_iter().chain(salt.to_be_bytes()));
        SessionId(Uuid::from_u64_pair(half(1), half(2)))
    }

    fn sessions(numbers: impl IntoIterator<Item = u64>) -> Vec<SessionId> {
        numbers.into_iter().map(session).collect()
    }

    fn who_prefers(all: &[SessionId], partition: u32) -> BTreeSet<SessionId> {
        all.iter().copied().filter(|me| prefers(*me, all.iter().copied().filter(|other| other != me), partition)).collect()
    }

    /// The vectors of the guide. Processes of different releases compute the same, so that they share the partitions.
    #[test]
    fn the_weights_never_change() {
        let id = |text: &str| SessionId(Uuid::parse_str(text).unwrap());
        let (one, other) = (id("00000000-0000-4000-8000-000000000001"), id("f47ac10b-58cc-4372-a567-0e02b2c3d479"));
        let weights = [(one, 0), (one, 1), (one, 63), (other, 0), (other, 1), (other, 63)].map(|(session, number)| weight(session, number));
        let expected = [
            5_432_176_904_071_562_175,
            12_444_931_489_052_566_479,
            6_640_170_629_765_005_092,
            504_317_736_683_628_190,
            2_699_607_812_875_352_834,
            18_097_986_906_497_789_308,
        ];
        assert_eq!(weights, expected);
        assert_eq!(code_of(["order", "shipped"]), -8_694_889_993_097_794_552);
        assert_ne!(code_of(["ab", "c"]), code_of(["a", "bc"]));
    }

    #[test]
    fn each_partition_is_preferred_by_two_of_the_sessions_or_by_all_if_there_are_fewer() {
        for count in 1..=40 {
            let all = sessions(0..count);
            for partition in 0..PARTITIONS {
                assert_eq!(who_prefers(&all, partition).len(), PREFERRED_BY.min(all.len()), "{count} sessions, partition {partition}");
            }
        }
    }

    #[test]
    fn the_partitions_are_shared_about_equally() {
        for count in [3, 10, 40] {
            let all = sessions(0..count);
            let mut preferred = vec![0; all.len()];
            for partition in 0..1024 {
                who_prefers(&all, partition).iter().for_each(|one| preferred[all.iter().position(|session| session == one).unwrap()] += 1);
            }
            let even = 1024.0 * PREFERRED_BY as f64 / count as f64;
            // The standard deviation of a random choice is below the square root.
            let apart = preferred.iter().map(|number| (f64::from(*number) - even).abs()).fold(0.0, f64::max);
            assert!(apart < 4.0 * even.sqrt(), "{count} sessions: {preferred:?}");
        }
    }

    #[test]
    fn a_session_that_joins_or_leaves_changes_only_the_partitions_that_it_prefers() {
        let (before, after) = (sessions(0..10), sessions(0..11));
        let joined = session(10);
        let mut changed = 0;
        for partition in 0..1024 {
            let (fewer, more) = (who_prefers(&before, partition), who_prefers(&after, partition));
            if more.contains(&joined) {
                changed += 1;
                // The new one takes the place of one, or one takes its place.
                assert_eq!((more.difference(&fewer).count(), fewer.difference(&more).count()), (1, 1));
            } else {
                assert_eq!(fewer, more, "partition {partition}");
            }
        }
        let even = 1024 * PREFERRED_BY / after.len();
        assert!(changed > even / 2 && changed < even * 2, "{changed} of 1024 partitions changed");
    }

    #[test]
    fn overdue_work_is_looked_for_at_ten_polls_and_claimed_after_two() {
        let of = |poll: u64| (look_interval(Duration::from_millis(poll)), overdue_after(Duration::from_millis(poll)));
        let ms = Duration::from_millis;
        assert_eq!(of(50), (ms(500), ms(100)));
        assert_eq!(of(1000), (ms(10_000), ms(2000)));
        assert_eq!(of(5000), (ms(30_000), ms(10_000)));
        // Nobody looks more often than a process that prefers the partition.
        assert_eq!(of(3_600_000), (ms(3_600_000), ms(7_200_000)));
    }
}
