//! Failpoints: before a statement, a test can cut this process off from its database, make the statement fail, or make it panic. Without
//! the feature `testing` they do nothing.

#[cfg(feature = "testing")]
mod injected;

#[cfg(feature = "testing")]
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
#[cfg(feature = "testing")]
use std::sync::{Arc, Mutex, MutexGuard};

#[cfg(feature = "testing")]
use tokio::sync::Notify;

use super::error::Result;

/// A handle to the failpoint of a store.
#[derive(Debug, Clone)]
pub struct Failpoint {
    #[cfg(feature = "testing")]
    place: Option<Arc<Place>>,
}

#[cfg(feature = "testing")]
#[derive(Debug)]
struct Place {
    /// The number of statements that still pass; `OFF` if all pass.
    left: AtomicI64,
    /// The number of statements that passed.
    passed: AtomicU64,
    /// The number of rows that were returned.
    answered: AtomicU64,
    triggered: Notify,
    triggered_at: Mutex<Option<String>>,
    /// The number of statements that are still to fail, and the error code.
    failing: Mutex<(u32, String)>,
    /// If true, the statement that is stopped panics, and later statements pass.
    panics: AtomicBool,
    /// If true, each statement yields to the scheduler before it runs.
    yields: AtomicBool,
}

#[cfg(feature = "testing")]
impl Place {
    fn triggered_at(&self) -> MutexGuard<'_, Option<String>> {
        self.triggered_at.lock().expect("no code panics while it holds a place")
    }
}

#[cfg(feature = "testing")]
const OFF: i64 = i64::MAX;

#[cfg(not(feature = "testing"))]
impl Failpoint {
    pub(super) const NEVER: Failpoint = Failpoint {};

    pub(super) fn somewhere() -> Failpoint {
        Failpoint::NEVER
    }

    pub(crate) async fn pass(&self, _: impl FnOnce() -> String) -> Result<()> {
        Ok(())
    }

    pub(super) fn answered(&self, _rows: usize) {}
}

#[cfg(feature = "testing")]
impl Failpoint {
    pub(super) const NEVER: Failpoint = Failpoint { place: None };

    /// A failpoint that a test can arm.
    pub(super) fn somewhere() -> Failpoint {
        Failpoint {
            place: Some(Arc::new(Place {
                left: AtomicI64::new(OFF),
                passed: AtomicU64::new(0),
                answered: AtomicU64::new(0),
                triggered: Notify::new(),
                triggered_at: Mutex::default(),
                failing: Mutex::default(),
                panics: AtomicBool::new(false),
                yields: AtomicBool::new(false),
            })),
        }
    }

    /// Lets a statement pass, returns the injected error, or never returns. `at` describes the place, for the text "the process died …".
    pub(crate) async fn pass(&self, at: impl FnOnce() -> String) -> Result<()> {
        self.live(at).await;
        let Some(place) = &self.place else { return Ok(()) };
        let mut failing = place.failing.lock().expect("no code panics while it holds a place");
        if failing.0 == 0 {
            return Ok(());
        }
        failing.0 -= 1;
        Err(injected::error(&failing.1).into())
    }

    /// Makes the next `statements` fail with this code: five characters are a SQLSTATE, a shorter number is a SQLite result code.
    pub fn fail_next(&self, statements: u32, code: &str) {
        if let Some(place) = &self.place {
            *place.failing.lock().expect("no code panics while it holds a place") = (statements, code.to_owned());
        }
    }

    /// The number of statements that are still to fail.
    pub fn to_fail(&self) -> u32 {
        self.place.as_ref().map_or(0, |place| place.failing.lock().expect("no code panics while it holds a place").0)
    }

    /// Lets a statement pass, panics, or never returns. `at` describes the place, for the text "the process died …".
    pub async fn live(&self, at: impl FnOnce() -> String) {
        let Some(place) = &self.place else { return };
        if place.yields.load(Ordering::SeqCst) {
            tokio::task::yield_now().await;
        }
        let count_down = |left| if left == OFF { None } else { Some(left - 1) };
        if place.left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, count_down).is_ok_and(|left| left <= 0) {
            if place.panics.swap(false, Ordering::SeqCst) {
                place.left.store(OFF, Ordering::SeqCst);
                panic!("injected {}", at());
            }
            place.triggered_at().get_or_insert_with(at);
            place.triggered.notify_one();
            std::future::pending::<()>().await;
        }
        place.passed.fetch_add(1, Ordering::SeqCst);
    }

    /// Counts the rows that a statement returned.
    pub(super) fn answered(&self, rows: usize) {
        if let Some(place) = &self.place {
            place.answered.fetch_add(rows as u64, Ordering::SeqCst);
        }
    }

    /// The number of rows that were returned.
    pub fn rows(&self) -> u64 {
        self.place.as_ref().map_or(0, |place| place.answered.load(Ordering::SeqCst))
    }

    /// Lets this number of statements pass, and blocks all later ones.
    pub fn trigger_after(&self, statements: u32) {
        if let Some(place) = &self.place {
            *place.triggered_at() = None;
            place.left.store(i64::from(statements), Ordering::SeqCst);
        }
    }

    /// Makes each statement yield before it runs, so that it is an await point even if the database answers at once.
    pub fn yield_at_statements(&self) {
        if let Some(place) = &self.place {
            place.yields.store(true, Ordering::SeqCst);
        }
    }

    /// Lets this number of statements pass. The next one panics.
    pub fn panic_after(&self, statements: u32) {
        if let Some(place) = &self.place {
            place.panics.store(true, Ordering::SeqCst);
        }
        self.trigger_after(statements);
    }

    /// True if an armed panic has not happened yet.
    pub fn is_about_to_panic(&self) -> bool {
        self.place.as_ref().is_some_and(|place| place.panics.load(Ordering::SeqCst))
    }

    /// Waits until a statement is blocked.
    pub async fn triggered(&self) {
        match &self.place {
            Some(place) => place.triggered.notified().await,
            None => std::future::pending().await,
        }
    }

    /// The number of statements that passed.
    pub fn passed(&self) -> u64 {
        self.place.as_ref().map_or(0, |place| place.passed.load(Ordering::SeqCst))
    }

    /// The description of the first place that blocked a statement since the failpoint was armed.
    pub fn triggered_at(&self) -> Option<String> {
        self.place.as_ref().and_then(|place| place.triggered_at().clone())
    }

    /// True if a statement was stopped.
    pub fn has_triggered(&self) -> bool {
        self.place.as_ref().is_some_and(|place| place.left.load(Ordering::SeqCst) < 0)
    }

    /// Disarms the failpoint: all statements pass again.
    pub fn reset(&self) {
        if let Some(place) = &self.place {
            place.left.store(OFF, Ordering::SeqCst);
            place.panics.store(false, Ordering::SeqCst);
            let _ = futures_util::FutureExt::now_or_never(place.triggered.notified());
        }
    }
}
