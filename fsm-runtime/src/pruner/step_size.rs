//! The number of rows that a step deletes, adapted to the duration of earlier steps.

use std::time::Duration;

use tokio::time::Instant;

/// The target duration of one step. SQLite has one writer, so all other writers wait for that long.
const STEP_IN_SQLITE: Duration = Duration::from_millis(20);
const STEP_IN_POSTGRES: Duration = Duration::from_millis(50);
/// The minimum number of rows of a step. With fewer rows, the commits would dominate.
const LEAST: u32 = 200;
/// The maximum number of rows of a step.
const MOST: u32 = 2000;
/// The number of rows of the first step.
const FIRST: u32 = 500;
/// The length of the pause after a step, as a multiple of the step's duration.
const OTHERS: u32 = 3;

/// The size of the next step and its earliest start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct StepSize {
    rows: u32,
    most: u32,
    next_step: Instant,
}

impl Default for StepSize {
    fn default() -> StepSize {
        StepSize { rows: FIRST, most: MOST, next_step: Instant::now() }
    }
}

impl StepSize {
    /// A step size with the maximum `most`.
    #[cfg(test)]
    pub(super) fn at_most(most: u32) -> StepSize {
        StepSize { rows: FIRST.min(most), most, ..StepSize::default() }
    }

    /// The maximum number of rows of the next step.
    pub(super) fn rows(self) -> u32 {
        self.rows
    }

    /// The earliest start of the next step.
    pub(super) fn next_step(self) -> Instant {
        self.next_step
    }

    /// Records the duration of a step that began at `began` and has just ended.
    pub(super) fn took(&mut self, began: Instant, is_postgres: bool) {
        let took = began.elapsed();
        self.next_step = Instant::now() + took * OTHERS;
        self.rows = self.fitting(took, if is_postgres { STEP_IN_POSTGRES } else { STEP_IN_SQLITE });
    }

    /// The number of rows for a step of duration `wanted`, if the present number took `took`.
    fn fitting(self, took: Duration, wanted: Duration) -> u32 {
        // A single duration may be untypical, because the step had few rows or was delayed. The size therefore at most doubles, and shrinks
        // to no less than a quarter.
        let factor = (wanted.as_secs_f64() / took.as_secs_f64().max(1e-6)).clamp(0.25, 2.0);
        ((f64::from(self.rows) * factor) as u32).clamp(LEAST.min(self.most), self.most)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_has_as_many_rows_as_fit_into_its_time() {
        for wanted in [STEP_IN_SQLITE, STEP_IN_POSTGRES] {
            let mut step_size = StepSize::default();
            // 25 µs a row.
            let took = |step_size: StepSize| Duration::from_micros(25) * step_size.rows();
            for _ in 0..20 {
                step_size.rows = step_size.fitting(took(step_size), wanted);
            }
            assert!(took(step_size) <= wanted && took(step_size) > wanted * 9 / 10, "{:?}", took(step_size));
        }
    }

    #[test]
    fn a_step_has_never_too_few_rows_or_too_many() {
        let mut step_size = StepSize::default();
        for (took, rows) in [(Duration::from_secs(10), LEAST), (Duration::ZERO, MOST)] {
            for _ in 0..20 {
                step_size.rows = step_size.fitting(took, STEP_IN_POSTGRES);
            }
            assert_eq!(step_size.rows(), rows);
        }
        let few = StepSize::at_most(7);
        assert_eq!([Duration::ZERO, Duration::from_secs(10)].map(|took| few.fitting(took, STEP_IN_SQLITE)), [7, 7]);
    }

    #[test]
    fn others_have_three_times_as_long_as_a_step() {
        let mut step_size = StepSize::default();
        let began = Instant::now() - Duration::from_millis(40);
        step_size.took(began, false);
        assert!(step_size.next_step() >= began + Duration::from_millis(160));
    }
}
