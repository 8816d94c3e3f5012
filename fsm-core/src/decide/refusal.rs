//! Refusals: the reasons for which a request changes nothing.

use std::fmt;

use crate::instance::{Instance, Status};
use crate::machine::Machine;

/// The reason for which a request changes nothing. `Display` names the instance, the rejected request and what would have been accepted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Refusal {
    /// The event does not fit the state now, nor any state after the waiting events.
    Unfit(Unfit),
    /// The instance is busy and the send does not wait, or the inbox is full.
    Busy {
        /// The machine and the key, formatted for messages.
        whose: String,
        /// The activity that keeps the instance busy.
        why: String,
    },
    /// The deduplication id was used before, for a request with other content.
    Conflict {
        /// The machine and the key, formatted for messages.
        whose: String,
        /// The deduplication id.
        dedup: String,
    },
    /// The operation is not allowed in the current state.
    NotAllowed {
        /// The machine and the key, formatted for messages.
        whose: String,
        /// The past participle of the operation, as in "cannot be retried".
        asked: &'static str,
        /// The reason.
        why: String,
    },
}

/// An event that does not fit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unfit {
    whose: String,
    stands: String,
    event: String,
    accepts: Vec<String>,
}

impl Unfit {
    /// `event` does not fit `instance` in any of the states `after`, which are its current state or the states that can follow.
    pub(crate) fn new(machine: &Machine, instance: &Instance, after: &[Option<String>], event: &str) -> Unfit {
        let stands = match (instance.status, after) {
            (status @ (Status::Completed | Status::Cancelled), _) => match &instance.state {
                Some(state) => format!("is {status} in `{state}`"),
                None => format!("is {status}"),
            },
            (_, [Some(state)]) if instance.state.as_deref() == Some(state) => format!("is in `{state}`"),
            (_, [Some(state)]) => format!("will be in `{state}`"),
            (_, [None]) => "has not begun".to_owned(),
            (_, states) => {
                let names: Vec<_> =
                    states.iter().map(|state| state.as_deref().map_or("its beginning".to_owned(), |s| format!("`{s}`"))).collect();
                format!("will be in {}", names.join(" or "))
            }
        };
        let mut accepts = Vec::new();
        if !instance.status.is_ended() {
            for name in after.iter().flat_map(|state| machine.accepts(state.as_deref())) {
                if !accepts.iter().any(|known| known == name) {
                    accepts.push(name.to_owned());
                }
            }
        }
        Unfit { whose: whose(instance), stands, event: event.to_owned(), accepts }
    }
}

/// Returns the machine and the key as every message shows them.
pub(crate) fn whose(instance: &Instance) -> String {
    format!("`{}` `{}`", instance.machine, instance.key.escape_debug())
}

impl fmt::Display for Unfit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} and takes ", self.whose, self.stands)?;
        match self.accepts.split_last() {
            None => f.write_str("no events")?,
            Some((only, [])) => write!(f, "`{only}`")?,
            Some((last, others)) => {
                let others: Vec<_> = others.iter().map(|name| format!("`{name}`")).collect();
                write!(f, "{} or `{last}`", others.join(", "))?;
            }
        }
        write!(f, ", not `{}`", self.event)
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refusal::Unfit(unfit) => unfit.fmt(f),
            Refusal::Busy { whose, why } => write!(f, "{whose} is busy: {why}"),
            Refusal::Conflict { whose, dedup } => {
                write!(
                    f,
                    "{whose} has had a request with the dedup id `{}` and other content; another request needs an id of its own",
                    dedup.escape_debug()
                )
            }
            Refusal::NotAllowed { whose, asked, why } => write!(f, "{whose} cannot be {asked}: {why}"),
        }
    }
}

impl std::error::Error for Refusal {}
