//! Runs user code so that a panic becomes a failure with the panic's text.
//!
//! All places where the engine runs user code, and the effect of a panic there:
//!
//! | code | where it runs | effect of a panic |
//! |---|---|---|
//! | a verb's body and the futures that it awaits | `worker::bounded` | a failed attempt |
//! | `Deserialize` and `Default` of event and record, `Serialize` of the record | in the verb's future | a failed attempt |
//! | `Serialize` of values for `ctx.next`, `ctx.send` and `ctx.once`, `Deserialize` of values that `ctx.once` stored | in the verb's future | a failed attempt |
//! | `Into<Failure>` and `Retryable::retry` of a verb's own error type | in the verb's future | a failed attempt |
//! | `Drop` of a verb's future, also after its timeout | `worker::bounded` | a failed attempt |
//! | `Display` and `source` of errors, `Retryable::retry`, `give_up_on` | `Engine::problem_of` | part of the failed attempt's error; the policy decides |
//! | a `give_up_if` function | in the verb's future | part of the failed attempt's error; the policy decides |
//! | the function of a computed timer, with the `Deserialize` of the record that it gets | `worker`, after the verb | a failed attempt |
//! | the same, where a new version of the code adds the timer | `reconciler` | a log message; the timer is missing |
//! | a delay function | `Engine::problem_of` | part of the failed attempt's error; the call is exhausted |
//! | `Drop` of an error | `Engine::problem_of` | part of the failed attempt's error |
//! | a redaction | `Redaction::of` | the text is withheld |
//! | the function of a schedule, with the `Serialize` and `Drop` of its event | `schedule` | the moment is not sent; its row has the text |
//! | a codec's `encode` and `decode`, and `Display` of its errors | `data_protection` | a failed attempt, or an error to the sender or reader |
//! | a codec's `digests` | `data_protection` | an error to the sender |
//! | `Serialize` of an event that is sent from outside | `encode::payload` | an error to the sender |
//! | `Deserialize` and `Default` of a record that is read | `Instance::of` | an error to the reader, for that instance only |
//! | `Deserialize` of stored events when a start compares them with the code | `KnownMachine::why_not` | drift, reported by the start |
//! | a waker, and a subscriber of `tracing` | in a task of the engine | a log message; the task is restarted (`supervise`) |
//! | conversions of arguments (`AsRef<str>`, `Into<String>`) and `Drop` of arguments | on the caller's stack | a panic of the caller |
//! | a subscriber of `tracing`, in the span of a send | on the caller's stack | a panic of the caller |

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::{Mutex, MutexGuard, PoisonError};

use futures_util::FutureExt;

/// Calls user code. `Err` is the text of its panic, with the name of the code.
pub(crate) fn guarded<T>(what: &str, code: impl FnOnce() -> T) -> Result<T, String> {
    catch_unwind(AssertUnwindSafe(code)).map_err(|panic| format!("{what} panicked: {}", text_of(panic)))
}

/// Drops a value of a user's type. `Err` is the text of the panic in its `Drop`.
pub(crate) fn dropped<T>(what: &str, value: T) -> Result<(), String> {
    guarded(what, || drop(value))
}

/// Waits for a task and drops it. `Err` is the text of a panic in either.
pub(crate) async fn to_its_end(what: &str, mut task: Pin<Box<impl Future<Output = ()>>>) -> Result<(), String> {
    let ended = AssertUnwindSafe(task.as_mut()).catch_unwind().await;
    let dropped = dropped(what, task);
    ended.map_err(|panic| format!("{what} panicked: {}", text_of(panic))).and(dropped)
}

/// Returns the text of a panic and drops its payload. The payload's `Drop` may panic too.
pub(crate) fn text_of(panic: Box<dyn Any + Send>) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    let text = text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "without a text".to_owned());
    if let Err(another) = catch_unwind(AssertUnwindSafe(|| drop(panic))) {
        // The payload of the second panic may panic again, without end.
        std::mem::forget(another);
    }
    text
}

/// Locks a mutex, also after a panic of another holder. The value must be consistent after each statement that changes it.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Bomb(u32);

    impl Drop for Bomb {
        fn drop(&mut self) {
            std::panic::panic_any(Bomb(self.0 + 1));
        }
    }

    #[test]
    fn a_panic_is_told_with_its_text_whatever_it_carries() {
        assert_eq!(guarded("it", || 1), Ok(1));
        assert_eq!(guarded("it", || panic!("no {}", 7)), Err::<(), _>("it panicked: no 7".to_owned()));
        assert_eq!(guarded("it", || std::panic::panic_any(Bomb(0))), Err::<(), _>("it panicked: without a text".to_owned()));
        assert_eq!(dropped("its end", Bomb(0)), Err("its end panicked: without a text".to_owned()));
    }

    #[test]
    fn a_lock_outlives_a_panic_under_it() {
        let counted = Mutex::new(1);
        assert!(
            guarded("it", || {
                let _held = lock(&counted);
                panic!("under the lock")
            })
            .is_err()
        );
        *lock(&counted) += 1;
        assert_eq!(*lock(&counted), 2);
    }
}
