//! The onboarding of bank customers: a screening service whose errors are classified by their value, a person's approval that expires, and a
//! signature that is polled for.
//!
//! ```sh
//! cargo run --example onboarding
//! ```
//!
//! Five applications run under the clock of a test bed, so that ten days pass in a second. A program that serves customers builds a `Runtime`
//! instead; the machine stays the same.
//!
//! The program exits with status 1 if an application does not end as expected.

mod account;
mod services;

use std::process::ExitCode;

use fsm::Handle;
use fsm::prelude::*;
use fsm::testing::{TestBed, TestBedBuilder};

use account::{Apply, Approve, Decline, Onboarding};
use services::{Screening, Signatures};

const DAY: Duration = Duration::from_secs(86_400);

fn bank() -> TestBedBuilder {
    TestBed::builder().only::<Onboarding>().data(Screening::new()).data(Signatures)
}

/// Runs the applications of these customers through ten days. All sends have deduplication ids, so that the scenario can be repeated after a crash.
async fn ten_days(bed: &TestBed, names: &[&str]) -> Result<(), fsm::Error> {
    let customers: Handle<Onboarding> = bed.machine();
    let apply = |name: &str, country: &str| Apply { name: name.into(), country: country.into() };
    for (name, country) in [("ada", "DE"), ("bob", "US"), ("eve", "XX"), ("kim", "US"), ("max", "US")] {
        if !names.contains(&name) {
            continue;
        }
        customers.send(name, apply(name, country)).dedup("apply").await?;
    }
    // The screening service is away at first, and then limits the rate: the policy retries.
    let begin = bed.now();
    bed.advance(Duration::from_secs(3600)).await;
    if names.contains(&"bob") {
        customers.send("bob", Approve { by: "officer 7".into() }).dedup("answer").await?;
    }
    if names.contains(&"kim") {
        customers.send("kim", Decline { by: "officer 7".into(), reason: "no proof of income".into() }).dedup("answer").await?;
    }
    // Nobody answers about max: the approval goes to another officer after three days, and expires after two more.
    bed.advance_to((begin + 10 * DAY).max(bed.now())).await;
    Ok(())
}

async fn run() -> Result<bool, fsm::Error> {
    let bed = bank().sqlite().await;
    ten_days(&bed, &account::EXPECTED.map(|(name, ..)| name)).await?;
    let customers = bed.machine::<Onboarding>();
    let mut is_well = true;
    for (name, state, status) in account::EXPECTED {
        let customer = customers.get(name).await?.expect("everybody applied");
        println!("\n{name}: {} in `{}`", customer.status, customer.state.map(|state| state.to_string()).unwrap_or_default());
        for entry in customers.history(name).await? {
            println!("  {entry}");
        }
        is_well &= (customer.state, customer.status) == (state, status);
    }
    println!("\n{}", if is_well { "Every application ended as expected." } else { "AN APPLICATION DID NOT END AS EXPECTED." });
    Ok(is_well)
}

#[tokio::main]
async fn main() -> ExitCode {
    match run().await {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("onboarding: {error}");
            ExitCode::FAILURE
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[tokio::test]
    async fn every_application_ends_as_expected() {
        let bed = bank().sqlite().await;
        ten_days(&bed, &account::EXPECTED.map(|(name, ..)| name)).await.expect("every send is accepted");
        for (name, state, status) in account::EXPECTED {
            let customer = bed.machine::<Onboarding>().get(name).await.expect("the database works").expect("everybody applied");
            assert_eq!((customer.state, customer.status), (state, status), "{name}");
        }
    }

    /// The screening service counts its answers, so a crash changes which attempt fails, and not the end.
    #[tokio::test]
    async fn a_crash_at_any_point_changes_nothing_about_the_end() {
        let scenario = |bed: Arc<TestBed>| async move {
            ten_days(&bed, &["bob"]).await.expect("every send is accepted");
            let bob = bed.machine::<Onboarding>().get("bob").await.expect("the database works").expect("he applied");
            (bob.state, bob.status)
        };
        let crashes = bank().sqlite().await.crash_at_every_point(scenario).await;
        assert!(crashes.points > 50, "{crashes}");
    }
}
