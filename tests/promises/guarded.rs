//! A panic in any code of the user that the engine calls is a failed attempt or an error to the caller, and has no other effect.

use std::cell::Cell;
use std::error::Error as StdError;
use std::fmt;
use std::future::IntoFuture;
use std::sync::Arc;
use std::task::{Context, Wake, Waker};
use std::time::Duration;

use fsm::prelude::*;
use fsm::testing::{TestBed, TestBedBuilder};
use fsm::{EncryptionContext, PayloadCodec, RetryAdvice, Retryable};
use serde::de::Deserializer;
use serde::ser::Serializer;
use serde::{Deserialize, Serialize};
use tracing_subscriber::layer::SubscriberExt;

use crate::support::promise;

const FIVE_SECONDS: Duration = Duration::from_secs(5);

thread_local! {
    /// The place that panics when it is reached next. All code of a test runs on its own thread.
    static TRAP: Cell<&'static str> = const { Cell::new("") };
}

/// Makes this place panic when it is reached next.
fn set_trap(place: &'static str) {
    TRAP.set(place);
}

/// Marks a place that panics if the trap is set for it.
fn panic_if_trapped(place: &'static str) {
    if TRAP.get() == place {
        set_trap("");
        panic!("trapped in {place}");
    }
}

/// The record of this machine.
#[derive(Debug, Clone, Default)]
struct Count(u32);

impl Serialize for Count {
    fn serialize<S: Serializer>(&self, to: S) -> std::result::Result<S::Ok, S::Error> {
        panic_if_trapped("Serialize of the record");
        self.0.serialize(to)
    }
}
impl<'de> Deserialize<'de> for Count {
    fn deserialize<D: Deserializer<'de>>(from: D) -> std::result::Result<Self, D::Error> {
        panic_if_trapped("Deserialize of the record");
        u32::deserialize(from).map(Count)
    }
}

/// The record of another machine, whose `Default` has a trap.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Beginning {
    done: u32,
}
impl Default for Beginning {
    fn default() -> Self {
        panic_if_trapped("Default of the record");
        Beginning { done: 0 }
    }
}

/// The behaviour of the verb after it has armed a trap in its first attempt.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
enum Then {
    Succeed,
    Fail,
    Hang,
    Next,
    Send,
    Once,
    Hold,
    Bomb,
    Yield,
}

#[derive(Debug, Clone)]
struct Deed(usize);

impl Serialize for Deed {
    fn serialize<S: Serializer>(&self, to: S) -> std::result::Result<S::Ok, S::Error> {
        panic_if_trapped("Serialize of the event");
        self.0.serialize(to)
    }
}
impl<'de> Deserialize<'de> for Deed {
    fn deserialize<D: Deserializer<'de>>(from: D) -> std::result::Result<Self, D::Error> {
        panic_if_trapped("Deserialize of the event");
        usize::deserialize(from).map(Deed)
    }
}
impl Drop for Deed {
    fn drop(&mut self) {
        panic_if_trapped("Drop of the event");
    }
}

#[derive(Debug, Clone, Serialize, Deserialize)]
struct Own(usize);
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Begin;

#[derive(Debug)]
struct Brittle;
impl fmt::Display for Brittle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        panic_if_trapped("Display of the error");
        f.write_str("it is brittle")
    }
}
impl StdError for Brittle {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        panic_if_trapped("source of the error");
        None
    }
}
impl Retryable for Brittle {
    fn retry(&self) -> RetryAdvice {
        panic_if_trapped("Retryable::retry");
        RetryAdvice::Default
    }
}
fsm::retryable!(Brittle);
impl Drop for Brittle {
    fn drop(&mut self) {
        panic_if_trapped("Drop of the error");
    }
}

/// A value that a verb holds while it runs.
struct Held;
impl Drop for Held {
    fn drop(&mut self) {
        panic_if_trapped("Drop of what the verb holds");
    }
}

/// A panic payload with a trap.
struct Bomb;
impl Drop for Bomb {
    fn drop(&mut self) {
        panic_if_trapped("Drop of what the panic carries");
    }
}

/// Each place, the behaviour of the verb that reaches it, and the error of the failed attempt beside the text of the panic.
const PLACES: [(&str, Then, &str); 18] = [
    ("Deserialize of the event", Then::Succeed, "the verb panicked: "),
    ("Deserialize of the record", Then::Succeed, "the verb panicked: "),
    ("Serialize of the record", Then::Succeed, "the verb panicked: "),
    ("Drop of the event", Then::Succeed, "the verb panicked: "),
    ("Drop of what the verb holds", Then::Hold, "the verb panicked: "),
    ("Drop of what the verb holds", Then::Hang, "the attempt took longer than its timeout of 50ms; and the end of the verb panicked: "),
    ("Serialize of the event", Then::Next, "does not encode as JSON: its `Serialize` panicked: "),
    ("Serialize of the event", Then::Send, "does not encode as JSON: its `Serialize` panicked: "),
    ("Serialize of the record", Then::Once, "the verb panicked: "),
    ("Display of the error", Then::Fail, "the `Display` of its error panicked: "),
    ("source of the error", Then::Fail, "its error panicked: "),
    ("Retryable::retry", Then::Fail, "it is brittle; and the `Retryable` of its error panicked: "),
    ("Drop of the error", Then::Fail, "it is brittle; and the `Drop` of its error panicked: "),
    ("the codec's encode", Then::Succeed, "its end cannot be stored: the codec panicked: "),
    ("the codec's decode", Then::Succeed, "the payload cannot be read: the codec panicked: "),
    ("Display of the codec's error", Then::Succeed, "the payload cannot be read: the codec's error panicked: "),
    ("Drop of what the panic carries", Then::Bomb, "the verb panicked: without a text"),
    ("the subscriber", Then::Yield, "the attempt's task panicked: "),
];

/// A trap in code that runs before the verb's body is armed before the send.
fn is_before_the_verb(place: &str) -> bool {
    place.starts_with("Deserialize") || place.contains("decode") || place.contains("codec's error")
}

#[verb(timeout = "50ms")]
#[retry(1, "5s")]
async fn did(ctx: &mut Ctx<'_>, record: &mut Count, event: Deed) -> Result {
    record.0 += 1;
    let Some((place, then, _)) = PLACES.get(event.0).filter(|_| ctx.attempt() == 1) else { return Ok(()) };
    if !is_before_the_verb(place) {
        set_trap(place);
    }
    match then {
        Then::Succeed => {}
        Then::Fail => return Err(Brittle.into()),
        Then::Hang => {
            let _held = Held;
            std::future::pending::<()>().await;
        }
        Then::Next => ctx.next(Deed(usize::MAX))?,
        Then::Send => {
            ctx.send::<Trapped>("other", Deed(usize::MAX))?;
        }
        Then::Once => {
            ctx.once("count", async { Ok::<_, Brittle>(Count(1)) }).await?;
        }
        Then::Hold => drop(Held),
        Then::Bomb => std::panic::panic_any(Bomb),
        Then::Yield => tokio::task::yield_now().await,
    }
    Ok(())
}

#[verb]
#[retry(1, "5s")]
async fn owned(ctx: &mut Ctx<'_>, event: Own) -> std::result::Result<(), Brittle> {
    if ctx.attempt() > 1 {
        return Ok(());
    }
    set_trap(if event.0 == 0 { "Retryable::retry" } else { "Drop of the error" });
    Err(Brittle)
}

#[verb]
#[retry(1, "5s")]
async fn begun(record: &mut Beginning, _event: Begin) -> Result {
    record.done += 1;
    Ok(())
}

fsm! {
    machine Trapped = "trapped" {
        keeps Count;
        start did | owned;
        any(did, owned) -> did | owned;
    }
}
fsm! {
    machine Beginner = "beginner" {
        keeps Beginning;
        start begun;
        begun -> begun;
    }
}

/// Turns every byte round.
struct Turning;
#[derive(Debug)]
struct Unturned;
impl fmt::Display for Unturned {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        panic_if_trapped("Display of the codec's error");
        f.write_str("it cannot be turned")
    }
}
impl StdError for Unturned {}

impl PayloadCodec for Turning {
    fn encode(&self, _: &EncryptionContext<'_>, plain: &[u8]) -> Vec<u8> {
        panic_if_trapped("the codec's encode");
        plain.iter().map(|byte| !byte).collect()
    }
    fn decode(&self, _: &EncryptionContext<'_>, encoded: &[u8]) -> std::result::Result<Vec<u8>, Box<dyn StdError + Send + Sync>> {
        panic_if_trapped("the codec's decode");
        if TRAP.get() == "Display of the codec's error" {
            return Err(Box::new(Unturned));
        }
        Ok(encoded.iter().map(|byte| !byte).collect())
    }
    fn digests(&self, content: &[u8]) -> Vec<Vec<u8>> {
        panic_if_trapped("the codec's digests");
        vec![content.to_vec()]
    }
}

fn traps() -> TestBedBuilder {
    let redact = |_: &fsm::Redactable<'_>| {
        panic_if_trapped("the redaction");
        None
    };
    TestBed::builder().only::<Trapped>().only::<Beginner>().with(move |builder| builder.codec(Turning).redact(redact))
}

/// The attempt that was just begun failed with this text and is retried; the next one succeeds.
async fn fails_and_goes_on(bed: &TestBed, key: &str, place: &str, says: &str) {
    bed.run_until_idle().await;
    assert_eq!(TRAP.get(), "", "the trap in {place} was not reached");
    let trapped = bed.machine::<Trapped>();
    let before = trapped.get(key).await.unwrap().unwrap();
    let call = before.call.unwrap_or_else(|| panic!("{place}: nothing is retried, {:?}", before.error));
    assert_eq!((call.attempt, call.next_at - bed.now()), (2, FIVE_SECONDS), "{place}");
    let error = call.last_error.unwrap();
    assert!(error.contains(says), "{place}: {error}");
    assert!(error.contains(&format!("trapped in {place}")) || says.ends_with("text") || says.contains("withheld"), "{place}: {error}");
    bed.advance(FIVE_SECONDS).await;
    let after = trapped.get(key).await.unwrap().unwrap();
    assert_eq!((after.call, after.error, after.version), (None, None, before.version + 1), "{place}");
}

promise! {
    async fn a_panic_in_any_code_of_a_user_is_a_failed_attempt_with_its_text(bed in traps()) {
        let _guard = tracing::subscriber::set_default(tracing_subscriber::registry().with(Jumpy));
        let trapped = bed.machine::<Trapped>();
        trapped.send("t", Deed(usize::MAX)).await.unwrap();
        bed.run_until_idle().await;
        for (n, (place, _, says)) in PLACES.iter().enumerate() {
            let request = trapped.send("t", Deed(n));
            if is_before_the_verb(place) {
                // The trap is armed late, so that the sender does not trigger it.
                set_trap(place);
            }
            request.await.unwrap();
            fails_and_goes_on(bed, "t", place, says).await;
        }
        for (n, place) in ["Retryable::retry", "Drop of the error"].into_iter().enumerate() {
            trapped.send("t", Own(n)).await.unwrap();
            fails_and_goes_on(bed, "t", place, "panicked: ").await;
        }
        let n = PLACES.iter().position(|(place, ..)| *place == "Display of the error").unwrap();
        trapped.send("r", Deed(n)).await.unwrap();
        bed.run_until_idle().await;
        assert_eq!(trapped.get("r").await.unwrap().unwrap().call.unwrap().attempt, 2);
    }
}

promise! {
    async fn a_panic_of_a_redaction_withholds_the_text_of_a_failed_attempt(bed in traps()) {
        let trapped = bed.machine::<Trapped>();
        let n = PLACES.iter().position(|(_, then, _)| *then == Then::Bomb).unwrap();
        let request = trapped.send("t", Deed(n));
        set_trap("the redaction");
        request.await.unwrap();
        bed.run_until_idle().await;
        let call = trapped.get("t").await.unwrap().unwrap().call.unwrap();
        assert_eq!((call.attempt, call.last_error.is_some()), (2, true));
        set_trap("");
    }
}

promise! {
    async fn a_panic_in_the_default_of_a_record_is_a_failed_attempt(bed in traps()) {
        let beginners = bed.machine::<Beginner>();
        set_trap("Default of the record");
        beginners.send("b", Begin).await.unwrap();
        bed.run_until_idle().await;
        bed.advance(FIVE_SECONDS).await;
        let attempts = beginners.attempts("b").await.unwrap();
        assert_eq!(attempts.iter().map(|attempt| attempt.state).collect::<Vec<_>>(), [AttemptState::Error, AttemptState::Success]);
        assert_eq!(attempts[0].error.as_deref(), Some("the verb panicked: trapped in Default of the record"));
    }
}

promise! {
    async fn a_panic_in_code_that_a_caller_brings_is_an_error_to_that_caller(bed in traps()) {
        let trapped = bed.machine::<Trapped>();
        let sent = async |place: &'static str| {
            set_trap(place);
            trapped.send("t", Deed(usize::MAX)).dedup(place).await.unwrap_err().to_string()
        };
        for place in ["Serialize of the event", "the codec's digests", "the codec's encode"] {
            let error = sent(place).await;
            assert!(error.contains("the event `Deed`") && error.ends_with(&format!("panicked: trapped in {place}")), "{error}");
        }
        trapped.send("t", Deed(usize::MAX)).await.unwrap();
        bed.run_until_idle().await;
        for place in ["Deserialize of the record", "the codec's decode"] {
            set_trap(place);
            let error = trapped.get("t").await.unwrap_err().to_string();
            assert!(error.ends_with(&format!("panicked: trapped in {place}")), "{error}");
            set_trap(place);
            let page = trapped.list(fsm::Filter::default()).await.unwrap();
            assert_eq!((page.items.len(), page.unreadable.len()), (0, 1), "one bad record hides no other");
            assert_eq!(trapped.get("t").await.unwrap().unwrap().version, 1);
        }
        let beginners = bed.machine::<Beginner>();
        beginners.send("b", Begin).after(FIVE_SECONDS).await.unwrap();
        set_trap("Default of the record");
        let error = beginners.get("b").await.unwrap_err().to_string();
        assert_eq!(error, "the record of `beginner` `b` its `Default` panicked: trapped in Default of the record");
    }
}

/// Regression: an error text that was cut inside a character.
#[derive(Debug)]
struct Cut(String);
impl fmt::Display for Cut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0[..1])
    }
}
impl StdError for Cut {}

#[derive(Debug, Clone, Serialize, Deserialize)]
struct Shorten(String);
#[verb]
async fn shortened(event: Shorten) -> Result {
    Err(Cut(event.0).into())
}
fsm! {
    machine Shortener = "shortener" {
        start shortened;
        end shortened;
    }
}

promise! {
    async fn an_error_whose_text_cannot_be_formatted_is_a_failed_attempt(bed in TestBed::builder().only::<Shortener>()) {
        let shorteners = bed.machine::<Shortener>();
        shorteners.send("s", Shorten("ä".into())).await.unwrap();
        bed.run_until_idle().await;
        let shortener = shorteners.get("s").await.unwrap().unwrap();
        assert_eq!(shortener.status, Status::Error);
        let error = shortener.error.unwrap();
        assert!(error.starts_with("the `Display` of its error panicked: ") && error.contains("char boundary"), "{error}");
    }
}

/// A waker that panics whenever it is used.
struct Alarm;
impl Wake for Alarm {
    fn wake(self: Arc<Self>) {
        panic!("the waker panicked");
    }
}

promise! {
    async fn a_waker_that_panics_delays_nobody_else(bed in traps()) {
        let trapped = bed.machine::<Trapped>();
        let waker = Waker::from(Arc::new(Alarm));
        let mut sending = trapped.send("t", Deed(usize::MAX)).into_future();
        assert!(sending.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
        for n in 0..3 {
            trapped.send(format!("t-{n}"), Deed(usize::MAX)).await.unwrap();
        }
        trapped.send("t", Deed(usize::MAX)).await.unwrap();
        bed.run_until_idle().await;
        assert_eq!(trapped.get("t").await.unwrap().unwrap().version, 2);
        drop(sending);
    }
}

promise! {
    async fn a_task_of_the_engine_that_panics_goes_on_and_nothing_is_lost(bed in traps()) {
        let trapped = bed.machine::<Trapped>();
        let mut statements = 0;
        loop {
            let key = format!("t-{statements}");
            let has_panicked = bed.panic_after_statements(statements, async {
                // The answer may be lost; then it is unknown whether the event was sent.
                let _ = trapped.send(&key, Deed(usize::MAX)).await;
                bed.run_until_idle().await;
            });
            let has_panicked = has_panicked.await;
            bed.advance(Duration::from_secs(60)).await;
            if trapped.get(&key).await.unwrap().is_none() {
                trapped.send(&key, Deed(usize::MAX)).await.unwrap();
                bed.run_until_idle().await;
            }
            let instance = trapped.get(&key).await.unwrap().unwrap();
            assert_eq!((instance.version, instance.call, instance.error), (1, None, None), "after {statements} statements");
            let attempts = trapped.attempts(&key).await.unwrap();
            assert!(attempts.iter().all(|attempt| attempt.error.is_none()), "a success is stored as nothing else: {attempts:#?}");
            if !has_panicked {
                break;
            }
            statements += 1;
        }
        assert!(statements > 5, "{statements} statements");
    }
}

/// Panics when the span of an attempt is entered.
struct Jumpy;

impl<S: tracing::Subscriber + for<'s> tracing_subscriber::registry::LookupSpan<'s>> tracing_subscriber::Layer<S> for Jumpy {
    /// A sender's span is entered on the sender's stack, where a panic is the sender's.
    fn on_enter(&self, span: &tracing::span::Id, context: tracing_subscriber::layer::Context<'_, S>) {
        if context.metadata(span).is_some_and(|metadata| metadata.name() == "fsm.attempt") {
            panic_if_trapped("the subscriber");
        }
    }
}
