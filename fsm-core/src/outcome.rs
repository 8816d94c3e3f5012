//! The input of a decision from the runtime: the outcome of an attempt and the requests of its verb.

use std::borrow::Cow;
use std::fmt;
use std::time::Duration;

use crate::ids::CallId;
use crate::machine::Due;
use crate::priority::Priority;
use crate::retry::RetryAdvice;
use crate::search::SearchField;
use crate::time::Timestamp;

/// An encoded event.
#[derive(Clone, PartialEq)]
pub struct Event {
    /// The name of the event type.
    pub name: String,
    /// JSON, as bytes.
    pub payload: Vec<u8>,
}

/// An event that a verb sends to another instance. It is committed with the transition of the sender.
#[derive(Debug, Clone, PartialEq)]
pub struct Outgoing {
    /// The id of the call that the event becomes when it is taken.
    pub id: CallId,
    /// The receiver's machine.
    pub machine: String,
    /// The receiver's key.
    pub key: String,
    /// The event.
    pub event: Event,
    /// The earliest delivery; `None` for immediate delivery.
    pub deliver_at: Option<Timestamp>,
    /// The attempt fails if the receiver refuses the event.
    pub is_required: bool,
    /// The search fields of the receiver if the event creates it.
    pub search: Vec<SearchField>,
    /// The priority of the call.
    pub priority: Priority,
}

impl Outgoing {
    /// An event that is delivered at once, with a normal priority, and without search fields.
    pub fn new(id: CallId, machine: &str, key: &str, event: Event) -> Outgoing {
        let (machine, key) = (machine.to_owned(), key.to_owned());
        Outgoing { id, machine, key, event, deliver_at: None, is_required: false, search: Vec::new(), priority: Priority::Normal }
    }
}

/// A child that a verb starts. It is created with the transition of the parent.
#[derive(Debug, Clone, PartialEq)]
pub struct Child {
    /// The id of its first call.
    pub id: CallId,
    /// Its machine.
    pub machine: String,
    /// Its key.
    pub key: String,
    /// The event that starts it.
    pub event: Event,
    /// Its search fields.
    pub search: Vec<SearchField>,
    /// It is not cancelled with its parent.
    pub is_detached: bool,
    /// The priority of its first call.
    pub priority: Priority,
    /// The event type that is delivered to the parent when this child has ended, if the parent's machine has it.
    pub end_event: Option<String>,
    /// The event type that is delivered to the parent when this child comes into error, if the parent's machine has it.
    pub failure_event: Option<String>,
}

/// The requests that a verb made of the engine. They are dropped unless the attempt succeeds.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct VerbRequests {
    /// The event that the instance takes next, before its inbox.
    pub next: Option<Event>,
    /// Events for other instances.
    pub sends: Vec<Outgoing>,
    /// Delayed sends of earlier attempts that are cancelled, by the calls that they would become.
    pub unsends: Vec<CallId>,
    /// The children that are started.
    pub children: Vec<Child>,
}

/// The error of a failed attempt, with its retry advice.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// The error text, at most 8 KiB.
    pub error: String,
    /// The retry advice of the error or of the delay function.
    pub advice: RetryAdvice,
}

impl Problem {
    /// A problem whose text any database accepts.
    pub fn new(error: &str, advice: RetryAdvice) -> Problem {
        Problem { error: fit(error).into_owned(), advice }
    }
}

/// The maximum length of a stored error text, in bytes.
const LONGEST_ERROR: usize = 8 * 1024;

/// The first 8 KiB of the text, without NUL, which PostgreSQL rejects.
pub fn fit(text: &str) -> Cow<'_, str> {
    let cut = &text[..text.floor_char_boundary(LONGEST_ERROR)];
    if !cut.contains('\0') {
        return cut.into();
    }
    let mut clean = cut.replace('\0', "\u{fffd}");
    clean.truncate(clean.floor_char_boundary(LONGEST_ERROR));
    clean.into()
}

/// The outcome of an attempt.
#[derive(Clone, PartialEq)]
pub enum Outcome {
    /// The verb returned `Ok`.
    Success {
        /// The new record; `None` if the verb takes no record.
        record: Option<Vec<u8>>,
        /// The requests of the verb.
        verb_requests: VerbRequests,
        /// The result of the computed timer of the state that is entered, if there is one.
        timer: Option<Due>,
        /// The values of the search fields, if the record or its search fields changed.
        search: Vec<SearchField>,
    },
    /// The verb returned an error, panicked, ran out of time, or its input could not be decoded.
    Failure(Problem),
    /// The verb returned a snooze: nothing failed, and the call runs again after `wait`.
    Snoozed {
        /// The wait from the end of this attempt.
        wait: Duration,
    },
    /// The worker's lease expired.
    Lost,
    /// The worker released the attempt during its graceful shutdown.
    Released,
}

impl Outcome {
    /// The name in log lines.
    pub fn word(&self) -> &'static str {
        match self {
            Outcome::Success { .. } => "success",
            Outcome::Failure(_) => "error",
            Outcome::Snoozed { .. } => "snoozed",
            Outcome::Lost => "lost",
            Outcome::Released => "released",
        }
    }

    /// The events that the verb sends to other instances.
    pub fn sends(&self) -> &[Outgoing] {
        match self {
            Outcome::Success { verb_requests, .. } => &verb_requests.sends,
            _ => &[],
        }
    }
}

impl Outcome {
    /// The delayed sends that the verb cancels.
    pub fn unsends(&self) -> &[CallId] {
        match self {
            Outcome::Success { verb_requests, .. } => &verb_requests.unsends,
            _ => &[],
        }
    }

    /// The children that the verb starts.
    pub fn children(&self) -> &[Child] {
        match self {
            Outcome::Success { verb_requests, .. } => &verb_requests.children,
            _ => &[],
        }
    }

    /// True if nothing of it concerns another instance.
    pub fn is_of_one_instance(&self) -> bool {
        self.sends().is_empty() && self.unsends().is_empty() && self.children().is_empty()
    }
}

/// Bytes that a log must not contain: `Debug` prints their number.
pub(crate) struct HiddenBytes<'b>(pub(crate) &'b [u8]);

impl fmt::Debug for HiddenBytes<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes", self.0.len())
    }
}

impl fmt::Debug for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Event { name, payload } = self;
        f.debug_struct("Event").field("name", name).field("payload", &HiddenBytes(payload)).finish()
    }
}

impl fmt::Debug for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Outcome::Success { record, verb_requests, timer, search } => f
                .debug_struct("Success")
                .field("record", &record.as_deref().map(HiddenBytes))
                .field("asks", verb_requests)
                .field("timer", timer)
                .field("search", search)
                .finish(),
            Outcome::Failure(problem) => f.debug_tuple("Failure").field(problem).finish(),
            Outcome::Snoozed { wait } => f.debug_struct("Snoozed").field("wait", wait).finish(),
            Outcome::Lost => f.write_str("Lost"),
            Outcome::Released => f.write_str("Released"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::changes::Payload;
    use crate::ids::InstanceId;
    use crate::instance::Instance;

    #[test]
    fn payloads_and_records_are_not_in_debug_texts() {
        let event = Event { name: "Paid".into(), payload: b"4242".to_vec() };
        let verb_requests = VerbRequests { next: Some(event), ..VerbRequests::default() };
        let outcome = Outcome::Success { record: Some(b"4242".to_vec()), verb_requests, timer: None, search: Vec::new() };
        let instance = Instance {
            record: Some(b"4242".to_vec()),
            ..Instance::new(InstanceId(uuid::Uuid::nil()), "payment", "o-1", Timestamp::default())
        };
        for text in [format!("{outcome:?}"), format!("{instance:?}"), format!("{:?}", Payload::Bytes(b"4242".to_vec()))] {
            assert!(text.contains("4 bytes") && !text.contains("4242") && !text.contains("52, 50"), "{text}");
        }
    }

    #[test]
    fn an_error_text_is_cut_and_holds_no_nul() {
        assert_eq!(fit("a\0b"), "a\u{fffd}b");
        for text in ["ä".repeat(LONGEST_ERROR), "\0".repeat(LONGEST_ERROR), format!("x{}", "ä".repeat(LONGEST_ERROR))] {
            let fit = fit(&text);
            assert!(fit.len() <= LONGEST_ERROR && fit.len() > LONGEST_ERROR - 4 && !fit.contains('\0'));
        }
    }
}
