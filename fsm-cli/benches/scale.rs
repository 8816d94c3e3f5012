//! Measures the duration of each screen of the command and of each page of the console on a database with a long history: `cargo xtask scale`.

use std::net::SocketAddr;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::{Parser, ValueEnum};
use fsm::Timestamp;
use fsm::testing::scale;
use fsm_cli::stage::Stage;
use fsm_console::Console;
use fsm_runtime::admin::Opening;
use sqlx::{AssertSqlSafe, Connection, PgConnection};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

type Failed = Box<dyn std::error::Error>;

/// The limit for each screen on an otherwise idle machine. The best of several runs is compared with it.
const MOST: Duration = Duration::from_millis(200);
/// The number of runs of each screen.
const TIMES: usize = 11;
/// The number of open calls of a dead worker, and the limit for finding them.
const OPEN_CALLS: usize = 256;
const MOST_FOR_DEAD_WORKER: Duration = Duration::from_millis(100);
/// About five million attempts.
const INSTANCES: u64 = 1_030_000;

/// The measured commands, with arguments that make them slow.
const SCREENS: [&[&str]; 31] = [
    &["machines"],
    &["ls"],
    &["ls", "order"],
    &["ls", "parcel"],
    &["ls", "order", "--status", "running"],
    &["ls", "order", "--status", "completed"],
    &["ls", "order", "--status", "cancelled"],
    &["ls", "order", "--status", "error"],
    &["ls", "order", "--state", "placed"],
    &["ls", "order", "--state", "paid"],
    &["ls", "order", "--state", "expired"],
    &["ls", "order", "--error", "bank 3"],
    &["ls", "order", "--error", "no such text"],
    &["ls", "order", "--older", "1h"],
    &["ls", "order", "--older", "100d"],
    &["ls", "order", "--paused"],
    &["ls", "order", "--paused", "--state", "shipped"],
    &["ls", "order", "--limit", "1000"],
    &["ls", "order", "--where", "customer=c-50000"],
    &["ls", "order", "--where", "tenant=t-1"],
    &["ls", "order", "--where", "tenant=t-1", "--where", "customer=c-50000"],
    &["ls", "order", "--where", "tenant=t-1", "--key", "order-12*"],
    &["show", "order", "order-500000"],
    &["show", "order", "order-500996"],
    &["errors"],
    &["due"],
    &["workers"],
    &["stats"],
    &["graph", "order", "--counts"],
    &["graph", "order", "--counts", "--format", "svg"],
    &["doctor"],
];

/// The measured pages of the web console. Each is asked for over HTTP, rendered and read.
const PAGES: [&str; 22] = [
    "/",
    "/m/order",
    "/m/parcel",
    "/instances?machine=order",
    "/instances?machine=order&status=running",
    "/instances?machine=order&status=retrying",
    "/instances?machine=order&status=error",
    "/instances?machine=order&status=paused",
    "/instances?machine=order&status=completed",
    "/instances?machine=order&state=paid",
    "/instances?machine=order&status=error&error=bank",
    "/instances?machine=order&status=error&error=no+such+text",
    "/instances?machine=order&prefix=order-12",
    "/instances?machine=order&field.customer=c-50000",
    "/instances?machine=order&field.tenant=t-1",
    "/i/order/order-500000",
    "/i/order/order-500996",
    "/search?q=order-500000",
    "/errors",
    "/due",
    "/workers",
    "/audit",
];

/// Measures each screen of the `fsm` command on a large database.
#[derive(Parser)]
#[command(name = "cargo xtask scale")]
struct Arguments {
    /// The databases; both if none is named
    databases: Vec<On>,
    /// The number of instances
    #[arg(long, value_name = "N", default_value_t = INSTANCES)]
    instances: u64,
    /// Cargo passes this to every benchmark
    #[arg(long = "bench", hide = true)]
    _is_bench: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum On {
    Sqlite,
    Postgres,
}

#[tokio::main]
async fn main() -> ExitCode {
    let arguments = Arguments::try_parse().unwrap_or_else(|error| {
        // The exit code counts; the answer may be lost with its terminal.
        let _ = error.print();
        std::process::exit(i32::from(error.use_stderr()))
    });
    match measured(&arguments).await {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("scale: {error}");
            ExitCode::FAILURE
        }
    }
}

async fn measured(arguments: &Arguments) -> Result<bool, Failed> {
    let instances = arguments.instances;
    let wants = |database| arguments.databases.is_empty() || arguments.databases.contains(&database);
    let mut is_fast = true;
    if wants(On::Sqlite) {
        let folder = format!("{}/fsm_scale_{}", env!("CARGO_TARGET_TMPDIR"), std::process::id());
        std::fs::create_dir_all(&folder)?;
        let shown = database("SQLite", &format!("sqlite://{folder}/scale.db"), instances).await;
        std::fs::remove_dir_all(&folder)?;
        is_fast &= shown?;
    }
    if wants(On::Postgres) {
        let server = fsm::testing::cluster::url()?;
        let name = format!("fsm_scale_{}", std::process::id());
        run_on(&server, &format!("create database {name}")).await?;
        let url = format!("{}/{name}", server.rsplit_once('/').map_or(server.as_str(), |(server, _)| server));
        let shown = database("PostgreSQL", &url, instances).await;
        run_on(&server, &format!("drop database {name} with (force)")).await?;
        is_fast &= shown?;
    }
    Ok(is_fast)
}

async fn run_on(server: &str, text: &str) -> Result<(), Failed> {
    let mut connection = PgConnection::connect(server).await?;
    sqlx::raw_sql(AssertSqlSafe(text.to_owned())).execute(&mut connection).await?;
    Ok(())
}

/// Fills the database and runs each screen on it. Returns true if all were within the limit.
async fn database(name: &str, url: &str, instances: u64) -> Result<bool, Failed> {
    let begun = Instant::now();
    scale::fill(url, instances).await?;
    println!("\n{name}: {instances} instances written in {:.0?}\n", begun.elapsed());
    println!("| `fsm …` | first | best of {TIMES} | median | code |\n|---|---|---|---|---|");
    let mut is_fast = true;
    for screen in SCREENS {
        let mut took = Vec::new();
        let mut code = 0;
        for _ in 0..TIMES {
            let begun = Instant::now();
            code = shown(url, screen, instances).await;
            took.push(begun.elapsed());
        }
        let first = took[0];
        took.sort();
        let (best, median) = (took[0], took[TIMES / 2]);
        let is_slow = if best > MOST { "  **slow**" } else { "" };
        println!("| {} | {:.1} ms | {:.1} ms{is_slow} | {:.1} ms | {code} |", screen.join(" "), ms(first), ms(best), ms(median));
        is_fast &= best <= MOST && matches!(code, 0 | 1);
    }
    Ok(pages(url, instances).await? && dead_worker(url, instances).await? && is_fast)
}

/// Measures how long a sweeper searches for the open calls of a dead worker. Returns true if that is within its limit.
async fn dead_worker(url: &str, instances: u64) -> Result<bool, Failed> {
    let mut took = scale::find_calls_of_dead_worker(url, instances, OPEN_CALLS).await?;
    let first = took[0];
    took.sort();
    let (best, median) = (took[0], took[TIMES / 2]);
    println!("\n{OPEN_CALLS} open calls of a dead worker: first {:.1} ms, best {:.1} ms, median {:.1} ms", ms(first), ms(best), ms(median));
    Ok(best <= MOST_FOR_DEAD_WORKER)
}

/// Measures the pages of a console of this database. Returns true if all were within the limit.
async fn pages(url: &str, instances: u64) -> Result<bool, Failed> {
    let now = Timestamp::from_micros(scale::ends_at_ms(instances) * 1000);
    let address = std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?;
    let server = tokio::spawn(Console::open(Opening::to_act(url).at(now)).serve(address, std::future::pending()));
    println!("\n| page | first | best of {TIMES} | median | status |\n|---|---|---|---|---|");
    let mut is_fast = true;
    for page in PAGES {
        let (mut took, mut status) = (Vec::new(), String::new());
        for _ in 0..TIMES {
            let begun = Instant::now();
            status = asked(address, page).await?;
            took.push(begun.elapsed());
        }
        let first = took[0];
        took.sort();
        let (best, median) = (took[0], took[TIMES / 2]);
        let is_slow = if best > MOST { "  **slow**" } else { "" };
        println!("| {page} | {:.1} ms | {:.1} ms{is_slow} | {:.1} ms | {status} |", ms(first), ms(best), ms(median));
        is_fast &= best <= MOST && ["200", "303", "404"].contains(&&*status);
    }
    server.abort();
    Ok(is_fast)
}

/// Reads a page to its end, and returns the status. The server may not have begun yet.
async fn asked(address: SocketAddr, page: &str) -> Result<String, Failed> {
    let begun = Instant::now();
    let mut stream = loop {
        match TcpStream::connect(address).await {
            Ok(stream) => break stream,
            Err(error) if begun.elapsed() > Duration::from_secs(10) => return Err(error.into()),
            Err(_) => tokio::time::sleep(Duration::from_millis(10)).await,
        }
    };
    stream.write_all(format!("GET {page} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n\r\n").as_bytes()).await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    Ok(answer.split(' ').nth(1).unwrap_or_default().to_owned())
}

fn ms(span: Duration) -> f64 {
    span.as_secs_f64() * 1000.0
}

async fn shown(url: &str, screen: &[&str], instances: u64) -> u8 {
    let mut stage = Stage {
        out: Box::new(std::io::sink()),
        talk: Box::new(std::io::sink()),
        input: Box::new(std::io::empty()),
        width: Some(120),
        answers: false,
        shows_progress: false,
        now: Some(Timestamp::from_micros(scale::ends_at_ms(instances) * 1000)),
        actor: None,
    };
    let words = ["fsm", "--database", url].into_iter().chain(screen.iter().copied()).map(Into::into);
    fsm_cli::run(words, &mut stage).await
}
