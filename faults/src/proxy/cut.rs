//! Where in the protocol a connection is, and whether it is cut there.

use serde::{Deserialize, Serialize};

use super::wire::Frame;
use crate::lots::Lots;

/// How often a connection is cut at each place: once in so many times; 0 is never.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
pub struct Cuts {
    /// The commit does not reach the server.
    pub before_commit: u64,
    /// The server has committed, and its answer does not reach the client.
    pub after_commit: u64,
    /// A request reached the server, and nothing else does.
    pub after_request: u64,
    /// Half of an answer reaches the client.
    pub in_answer: u64,
}

/// A place at which a connection was cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    BeforeCommit,
    AfterCommit,
    AfterRequest,
    InAnswer,
}

/// What becomes of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Delivery {
    Forward,
    /// The message does not go through.
    CutBefore(Place),
    /// Half of it does.
    CutInside(Place),
    /// It does, and is the last one.
    CutBehind(Place),
}

/// What is known of one connection.
#[derive(Debug, Default)]
pub struct Watch {
    /// The next answer of that kind is where it is cut.
    awaits: Option<Place>,
}

impl Watch {
    /// The client sends a message.
    pub fn asked(&mut self, frame: &Frame, cuts: &Cuts, lots: &mut Lots) -> Delivery {
        let mut draws = |times: u64| times > 0 && lots.one_in(times);
        if self.awaits.is_some() {
            return Delivery::Forward;
        }
        if frame.statement().is_some_and(is_commit) {
            if draws(cuts.before_commit) {
                return Delivery::CutBefore(Place::BeforeCommit);
            }
            if draws(cuts.after_commit) {
                self.awaits = Some(Place::AfterCommit);
            }
            return Delivery::Forward;
        }
        // A query, or the sync behind what was parsed and bound: from here on the server works.
        if matches!(frame.tag(), b'Q' | b'S') {
            if draws(cuts.after_request) {
                return Delivery::CutBehind(Place::AfterRequest);
            }
            if draws(cuts.in_answer) {
                self.awaits = Some(Place::InAnswer);
            }
        }
        Delivery::Forward
    }

    /// The server sends a message.
    pub fn answered(&mut self, frame: &Frame) -> Delivery {
        match self.awaits {
            // Only now it is certain that the server committed.
            Some(place @ Place::AfterCommit) if frame.command() == Some("COMMIT") => Delivery::CutBefore(place),
            Some(place @ Place::InAnswer) if matches!(frame.tag(), b'C' | b'D') => Delivery::CutInside(place),
            _ => Delivery::Forward,
        }
    }
}

fn is_commit(statement: &str) -> bool {
    statement.trim_end_matches([';', ' ', '\n']).rsplit(';').next().is_some_and(|last| last.trim().eq_ignore_ascii_case("commit"))
}

#[cfg(test)]
mod tests {
    use super::is_commit;

    #[test]
    fn a_commit_is_known_alone_and_behind_others() {
        assert!(["commit", "COMMIT;", "select 1; commit", "select 1; Commit ;"].iter().all(|text| is_commit(text)));
        assert!(["begin", "select 'commit'", "commit; begin", "committed"].iter().all(|text| !is_commit(text)));
    }
}
