//! A retry directive after parsing.

use std::time::Duration;

use syn::Path;

/// A parsed directive.
pub enum Retry {
    /// `none`.
    Never,
    Policy(Box<Policy>),
}

/// A complete policy: every value that was not given has its default.
pub struct Policy {
    pub max_attempts: Option<u32>,
    pub min: Duration,
    pub max: Duration,
    pub backoff: f64,
    pub jitter: f64,
    pub within: Option<Duration>,
    pub give_up_on: Vec<syn::Type>,
    pub give_up_if: Option<Path>,
    pub delay: Option<Path>,
    pub catch: Option<Path>,
}
