//! Converts a failure into its stored form: the error as text, and the advice on a retry. This calls user code, which may panic.

use fsm_core::call::Attempt;
use fsm_core::outcome::Problem;
use fsm_core::retry::RetryAdvice;

use crate::catalog::KnownMachine;
use crate::engine::Engine;
use crate::failure::{FailedAttempt, Failure};
use crate::guard;
use crate::registry::{PolicyEntry, VerbEntry};

impl Engine {
    /// Returns the error as text, with the retry advice of the error, the policy's list or the delay function.
    pub(super) fn problem_of(&self, known: &KnownMachine, verb: &'static VerbEntry, attempt: &Attempt, mut failure: Failure) -> Problem {
        let mut texts = Vec::new();
        texts.push(guard::guarded("the `Display` of its error", || failure.to_string()).unwrap_or_else(|text| text));
        texts.extend(failure.take_panic());
        let mut advice = guard::guarded("the `Retryable` of its error", || advised(known.policy(verb), &failure)).unwrap_or_else(|text| {
            texts.push(text);
            RetryAdvice::Default
        });
        if advice == RetryAdvice::Default
            && let Some(delay) = known.policy(verb).and_then(|policy| policy.delay.as_ref())
        {
            let failed = FailedAttempt::new(attempt.number, failure.error(), self.clock.now().since(attempt.retry_state.first_at));
            advice = match guard::guarded(&format!("its delay function `{}`", delay.name), || (delay.function)(&failed)) {
                Ok(Some(wait)) => RetryAdvice::After(wait),
                Ok(None) => RetryAdvice::Never,
                // If the delay function panics, both errors are recorded and the call is exhausted.
                Err(text) => {
                    texts.push(text);
                    RetryAdvice::Never
                }
            };
        }
        texts.extend(guard::dropped("the `Drop` of its error", failure).err());
        self.data_protection.problem(&attempt.machine, &attempt.verb, &texts.join("; and "), advice)
    }
}

fn advised(policy: Option<&PolicyEntry>, failure: &Failure) -> RetryAdvice {
    let gives_up = |policy: &PolicyEntry| policy.give_up_on.iter().any(|given_up| failure.chain().any(given_up.is));
    match failure.advised() {
        RetryAdvice::Default if policy.is_some_and(gives_up) => RetryAdvice::Never,
        advice => advice,
    }
}
