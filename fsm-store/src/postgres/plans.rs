//! The age of a connection's query plans, which decides when they are discarded.

use std::time::{Duration, Instant};

/// The number of uses after which the first plans are discarded. The number doubles each time.
const FIRST: u64 = 32;
/// The maximum age of a plan. It is needed because other processes write too.
const OLDEST: Duration = Duration::from_secs(60);

/// The age of the plans of a connection's prepared statements. PostgreSQL makes a plan for the present size of the tables, and keeps it
/// while they grow, until they are analysed: a plan for an empty table may scan the whole table where an index is needed later. Plans are
/// discarded each time the number of uses has doubled, so that a plan is never for tables much smaller than the present ones.
#[derive(Debug, Clone, Copy)]
pub(super) struct Plans {
    uses: u64,
    good_for: u64,
    made: Instant,
}

impl Plans {
    /// The age of a new connection's plans.
    pub(super) fn new() -> Plans {
        Plans { uses: 0, good_for: FIRST, made: Instant::now() }
    }

    /// Counts a use. Returns true if the plans have to be discarded, and then starts a new age.
    pub(super) fn are_old(&mut self) -> bool {
        self.uses += 1;
        let are_old = self.uses >= self.good_for || self.made.elapsed() >= OLDEST;
        if are_old {
            self.good_for = self.good_for.max(2 * self.uses);
            self.made = Instant::now();
        }
        are_old
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plans_are_made_anew_when_the_uses_have_doubled() {
        let mut plans = Plans::new();
        let anew: Vec<u64> = (1..=1000).filter(|_| plans.are_old()).collect();
        assert_eq!(anew, [32, 64, 128, 256, 512]);
    }

    #[test]
    fn plans_are_made_anew_when_they_are_a_minute_old() {
        let long_ago = Instant::now().checked_sub(OLDEST).expect("the machine is up for a minute");
        let mut plans = Plans { made: long_ago, ..Plans::new() };
        assert!(plans.are_old());
        assert!(!plans.are_old());
    }
}
