//! `Effects`: a record of the effects outside the database, for tests.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard};

use fsm_store::failpoint::Failpoint;

/// A record of effects outside the database. A stand-in for a payment gateway or a mail server writes its effects here. Clones share the
/// record.
///
/// If it is given to the test bed with `data(…)`, [`TestBed::crash_at_every_point`](super::TestBed::crash_at_every_point) lets the process
/// die before and after each effect, and compares how often each effect happened.
#[derive(Clone, Default)]
pub struct Effects(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    /// The number of requests for each effect and idempotency key. The effect happened once, independent of that number.
    keyed: BTreeMap<(String, String), u32>,
    unkeyed: BTreeMap<String, u32>,
    failpoint: Option<Failpoint>,
}

impl Effects {
    /// Records an effect in a system that accepts idempotency keys: a repetition with the same key has no effect. Returns true for the
    /// first request.
    pub async fn keyed(&self, key: &str, what: impl fmt::Display) -> bool {
        let what = what.to_string();
        self.may_die("before", &what).await;
        let is_first = {
            let mut state = self.state();
            let asked = state.keyed.entry((key.to_owned(), what.clone())).or_default();
            *asked += 1;
            *asked == 1
        };
        self.may_die("after", &what).await;
        is_first
    }

    /// Records an effect in a system without idempotency keys: each repetition counts.
    pub async fn unkeyed(&self, what: impl fmt::Display) {
        let what = what.to_string();
        self.may_die("before", &what).await;
        *self.state().unkeyed.entry(what.clone()).or_default() += 1;
        self.may_die("after", &what).await;
    }

    /// Returns how often the effect happened, with any key or without one.
    pub fn happened(&self, what: &str) -> u32 {
        self.all().get(what).copied().unwrap_or(0)
    }

    /// Returns all effects, with how often each happened.
    pub fn all(&self) -> BTreeMap<String, u32> {
        let state = self.state();
        let mut all = state.unkeyed.clone();
        for (_, what) in state.keyed.keys() {
            *all.entry(what.clone()).or_default() += 1;
        }
        all
    }

    /// Clears the record. From now on, each effect is a crash point of `failpoint`.
    pub(super) fn begin_anew(&self, failpoint: Failpoint) {
        *self.state() = State { failpoint: Some(failpoint), ..State::default() };
    }

    async fn may_die(&self, when: &str, what: &str) {
        let failpoint = self.state().failpoint.clone();
        if let Some(failpoint) = failpoint {
            failpoint.live(|| format!("{when} the effect `{what}`")).await;
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().expect("no code panics while it holds the effects")
    }
}

impl fmt::Debug for Effects {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.all()).finish()
    }
}
