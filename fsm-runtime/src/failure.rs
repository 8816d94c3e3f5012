//! The failure of a verb: an error, and its advice on a retry.

use std::error::Error as StdError;
use std::fmt;
use std::time::Duration;

use fsm_core::duration;
use fsm_core::retry::RetryAdvice;

/// The result of a verb: `Result` alone is `Result<(), Failure>`.
pub type Result<T = (), E = Failure> = std::result::Result<T, E>;

/// A failed attempt. Every `std::error::Error + Send + Sync + 'static` converts into it, so `?` works in a verb.
///
/// Like other catch-all error types, it does not implement `std::error::Error` itself.
pub struct Failure {
    error: Box<dyn StdError + Send + Sync>,
    advice: RetryAdvice,
    /// The panic of the `give_up_if` function.
    panic: Option<String>,
    snooze: Option<Duration>,
}

/// An error type that decides for itself whether it is retried.
///
/// A verb that returns this error type follows its advice without further steps. If `?` converts the error into a [`Failure`], or if it is
/// the source of another error, the engine recognises it by its type. That type must be registered once with `fsm::retryable!(MyError)`.
pub trait Retryable: StdError {
    /// Returns the advice on a retry after this error.
    fn retry(&self) -> RetryAdvice;
}

/// An entry of the registry of [`Retryable`] error types. `retryable!` adds it through `inventory`.
pub struct RetryableRef(pub fn(&(dyn StdError + 'static)) -> Option<RetryAdvice>);

inventory::collect!(RetryableRef);

/// Registers [`Retryable`] error types, so that they are recognised anywhere in a failure's chain of sources.
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

/// A stored value that this program cannot decode. The attempt fails, and a retry by another program, or after a deployment, may succeed.
#[derive(Debug)]
pub(crate) struct Unreadable(pub(crate) String);

impl fmt::Display for Unreadable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl StdError for Unreadable {}

impl Unreadable {
    /// Returns true if a stored error text is the text of such an error.
    pub(crate) fn is_text_of(error: &str) -> bool {
        let value = ["the payload ", "the record ", "the retry policy "].iter().find_map(|value| error.strip_prefix(value));
        value.is_some_and(|says| says.starts_with("does not decode") || says.starts_with("cannot be read"))
    }
}

/// The data that a delay function gets about the failed attempt.
pub struct FailedAttempt<'a> {
    attempt: u32,
    error: &'a (dyn StdError + 'static),
    elapsed: Duration,
}

impl Failure {
    /// A failure that is retried by the verb's retry policy.
    pub fn new(error: impl Into<Box<dyn StdError + Send + Sync>>) -> Failure {
        Failure { error: error.into(), advice: RetryAdvice::Default, panic: None, snooze: None }
    }

    /// A failure that is not retried, independent of the policy.
    pub fn permanent(error: impl Into<Box<dyn StdError + Send + Sync>>) -> Failure {
        Failure { advice: RetryAdvice::Never, ..Failure::new(error) }
    }

    /// A failure that is retried after exactly `wait`. This overrides the policy's backoff and maximum wait, but not its count and
    /// `within`.
    pub fn retry_after(error: impl Into<Box<dyn StdError + Send + Sync>>, wait: Duration) -> Failure {
        Failure { advice: RetryAdvice::After(wait), ..Failure::new(error) }
    }

    /// Ends this attempt without a failure. The call runs again after `wait` or later. A verb that polls something outside returns it while that is
    /// not ready.
    ///
    /// The attempt's state is [`Snoozed`](fsm_core::call::AttemptState::Snoozed). It uses no retry, the backoff does not grow, and it needs no
    /// retry policy. `ctx.attempt()` counts it, and `OpenCall::snoozes` counts only such attempts. The requests of the
    /// attempt (`ctx.next`, `ctx.send`, changes of the record, SQL in its transaction) are discarded, as after a failure. Results of `ctx.once` stay.
    ///
    /// The policy's `within` still counts from the first attempt: if the next attempt would start later, this attempt fails, and the call is
    /// exhausted. Without `within`, the number of snoozes has no bound. The timer of the instance's state waits meanwhile, as during any open call.
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

    pub(crate) fn with_panic(self, text: String) -> Failure {
        Failure { panic: Some(text), ..self }
    }

    pub(crate) fn take_panic(&mut self) -> Option<String> {
        self.panic.take()
    }

    /// The advice on a retry that was given with this failure.
    pub fn advice(&self) -> RetryAdvice {
        self.advice
    }

    /// The effective advice: that of this failure, or else that of the first [`Retryable`] error in its chain that has one.
    pub(crate) fn advised(&self) -> RetryAdvice {
        if self.advice != RetryAdvice::Default {
            return self.advice;
        }
        let known = || inventory::iter::<RetryableRef>.into_iter();
        let mut said = self.chain().flat_map(|error| known().filter_map(move |retryable| (retryable.0)(error)));
        said.find(|advice| *advice != RetryAdvice::Default).unwrap_or_default()
    }

    /// Returns true if a stored value could not be read, so that the verb was not called.
    pub(crate) fn is_unreadable(&self) -> bool {
        self.error().is::<Unreadable>()
    }

    /// The error itself, with its `source()` chain.
    pub fn error(&self) -> &(dyn StdError + 'static) {
        &*self.error
    }

    /// The error, followed by its chain of sources.
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

    /// The error of the failed attempt.
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

/// The error, and after a colon each source whose text is not already part of it.
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
