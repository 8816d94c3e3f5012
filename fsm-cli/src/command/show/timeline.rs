//! What happened to an instance, as a drawing: a branch for each call, and on it what became of it.

use fsm_core::call::AttemptState;
use fsm_core::time::{Timestamp, micros};
use fsm_runtime::handle::history::{Entry, What};
use serde_json::{Value, json};

use crate::clean::clean;
use crate::stage::short;
use crate::table::{BAD, FAINT, GOOD, OPEN, painted};

/// The width of the column of moments.
const MOMENTS: usize = 27;

/// The drawing, a line for each entry that is shown. The last branch stays open if the story goes on.
pub(super) fn drawn(entries: &[Entry], goes_on: bool, is_shown: impl Fn(&Entry) -> bool) -> String {
    let mut text = String::new();
    let mut begun: Option<Timestamp> = None;
    for (place, entry) in entries.iter().enumerate() {
        let begins = matches!(entry.what, What::Event { .. }) || begun.is_none();
        let is_last = entries.get(place + 1).map_or(!goes_on, |next| matches!(next.what, What::Event { .. }));
        let branch = match (begins, is_last) {
            (true, _) => "●",
            (false, false) => "├",
            (false, true) => "╰",
        };
        let moment = match begun.filter(|_| !begins) {
            Some(begun) => format!("+{}", short(entry.at.since(begun))),
            None => entry.at.to_string(),
        };
        if begins {
            begun = Some(entry.at);
        }
        if !is_shown(entry) {
            continue;
        }
        let padded = format!("{moment:>MOMENTS$}");
        text.push_str(&format!("  {} {branch} {}\n", painted(&padded, FAINT), said(&entry.what)));
    }
    text
}

fn said(what: &What) -> String {
    match what {
        What::Event { event, verb } => format!("`{}` calls `{}`", clean(event), clean(verb)),
        What::Attempt { number, state, took, error, .. } => {
            let (mark, style) = match state {
                AttemptState::Success => ("✓", GOOD),
                AttemptState::Error | AttemptState::Lost => ("✗", BAD),
                AttemptState::Executing | AttemptState::Scheduled => ("▶", OPEN),
                AttemptState::Released | AttemptState::Cancelled => ("■", FAINT),
            };
            let took = took.map_or_else(String::new, |took| format!(" after {}", short(took)));
            let error = error.as_deref().map_or_else(String::new, |error| format!(": {}", clean(error)));
            format!("{} attempt {number}: {}{took}{error}", painted(mark, style), painted(state.as_str(), style))
        }
        What::Scheduled { number, wait, .. } if wait.is_zero() => format!("… attempt {number} is due at once"),
        What::Scheduled { number, at, wait, .. } => format!("… attempt {number} in {}, at {at}", short(*wait)),
        What::Exhausted { attempts: 1, .. } => format!("{} exhausted after one attempt", painted("✗", BAD)),
        What::Exhausted { attempts, .. } => format!("{} exhausted after {attempts} attempts", painted("✗", BAD)),
        What::Transition { from: Some(from), to } => format!("→ from `{}` to `{}`", clean(from), clean(to)),
        What::Transition { from: None, to } => format!("→ begins in `{}`", clean(to)),
        What::Note { kind, detail, actor } => {
            let actor = actor.as_deref().map_or_else(String::new, |actor| format!(" by {}", clean(actor)));
            let detail = detail.as_deref().map_or_else(String::new, |detail| format!(": {}", clean(detail)));
            format!("{} {kind}{actor}{detail}", painted("!", OPEN))
        }
    }
}

/// An entry as JSON.
pub(super) fn told(entry: &Entry) -> Value {
    let mut told = match &entry.what {
        What::Event { event, verb } => json!({ "kind": "event", "event": event, "verb": verb }),
        What::Attempt { number, verb, state, took, error } => {
            json!({ "kind": "attempt", "attempt": number, "verb": verb, "state": state, "took_us": took.map(micros), "error": error })
        }
        What::Scheduled { number, verb, at, wait } => {
            json!({ "kind": "scheduled", "attempt": number, "verb": verb, "scheduled_at": at.to_string(), "wait_us": micros(*wait) })
        }
        What::Exhausted { verb, attempts } => json!({ "kind": "exhausted", "verb": verb, "attempts": attempts }),
        What::Transition { from, to } => json!({ "kind": "transition", "from": from, "to": to }),
        What::Note { kind, detail, actor } => json!({ "kind": kind, "detail": detail, "actor": actor }),
    };
    told["at"] = json!(entry.at.to_string());
    told["call"] = json!(entry.call);
    told
}
