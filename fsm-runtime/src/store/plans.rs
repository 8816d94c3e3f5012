//! When a connection makes the plans of its prepared statements anew.

use std::time::{Duration, Instant};

/// The first plans are made anew after so many uses, and the next ones each time after twice as many.
const FIRST: u64 = 32;
/// Other processes write too, so none is older than this.
const OLDEST: Duration = Duration::from_secs(60);

/// How old the plans of a connection's statements are. PostgreSQL makes a plan for the tables as large as they are, and keeps it while
/// they grow, until they are analysed: what goes by an index when there are many rows may walk all of them when there were none. Made
/// anew each time the connection was used twice as often, a plan is never for tables much smaller than they are.
#[derive(Debug, Clone, Copy)]
pub(super) struct Plans {
    uses: u64,
    good_for: u64,
    made: Instant,
}

impl Plans {
    /// There are none yet.
    pub(super) fn new() -> Plans {
        Plans { uses: 0, good_for: FIRST, made: Instant::now() }
    }

    /// Counts a use. Whether the plans have to be made anew for it; then they count as new.
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
