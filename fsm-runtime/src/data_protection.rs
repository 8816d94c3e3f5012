//! Data protection: redaction of texts before they are stored or shown, and encryption of stored values.

use std::borrow::Cow;
use std::sync::Arc;

use fsm_core::call::Attempt;
use fsm_core::ids::CallId;
use fsm_core::instance::Instance;
use fsm_core::outcome::{Outcome, Problem};
use fsm_core::retry::RetryAdvice;
use fsm_store::encrypted::{self, Kept};

use crate::canonical::canonical;
use crate::codec::{EncryptedField, EncryptionContext, PayloadCodec};
use crate::encode;
use crate::error::Error;
use crate::guard;
use crate::redact::{Redactable, Redaction};

/// The redaction and the codec of a process. By default there is neither.
#[derive(Clone, Default)]
pub(crate) struct DataProtection {
    pub(crate) redaction: Redaction,
    pub(crate) codec: Option<Arc<dyn PayloadCodec>>,
    /// True if values that were stored without encryption are refused.
    pub(crate) requires_encryption: bool,
}

/// The reason that is shown when such a value is refused.
const UNENCRYPTED: &str = "it is stored unencrypted, and this process reads only what its codec encrypted (`require_encryption`)";

/// The instance that a value belongs to.
#[derive(Clone, Copy)]
pub(crate) struct Owner<'a> {
    pub(crate) machine: &'a str,
    pub(crate) key: &'a str,
}

impl<'a> Owner<'a> {
    pub(crate) fn of(instance: &'a Instance) -> Owner<'a> {
        Owner { machine: &instance.machine, key: &instance.key }
    }

    fn place(self, kind: EncryptedField) -> EncryptionContext<'a> {
        EncryptionContext { machine: self.machine, key: self.key, kind, call: None, name: "" }
    }

    pub(crate) fn payload(self, call: CallId) -> EncryptionContext<'a> {
        EncryptionContext { call: Some(call), ..self.place(EncryptedField::Payload) }
    }

    pub(crate) fn record(self) -> EncryptionContext<'a> {
        self.place(EncryptedField::Record)
    }

    pub(crate) fn once(self, call: CallId, name: &'a str) -> EncryptionContext<'a> {
        EncryptionContext { call: Some(call), name, ..self.place(EncryptedField::Once) }
    }

    pub(crate) fn progress(self, call: CallId) -> EncryptionContext<'a> {
        EncryptionContext { call: Some(call), ..self.place(EncryptedField::Progress) }
    }

    fn error(self) -> EncryptionContext<'a> {
        self.place(EncryptedField::Error)
    }
}

impl DataProtection {
    /// Returns an error if encryption is required and there is no codec.
    pub(crate) fn check(&self) -> Result<(), Error> {
        match self.requires_encryption && self.codec.is_none() {
            true => Err(Error::input("`require_encryption` needs a codec: give it to the builder with `.codec(…)`")),
            false => Ok(()),
        }
    }

    /// Returns a failure with its redacted error text.
    pub(crate) fn problem(&self, machine: &str, verb: &str, error: &str, advice: RetryAdvice) -> Problem {
        Problem::new(&self.redaction.of(Redactable::error(machine, verb, error)), advice)
    }

    /// Encrypts a value for storage in `place`. `Err` is the reason why it cannot be encrypted.
    pub(crate) fn encrypt(&self, place: &EncryptionContext<'_>, plain: Vec<u8>) -> Result<Vec<u8>, String> {
        match &self.codec {
            None => Ok(plain),
            Some(codec) => encoded(&**codec, place, &plain).map(encrypted::mark),
        }
    }

    /// Decrypts a value that was stored in `place`. `Err` is the reason why it cannot be read.
    pub(crate) fn open<'b>(&self, place: &EncryptionContext<'_>, bytes: &'b [u8]) -> Result<Cow<'b, [u8]>, String> {
        match encrypted::kept(bytes) {
            Kept::Plain(_) if self.requires_encryption && place.kind != EncryptedField::Payload => Err(UNENCRYPTED.to_owned()),
            Kept::Plain(plain) => Ok(plain.into()),
            Kept::Encrypted(encoded) => self.decoded(place, encoded).map(Cow::Owned),
            Kept::Damaged => Err("it is damaged".to_owned()),
            Kept::Caught { call, attempts, error, event } => {
                let event = self.open(&EncryptionContext { call: Some(call), ..*place }, event)?;
                let owner = Owner { machine: place.machine, key: place.key };
                Ok(encrypted::catch_json(&event, &self.open_error(owner, error), attempts).into())
            }
        }
    }

    /// Decrypts the payload of an attempt. `of_timer` is true if the call began with the end of a timer; the engine wrote that payload and
    /// it is not secret. `Err` is the reason why it cannot be read.
    pub(crate) fn open_payload<'b>(
        &self,
        owner: Owner<'_>,
        attempt: &Attempt,
        of_timer: bool,
        bytes: &'b [u8],
    ) -> Result<Cow<'b, [u8]>, String> {
        let is_admitted = match encrypted::kept(bytes) {
            _ if !self.requires_encryption => true,
            Kept::Encrypted(_) | Kept::Damaged => true,
            Kept::Plain(_) => of_timer,
            // If the payload of the failed call was deleted, its event is `null`.
            Kept::Caught { event, .. } => {
                attempt.is_catch() && (of_timer || event == b"null" || matches!(encrypted::kept(event), Kept::Encrypted(_)))
            }
        };
        if is_admitted { self.open(&owner.payload(attempt.call), bytes) } else { Err(UNENCRYPTED.to_owned()) }
    }

    /// Encrypts an error text for storage.
    pub(crate) fn encrypt_error(&self, owner: Owner<'_>, error: String) -> String {
        let Some(codec) = &self.codec else { return error };
        match encoded(&**codec, &owner.error(), error.as_bytes()) {
            Ok(encoded) => encrypted::mark_text(&encoded),
            Err(why) => format!("(withheld: {why})"),
        }
    }

    /// Decrypts a stored error text for people, or returns the reason why it cannot be read.
    pub(crate) fn open_error<'t>(&self, owner: Owner<'_>, text: &'t str) -> Cow<'t, str> {
        let opened = match encrypted::kept_text(text) {
            None => return text.into(),
            Some(Err(())) => Err("it is damaged".to_owned()),
            Some(Ok(encoded)) => self.decoded(&owner.error(), &encoded),
        };
        match opened {
            Ok(plain) => String::from_utf8_lossy(&plain).into_owned().into(),
            Err(why) => format!("(the error cannot be read: {why})").into(),
        }
    }

    /// Encrypts the outcome of an attempt for storage. `fresh` is the id of the call that its next event begins.
    pub(crate) fn encrypt_outcome(&self, owner: Owner<'_>, outcome: Outcome, fresh: CallId) -> Result<Outcome, String> {
        if self.codec.is_none() {
            return Ok(outcome);
        }
        Ok(match outcome {
            Outcome::Success { record, mut verb_requests, timer, search } => {
                let record = record.map(|record| self.encrypt(&owner.record(), record)).transpose()?;
                if let Some(next) = &mut verb_requests.next {
                    next.payload = self.encrypt(&owner.payload(fresh), std::mem::take(&mut next.payload))?;
                }
                for sent in &mut verb_requests.sends {
                    let payload = std::mem::take(&mut sent.event.payload);
                    sent.event.payload = self.encrypt(&Owner { machine: &sent.machine, key: &sent.key }.payload(sent.id), payload)?;
                }
                for child in &mut verb_requests.children {
                    let payload = std::mem::take(&mut child.event.payload);
                    child.event.payload = self.encrypt(&Owner { machine: &child.machine, key: &child.key }.payload(child.id), payload)?;
                }
                Outcome::Success { record, verb_requests, timer, search }
            }
            Outcome::Failure(problem) => Outcome::Failure(Problem { error: self.encrypt_error(owner, problem.error), ..problem }),
            other => other,
        })
    }

    /// Returns the instance with a readable error. Its record stays encrypted.
    pub(crate) fn readable(&self, mut instance: Instance) -> Instance {
        let error = instance.error.take();
        instance.error = error.map(|error| self.open_error(Owner::of(&instance), &error).into_owned());
        instance
    }

    /// Decrypts the errors of attempts.
    pub(crate) fn readable_attempts(&self, owner: Owner<'_>, attempts: &mut [Attempt]) {
        for error in attempts.iter_mut().filter_map(|attempt| attempt.error.as_mut()) {
            *error = self.open_error(owner, error).into_owned();
        }
    }

    /// Returns the digests that identify an event sent under a dedup id. They do not depend on the order of maps. The first one is stored.
    /// `Err` is the reason why there are none.
    pub(crate) fn digests(&self, owner: Owner<'_>, payload: &[u8]) -> Result<Vec<Vec<u8>>, String> {
        let payload = canonical(payload);
        let unkeyed = encode::digest("", &payload);
        let Some(codec) = &self.codec else { return Ok(vec![unkeyed]) };
        // The digest covers the owner, so that equal content of another instance has another digest.
        let content = [owner.place(EncryptedField::Payload).to_bytes(), payload].concat();
        let mut digests = guard::guarded("the codec", || codec.digests(&content))?;
        if digests.is_empty() {
            return Err("the codec gave no digest of it".to_owned());
        }
        // The digest of requests that were stored before there was a codec.
        digests.push(unkeyed);
        Ok(digests)
    }

    fn decoded(&self, place: &EncryptionContext<'_>, encoded: &[u8]) -> Result<Vec<u8>, String> {
        let Some(codec) = &self.codec else {
            return Err("it is encrypted, and this process has no codec: give it to the builder with `.codec(…)`".to_owned());
        };
        let error = match guard::guarded("the codec", || codec.decode(place, encoded))? {
            Ok(decoded) => return Ok(decoded),
            Err(error) => error,
        };
        let text = guard::guarded("the codec's error", || error.to_string());
        let ended = guard::dropped("the codec's error", error);
        Err(text.and_then(|text| ended.map(|()| text)).unwrap_or_else(|why| why))
    }
}

fn encoded(codec: &dyn PayloadCodec, place: &EncryptionContext<'_>, plain: &[u8]) -> Result<Vec<u8>, String> {
    guard::guarded("the codec", || codec.encode(place, plain))
}
