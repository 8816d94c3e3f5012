//! `Effects`: the world outside the database as a test sees it, with what happened there and how often.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard};

use crate::store::fault::Fault;

/// What happened outside the database. A stand-in for a gateway or a mail server writes it down here; clones share it.
///
/// Given to the bed with `data(…)`, it is known to [`TestBed::crash_at_every_point`](super::TestBed::crash_at_every_point), which lets the
/// process die before and after each effect, and compares how often each happened.
#[derive(Clone, Default)]
pub struct Effects(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    /// Each effect under a key happens once, however often it is asked for.
    keyed: BTreeMap<(String, String), u32>,
    unkeyed: BTreeMap<String, u32>,
    fault: Option<Fault>,
}

impl Effects {
    /// Something happens outside, in a system that takes idempotency keys: the same again under the same key does nothing there.
    /// `true` the first time.
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

    /// Something happens outside, in a system that knows no idempotency keys: the same again happens again.
    pub async fn unkeyed(&self, what: impl fmt::Display) {
        let what = what.to_string();
        self.may_die("before", &what).await;
        *self.state().unkeyed.entry(what.clone()).or_default() += 1;
        self.may_die("after", &what).await;
    }

    /// How often it happened, under whatever keys.
    pub fn happened(&self, what: &str) -> u32 {
        self.all().get(what).copied().unwrap_or(0)
    }

    /// Everything that happened, and how often.
    pub fn all(&self) -> BTreeMap<String, u32> {
        let state = self.state();
        let mut all = state.unkeyed.clone();
        for (_, what) in state.keyed.keys() {
            *all.entry(what.clone()).or_default() += 1;
        }
        all
    }

    /// Nothing happened yet, and from now on the process may die at `fault`.
    pub(super) fn begin_anew(&self, fault: Fault) {
        *self.state() = State { fault: Some(fault), ..State::default() };
    }

    async fn may_die(&self, when: &str, what: &str) {
        let fault = self.state().fault.clone();
        if let Some(fault) = fault {
            fault.live(|| format!("{when} the effect `{what}`")).await;
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
