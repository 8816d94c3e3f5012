//! Redaction: the removal of secrets from texts before they are stored, logged or shown.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use crate::guard;

/// The kind of a text that is to be redacted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum RedactableKind {
    /// The error text of an attempt, before it is stored and logged.
    Error,
    /// The payload of an event as JSON, before a person sees it.
    Payload,
    /// The record of an instance as JSON, before a person sees it.
    Record,
}

/// A text that is about to be stored and logged, or shown to a person.
#[derive(Clone, Copy)]
#[non_exhaustive]
pub struct Redactable<'a> {
    /// The kind of the text.
    pub kind: RedactableKind,
    /// The name of the machine that the text belongs to.
    pub machine: &'a str,
    /// The name of the verb for an error, and of the event for a payload; empty for a record.
    pub name: &'a str,
    /// The text itself. The text of a payload or a record is JSON.
    pub text: &'a str,
}

impl<'a> Redactable<'a> {
    /// The error text of an attempt of `verb`.
    pub fn error(machine: &'a str, verb: &'a str, text: &'a str) -> Redactable<'a> {
        Redactable { kind: RedactableKind::Error, machine, name: verb, text }
    }

    /// The payload of an event.
    pub fn payload(machine: &'a str, event: &'a str, json: &'a str) -> Redactable<'a> {
        Redactable { kind: RedactableKind::Payload, machine, name: event, text: json }
    }

    /// The record of an instance.
    pub fn record(machine: &'a str, json: &'a str) -> Redactable<'a> {
        Redactable { kind: RedactableKind::Record, machine, name: "", text: json }
    }
}

/// The output leaves out the text, because it may contain secrets.
impl fmt::Debug for Redactable<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} of {} bytes, `{}` of `{}`", self.kind, self.text.len(), self.name, self.machine)
    }
}

type Redact = dyn Fn(&Redactable<'_>) -> Option<String> + Send + Sync;

/// Redacts texts with the user's function. Without a function, texts stay as they are.
#[derive(Clone, Default)]
pub(crate) struct Redaction(Option<Arc<Redact>>);

/// The replacement for a text whose redaction panicked.
const WITHHELD: &str = "(withheld: the redaction panicked)";

impl Redaction {
    pub(crate) fn by(redact: impl Fn(&Redactable<'_>) -> Option<String> + Send + Sync + 'static) -> Redaction {
        Redaction(Some(Arc::new(redact)))
    }

    /// Returns the text as it may be shown. If the user's function panics, all of the text is withheld.
    pub(crate) fn of<'a>(&self, shown: Redactable<'a>) -> Cow<'a, str> {
        let Some(redact) = &self.0 else { return shown.text.into() };
        // The panic's text may itself contain a secret.
        guard::guarded("the redaction", || redact(&shown))
            .map_or_else(|_| WITHHELD.into(), |redacted| redacted.map_or(shown.text.into(), Cow::Owned))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_shown_as_the_users_function_says() {
        let redaction = Redaction::by(|shown| match shown.kind {
            RedactableKind::Error => Some(shown.text.replace("4242", "****")),
            _ => None,
        });
        assert_eq!(redaction.of(Redactable::error("payment", "created", "no card 4242")), "no card ****");
        assert_eq!(redaction.of(Redactable::record("payment", "4242")), "4242");
        assert_eq!(Redaction::default().of(Redactable::error("payment", "created", "4242")), "4242");
    }

    #[test]
    fn what_cannot_be_redacted_is_withheld() {
        let redaction = Redaction::by(|_| panic!("no rule for it"));
        assert_eq!(redaction.of(Redactable::payload("payment", "Paid", "4242")), WITHHELD);
    }

    #[test]
    fn what_is_about_to_be_redacted_is_not_in_its_debug_text() {
        assert_eq!(format!("{:?}", Redactable::payload("payment", "Paid", "4242")), "Payload of 4 bytes, `Paid` of `payment`");
    }
}
