//! A place at which this process is cut off from its database, as its death there would. Only tests choose one; without the
//! feature `testing` there is nothing of it.

#[cfg(feature = "testing")]
use std::sync::Arc;
#[cfg(feature = "testing")]
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

#[cfg(feature = "testing")]
use tokio::sync::Notify;

/// Where the process is cut off, if anywhere.
#[derive(Debug, Clone)]
pub(crate) struct Fault {
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
    struck: Notify,
}

#[cfg(feature = "testing")]
const OFF: i64 = i64::MAX;

#[cfg(not(feature = "testing"))]
impl Fault {
    pub(super) const NEVER: Fault = Fault {};

    pub(super) fn somewhere() -> Fault {
        Fault::NEVER
    }

    pub(super) async fn pass(&self) {}

    pub(super) fn answered(&self, _rows: usize) {}
}

#[cfg(feature = "testing")]
impl Fault {
    pub(super) const NEVER: Fault = Fault { place: None };

    /// One that can be told where.
    pub(super) fn somewhere() -> Fault {
        Fault {
            place: Some(Arc::new(Place {
                left: AtomicI64::new(OFF),
                passed: AtomicU64::new(0),
                answered: AtomicU64::new(0),
                struck: Notify::new(),
            })),
        }
    }

    /// Lets a statement through, or never returns.
    pub(super) async fn pass(&self) {
        let Some(place) = &self.place else { return };
        let count_down = |left| if left == OFF { None } else { Some(left - 1) };
        if place.left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, count_down).is_ok_and(|left| left <= 0) {
            place.struck.notify_one();
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
    pub(crate) fn strike_after(&self, statements: u32) {
        if let Some(place) = &self.place {
            place.left.store(i64::from(statements), Ordering::SeqCst);
        }
    }

    /// Waits until a statement did not get through.
    pub(crate) async fn struck(&self) {
        match &self.place {
            Some(place) => place.struck.notified().await,
            None => std::future::pending().await,
        }
    }

    /// How many statements got through.
    pub(crate) fn passed(&self) -> u64 {
        self.place.as_ref().map_or(0, |place| place.passed.load(Ordering::SeqCst))
    }

    /// Whether a statement did not get through.
    pub(crate) fn has_struck(&self) -> bool {
        self.place.as_ref().is_some_and(|place| place.left.load(Ordering::SeqCst) < 0)
    }

    /// All get through again.
    pub(crate) fn mend(&self) {
        if let Some(place) = &self.place {
            place.left.store(OFF, Ordering::SeqCst);
            let _ = futures_util::FutureExt::now_or_never(place.struck.notified());
        }
    }
}
