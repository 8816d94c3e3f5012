//! Several hundred payments through a gateway that fails three calls in ten and is down for a while.
//!
//! ```sh
//! cargo run --example payment                                # embedded SQLite, nothing else installed
//! cargo run --example payment -- --database postgres://…     # the same on PostgreSQL
//! cargo run --example payment -- --metrics 127.0.0.1:9464     # again and again until Ctrl-C, with metrics for Prometheus at that address
//! ```
//!
//! The program exits with status 1 if the gateway's ledger does not balance with the payments.

use std::collections::{BTreeMap, HashMap};
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

use fsm::prelude::*;
use fsm::{Handle, HistoryEntry, Instance};
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder};
use serde::{Deserialize, Serialize};

// --- The machine: its events, its record, its verbs and its graph. ---

#[derive(Debug, Clone, Serialize, Deserialize)]
struct Checkout {
    amount_cents: u64,
    card: String,
}
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Charge;
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Capture {
    receipt: String,
}
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Cancel;

/// The record of a payment. It is committed with each transition.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
struct PaymentRecord {
    amount_cents: u64,
    card: String,
    charged_cents: u64,
}

/// Stores the amount and the card in the record, and continues with the charge.
#[verb]
async fn created(ctx: &mut Ctx<'_>, record: &mut PaymentRecord, event: Checkout) -> Result {
    record.amount_cents = event.amount_cents;
    record.card = event.card;
    Ok(ctx.next(Charge)?)
}

/// Charges the card. The gateway recognises a repeated charge by its idempotency key.
#[verb(timeout = "5s")]
#[retry(8, "100ms", "1s", jitter = 0.2, give_up_on(Declined))]
async fn charged(ctx: &mut Ctx<'_>, record: &mut PaymentRecord, gateway: Data<Gateway>, _event: Charge) -> Result {
    let receipt = gateway.charge(ctx.idempotency_key(), &record.card, record.amount_cents).await?;
    record.charged_cents = record.amount_cents;
    Ok(ctx.next(Capture { receipt })?)
}

#[verb]
async fn settled(event: Capture) -> Result {
    if event.receipt.is_empty() { Err(Failure::permanent("the gateway gave no receipt")) } else { Ok(()) }
}

#[verb]
async fn cancelled(_event: Cancel) -> Result {
    Ok(())
}

#[verb]
async fn abandoned(_timeout: Timeout) -> Result {
    Ok(())
}

fsm! {
    /// An online payment, from checkout to settlement.
    machine Payment = "payment" {
        keeps PaymentRecord;
        start created;
        created -> charged | cancelled;
        created after "24h" -> abandoned;
        charged -> settled;
        end settled, cancelled, abandoned;
    }
}

// --- The outside world: a gateway that fails. ---

#[derive(Debug)]
struct Unreachable(&'static str);
impl std::fmt::Display for Unreachable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.0)
    }
}
impl std::error::Error for Unreachable {}

#[derive(Debug)]
struct Declined;
impl std::fmt::Display for Declined {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the card was declined")
    }
}
impl std::error::Error for Declined {}

/// A payment gateway inside this process, with the ledger that a real one would keep.
struct Gateway {
    ledger: std::sync::Arc<Ledger>,
}

#[derive(Default)]
struct Ledger {
    /// The charged cents by idempotency key. A second charge with the same key is the same charge.
    charges: Mutex<HashMap<String, u64>>,
    calls: AtomicU64,
    repeats: AtomicU64,
    is_down: AtomicBool,
    is_bank_away: AtomicBool,
}

impl Gateway {
    async fn charge(&self, idempotency_key: &str, card: &str, cents: u64) -> Result<String, Failure> {
        let ledger = &self.ledger;
        let call = ledger.calls.fetch_add(1, Ordering::Relaxed);
        tokio::time::sleep(Duration::from_millis(3)).await;
        if ledger.is_down.load(Ordering::Relaxed) {
            return Err(Unreachable("the gateway is down").into());
        }
        if card == "4000-0002" {
            return Err(Declined.into());
        }
        if card == "6011-0077" && ledger.is_bank_away.load(Ordering::Relaxed) {
            return Err(Unreachable("the bank of this card does not answer").into());
        }
        // Three calls in ten fail: two before the charge, and one after it, so that only the answer is lost.
        let luck = call.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32;
        if matches!(luck % 10, 0 | 1) {
            return Err(Unreachable("the gateway does not answer").into());
        }
        if ledger.charges.lock().expect("no code panics while it holds the ledger").insert(idempotency_key.to_owned(), cents).is_some() {
            ledger.repeats.fetch_add(1, Ordering::Relaxed);
        }
        if luck % 10 == 2 {
            return Err(Unreachable("the connection broke before the answer").into());
        }
        Ok(format!("receipt-{call}"))
    }
}

// --- The program. ---

/// A payment to make: one line of `payments.csv`.
struct Order {
    key: String,
    checkout: Checkout,
}

fn orders(run: &str) -> Vec<Order> {
    let rows = include_str!("payments.csv").lines().skip(1).map(|line| line.split(',').collect::<Vec<_>>());
    rows.map(|row| {
        let amount_cents = row[1].parse().expect("the second column of payments.csv is a number of cents");
        Order { key: format!("{run}{}", row[0]), checkout: Checkout { amount_cents, card: row[2].to_owned() } }
    })
    .collect()
}

const USAGE: &str = "usage: payment [--database URL] [--metrics ADDRESS]";

/// The command line.
struct Arguments {
    database: String,
    metrics: Option<std::net::SocketAddr>,
}

fn arguments() -> Result<Arguments, String> {
    let file = std::env::temp_dir().join(format!("fsm-payment-{}.db", std::process::id()));
    let mut read = Arguments { database: format!("sqlite://{}", file.display()), metrics: None };
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        match (word.as_str(), words.next()) {
            ("--database", Some(url)) => read.database = url,
            ("--metrics", Some(address)) => {
                read.metrics = Some(address.parse().map_err(|_| format!("`{address}` is not an address like 127.0.0.1:9464\n{USAGE}"))?);
            }
            _ => return Err(USAGE.to_owned()),
        }
    }
    Ok(read)
}

#[tokio::main]
async fn main() -> ExitCode {
    tracing_subscriber::fmt().with_env_filter(tracing_subscriber::EnvFilter::from_env("FSM_LOG")).with_writer(std::io::stderr).init();
    let arguments = match arguments() {
        Ok(arguments) => arguments,
        Err(usage) => {
            eprintln!("{usage}");
            return ExitCode::from(2);
        }
    };
    if let Some(address) = arguments.metrics
        && let Err(error) = serve_metrics(address)
    {
        eprintln!("payment: metrics cannot be served at {address}: {error}");
        return ExitCode::FAILURE;
    }
    loop {
        match run(arguments.database.clone()).await {
            Ok(true) if arguments.metrics.is_some() => println!("once more; Ctrl-C ends it\n"),
            Ok(true) => return ExitCode::SUCCESS,
            Ok(false) => return ExitCode::FAILURE,
            Err(error) => {
                eprintln!("payment: {error}");
                return ExitCode::FAILURE;
            }
        }
    }
}

/// Serves the metrics of this process to Prometheus. The recorder must be installed before the runtime is built.
fn serve_metrics(address: std::net::SocketAddr) -> Result<(), metrics_exporter_prometheus::BuildError> {
    let exporter = PrometheusBuilder::new()
        .with_http_listener(address)
        .set_buckets_for_metric(Matcher::Suffix("_seconds".to_owned()), fsm::SECONDS_BUCKETS)?
        .set_buckets_for_metric(Matcher::Suffix("_size".to_owned()), fsm::SIZE_BUCKETS)?;
    exporter.install()?;
    println!("metrics at http://{address}/metrics");
    Ok(())
}

async fn run(url: String) -> Result<bool, fsm::Error> {
    let began = Instant::now();
    let ledger = std::sync::Arc::new(Ledger::default());
    ledger.is_bank_away.store(true, Ordering::Relaxed);
    let runtime = Runtime::builder().database(&url).data(Gateway { ledger: ledger.clone() }).start().await?;
    let payments = runtime.machine::<Payment>();

    // The database may hold payments of earlier runs, so the keys of each run begin with a number of their own.
    let orders = orders(&format!("{}-", Timestamp::from(std::time::SystemTime::now()).as_micros() / 1_000_000 % 1_000_000));
    println!("{} payments through a gateway that fails 3 calls in 10, on {}", orders.len(), shown(&url));
    for order in &orders {
        payments.send(&order.key, order.checkout.clone()).dedup("checkout").await?;
    }
    let outage = tokio::spawn(outage(ledger.clone()));
    watch(&payments, &orders, &ledger, began).await?;
    outage.await.expect("the outage ends");

    report(&payments, &orders, &ledger).await?;
    let balances = balance(&payments, &orders, &ledger).await?;
    runtime.shutdown().await?;
    println!(
        "\n{} in {:.1} s",
        if balances { "The ledger balances," } else { "THE LEDGER DOES NOT BALANCE," },
        began.elapsed().as_secs_f64()
    );
    Ok(balances)
}

/// The gateway goes down after 150 ms, for 1.2 s.
async fn outage(ledger: std::sync::Arc<Ledger>) {
    tokio::time::sleep(Duration::from_millis(150)).await;
    ledger.is_down.store(true, Ordering::Relaxed);
    tokio::time::sleep(Duration::from_millis(1200)).await;
    ledger.is_down.store(false, Ordering::Relaxed);
}

/// Prints the number of payments in each phase every 400 ms, until none has an open call.
async fn watch(payments: &Handle<Payment>, orders: &[Order], ledger: &Ledger, began: Instant) -> Result<(), fsm::Error> {
    loop {
        let all = ours(payments, orders).await?;
        let under_way = all.iter().filter(|payment| payment.call.is_some()).count();
        let waiting = all.iter().filter(|payment| payment.call.as_ref().is_some_and(|call| call.attempt > 1)).count();
        let gateway = if ledger.is_down.load(Ordering::Relaxed) { "DOWN" } else { "up" };
        let settled = all.iter().filter(|payment| payment.status == Status::Completed).count();
        println!(
            "{:5.1} s  gateway {gateway:4}  settled {settled:3}  in progress {under_way:3} ({waiting:3} in a retry)  in error {}",
            began.elapsed().as_secs_f64(),
            all.iter().filter(|payment| payment.status == Status::Error).count(),
        );
        if under_way == 0 {
            return Ok(());
        }
        tokio::time::sleep(Duration::from_millis(400)).await;
    }
}

async fn ours(payments: &Handle<Payment>, orders: &[Order]) -> Result<Vec<Instance<Payment>>, fsm::Error> {
    let keys: std::collections::HashSet<&str> = orders.iter().map(|order| order.key.as_str()).collect();
    let (mut all, mut filter) = (Vec::new(), Filter::default().limit(500));
    loop {
        let page = payments.list(filter.clone()).await?;
        all.extend(page.items.into_iter().filter(|payment| keys.contains(payment.key.as_str())));
        match page.next {
            Some(cursor) => filter = filter.after(cursor),
            None => return Ok(all),
        }
    }
}

async fn report(payments: &Handle<Payment>, orders: &[Order], ledger: &Ledger) -> Result<(), fsm::Error> {
    let all = ours(payments, orders).await?;
    let mut table: BTreeMap<(String, Status), (usize, usize, usize)> = BTreeMap::new();
    let mut retried: Option<(usize, String)> = None;
    for payment in &all {
        let attempts = payments.attempts(&payment.key).await?;
        let failed = attempts.iter().filter(|attempt| attempt.state == AttemptState::Error).count();
        let state = payment.state.map_or("-".to_owned(), |state| state.to_string());
        let row = table.entry((state, payment.status)).or_default();
        *row = (row.0 + 1, row.1 + attempts.len(), row.2 + failed);
        if payment.status == Status::Completed && retried.as_ref().is_none_or(|(most, _)| failed > *most) {
            retried = Some((failed, payment.key.clone()));
        }
    }
    println!("\n{:<12} {:<10} {:>8} {:>9} {:>7}", "state", "status", "payments", "attempts", "errors");
    for ((state, status), (count, attempts, errors)) in &table {
        println!("{state:<12} {status:<10} {count:>8} {attempts:>9} {errors:>7}");
    }
    if let Some((failed, key)) = retried {
        println!("\n{key} was retried {failed} times and settled:");
        timeline(&payments.history(&key).await?);
    }
    retry_by_hand(payments, &all, ledger).await
}

/// The bank of one card was unreachable for longer than the payment's retries lasted. Now it answers again, and an operator retries the
/// payment.
async fn retry_by_hand(payments: &Handle<Payment>, all: &[Instance<Payment>], ledger: &Ledger) -> Result<(), fsm::Error> {
    let in_error = |payment: &&Instance<Payment>| payment.error.as_ref().is_some_and(|error| error.contains("bank"));
    let Some(stuck) = all.iter().find(in_error) else { return Ok(()) };
    println!("\n{} is in error: {}", stuck.key, stuck.error.as_deref().unwrap_or_default());
    ledger.is_bank_away.store(false, Ordering::Relaxed);
    payments.retry(&stuck.key).reason("the bank is back").await?;
    let payment = payments.settled(&stuck.key).within(Duration::from_secs(20)).await?;
    println!("after the manual retry it is {} in {:?}:", payment.status, payment.state);
    timeline(&payments.history(&stuck.key).await?);
    retry_the_unlucky(payments, all).await
}

/// Three calls in ten fail, so a payment can fail in all of its attempts, possibly after its charge succeeded. It does not balance until an
/// operator retries it, which uses the same idempotency key.
async fn retry_the_unlucky(payments: &Handle<Payment>, all: &[Instance<Payment>]) -> Result<(), fsm::Error> {
    let is_unlucky = |payment: &&Instance<Payment>| payment.error.as_ref().is_some_and(|error| !error.contains("declined"));
    for payment in all.iter().filter(is_unlucky) {
        while let Some(Instance { status: Status::Error, .. }) = payments.get(&payment.key).await? {
            println!("{} failed in all of its attempts and is retried manually as well", payment.key);
            payments.retry(&payment.key).reason("bad luck").await?;
            payments.settled(&payment.key).within(Duration::from_secs(30)).await?;
        }
    }
    Ok(())
}

fn timeline(history: &[HistoryEntry]) {
    for entry in history {
        println!("  {entry}");
    }
}

/// Checks that every payment that left `created` was charged exactly once, with its amount, and that there is no other charge.
async fn balance(payments: &Handle<Payment>, orders: &[Order], ledger: &Ledger) -> Result<bool, fsm::Error> {
    let all = ours(payments, orders).await?;
    let left: Vec<_> = all.iter().filter(|payment| !matches!(payment.state, None | Some(PaymentState::Created))).collect();
    let charges = ledger.charges.lock().expect("no code panics while it holds the ledger").clone();
    let by_us: u64 = left.iter().map(|payment| payment.record.charged_cents).sum();
    let by_gateway: u64 = charges.values().sum();
    println!(
        "\nledger: {} charges of {} cents at the gateway; {} payments of {} cents left `created`",
        charges.len(),
        by_gateway,
        left.len(),
        by_us
    );
    println!(
        "        {} calls; {} of them repeated a charge whose answer had been lost, and changed nothing",
        ledger.calls.load(Ordering::Relaxed),
        ledger.repeats.load(Ordering::Relaxed)
    );
    Ok(all.len() == orders.len() && charges.len() == left.len() && by_us == by_gateway)
}

fn shown(url: &str) -> String {
    match url.rsplit_once('@') {
        Some((_, host)) => format!("PostgreSQL at {host}"),
        None => url.to_owned(),
    }
}
