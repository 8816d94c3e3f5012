//! The filter for instances, which several commands have.

use std::time::Duration;

use clap::Args as ClapArgs;
use fsm_core::duration;
use fsm_core::instance::Status;
use fsm_core::search::SearchField;

/// A filter for instances.
#[derive(Debug, Clone, Default, ClapArgs)]
pub struct Wanted {
    /// Only instances in this state
    #[arg(long)]
    pub state: Option<String>,
    /// Only instances with this status: running, completed, error or cancelled
    #[arg(long)]
    pub status: Option<Status>,
    /// Only instances in error or being retried whose error contains this text, ignoring case
    #[arg(long, value_name = "TEXT")]
    pub error: Option<String>,
    /// Only those whose key begins so, like `2026-*`; in the order of their keys
    #[arg(long = "key", value_name = "PREFIX*", value_parser = prefix)]
    pub key_prefix: Option<String>,
    /// Only those whose search field has this value, like `customer=c-77`; in the order of their keys. Several fields all have to match
    #[arg(long = "where", value_name = "FIELD=VALUE", value_parser = search_field)]
    pub search: Vec<SearchField>,
    /// Only instances whose open attempt follows a failed one
    #[arg(long)]
    pub retrying: bool,
    /// Only instances that have not changed for this time, like `1h30m`
    #[arg(long, value_name = "DURATION", value_parser = duration::parse)]
    pub older: Option<Duration>,
    /// Only paused instances
    #[arg(long)]
    pub paused: bool,
}

impl Wanted {
    /// Returns true if any condition is set.
    pub fn is_some(&self) -> bool {
        self.is_by_key()
            || self.state.is_some()
            || self.status.is_some()
            || self.error.is_some()
            || self.retrying
            || self.older.is_some()
            || self.paused
    }

    /// Returns true if the list is in the order of the keys.
    pub fn is_by_key(&self) -> bool {
        self.key_prefix.is_some() || !self.search.is_empty()
    }
}

/// The prefix of `PREFIX*`.
fn prefix(pattern: &str) -> Result<String, String> {
    let prefix = pattern.strip_suffix('*').ok_or("it ends with `*`, like `2026-*`; `fsm show` shows one instance")?;
    Ok(prefix.to_owned())
}

fn search_field(text: &str) -> Result<SearchField, String> {
    let (name, value) = text.split_once('=').ok_or("it is a field and its value, like `customer=c-77`")?;
    Ok(SearchField::new(name, value))
}
