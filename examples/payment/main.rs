//! Several hundred payments through a gateway that fails three calls in ten and is down for a while.
//!
//! ```sh
//! cargo run --example payment                                # embedded SQLite, nothing else installed
//! cargo run --example payment -- --database postgres://…     # the same on PostgreSQL
//! cargo run --example payment -- --console                   # payments in motion, workers to kill, and the web console at http://127.0.0.1:7878
//! cargo run --example payment -- --metrics 127.0.0.1:9464    # again and again until Ctrl-C, with metrics for Prometheus at that address
//! cargo run --example payment -- --otlp http://127.0.0.1:4317 # spans for a collector of OpenTelemetry at that address (gRPC)
//! FSM_LOG=info cargo run --example payment -- --json-log     # the log as lines of JSON
//! ```
//!
//! The program exits with status 1 if the gateway's ledger does not balance with the payments.

mod demonstration;
mod gateway;
mod machine;
mod report;
mod telemetry;

use std::net::SocketAddr;
use std::process::ExitCode;
use std::sync::atomic::Ordering;
use std::time::Instant;

use fsm::prelude::*;
use tracing::Instrument;

use gateway::{Gateway, Ledger};
use machine::{Checkout, Payment};
use report::{balance, report, watch};

/// A payment to make: one line of `payments.csv`.
#[derive(Clone)]
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

const USAGE: &str = "usage: payment [--database URL] [--console] [--metrics ADDRESS] [--otlp URL] [--json-log]";

/// The command line.
struct Arguments {
    database: String,
    telemetry: telemetry::Wanted,
    has_console: bool,
    /// The database and the gateway of a worker process of the demonstration.
    worker: Option<(String, SocketAddr)>,
}

fn arguments() -> Result<Arguments, String> {
    let file = std::env::temp_dir().join(format!("fsm-payment-{}.db", std::process::id()));
    let mut read = Arguments {
        database: format!("sqlite://{}", file.display()),
        telemetry: telemetry::Wanted::default(),
        has_console: false,
        worker: None,
    };
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        match word.as_str() {
            "--console" => read.has_console = true,
            "--worker" => {
                let gateway = words.next().and_then(|address| address.parse().ok()).ok_or(USAGE)?;
                read.worker = Some((words.next().ok_or(USAGE)?, gateway));
            }
            "--database" => read.database = words.next().ok_or(USAGE)?,
            "--metrics" => {
                let address = words.next().ok_or(USAGE)?;
                let parsed = address.parse().map_err(|_| format!("`{address}` is not an address like 127.0.0.1:9464\n{USAGE}"))?;
                read.telemetry.metrics = Some(parsed);
            }
            "--otlp" => read.telemetry.otlp = Some(words.next().ok_or(USAGE)?),
            "--json-log" => read.telemetry.has_json_log = true,
            _ => return Err(format!("`{word}` is not an option\n{USAGE}")),
        }
    }
    Ok(read)
}

#[tokio::main]
async fn main() -> ExitCode {
    let arguments = match arguments() {
        Ok(arguments) => arguments,
        Err(usage) => {
            eprintln!("{usage}");
            return ExitCode::from(2);
        }
    };
    let telemetry = match telemetry::install(&arguments.telemetry) {
        Ok(telemetry) => telemetry,
        Err(error) => return exit_code(Err(error)),
    };
    let ended = match &arguments.worker {
        Some((database, gateway)) => exit_code(demonstration::work(database, *gateway).await),
        None if arguments.has_console => exit_code(demonstration::run(&arguments.database).await),
        None => again_and_again(&arguments).await,
    };
    telemetry.flush();
    ended
}

/// Makes all payments once. With metrics it makes them again until Ctrl-C, because metrics change only while payments move.
async fn again_and_again(arguments: &Arguments) -> ExitCode {
    loop {
        let ran = tokio::select! {
            ran = run(&arguments.database) => ran,
            _ = tokio::signal::ctrl_c() => return ExitCode::SUCCESS,
        };
        match ran {
            Ok(true) if arguments.telemetry.metrics.is_some() => println!("once more; Ctrl-C ends it\n"),
            Ok(true) => return ExitCode::SUCCESS,
            Ok(false) => return ExitCode::FAILURE,
            Err(error) => {
                eprintln!("payment: {error}");
                return ExitCode::FAILURE;
            }
        }
    }
}

fn exit_code(ended: Result<(), Box<dyn std::error::Error>>) -> ExitCode {
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("payment: {error}");
            ExitCode::FAILURE
        }
    }
}

async fn run(url: &str) -> Result<bool, fsm::Error> {
    let began = Instant::now();
    let ledger = std::sync::Arc::new(Ledger::default());
    ledger.is_bank_away.store(true, Ordering::Relaxed);
    let runtime = Runtime::builder().database(url).data(Gateway::Here(ledger.clone())).start().await?;
    let payments = runtime.machine::<Payment>();

    // The database may hold payments of earlier runs, so the keys of each run begin with a number of their own.
    let orders = orders(&format!("{}-", Timestamp::from(std::time::SystemTime::now()).as_micros() / 1_000_000 % 1_000_000));
    println!("{} payments through a gateway that fails 3 calls in 10, on {}", orders.len(), shown(url));
    for order in &orders {
        // In a server, this is the span of the HTTP request. The spans of the attempts link to the send in it.
        let checkout = tracing::info_span!("checkout", payment = order.key);
        payments.send(&order.key, order.checkout.clone()).dedup("checkout").into_future().instrument(checkout).await?;
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

fn shown(url: &str) -> String {
    match url.rsplit_once('@') {
        Some((_, host)) => format!("PostgreSQL at {host}"),
        None => url.to_owned(),
    }
}
