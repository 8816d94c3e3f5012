//! The difference between the clocks of two PostgreSQL servers, before a partition moves from one to the other.
//!
//! Leases and due times are times of the server's clock, and are copied as they are.

use std::time::{Duration, Instant};

use fsm_core::duration;
use fsm_core::time::micros;
use sqlx::AssertSqlSafe;
use sqlx::postgres::PgConnection;

use super::copy::Side;
use super::quoted;
use crate::error::Result;
use crate::sql;

/// The lease duration if no worker uses the partition.
const USUAL_LEASE: Duration = Duration::from_secs(30);

/// The largest difference at which nothing counts as late. A worker renews its lease after a quarter of it, so that a clock which is ahead by
/// another quarter leaves half of each lease.
fn most(shortest_lease_us: Option<i64>) -> Duration {
    shortest_lease_us.map_or(USUAL_LEASE, |us| Duration::from_micros(us.unsigned_abs())) / 4
}

/// Measures the clocks, and returns the reason why the difference is too large for the workers of a partition; `None` if it is not.
pub(super) async fn too_large((from, schema): Side<'_>, to: &mut PgConnection) -> Result<Option<String>> {
    let shortest_lease = AssertSqlSafe(sql::shortest_lease(&quoted(schema)));
    let shortest_lease_us = sqlx::query_scalar(shortest_lease).fetch_one(&mut *from).await?;
    let begun = Instant::now();
    let (from, to) = (measured(from, begun).await?, measured(to, begun).await?);
    Ok(reason(to - from, most(shortest_lease_us)))
}

/// The time that the server's clock showed at `begun`, in microseconds. The answer took as long to come as the request did to arrive.
async fn measured(conn: &mut PgConnection, begun: Instant) -> Result<i64> {
    let before = begun.elapsed();
    let (now_us, _): (i64, i64) = sqlx::query_as(sql::SERVER_CLOCK.postgres).fetch_one(conn).await?;
    Ok(now_us - micros((before + begun.elapsed()) / 2))
}

fn reason(ahead_us: i64, most: Duration) -> Option<String> {
    let difference = Duration::from_micros(ahead_us.unsigned_abs());
    // Milliseconds are enough to read.
    let shown = duration::display(Duration::from_millis(u64::try_from(difference.as_millis()).unwrap_or(u64::MAX)));
    let (which, then) = if ahead_us > 0 {
        ("ahead of", "calls that run could count as lost, and timers would be due early")
    } else {
        ("behind", "retries, timers and schedules would wait until it has caught up")
    };
    (difference > most).then(|| {
        format!(
            "cannot be moved yet: the clock of the new server is {shown} {which} that of the old one, and {} is allowed, a quarter of the shortest \
             lease: {then}; set the clocks right, or move it nevertheless with `--ignore-clocks`",
            duration::display(most)
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quarter_of_the_shortest_lease_is_allowed() {
        assert_eq!((most(Some(2_000_000)), most(None)), (Duration::from_millis(500), Duration::from_millis(7_500)));
        for ahead_us in [0, 500_000, -500_000] {
            assert_eq!(reason(ahead_us, most(Some(2_000_000))), None, "{ahead_us}");
        }
        let ahead = reason(500_001, most(Some(2_000_000))).expect("it is too large");
        assert!(
            ahead.contains("is 500ms ahead of that of the old one, and 500ms is allowed") && ahead.contains("could count as lost"),
            "{ahead}"
        );
        let behind = reason(-3_600_000_000, most(None)).expect("it is too large");
        assert!(behind.contains("is 1h behind that of the old one") && behind.contains("would wait"), "{behind}");
    }
}
