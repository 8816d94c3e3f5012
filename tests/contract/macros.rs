//! Every form of `#[retry]` and of the statements of `fsm!` that the contract shows.

use std::fmt;

use fsm::prelude::*;
use fsm::{RetryAdvice, Retryable};
use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Begin;
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Import;
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Go;
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Stop;

macro_rules! error_types {
    ($($name:ident),+) => {$(
        #[derive(Debug)]
        pub struct $name;
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(stringify!($name))
            }
        }
        impl std::error::Error for $name {}
    )+};
}
error_types!(CardDeclined, Fraud, Overloaded);

impl Retryable for Overloaded {
    fn retry(&self) -> RetryAdvice {
        RetryAdvice::After(Duration::from_secs(90))
    }
}
fsm::retryable!(Overloaded);

fn my_delay(failed: &FailedAttempt) -> Option<Duration> {
    let _ = (failed.error().to_string(), failed.elapsed());
    (failed.attempt() < 3).then(|| Duration::from_secs(u64::from(failed.attempt())))
}

#[verb]
#[retry("5s")]
async fn every_five_seconds(_event: Begin) -> Result {
    Ok(())
}
#[fsm::retry("5s", "10m")]
#[verb]
async fn capped(_event: Begin) -> Result {
    Ok(())
}
#[verb]
#[cfg_attr(all(), retry(10, "5s"))]
async fn ten_times(_event: Begin) -> Result {
    Ok(())
}
#[retry(10, "5s", "1h", jitter = 0.1)]
#[verb]
async fn mixed(_event: Begin) -> Result {
    Ok(())
}
#[verb]
#[retry(none)]
async fn never(_event: Import) -> Result {
    Ok(())
}
#[verb]
#[retry(max_attempts = 11, min = "5s", max = "1h", backoff = 2.0, jitter = 0.1, within = "24h", give_up_on(CardDeclined, Fraud), catch = recover)]
async fn by_name(_event: Go) -> Result {
    Err(CardDeclined.into())
}
#[verb]
#[retry(retries = 10, min = "5s")]
async fn by_retries(_event: Begin) -> Result {
    Ok(())
}
#[verb]
#[retry(retries = 5, delay = my_delay)]
async fn by_function(_event: Stop) -> std::result::Result<(), Overloaded> {
    Err(Overloaded)
}
#[verb]
async fn recover(ctx: &mut Ctx<'_>, caught: Caught<Go>) -> Result {
    let Caught { event: Go, error, attempts } = caught;
    assert!(error.contains("CardDeclined") && attempts == 1);
    ctx.next(Stop)?;
    Ok(())
}
#[verb]
async fn expired(_timeout: Timeout) -> Result {
    Ok(())
}

fsm! {
    /// A machine with each kind of statement.
    pub machine Forms = "contract-forms" {
        retry(3, "1s", "1m");
        start every_five_seconds | never;
        any(every_five_seconds, never) -> by_name;
        every_five_seconds after "1d12h" -> expired;
        any(every_five_seconds, never) -> by_function;
        end by_name, by_function, expired;
    }
}

fn policy(verb: &str) -> Option<fsm::Retry> {
    let found = fsm::schema().verbs.into_iter().find(|found| found.name == verb && found.module.ends_with("contract::macros"));
    found.expect("it is registered").retry
}

#[test]
fn each_short_form_says_what_the_contract_says() {
    let seconds = Duration::from_secs;
    let of = |verb: &str| policy(verb).map(|policy| (policy.max_attempts, policy.min, policy.max, policy.jitter));
    assert_eq!(of("every_five_seconds"), Some((None, seconds(5), seconds(5), 0.0)));
    assert_eq!(of("capped"), Some((None, seconds(5), seconds(600), 0.0)));
    assert_eq!(of("ten_times"), Some((Some(11), seconds(5), seconds(5), 0.0)));
    assert_eq!(of("mixed"), Some((Some(11), seconds(5), seconds(3600), 0.1)));
    assert_eq!(of("by_name"), Some((Some(11), seconds(5), seconds(3600), 0.1)));
    assert_eq!(of("by_retries"), Some((Some(11), seconds(5), seconds(3600), 0.0)));
    assert_eq!(policy("by_name").unwrap().within, Some(seconds(24 * 3600)));
}

#[tokio::test]
async fn a_catch_verb_leads_on_and_a_delay_function_gives_up() {
    let bed = fsm::testing::TestBed::builder().only::<Forms>().sqlite().await;
    let forms = bed.machine::<Forms>();
    forms.send("f-1", Begin).await.unwrap();
    forms.send("f-1", Go).await.unwrap();
    bed.run_until_idle().await;
    let call = forms.get("f-1").await.unwrap().unwrap().call.unwrap();
    assert_eq!((call.verb.as_str(), call.attempt, call.next_at - bed.now()), ("by_function", 2, Duration::from_secs(90)));
}
