//! Permits: the places under a limit that calls of other partitions have. The limit counts in its home partition, with the permits there.
//!
//! A permit admits the claim of one instance in one row version. Each write to an instance raises its row version, also the claim. So a claim with a permit
//! succeeds at most once, and not at all after the row was changed.

use std::time::Duration;

use crate::ids::InstanceId;
use crate::limit::parts;
use crate::partition::{Partition, partition_of};
use crate::time::Timestamp;

/// The age of a permit from which on any worker checks whether it is over. A claim that takes longer fails.
pub const CHECKED_AFTER: Duration = Duration::from_secs(2);

/// The number of the partition in which a limit counts, or each value of a limit by value. An instance whose key has the value as its tag is there too.
pub fn home_of(bucket: &str, partitions: u32) -> u32 {
    let (limit, value) = parts(bucket);
    partition_of(value.unwrap_or(limit), partitions)
}

/// True if the bucket counts in this partition, or if the database has no partitions.
pub fn is_home(here: Option<Partition>, bucket: &str) -> bool {
    here.is_none_or(|here| home_of(bucket, here.of()) == here.number())
}

/// A permit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Permit {
    /// The bucket in which it has a place.
    pub bucket: String,
    /// The instance.
    pub instance: InstanceId,
    /// The number of its partition.
    pub partition: u32,
    /// The row version of the instance in which the permit admits its claim.
    pub row_version: i64,
}

/// The row of an instance that has a permit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PermitRow {
    /// The row version.
    pub row_version: i64,
    /// The bucket under which a call of the instance runs.
    pub runs_under: Option<String>,
}

/// True if a claim with this permit would still succeed, or could if a fail-over has taken the row back to an older version. It is fenced before the
/// permit is over.
pub fn is_open(permit: &Permit, row: Option<&PermitRow>) -> bool {
    row.is_some_and(|row| row.row_version <= permit.row_version && row.runs_under.is_none())
}

/// The permits of an instance in a bucket that are over: those for row versions below the returned one. `None` if the instance still runs a call in this
/// bucket. `row` is `None` if the instance was deleted.
///
/// The row version only grows. So no claim with an older permit succeeds any more, and a call that began with one has ended.
pub fn over_below(bucket: &str, row: Option<&PermitRow>) -> Option<i64> {
    match row {
        None => Some(i64::MAX),
        Some(row) if row.runs_under.as_deref() == Some(bucket) => None,
        Some(row) => Some(row.row_version),
    }
}

/// The number of places under a limit that calls of this partition leave to others: one to each partition that waits for a place for longer than this
/// one, which waits since `here`. Otherwise the calls in the home of the limit would always start first, because they hear first of a free place.
pub fn left_to_others(here: Timestamp, elsewhere: impl IntoIterator<Item = Timestamp>) -> u32 {
    let before = elsewhere.into_iter().filter(|since| *since < here).count();
    u32::try_from(before).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limit::bucket;

    #[test]
    fn a_value_that_is_the_tag_of_a_key_has_its_home_with_the_instance() {
        let home = home_of(&bucket("tenant", "acme"), 64);
        assert_eq!(home, partition_of("{acme}/order-1042", 64));
        assert_eq!(home_of("stripe", 64), partition_of("stripe", 64));
        let here = Partition::new(home, 64);
        assert!(is_home(here, "tenant=acme") && is_home(None, "stripe"));
        assert!(!is_home(Partition::new((home + 1) % 64, 64), "tenant=acme"));
    }

    #[test]
    fn a_permit_is_over_when_the_row_has_changed_and_nothing_runs() {
        let row = |row_version, runs_under: Option<&str>| PermitRow { row_version, runs_under: runs_under.map(str::to_owned) };
        let is_over = |row: &PermitRow| over_below("stripe", Some(row)).is_some_and(|below| 5 < below);
        // The claim may still come, or it has succeeded, and the inbox has changed since.
        let lives = [row(5, None), row(6, Some("stripe")), row(7, Some("stripe"))];
        // The call has ended, or somebody else changed the row before the claim, or the next call runs under another limit.
        let ended = [row(6, None), row(9, None), row(9, Some("mail"))];
        assert_eq!((lives.map(|row| is_over(&row)), ended.map(|row| is_over(&row))), ([false; 3], [true; 3]));
        assert_eq!(over_below("stripe", None), Some(i64::MAX));
    }

    #[test]
    fn a_permit_is_open_until_the_row_changes() {
        let permit = Permit { bucket: "stripe".into(), instance: InstanceId(uuid::Uuid::nil()), partition: 1, row_version: 5 };
        let is_open = |row_version, runs_under: Option<&str>| {
            super::is_open(&permit, Some(&PermitRow { row_version, runs_under: runs_under.map(str::to_owned) }))
        };
        assert_eq!([4, 5, 6].map(|version| is_open(version, None)), [true, true, false]);
        assert!(!is_open(5, Some("mail")) && !super::is_open(&permit, None));
    }

    #[test]
    fn a_place_is_left_to_each_partition_that_has_waited_for_longer() {
        let at = Timestamp::from_micros;
        let elsewhere = [at(1), at(5), at(9)];
        assert_eq!([1, 5, 6, 10].map(|since| left_to_others(at(since), elsewhere)), [0, 1, 2, 3]);
    }
}
