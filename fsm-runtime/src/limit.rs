//! Limits as a program declares them: how many calls run at once and how many start in a time, over all processes of a database.

use std::collections::BTreeMap;
use std::time::Duration;

use fsm_core::limit::{Limit as Setting, Rate, SEPARATOR};
use fsm_store::limits::StoredLimit;

use crate::catalog::Catalog;
use crate::error::Error;

/// The maximum length of the name of a limit, in bytes.
const LONGEST_NAME: usize = 100;

/// Begins the setting of a limit, for [`Builder::limit`](crate::runtime::Builder::limit).
///
/// ```
/// # use fsm_runtime::limit::Limit;
/// # use fsm_runtime::runtime::Runtime;
/// let builder = Runtime::builder()
///     .limit("stripe", Limit::concurrency(5).per_second(20))      // for verbs with `#[verb(limit = "stripe")]`
///     .limit("mail", Limit::per_minute(600).burst(50))
///     .limit("tenant", Limit::concurrency(2).by("tenant"));       // of each tenant
/// ```
#[derive(Debug, Clone, Copy)]
pub enum Limit {}

/// The setting of a limit: the maximum number of calls that run at once, a maximum rate of starts, or both.
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use = "a setting does nothing until a builder gets it"]
pub struct LimitSetting {
    pub(crate) setting: Setting,
}

impl Limit {
    /// At most so many calls run at once; 0 stops all starts.
    pub fn concurrency(calls: u32) -> LimitSetting {
        LimitSetting { setting: Setting { concurrency: Some(calls), ..Setting::default() } }
    }

    /// At most so many calls start in a second. See [`LimitSetting::per_second`].
    pub fn per_second(starts: u32) -> LimitSetting {
        LimitSetting { setting: Setting::default() }.per_second(starts)
    }

    /// At most so many calls start in a minute, spaced evenly.
    pub fn per_minute(starts: u32) -> LimitSetting {
        LimitSetting { setting: Setting::default() }.per_minute(starts)
    }

    /// At most so many calls start in an hour, spaced evenly.
    pub fn per_hour(starts: u32) -> LimitSetting {
        LimitSetting { setting: Setting::default() }.per_hour(starts)
    }
}

impl LimitSetting {
    /// At most so many calls start in a second, spaced evenly: with 20, one every 50 ms. A start that comes up to 50 ms late is made up for.
    /// So a second may have one start more, or 5 % more above a rate of 20. 0 stops all starts. A second rate replaces the first.
    pub fn per_second(self, starts: u32) -> LimitSetting {
        self.rate(starts, Duration::from_secs(1))
    }

    /// At most so many calls start in a minute, spaced evenly.
    pub fn per_minute(self, starts: u32) -> LimitSetting {
        self.rate(starts, Duration::from_secs(60))
    }

    /// At most so many calls start in an hour, spaced evenly.
    pub fn per_hour(self, starts: u32) -> LimitSetting {
        self.rate(starts, Duration::from_secs(3600))
    }

    /// The number of calls that may start at the same time after a pause in which fewer started; 1 by default, at least 1. It has no effect
    /// without a rate.
    pub fn burst(mut self, starts: u32) -> LimitSetting {
        if let Some(rate) = &mut self.setting.rate {
            rate.burst = starts.max(1);
        }
        self
    }

    /// Each value of this search field has the numbers for itself: with `Limit::concurrency(2).by("tenant")`, two calls of each tenant run at once.
    /// Instances without a value share as one. Every machine with such a verb declares the field: `keeps Order, search(tenant);`. A second
    /// field replaces the first.
    ///
    /// A call has the value that its instance has when the call is due. The value of a call that runs does not change.
    pub fn by(mut self, field: impl Into<String>) -> LimitSetting {
        self.setting.by = Some(field.into());
        self
    }

    fn rate(mut self, starts: u32, per: Duration) -> LimitSetting {
        let burst = self.setting.rate.map_or(1, |rate| rate.burst);
        self.setting.rate = Some(Rate { starts, per, burst });
        self
    }
}

/// The limits that a builder declares, by name.
pub(crate) type DeclaredLimits = BTreeMap<String, LimitSetting>;

/// Returns an error if a name cannot be one.
pub(crate) fn check_names(declared: &DeclaredLimits) -> Result<(), Error> {
    if let Some(name) = declared.keys().find(|name| name.is_empty() || name.len() > LONGEST_NAME) {
        let length = name.len();
        return Err(Error::input(format!("the name of a limit has 1 to {LONGEST_NAME} bytes, not {length}: `{}`", name.escape_debug())));
    }
    match declared.keys().find(|name| name.contains(SEPARATOR)) {
        None => Ok(()),
        Some(name) => Err(Error::input(format!("the name of a limit does not contain `{SEPARATOR}`: `{}`", name.escape_debug()))),
    }
}

/// Returns an error that names every verb whose limit is not in `known`, and the limits that exist; or else every verb whose limit is by a
/// search field that its machine does not have.
pub(crate) fn check_verbs(catalog: &Catalog, known: &[StoredLimit]) -> Result<(), Error> {
    let named = |limit: &str| known.iter().find(|known| known.name == limit);
    let (mut missing, mut without_field) = (Vec::new(), Vec::new());
    let verbs = catalog.iter().flat_map(|machine| machine.machine.verbs.iter().map(move |verb| (&machine.machine, verb)));
    for (machine, verb, name) in verbs.filter_map(|(machine, verb)| Some((machine, verb, verb.limit.as_deref()?))) {
        let has = format!("the verb `{}` of \"{}\" has the limit \"{name}\"", verb.name, machine.name);
        match named(name).map(|known| known.limit.by.as_ref()) {
            None => missing.push(has),
            Some(Some(field)) if !machine.search.contains(field) => {
                without_field.push(format!("{has}, which is by `{field}`, and \"{}\" has no such search field", machine.name));
            }
            Some(_) => {}
        }
    }
    if missing.is_empty() && without_field.is_empty() {
        return Ok(());
    }
    if missing.is_empty() {
        without_field.sort();
        return Err(Error::input(format!("{}; declare it with `keeps Record, search(…);` in `fsm!`", without_field.join("; "))));
    }
    missing.sort();
    let names: Vec<_> = known.iter().map(|known| format!("\"{}\"", known.name)).collect();
    let known = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
    let missing = missing.join(", ");
    Err(Error::input(format!(
        "{missing}, which is not declared; these limits exist: {known}; declare it with `.limit(\"…\", Limit::concurrency(5))`"
    )))
}
