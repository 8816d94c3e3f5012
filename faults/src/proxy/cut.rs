//! Follows the protocol of a connection and decides whether to cut it.

use serde::{Deserialize, Serialize};

use super::wire::Frame;
use crate::random::Random;

/// The frequency of cuts at each place: one in this many times; 0 is never.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
pub struct Cuts {
    /// Before the commit reaches the server.
    pub before_commit: u64,
    /// After the server has committed, before its answer reaches the client.
    pub after_commit: u64,
    /// After a request has reached the server, before the answer.
    pub after_request: u64,
    /// After half of an answer has reached the client.
    pub in_answer: u64,
}

/// A place at which a connection is cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CutPoint {
    BeforeCommit,
    AfterCommit,
    AfterRequest,
    InAnswer,
}

/// The treatment of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Delivery {
    Forward,
    /// Cut the connection without forwarding the message.
    CutBefore(CutPoint),
    /// Forward half of the message, then cut.
    CutInside(CutPoint),
    /// Forward the message, then cut.
    CutBehind(CutPoint),
}

/// The state of one connection.
#[derive(Debug, Default)]
pub struct ConnectionState {
    /// The place of the cut at the next answer, if one is planned.
    planned: Option<CutPoint>,
}

impl ConnectionState {
    /// The client sends a message.
    pub fn on_request(&mut self, frame: &Frame, cuts: &Cuts, random: &mut Random) -> Delivery {
        let mut draws = |times: u64| times > 0 && random.one_in(times);
        if self.planned.is_some() {
            return Delivery::Forward;
        }
        if frame.statement().is_some_and(is_commit) {
            if draws(cuts.before_commit) {
                return Delivery::CutBefore(CutPoint::BeforeCommit);
            }
            if draws(cuts.after_commit) {
                self.planned = Some(CutPoint::AfterCommit);
            }
            return Delivery::Forward;
        }
        // A query, or the sync after parse and bind. The server begins its work with this message.
        if matches!(frame.tag(), b'Q' | b'S') {
            if draws(cuts.after_request) {
                return Delivery::CutBehind(CutPoint::AfterRequest);
            }
            if draws(cuts.in_answer) {
                self.planned = Some(CutPoint::InAnswer);
            }
        }
        Delivery::Forward
    }

    /// The server sends a message.
    pub fn on_answer(&mut self, frame: &Frame) -> Delivery {
        match self.planned {
            // This answer proves that the server has committed.
            Some(cut_point @ CutPoint::AfterCommit) if frame.command() == Some("COMMIT") => Delivery::CutBefore(cut_point),
            Some(cut_point @ CutPoint::InAnswer) if matches!(frame.tag(), b'C' | b'D') => Delivery::CutInside(cut_point),
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
