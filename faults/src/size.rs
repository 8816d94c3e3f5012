//! The size of a scenario's run.

/// The size of a run.
#[derive(Debug, Clone, Copy)]
pub struct Size {
    pub is_short: bool,
    pub kills: Option<u64>,
    pub transitions: Option<u64>,
    pub seconds: Option<u64>,
    pub minutes: Option<u64>,
    pub seed: u64,
}

impl Size {
    /// The number of faults.
    pub fn kills(&self, short: u64, full: u64) -> u64 {
        self.kills.unwrap_or(if self.is_short { short } else { full })
    }

    /// The minimum number of committed transitions.
    pub fn transitions(&self, short: u64, full: u64) -> u64 {
        self.transitions.unwrap_or(if self.is_short { short } else { full })
    }

    /// The duration of a fault without another end.
    pub fn seconds(&self, short: u64, full: u64) -> u64 {
        self.seconds.unwrap_or(if self.is_short { short } else { full })
    }
}
