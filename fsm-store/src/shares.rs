//! The division of a pool's connections: long transactions never take the last connection from the commits.

use std::sync::Arc;

use tokio::sync::{AcquireError, OwnedSemaphorePermit, Semaphore};

/// The purpose of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Purpose {
    /// Commits, claims and sweeps. They end without other code, and all other work waits for them.
    Engine,
    /// A read or a short transaction. It ends without other code.
    Short,
    /// A transaction that user code ends. During it that code may need a connection for another purpose, and gets one.
    Long,
}

/// The permits of a pool.
pub(super) struct Shares {
    all: Arc<Semaphore>,
    divided: Option<Divided>,
}

struct Divided {
    /// All connections except a quarter, which is reserved for the engine.
    short: Arc<Semaphore>,
    /// Half of the connections.
    long: Arc<Semaphore>,
}

/// The permit for one connection.
pub(super) struct Place(Box<Permits>);

struct Permits {
    _long: Option<OwnedSemaphorePermit>,
    _short: Option<OwnedSemaphorePermit>,
    all: OwnedSemaphorePermit,
}

/// The smallest pool that is divided. In a smaller one any purpose gets the next connection, first come first served.
pub(super) const LEAST: usize = 3;

impl Shares {
    pub(super) fn of(most: usize) -> Shares {
        let places = |places: usize| Arc::new(Semaphore::new(places.max(1)));
        let divided = (most >= LEAST).then(|| Divided { short: places(most - (most / 4).max(1)), long: places(most / 2) });
        Shares { all: places(most), divided }
    }

    /// Waits for a permit, first come first served among requests with the same purpose.
    pub(super) async fn place(&self, purpose: Purpose) -> Result<Place, AcquireError> {
        let (mut long, mut short) = (None, None);
        if let Some(divided) = &self.divided {
            if purpose == Purpose::Long {
                long = Some(divided.long.clone().acquire_owned().await?);
            }
            if purpose != Purpose::Engine {
                short = Some(divided.short.clone().acquire_owned().await?);
            }
        }
        let all = self.all.clone().acquire_owned().await?;
        Ok(Place(Box::new(Permits { _long: long, _short: short, all })))
    }

    /// The number of connections that are not in use.
    pub(super) fn free(&self) -> usize {
        self.all.available_permits()
    }

    /// Closes the pool: no more permits are given.
    pub(super) fn close(&self) {
        let divided = self.divided.iter().flat_map(|divided| [&divided.short, &divided.long]);
        divided.chain([&self.all]).for_each(|places| places.close());
    }
}

impl Place {
    /// True if its pool is closed.
    pub(super) fn is_closed(&self) -> bool {
        self.0.all.semaphore().is_closed()
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    /// All permits that are available for this purpose.
    fn taken(shares: &Shares, purpose: Purpose) -> Vec<Place> {
        std::iter::from_fn(|| shares.place(purpose).now_or_never().map(|place| place.expect("the pool is open"))).collect()
    }

    #[test]
    fn who_holds_a_connection_for_long_never_has_the_last_one() {
        for most in LEAST..100 {
            let shares = Shares::of(most);
            let long = taken(&shares, Purpose::Long);
            assert!(!long.is_empty() && long.len() <= most / 2, "{} of {most}", long.len());
            // The user code of a long transaction still gets connections for reads and short commits.
            let short = taken(&shares, Purpose::Short);
            assert!(!short.is_empty(), "of {most}");
            assert!(!taken(&shares, Purpose::Engine).is_empty(), "of {most}");
            drop((long, short));
            assert_eq!(taken(&shares, Purpose::Engine).len(), most, "the engine has all that nobody else has");
        }
    }

    #[test]
    fn the_default_of_eight_is_divided_as_documented() {
        let shares = Shares::of(8);
        let long = taken(&shares, Purpose::Long);
        let short = taken(&shares, Purpose::Short);
        assert_eq!((long.len(), short.len(), taken(&shares, Purpose::Engine).len()), (4, 2, 2));
    }
}
