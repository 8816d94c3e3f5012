//! The scenarios by name, and how large each is run.

mod kill;

use futures::Running;

use crate::ground::{Ground, Kind};
use crate::stage::Report;

mod futures {
    use std::pin::Pin;

    use super::Report;
    use crate::Failure;

    /// A scenario under way.
    pub type Running<'g> = Pin<Box<dyn Future<Output = Result<Report, Failure>> + 'g>>;
}

/// How large a scenario is run.
#[derive(Debug, Clone, Copy)]
pub struct Size {
    pub is_short: bool,
    pub kills: Option<u64>,
    pub transitions: Option<u64>,
    pub seconds: Option<u64>,
    pub seed: u64,
}

impl Size {
    pub fn kills(&self, short: u64, full: u64) -> u64 {
        self.kills.unwrap_or(if self.is_short { short } else { full })
    }

    pub fn transitions(&self, short: u64, full: u64) -> u64 {
        self.transitions.unwrap_or(if self.is_short { short } else { full })
    }

    pub fn seconds(&self, short: u64, full: u64) -> u64 {
        self.seconds.unwrap_or(if self.is_short { short } else { full })
    }
}

/// One kind of fault.
pub struct Scenario {
    pub name: &'static str,
    /// What happens, and what must hold all the same.
    pub says: &'static str,
    pub on: &'static [Kind],
    pub run: for<'g> fn(&'g mut Ground, Kind, Size) -> Running<'g>,
}

const BOTH: &[Kind] = &[Kind::Sqlite, Kind::Postgres];
const POSTGRES: &[Kind] = &[Kind::Postgres];
const SQLITE: &[Kind] = &[Kind::Sqlite];

pub const ALL: [Scenario; 1] = [Scenario {
    name: "kill",
    says: "processes under load are killed by SIGKILL again and again",
    on: BOTH,
    run: |ground, kind, size| Box::pin(kill::run(ground, kind, size)),
}];
