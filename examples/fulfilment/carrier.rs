//! A stand-in for a carrier. It takes a limited number of parcels a second, and refuses the label of every tenth parcel once.

use std::fmt;
use std::sync::{Arc, Mutex};

use fsm::Timestamp;
use fsm::testing::Effects;

/// The number of parcels that the carrier takes within a second.
pub const PER_SECOND: u32 = 20;

#[derive(Debug)]
pub struct NoLabel;

#[derive(Clone, Default)]
pub struct Carrier {
    /// All parcels that were taken, and all refunds. A crash test lets the process die before and after each of them.
    pub booked: Effects,
    requests: Arc<Mutex<Vec<(Timestamp, String)>>>,
}

impl Carrier {
    pub async fn take(&self, label: &str, parcel: &str, attempt: u32, now: Timestamp) -> Result<(), NoLabel> {
        self.requests.lock().expect("nobody panics while it is locked").push((now, parcel.to_owned()));
        if attempt == 1 && parcel.ends_with("0/parcel-1") {
            return Err(NoLabel);
        }
        self.booked.keyed(label, format!("{parcel} is taken")).await;
        Ok(())
    }

    /// The parcels in the order of the requests for them.
    pub fn requested(&self) -> Vec<String> {
        self.requests.lock().expect("nobody panics while it is locked").iter().map(|(_, parcel)| parcel.clone()).collect()
    }

    /// The largest number of requests within a second.
    pub fn most_within_a_second(&self) -> usize {
        let requests = self.requests.lock().expect("nobody panics while it is locked");
        let second = std::time::Duration::from_secs(1);
        let within = |from: Timestamp| requests.iter().filter(|(at, _)| *at >= from && *at - from < second).count();
        requests.iter().map(|(at, _)| within(*at)).max().unwrap_or(0)
    }
}

impl fmt::Display for NoLabel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the carrier printed no label")
    }
}

impl std::error::Error for NoLabel {}
