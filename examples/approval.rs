//! Purchases that a person approves, with durable timers. If nobody answers in time, another person is asked. If nobody answers at all, the
//! request lapses.
//!
//! ```sh
//! cargo run --example approval                                # embedded SQLite, nothing else installed
//! cargo run --example approval -- --database postgres://…     # the same on PostgreSQL
//! ```
//!
//! A purchase that waits for an answer is only a row in the database. No task or thread waits for it, and no process has to live until
//! then. In this example people have 600 ms to answer; with `"3d"` instead of `"600ms"` nothing else would change.
//!
//! The program exits with status 1 if a purchase does not end as expected.

use std::collections::HashMap;
use std::process::ExitCode;
use std::time::Instant;

use fsm::Handle;
use fsm::prelude::*;
use serde::{Deserialize, Serialize};

// --- The events from outside, and the record of a purchase. ---

#[derive(Debug, Clone, Serialize, Deserialize)]
struct Request {
    item: String,
    cents: u64,
}
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Approve {
    by: String,
}
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Decline {
    by: String,
    reason: String,
}

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
struct Purchase {
    item: String,
    cents: u64,
    answer: String,
}

// --- One verb for each state: it does the work of the transition into that state. ---

/// Sends a mail to the person who decides. If the mail server failed, the attempt would be retried.
#[verb]
#[retry(20, "1s", "1h")]
async fn asked(record: &mut Purchase, mail: Data<Mail>, event: Request) -> Result {
    record.item = event.item;
    record.cents = event.cents;
    mail.send("head of department", &record.item);
    Ok(())
}

/// Asks another person, because the time to answer is over. The event comes from the timer, not from a sender.
#[verb]
#[retry(20, "1s", "1h")]
async fn escalated(record: &mut Purchase, mail: Data<Mail>, _timeout: Timeout) -> Result {
    mail.send("managing director", &record.item);
    Ok(())
}

#[verb]
async fn approved(record: &mut Purchase, event: Approve) -> Result {
    record.answer = format!("yes, says {}", event.by);
    Ok(())
}

#[verb]
async fn declined(record: &mut Purchase, event: Decline) -> Result {
    record.answer = format!("no, says {}: {}", event.by, event.reason);
    Ok(())
}

#[verb]
async fn lapsed(record: &mut Purchase, _timeout: Timeout) -> Result {
    record.answer = "nobody answered".into();
    Ok(())
}

fsm! {
    /// A purchase, from the request to an answer.
    machine Approval = "approval" {
        keeps Purchase;
        start asked;
        any(asked, escalated) -> approved | declined;
        asked after "600ms" -> escalated;
        escalated after "600ms" -> lapsed;
        end approved, declined, lapsed;
    }
}

/// A stand-in for a mail server.
struct Mail;
impl Mail {
    fn send(&self, to: &str, item: &str) {
        println!("         mail to the {to}: {item}, yes or no?");
    }
}

// --- The example. ---

async fn run(url: &str) -> Result<bool, fsm::Error> {
    let runtime = Runtime::builder().database(url).data(Mail).start().await?;
    let approvals = runtime.machine::<Approval>();
    let began = Instant::now();
    // The database may hold purchases of earlier runs, so the keys contain the process id.
    let key = |name: &str| format!("{name}-{}", std::process::id());

    let mut watches = Vec::new();
    for (name, item, cents) in
        [("laptop", "a laptop", 180_000), ("chair", "a gilded chair", 900_000), ("pens", "pens", 900), ("car", "a car", 5_000_000)]
    {
        approvals.send(key(name), Request { item: item.into(), cents }).await?;
        watches.push(tokio::spawn(follow(approvals.clone(), name, key(name), began)));
    }

    // The head of department answers two of the four requests.
    approvals.settled(key("laptop")).await?;
    approvals.send(key("laptop"), Approve { by: "the head".into() }).dedup("answer").await?;
    approvals.settled(key("chair")).await?;
    approvals.send(key("chair"), Decline { by: "the head".into(), reason: "not gilded".into() }).dedup("answer").await?;

    // The managing director answers one of the two escalated requests.
    let mut pens = approvals.watch(key("pens"));
    while let Some(purchase) = pens.next().await {
        if purchase?.state == Some(ApprovalState::Escalated) {
            approvals.send(key("pens"), Approve { by: "the director".into() }).dedup("answer").await?;
        }
    }

    let mut ended = HashMap::new();
    for watch in watches {
        let (name, state) = watch.await.expect("`follow` does not panic")?;
        ended.insert(name, state);
    }

    let late = approvals.send(key("car"), Approve { by: "the director".into() }).await.expect_err("the instance has ended");
    println!("\nan answer that comes too late is refused: {late}");
    println!("\nthe history of the request for pens:");
    for entry in approvals.history(key("pens")).await? {
        println!("  {entry}");
    }
    runtime.shutdown().await?;

    let expected = [
        ("laptop", ApprovalState::Approved),
        ("chair", ApprovalState::Declined),
        ("pens", ApprovalState::Approved),
        ("car", ApprovalState::Lapsed),
    ];
    let is_well = expected.iter().all(|(name, state)| ended.get(name) == Some(&Some(*state)));
    println!("\n{}", if is_well { "Every purchase ended as expected." } else { "A PURCHASE DID NOT END AS EXPECTED." });
    Ok(is_well)
}

/// Prints each state of one purchase until it has ended. Returns the last state.
async fn follow(
    approvals: Handle<Approval>,
    name: &'static str,
    key: String,
    began: Instant,
) -> Result<(&'static str, Option<ApprovalState>), fsm::Error> {
    let (mut watch, mut last) = (approvals.watch(key), None);
    while let Some(purchase) = watch.next().await {
        let purchase = purchase?;
        if let Some(state) = purchase.state.filter(|state| Some(*state) != last) {
            println!("{:5.1} s  {name:<7} {state:<10} {}", began.elapsed().as_secs_f64(), purchase.record.answer);
            last = Some(state);
        }
    }
    Ok((name, last))
}

fn database() -> Result<String, String> {
    let mut arguments = std::env::args().skip(1);
    match (arguments.next().as_deref(), arguments.next()) {
        (None, _) => Ok(format!("sqlite://{}", std::env::temp_dir().join(format!("fsm-approval-{}.db", std::process::id())).display())),
        (Some("--database"), Some(url)) => Ok(url),
        _ => Err("usage: approval [--database URL]".to_owned()),
    }
}

#[tokio::main]
async fn main() -> ExitCode {
    let url = match database() {
        Ok(url) => url,
        Err(usage) => {
            eprintln!("{usage}");
            return ExitCode::from(2);
        }
    };
    match run(&url).await {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("approval: {error}");
            ExitCode::FAILURE
        }
    }
}
