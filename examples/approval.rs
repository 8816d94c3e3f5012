//! Purchases that a person approves. Nobody answers in time: somebody else is asked. Nobody answers at all: it lapses.
//!
//! ```sh
//! cargo run --example approval                                # embedded SQLite, nothing else installed
//! cargo run --example approval -- --database postgres://…     # the same on PostgreSQL
//! ```
//!
//! While a purchase waits for an answer it is a row: no task, no thread, and no process that must live until then. Here people
//! have 600 ms; with `"3 days"` in their place nothing else changes. It exits 1 if a purchase does not end as it should.

use std::collections::HashMap;
use std::process::ExitCode;
use std::time::Instant;

use fsm::Handle;
use fsm::prelude::*;
use serde::{Deserialize, Serialize};

// --- What happens to a purchase: events from outside, and what it remembers. ---

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

// --- One function for each state: it does what is to be done to enter it. ---

/// Asks the one who pays. If the mail server is down, the retries see to it.
#[verb]
#[retry(20, "1s", "1h")]
async fn asked(record: &mut Purchase, mail: Data<Mail>, event: Request) -> Result {
    record.item = event.item;
    record.cents = event.cents;
    mail.send("head of department", &record.item);
    Ok(())
}

/// The time to answer is over: another person is asked. Nobody sent this event; the timer did.
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

/// Stands for a mail server.
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
    // A database that is used again has purchases of earlier runs.
    let key = |name: &str| format!("{name}-{}", std::process::id());

    let mut watches = Vec::new();
    for (name, item, cents) in
        [("laptop", "a laptop", 180_000), ("chair", "a gilded chair", 900_000), ("pens", "pens", 900), ("car", "a car", 5_000_000)]
    {
        approvals.send(key(name), Request { item: item.into(), cents }).await?;
        watches.push(tokio::spawn(follow(approvals.clone(), name, key(name), began)));
    }

    // The head of department reads mails at once, but not all of them.
    approvals.settled(key("laptop")).await?;
    approvals.send(key("laptop"), Approve { by: "the head".into() }).dedup("answer").await?;
    approvals.settled(key("chair")).await?;
    approvals.send(key("chair"), Decline { by: "the head".into(), reason: "not gilded".into() }).dedup("answer").await?;

    // The director answers what was escalated, and only one of the two.
    let mut pens = approvals.watch(key("pens"));
    while let Some(purchase) = pens.next().await {
        if purchase?.state == Some(ApprovalState::Escalated) {
            approvals.send(key("pens"), Approve { by: "the director".into() }).dedup("answer").await?;
        }
    }

    let mut ended = HashMap::new();
    for watch in watches {
        let (name, state) = watch.await.expect("a watch does not panic")?;
        ended.insert(name, state);
    }

    let late = approvals.send(key("car"), Approve { by: "the director".into() }).await.expect_err("it has lapsed");
    println!("\na late answer is refused: {late}");
    println!("\nthe history of the pens:");
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
    println!("\n{}", if is_well { "Every purchase ended as it should." } else { "A PURCHASE DID NOT END AS IT SHOULD." });
    Ok(is_well)
}

/// Says what becomes of one purchase, until it has ended.
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
