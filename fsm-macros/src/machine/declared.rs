//! A machine as it was written in `fsm!`.

use std::time::Duration;

use syn::{Attribute, Ident, LitStr, Path, Type, Visibility};

use crate::retry::Retry;

/// A machine as it was written.
pub struct Declared {
    pub attributes: Vec<Attribute>,
    pub visibility: Visibility,
    pub ident: Ident,
    /// The name in the database.
    pub name: LitStr,
    pub retry: Option<Retry>,
    pub record: Option<Type>,
    /// The fields of the record under `search(…)`.
    pub search: Vec<Ident>,
    /// The search field under `fair_by`.
    pub fair_by: Option<Ident>,
    pub starts: Vec<Start>,
    pub edges: Vec<Edge>,
    pub stays: Vec<Stay>,
    pub ends: Vec<Path>,
    /// The event type of each `on` block.
    pub groups: Vec<Type>,
    /// True if every statement could be read.
    pub is_whole: bool,
    /// The words in the statements that could not be read. They may be states.
    pub skipped: Vec<String>,
}

/// A state that an instance can begin in.
pub struct Start {
    pub state: Path,
    /// The `on` block of the start.
    pub group: Option<usize>,
}

/// One edge; `any(…)` and `|` declare several.
pub struct Edge {
    pub from: Path,
    pub to: Path,
    pub after: Option<After>,
    /// True if its event does not wait for a retry, nor for an operator.
    pub interrupts: bool,
    /// The `on` block of the edge.
    pub group: Option<usize>,
}

/// One internal transition: `active stays on noted`.
pub struct Stay {
    pub state: Path,
    pub verb: Path,
    /// The `on` block of the internal transition.
    pub group: Option<usize>,
}

/// The wait of a timer.
#[derive(Clone)]
pub enum After {
    /// `after "30m"`. It has no duration if the text could not be read.
    Fixed(Option<Duration>),
    /// `after trial_length`: a function of the record.
    Computed(Path),
}
