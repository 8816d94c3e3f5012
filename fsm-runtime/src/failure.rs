//! What a verb returns when it fails: an error, and what it says of its own retry.

use std::error::Error as StdError;
use std::fmt;
use std::time::Duration;

use fsm_core::duration;
use fsm_core::retry::RetryAdvice;

/// The result of a verb: `Result` alone is `Result<(), Failure>`.
pub type Result<T = (), E = Failure> = std::result::Result<T, E>;

/// A failed attempt. Every `std::error::Error + Send + Sync + 'static` converts into it, so `?` works in a verb.
///
/// Like other catch-all error types it is no `std::error::Error` itself.
pub struct Failure {
    error: Box<dyn StdError + Send + Sync>,
    advice: RetryAdvice,
    snooze: Option<Duration>,
}

/// An error type that decides for itself whether it is retried.
///
/// A verb whose own error type this is follows it. Where such an error is turned into a [`Failure`] by `?`, or is the source
/// of another one, it is known again by its type: name that once beside the implementation, with `fsm::retryable!(MyError)`.
pub trait Retryable: StdError {
    /// What is to be done after this error.
    fn retry(&self) -> RetryAdvice;
}

/// What `inventory` collects: an error type that decides for itself, as `retryable!` names it.
pub struct RetryableRef(pub fn(&(dyn StdError + 'static)) -> Option<RetryAdvice>);

inventory::collect!(RetryableRef);

/// Makes errors of a [`Retryable`] type known wherever they are in a failure's chain of sources.
///
/// ```text
/// impl fsm::Retryable for Declined { … }
/// fsm::retryable!(Declined);
/// ```
#[macro_export]
macro_rules! retryable {
    ($($error:ty),+ $(,)?) => {
        $($crate::private::inventory::submit! { $crate::private::RetryableRef($crate::private::advice_of::<$error>) })+
    };
}

/// A stored value that this program's types cannot read. It fails the attempt: another program, or this one after a deployment, may read it.
#[derive(Debug)]
pub(crate) struct Unreadable(pub(crate) String);

impl fmt::Display for Unreadable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl StdError for Unreadable {}

impl Unreadable {
    /// Whether a stored error is the text of one.
    pub(crate) fn is_said_in(error: &str) -> bool {
        let value = ["the payload ", "the record ", "the retry policy "].iter().find_map(|value| error.strip_prefix(value));
        value.is_some_and(|says| says.starts_with("does not decode") || says.starts_with("cannot be read"))
    }
}

/// What a delay function is told of the attempt that failed.
pub struct FailedAttempt<'a> {
    attempt: u32,
    error: &'a (dyn StdError + 'static),
    elapsed: Duration,
}

impl Failure {
    /// A failure that is retried by the verb's policy.
    pub fn new(error: impl Into<Box<dyn StdError + Send + Sync>>) -> Failure {
        Failure { error: error.into(), advice: RetryAdvice::Default, snooze: None }
    }

    /// A failure that is not retried, whatever the policy says.
    pub fn permanent(error: impl Into<Box<dyn StdError + Send + Sync>>) -> Failure {
        Failure { advice: RetryAdvice::Never, ..Failure::new(error) }
    }

    /// A failure that is retried after exactly `wait`: it overrides the policy's interval and maximum, not its count and `within`.
    pub fn retry_after(error: impl Into<Box<dyn StdError + Send + Sync>>, wait: Duration) -> Failure {
        Failure { advice: RetryAdvice::After(wait), ..Failure::new(error) }
    }

    /// Ends this attempt without a failure, and runs the call again after `wait` or later: for a verb that asks whether something outside is
    /// ready, and finds that it is not.
    ///
    /// The attempt's state is [`Snoozed`](fsm_core::call::AttemptState::Snoozed). It uses no retry, the backoff does not grow, and it needs no
    /// retry policy. `ctx.attempt()` counts it, and `OpenCall::snoozes` counts such attempts alone. What the attempt asked for
    /// (`ctx.next`, `ctx.send`, changes of the record, SQL in its transaction) is forgotten, as after a failure; what `ctx.once` keeps stays.
    ///
    /// The policy's `within` still counts from the first attempt: if the next attempt would start later, this attempt fails, and the call is
    /// exhausted. Without `within` a verb may snooze for ever; the state's timer and `within` are the ways to limit it.
    ///
    /// ```
    /// # use fsm_runtime::failure::{Failure, Result};
    /// # use std::time::Duration;
    /// # async fn report_is_ready() -> bool { false }
    /// # async fn fetched() -> Result {
    /// if !report_is_ready().await {
    ///     return Err(Failure::snooze(Duration::from_secs(600)));
    /// }
    /// # Ok(()) }
    /// ```
    pub fn snooze(wait: Duration) -> Failure {
        let text = format!("snoozed for {}", duration::display(wait));
        Failure { snooze: Some(wait), ..Failure::new(text) }
    }

    /// The wait of a [`snooze`](Failure::snooze); `None` for a failure.
    pub fn snoozes_for(&self) -> Option<Duration> {
        self.snooze
    }

    /// The same failure with other advice.
    pub fn with_advice(self, advice: RetryAdvice) -> Failure {
        Failure { advice, ..self }
    }

    /// What it says of its own retry.
    pub fn advice(&self) -> RetryAdvice {
        self.advice
    }

    /// What the error says of its own retry: by itself, else by the first in its chain that decides for itself.
    pub(crate) fn advised(&self) -> RetryAdvice {
        if self.advice != RetryAdvice::Default {
            return self.advice;
        }
        let known = || inventory::iter::<RetryableRef>.into_iter();
        let mut said = self.chain().flat_map(|error| known().filter_map(move |retryable| (retryable.0)(error)));
        said.find(|advice| *advice != RetryAdvice::Default).unwrap_or_default()
    }

    /// Whether a stored value could not be read, so that the verb was not called.
    pub(crate) fn is_unreadable(&self) -> bool {
        self.error().is::<Unreadable>()
    }

    /// The error itself; its `source()` chain is intact.
    pub fn error(&self) -> &(dyn StdError + 'static) {
        &*self.error
    }

    /// The error and each of its sources, from the outside in.
    pub fn chain(&self) -> impl Iterator<Item = &(dyn StdError + 'static)> {
        std::iter::successors(Some(self.error()), source)
    }
}

fn source<'e>(error: &&'e (dyn StdError + 'static)) -> Option<&'e (dyn StdError + 'static)> {
    let error: &'e (dyn StdError + 'static) = *error;
    error.source()
}

impl<'a> FailedAttempt<'a> {
    pub(crate) fn new(attempt: u32, error: &'a (dyn StdError + 'static), elapsed: Duration) -> FailedAttempt<'a> {
        FailedAttempt { attempt, error, elapsed }
    }

    /// The number of the attempt that failed, from 1.
    pub fn attempt(&self) -> u32 {
        self.attempt
    }

    /// Why it failed.
    pub fn error(&self) -> &(dyn StdError + 'static) {
        self.error
    }

    /// The time since the first attempt was due.
    pub fn elapsed(&self) -> Duration {
        self.elapsed
    }
}

impl<E: StdError + Send + Sync + 'static> From<E> for Failure {
    fn from(error: E) -> Failure {
        Failure::new(error)
    }
}

/// The error, and after a colon each source that it does not already quote.
impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut said = String::new();
        for error in self.chain() {
            let text = error.to_string();
            if said.is_empty() {
                said = text;
            } else if !said.contains(&text) {
                said = format!("{said}: {text}");
            }
        }
        f.write_str(&said)
    }
}

impl fmt::Debug for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self} ({:?})", self.advice)
    }
}
