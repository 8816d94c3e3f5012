//! The steps of a schedule, as values. A step that does not apply does nothing.

use std::fmt;

use fsm_core::decide::operate::Act as Operating;
use fsm_core::retry::RetryAdvice;

use crate::model::queue::KEYS;

/// One step: something that a process does, or that happens to it.
#[derive(Debug, Clone)]
pub struct Step {
    pub process: usize,
    pub act: Act,
}

/// The method by which a commit lane handles a batch of short requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum How {
    Locked,
    AtOnce,
    Ahead,
}

#[derive(Debug, Clone)]
pub enum Act {
    /// A caller sends an event.
    Send {
        key: usize,
        event: &'static str,
        dedup: Option<Dedup>,
        after_s: Option<u64>,
        reject_if_busy: bool,
    },
    /// An operator requests an operation.
    Operate {
        key: usize,
        act: Operating,
        request_id: Option<u8>,
    },
    /// A commit lane takes requests. It locks, reads and decides, or only reads the instance rows.
    Begin {
        most: usize,
        grants: bool,
        how: How,
    },
    /// The same commit continues: it decides what it only read, or it writes and commits.
    Finish {
        which: usize,
        end: End,
    },
    /// A commit whose answer was lost reaches the database, or never does.
    Land {
        which: usize,
        commits: bool,
    },
    /// A broken engine writes the second half of what it writes in two transactions.
    SecondHalf,
    Claim {
        limit: usize,
        end: End,
    },
    /// A verb ends. With `own_tx`, its end is committed in the transaction that the verb wrote in.
    EndVerb {
        which: usize,
        outcome: Ending,
        own_tx: bool,
    },
    LookForTimers,
    /// The outbox is scanned, and due lines are delivered.
    Deliver,
    /// Sessions whose processes are gone are ended.
    TakeOver,
    LookForIdleAttempts,
    ReleaseIdleAttempts,
    LookForOrphans,
    Bury,
    /// An ended instance is deleted, or the old history of a live one.
    Prune {
        key: usize,
    },
    Renew,
    Advance {
        us: i64,
    },
    /// Sets the difference of the process's clock.
    Skew {
        us: i64,
    },
    /// `Stall` is SIGSTOP, and `Wake` is SIGCONT.
    Stall,
    Wake,
    /// `Cut`: the connection that renews the lease hangs. `Mend`: it works again.
    Cut,
    Mend,
    ShutDown,
    Crash {
        adrift: bool,
    },
    Start,
    DatabaseDown,
    DatabaseUp,
}

#[derive(Debug, Clone, Copy)]
pub struct Dedup {
    pub id: u8,
    pub other_content: bool,
}

/// The end of a commit, for the process that requested it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    Commits,
    /// The commit is rolled back, and the process learns it.
    Fails,
    /// The outcome is unknown.
    AnswerLost,
}

/// The end of a verb.
#[derive(Debug, Clone)]
pub enum Ending {
    Success {
        next: Option<&'static str>,
        sends: Vec<(usize, &'static str, Option<u64>)>,
        /// The delayed events that the instance has sent to other partitions are cancelled.
        cancels: bool,
    },
    Failure(RetryAdvice),
    /// After this many seconds the call runs again.
    Snooze(u64),
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let us = |us: &i64| format!("{} s", *us as f64 / 1e6);
        write!(f, "process {}: ", self.process)?;
        match &self.act {
            Act::Send { key, event, dedup, after_s, reject_if_busy } => {
                write!(f, "sends `{event}` to `{}`", KEYS[*key])?;
                if let Some(Dedup { id, other_content }) = dedup {
                    write!(f, ", dedup id {id}{}", if *other_content { " with other content" } else { "" })?;
                }
                after_s.iter().try_for_each(|s| write!(f, ", after {s} s"))?;
                f.write_str(if *reject_if_busy { ", or refuse" } else { "" })
            }
            Act::Operate { key, act, request_id } => {
                write!(f, "an operator asks for {act:?} of `{}`", KEYS[*key])?;
                request_id.iter().try_for_each(|id| write!(f, ", request id {id}"))
            }
            Act::Begin { most, grants, how } => {
                let how = match how {
                    How::Locked => "decides",
                    How::AtOnce => "looks without a lock",
                    How::Ahead => "looks before its turn",
                };
                write!(f, "takes up to {most} requests and {how}{}", if *grants { " with free slots" } else { "" })
            }
            Act::Finish { which, end } => write!(f, "commit {which}: {end:?}"),
            Act::Land { which, commits } => write!(f, "(adrift {which}) {}", if *commits { "commits late" } else { "is rolled back late" }),
            Act::Claim { limit, end } => write!(f, "claims up to {limit}: {end:?}"),
            Act::EndVerb { which, outcome, own_tx } => {
                write!(f, "verb {which} ends: {outcome:?}{}", if *own_tx { " in its own transaction" } else { "" })
            }
            Act::Advance { us: span } => write!(f, "(all) {} pass", us(span)),
            Act::Skew { us: skew } => write!(f, "its clock is now {} ahead", us(skew)),
            Act::DatabaseDown => f.write_str("(all) the database goes down"),
            Act::DatabaseUp => f.write_str("(all) the database is up again"),
            Act::Prune { key } => write!(f, "prunes `{}`", KEYS[*key]),
            other => write!(f, "{other:?}"),
        }
    }
}
