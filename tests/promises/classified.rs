//! Errors that are permanent depending on their value: `give_up_if`, and the types that `give_up_on` finds in an error.

use std::error::Error;
use std::fmt;

use fsm::prelude::*;
use fsm::testing::{TestBed, TestBedBuilder};
use serde::{Deserialize, Serialize};

use crate::support::promise;

#[derive(Debug)]
struct Declined;

impl fmt::Display for Declined {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the card was declined")
    }
}

impl Error for Declined {}

/// An error of a gateway, whose `Declined` is transparent as in `thiserror`: its text and its source are those of the inner error, which
/// therefore is not in the chain of sources.
#[derive(Debug)]
enum GatewayError {
    Declined(Declined),
    Status(u16),
    Odd,
}

impl fmt::Display for GatewayError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            GatewayError::Declined(declined) => declined.fmt(f),
            GatewayError::Status(status) => write!(f, "status {status}"),
            GatewayError::Odd => f.write_str("an odd answer"),
        }
    }
}

impl Error for GatewayError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            GatewayError::Declined(declined) => declined.source(),
            _ => None,
        }
    }
}

fn is_permanent(error: &GatewayError) -> bool {
    match error {
        GatewayError::Declined(_) => true,
        GatewayError::Status(status) => *status == 402,
        GatewayError::Odd => panic!("nobody knows"),
    }
}

fn is_final(failure: &Failure) -> bool {
    failure.error().is::<Declined>()
}

#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
enum Answer {
    Declined,
    Status(u16),
    Odd,
}
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Judge(Answer);
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Overlook(Answer);
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Say;
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Return;

fn answered(answer: Answer) -> Result<(), GatewayError> {
    Err(match answer {
        Answer::Declined => GatewayError::Declined(Declined),
        Answer::Status(status) => GatewayError::Status(status),
        Answer::Odd => GatewayError::Odd,
    })
}

#[verb]
#[retry(2, "1s", give_up_if = is_permanent)]
async fn judged(event: Judge) -> Result<(), GatewayError> {
    answered(event.0)
}

#[verb]
#[retry(2, "1s", give_up_on(Declined))]
async fn overlooked(event: Overlook) -> Result<(), GatewayError> {
    answered(event.0)
}

#[verb]
#[retry(2, "1s", give_up_on(Declined))]
async fn said(_event: Say) -> Result<(), Declined> {
    Err(Declined)
}

#[verb]
#[retry(2, "1s", give_up_if = is_final)]
async fn returned(_event: Return) -> Result {
    Err(Declined)?
}

fsm! {
    machine Charge = "charge" {
        start judged | overlooked | said | returned;
        end judged, overlooked, said, returned;
    }
}

fn charges() -> TestBedBuilder {
    TestBed::builder().only::<Charge>()
}

/// The number of attempts, and the error.
async fn exhausted(bed: &TestBed, key: &str) -> (usize, String) {
    bed.advance(Duration::from_secs(60)).await;
    let charges = bed.machine::<Charge>();
    let charge = charges.get(key).await.unwrap().unwrap();
    assert_eq!(charge.status, Status::Error);
    (charges.attempts(key).await.unwrap().len(), charge.error.unwrap())
}

promise! {
    async fn an_error_that_give_up_if_calls_permanent_is_not_retried(bed in charges()) {
        let charges = bed.machine::<Charge>();
        charges.send("declined", Judge(Answer::Declined)).await.unwrap();
        charges.send("402", Judge(Answer::Status(402))).await.unwrap();
        charges.send("503", Judge(Answer::Status(503))).await.unwrap();
        charges.send("failure", Return).await.unwrap();
        assert_eq!(exhausted(bed, "declined").await, (1, "the card was declined".into()));
        assert_eq!(exhausted(bed, "402").await, (1, "status 402".into()));
        assert_eq!(exhausted(bed, "503").await, (3, "status 503".into()));
        assert_eq!(exhausted(bed, "failure").await.0, 1, "a verb that returns `Failure` judges that");
    }
}

promise! {
    async fn a_panic_in_give_up_if_is_recorded_and_the_policy_decides(bed in charges()) {
        bed.machine::<Charge>().send("odd", Judge(Answer::Odd)).await.unwrap();
        let (attempts, error) = exhausted(bed, "odd").await;
        assert_eq!((attempts, error.as_str()), (3, "an odd answer; and its `give_up_if` function panicked: nobody knows"));
    }
}

promise! {
    async fn give_up_on_sees_the_error_itself_and_no_error_behind_a_transparent_one(bed in charges()) {
        let charges = bed.machine::<Charge>();
        charges.send("itself", Say).await.unwrap();
        charges.send("transparent", Overlook(Answer::Declined)).await.unwrap();
        assert_eq!(exhausted(bed, "itself").await.0, 1);
        assert_eq!(exhausted(bed, "transparent").await.0, 3, "the chain of sources leaves it out: use `give_up_if`");
    }
}
