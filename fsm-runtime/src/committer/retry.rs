//! The retry of a request whose commit failed: after a backoff it is tried again, or the error is returned.

use std::time::Duration;

use fsm_store::error::Class;
use fsm_store::error::class::{Actor, Response};

/// The first backoff; each one is twice as long as the one before.
const FIRST: Duration = Duration::from_millis(50);
/// The maximum backoff if the condition may pass by itself.
const LONGEST: Duration = Duration::from_secs(2);
/// The maximum backoff of a report that the database does not accept: an operator has to correct something first.
const LONGEST_UNACCEPTED: Duration = Duration::from_secs(60);

/// The origin of a request. It determines how long the request is retried.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Origin {
    /// A user's call: retried until its patience ends.
    Caller,
    /// The report of an attempt that ended: retried for as long as the process lives.
    Report,
    /// A loop of the engine: not retried, because the loop finds the same work again.
    Loop,
}

/// The decision about a request whose commit failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Next {
    /// Retry after this time.
    Again(Duration),
    /// Return the error.
    Return,
}

/// Decides about a request that failed again, after `tries` retries and `waited` in all.
pub(super) fn next(origin: Origin, class: Class, tries: u32, waited: Duration, patience: Duration) -> Next {
    let wait = backoff(class, tries);
    match origin {
        // The loop's next scan finds the same work again.
        Origin::Loop => Next::Return,
        Origin::Report => Next::Again(wait),
        Origin::Caller if class.response(Actor::Caller) == Response::Return => Next::Return,
        Origin::Caller if waited.saturating_add(wait) < patience => Next::Again(wait),
        Origin::Caller => Next::Return,
    }
}

/// Exponential backoff: 50 ms, 100 ms, 200 ms and so on, up to 2 s, or up to 60 s for an error that does not pass by itself.
pub(crate) fn backoff(class: Class, tries: u32) -> Duration {
    let longest = if class.is_permanent() { LONGEST_UNACCEPTED } else { LONGEST };
    FIRST.saturating_mul(1 << tries.min(16)).min(longest)
}

/// Returns true for 0 and for powers of two: a long outage logs a line each time the number of failures has doubled.
pub(crate) fn is_worth_a_line(tries: u32) -> bool {
    tries == 0 || tries.is_power_of_two()
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATIENCE: Duration = Duration::from_secs(10);

    fn waits(origin: Origin, class: Class) -> Vec<Next> {
        let mut waited = Duration::ZERO;
        (0..40)
            .map_while(|tries| {
                let next = next(origin, class, tries, waited, PATIENCE);
                if let Next::Again(wait) = next {
                    waited += wait;
                    Some(next)
                } else {
                    None
                }
            })
            .collect()
    }

    #[test]
    fn a_report_is_retried_on_every_error_and_never_given_up() {
        for class in Class::ALL {
            assert_eq!(waits(Origin::Report, class).len(), 40, "{class:?}");
            let last = next(Origin::Report, class, u32::MAX, Duration::MAX, Duration::ZERO);
            assert!(matches!(last, Next::Again(wait) if wait <= LONGEST_UNACCEPTED), "{class:?}");
        }
    }

    #[test]
    fn a_caller_is_told_at_once_what_does_not_pass_and_within_its_patience_what_does() {
        for class in Class::ALL {
            let waits = waits(Origin::Caller, class);
            assert_eq!(waits.is_empty(), class.is_permanent(), "{class:?}");
            let waited: Duration = waits.iter().map(|next| if let Next::Again(wait) = next { *wait } else { Duration::ZERO }).sum();
            assert!(waited < PATIENCE, "{class:?}: {waited:?}");
            assert_eq!(next(Origin::Caller, class, 0, Duration::MAX, PATIENCE), Next::Return);
        }
    }

    #[test]
    fn a_loop_is_told_at_once_and_looks_again() {
        assert!(Class::ALL.iter().all(|class| waits(Origin::Loop, *class).is_empty()));
    }

    #[test]
    fn a_long_outage_logs_a_line_each_time_it_has_lasted_twice_as_long() {
        assert_eq!((0..1000).filter(|tries| is_worth_a_line(*tries)).count(), 11);
    }
}
