//! How many rows a step deletes: as many as fit into its time, by how long the steps before it took.

use std::time::Duration;

/// The time of one step. SQLite has one writer, and whoever waits for it waits as long.
const STEP_IN_SQLITE: Duration = Duration::from_millis(20);
const STEP_IN_POSTGRES: Duration = Duration::from_millis(50);
/// A step deletes no fewer rows however slow it is, or it would be all commits.
const LEAST: u32 = 50;
/// A step deletes no more rows however fast it is.
const MOST: u32 = 5000;
/// The first step.
const FIRST: u32 = 500;
/// Others have this much of the time for each part that pruning has.
const OTHERS: u32 = 3;

/// How many rows the next step may delete.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Pace {
    rows: u32,
    most: u32,
}

impl Default for Pace {
    fn default() -> Pace {
        Pace { rows: FIRST, most: MOST }
    }
}

impl Pace {
    /// Never more rows than `most`.
    #[cfg(test)]
    pub(super) fn at_most(most: u32) -> Pace {
        Pace { rows: FIRST.min(most), most }
    }

    /// The most rows of the next step.
    pub(super) fn rows(self) -> u32 {
        self.rows
    }

    /// A step took so long. Returns the pause before the next one.
    pub(super) fn took(&mut self, took: Duration, is_postgres: bool) -> Duration {
        let wanted = if is_postgres { STEP_IN_POSTGRES } else { STEP_IN_SQLITE };
        // A step that was short of rows says little, and one that was held up says little too: at most twice as many, or a quarter.
        let factor = (wanted.as_secs_f64() / took.as_secs_f64().max(1e-6)).clamp(0.25, 2.0);
        self.rows = ((f64::from(self.rows) * factor) as u32).clamp(LEAST.min(self.most), self.most);
        took * OTHERS
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_has_as_many_rows_as_fit_into_its_time() {
        for (is_postgres, wanted) in [(false, STEP_IN_SQLITE), (true, STEP_IN_POSTGRES)] {
            let mut pace = Pace::default();
            // 25 µs a row.
            for _ in 0..20 {
                let took = Duration::from_micros(25) * pace.rows();
                assert_eq!(pace.took(took, is_postgres), took * 3);
            }
            let took = Duration::from_micros(25) * pace.rows();
            assert!(took <= wanted && took > wanted * 9 / 10, "{took:?}");
        }
    }

    #[test]
    fn a_step_has_never_too_few_rows_or_too_many() {
        let mut pace = Pace::default();
        for _ in 0..20 {
            pace.took(Duration::from_secs(10), true);
        }
        assert_eq!(pace.rows(), LEAST);
        for _ in 0..20 {
            pace.took(Duration::ZERO, true);
        }
        assert_eq!(pace.rows(), MOST);
        let mut few = Pace::at_most(7);
        for took in [Duration::ZERO, Duration::from_secs(10)] {
            few.took(took, false);
            assert_eq!(few.rows(), 7);
        }
    }
}
