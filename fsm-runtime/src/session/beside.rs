//! Renewals of the lease in the commits of other work. SQLite has one writer, and under load the lease's own thread may come too late.

use std::sync::atomic::Ordering;
use std::time::Duration;

use fsm_core::time::Timestamp;
use fsm_store::sessions::Lease;

use super::{Renewal, Session, SessionState};

impl SessionState {
    /// Returns true if less than two thirds of the lease are left and it has not expired.
    fn is_renewal_due(&self, lease: Duration, now: Timestamp) -> bool {
        self.until > now && self.until.since(now) < lease / 3 * 2
    }
}

impl Renewal {
    /// The renewal in the form that the store writes.
    pub(crate) fn lease(&self, session: &Session) -> Lease {
        Lease { session: self.id, now: self.at, duration: session.0.lease, until: self.until }
    }
}

impl Session {
    /// Returns the renewal if it is due: less than two thirds of the lease are left, and it has not expired.
    pub(crate) fn due_renewal(&self, now: Timestamp) -> Option<Renewal> {
        let state = *self.state();
        let is_due = state.is_renewal_due(self.0.lease, now) && !self.0.is_stopped.load(Ordering::Acquire);
        is_due.then(|| Renewal { id: state.id, until: now + self.0.lease, at: now })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process;

    const LEASE: Duration = Duration::from_secs(30);

    fn at(s: i64) -> Timestamp {
        Timestamp::from_micros(1_000_000 * (1000 + s))
    }

    fn new_session() -> Session {
        Session::new(process::identity(), 0, LEASE, LEASE)
    }

    /// A session that was renewed in time for long, the last time at 0.
    fn old_session() -> Session {
        let session = new_session();
        *session.state() = SessionState { until: at(0) + LEASE, since: at(-600), ..SessionState::unknown() };
        session
    }

    fn renew(session: &Session, now: Timestamp) {
        session.note_renewal(session.due_renewal(now).expect("a renewal is due"));
    }

    #[test]
    fn a_session_that_a_commit_renewed_late_waits_for_its_grace_period_before_it_sweeps() {
        let session = old_session();
        // Blocked for 29 s: the lease has not expired, but those of other processes may have.
        renew(&session, at(29));
        assert_eq!(session.certain(at(29)), Some(session.id()));
        assert!(!session.may_sweep(at(29)), "others get one lease to renew theirs");
        renew(&session, at(43));
        renew(&session, at(57));
        assert!(!session.may_sweep(at(58)));
        assert!(session.may_sweep(at(59)), "the grace period has passed");
    }

    #[test]
    fn a_session_that_commits_renew_in_time_goes_on_sweeping() {
        let session = old_session();
        for s in (11..600).step_by(11) {
            renew(&session, at(s));
            assert!(session.may_sweep(at(s)));
        }
    }

    #[test]
    fn a_renewal_of_another_session_changes_nothing() {
        let session = old_session();
        let renewal = session.due_renewal(at(29)).expect("a renewal is due");
        let other = new_session();
        other.note_renewal(renewal);
        assert_eq!(other.certain(at(29)), None);
    }
}
