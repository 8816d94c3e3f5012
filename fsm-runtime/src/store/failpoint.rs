//! A place at which this process is cut off from its database, as its death there would, or at which the database answers with an error.
//! Only tests choose one; without the feature `testing` there is nothing of it.

#[cfg(feature = "testing")]
mod injected;

#[cfg(feature = "testing")]
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
#[cfg(feature = "testing")]
use std::sync::{Arc, Mutex, MutexGuard};

#[cfg(feature = "testing")]
use tokio::sync::Notify;

use super::error::Result;

/// Where the process is cut off, if anywhere.
#[derive(Debug, Clone)]
pub(crate) struct Failpoint {
    #[cfg(feature = "testing")]
    place: Option<Arc<Place>>,
}

#[cfg(feature = "testing")]
#[derive(Debug)]
struct Place {
    /// How many statements get through; `OFF` when all do.
    left: AtomicI64,
    /// How many got through.
    passed: AtomicU64,
    /// How many rows came back.
    answered: AtomicU64,
    triggered: Notify,
    triggered_at: Mutex<Option<String>>,
    /// How many statements fail, and with which code.
    failing: Mutex<(u32, String)>,
    /// The statement that does not get through panics, and those after it do.
    panics: AtomicBool,
    /// Whoever runs a statement waits for a moment before it.
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

    /// One that can be told where.
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

    /// Lets a statement through, fails, or never returns. `at` says, after "the process died", where this is.
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

    /// The next `statements` fail with this code: five characters are a SQLSTATE, a number is a result code of SQLite.
    pub(crate) fn fail_next(&self, statements: u32, code: &str) {
        if let Some(place) = &self.place {
            *place.failing.lock().expect("no code panics while it holds a place") = (statements, code.to_owned());
        }
    }

    /// How many statements are still to fail.
    pub(crate) fn to_fail(&self) -> u32 {
        self.place.as_ref().map_or(0, |place| place.failing.lock().expect("no code panics while it holds a place").0)
    }

    /// Lets a statement through, or never returns. `at` says, after "the process died", where this is.
    pub(crate) async fn live(&self, at: impl FnOnce() -> String) {
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

    /// A statement gave so many rows.
    pub(super) fn answered(&self, rows: usize) {
        if let Some(place) = &self.place {
            place.answered.fetch_add(rows as u64, Ordering::SeqCst);
        }
    }

    /// How many rows came back.
    pub(crate) fn rows(&self) -> u64 {
        self.place.as_ref().map_or(0, |place| place.answered.load(Ordering::SeqCst))
    }

    /// After so many statements, no other gets through.
    pub(crate) fn trigger_after(&self, statements: u32) {
        if let Some(place) = &self.place {
            *place.triggered_at() = None;
            place.left.store(i64::from(statements), Ordering::SeqCst);
        }
    }

    /// From now on, whoever runs a statement waits for a moment before it, so that each is an await point, however fast the database is.
    pub(crate) fn yield_at_statements(&self) {
        if let Some(place) = &self.place {
            place.yields.store(true, Ordering::SeqCst);
        }
    }

    /// After so many statements one panics.
    pub(crate) fn panic_after(&self, statements: u32) {
        if let Some(place) = &self.place {
            place.panics.store(true, Ordering::SeqCst);
        }
        self.trigger_after(statements);
    }

    /// Whether a panic is still to come.
    pub(crate) fn is_about_to_panic(&self) -> bool {
        self.place.as_ref().is_some_and(|place| place.panics.load(Ordering::SeqCst))
    }

    /// Waits until a statement did not get through.
    pub(crate) async fn triggered(&self) {
        match &self.place {
            Some(place) => place.triggered.notified().await,
            None => std::future::pending().await,
        }
    }

    /// How many statements got through.
    pub(crate) fn passed(&self) -> u64 {
        self.place.as_ref().map_or(0, |place| place.passed.load(Ordering::SeqCst))
    }

    /// Where the process died last, if it did.
    pub(crate) fn triggered_at(&self) -> Option<String> {
        self.place.as_ref().and_then(|place| place.triggered_at().clone())
    }

    /// Whether a statement did not get through.
    pub(crate) fn has_triggered(&self) -> bool {
        self.place.as_ref().is_some_and(|place| place.left.load(Ordering::SeqCst) < 0)
    }

    /// All get through again.
    pub(crate) fn reset(&self) {
        if let Some(place) = &self.place {
            place.left.store(OFF, Ordering::SeqCst);
            place.panics.store(false, Ordering::SeqCst);
            let _ = futures_util::FutureExt::now_or_never(place.triggered.notified());
        }
    }
}
