//! The demonstration: payments in motion, two worker processes to kill, a gateway that is down for twenty seconds every minute, the ledger, and
//! the web console. The workers are processes of their own; this one sends the payments and shows the pages.

use std::io::Read;
use std::net::{Ipv4Addr, SocketAddr};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use axum::extract::{Form, State};
use axum::response::{Html, Redirect};
use axum::routing::{get, post};
use fsm::prelude::*;
use serde::Deserialize;
use tokio::net::TcpListener;

use crate::gateway::{Gateway, Ledger, serve};
use crate::machine::Payment;
use crate::{Order, orders};

type Failed = Box<dyn std::error::Error>;

const ADDRESS: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 7878);
const WORKERS: usize = 2;
/// The pause between two payments.
const PAUSE: Duration = Duration::from_millis(300);
/// The seconds of each minute in which the gateway is down. The bank of one card is away for the first half of each minute.
const DOWN: std::ops::Range<u64> = 20..40;
/// A killed worker process is replaced after this time.
const REPLACED_AFTER: Duration = Duration::from_secs(5);
/// One payment in this many uses the card whose bank is away.
const UNLUCKY: usize = 25;

/// A worker process: it runs the verbs until its input ends, which is when the process that started it ends.
pub async fn work(database: &str, gateway: SocketAddr) -> Result<(), Failed> {
    let runtime = Runtime::builder().database(database).data(Gateway::At(gateway)).start().await?;
    tokio::task::spawn_blocking(|| std::io::stdin().read_to_end(&mut Vec::new())).await??;
    Ok(runtime.shutdown().await?)
}

/// The data of the page beside the console.
struct Shown {
    ledger: Arc<Ledger>,
    began: Instant,
    workers: Mutex<Vec<Worker>>,
    totals: Mutex<Totals>,
}

struct Worker {
    process: Child,
    killed_at: Option<Instant>,
}

/// The payments of this run.
#[derive(Default, Clone)]
struct Totals {
    sent: usize,
    charged: usize,
    charged_cents: u64,
    in_error: usize,
    /// The payments that have not ended. A charge that is at the gateway already, and not yet in the database, belongs to one of them.
    open: usize,
}

pub async fn run(database: &str) -> Result<(), Failed> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
    let gateway = listener.local_addr()?;
    let ledger = Arc::new(Ledger::default());
    tokio::spawn(serve(listener, Arc::clone(&ledger)));
    let start = || started(database, gateway);
    let workers = (0..WORKERS).map(|_| start()).collect::<Result<Vec<Worker>, _>>()?;
    let shown = Arc::new(Shown { ledger, began: Instant::now(), workers: Mutex::new(workers), totals: Mutex::default() });
    let client = connected(database).await?;
    let pages = axum::Router::new()
        .route("/", get(page))
        .route("/kill", post(kill))
        .with_state(Arc::clone(&shown))
        .nest("/fsm", fsm::console(&client).router())
        .into_make_service_with_connect_info::<SocketAddr>();
    let pages = axum::serve(TcpListener::bind(ADDRESS).await?, pages);
    println!("the demonstration is at http://{ADDRESS}, and its console at http://{ADDRESS}/fsm; Ctrl-C ends it");
    let minutes = minutes(&shown);
    tokio::select! {
        ended = async { pages.await } => Ok(ended?),
        ended = make_payments(&client, &shown) => ended,
        ended = replace(&shown, start) => ended,
        () = minutes => Ok(()),
        ended = tokio::signal::ctrl_c() => Ok(ended?),
    }
}

fn started(database: &str, gateway: SocketAddr) -> Result<Worker, Failed> {
    let mut command = Command::new(std::env::current_exe()?);
    let process = command.args(["--worker", &gateway.to_string(), database]).stdin(Stdio::piped()).spawn()?;
    Ok(Worker { process, killed_at: None })
}

/// A connection to the database, as soon as a worker has made its tables.
async fn connected(database: &str) -> Result<Client, Failed> {
    let begun = Instant::now();
    loop {
        match Client::connect(database).await {
            Ok(client) => return Ok(client),
            Err(error) if begun.elapsed() > Duration::from_secs(30) => return Err(error.into()),
            Err(_) => tokio::time::sleep(Duration::from_millis(100)).await,
        }
    }
}

/// The clock of the gateway's outages.
async fn minutes(shown: &Shown) {
    loop {
        let second = second(shown);
        shown.ledger.is_down.store(DOWN.contains(&second), Ordering::Relaxed);
        shown.ledger.is_bank_away.store(second < 30, Ordering::Relaxed);
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

fn second(shown: &Shown) -> u64 {
    shown.began.elapsed().as_secs() % 60
}

/// Sends payments until the program ends, and keeps the totals.
async fn make_payments(client: &Client, shown: &Shown) -> Result<(), Failed> {
    let payments = client.machine::<Payment>();
    let run = Timestamp::from(std::time::SystemTime::now()).as_micros() / 1_000_000 % 1_000_000;
    let mut open: Vec<Order> = Vec::new();
    let (mut totals, all) = (Totals::default(), orders(""));
    loop {
        let mut order = all[totals.sent % all.len()].clone();
        order.key = format!("{run}-{:05}", totals.sent + 1);
        if totals.sent % UNLUCKY == UNLUCKY - 1 {
            order.checkout.card = "6011-0077".to_owned();
        }
        payments.send(&order.key, order.checkout.clone()).dedup("checkout").await?;
        totals.sent += 1;
        open.push(order);
        totals.in_error = 0;
        for order in std::mem::take(&mut open) {
            let payment = payments.get(&order.key).await?;
            match payment {
                Some(payment) if payment.status == Status::Completed => {
                    totals.charged += 1;
                    totals.charged_cents += payment.record.charged_cents;
                }
                payment => {
                    totals.in_error += usize::from(payment.is_some_and(|payment| payment.status == Status::Error));
                    open.push(order);
                }
            }
        }
        totals.open = open.len();
        *shown.totals.lock().expect("no code panics while it holds the totals") = totals.clone();
        tokio::time::sleep(PAUSE).await;
    }
}

/// Starts a new worker process for each that ended.
async fn replace(shown: &Shown, start: impl Fn() -> Result<Worker, Failed>) -> Result<(), Failed> {
    loop {
        {
            let mut workers = shown.workers.lock().expect("no code panics while it holds the workers");
            for worker in workers.iter_mut() {
                if worker.process.try_wait()?.is_some() && worker.killed_at.is_none_or(|at| at.elapsed() > REPLACED_AFTER) {
                    *worker = start()?;
                }
            }
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

#[derive(Deserialize)]
struct Victim {
    process: u32,
}

/// Kills a worker process with SIGKILL, so that it cannot shut down gracefully.
async fn kill(State(shown): State<Arc<Shown>>, Form(Victim { process }): Form<Victim>) -> Redirect {
    let mut workers = shown.workers.lock().expect("no code panics while it holds the workers");
    if let Some(worker) = workers.iter_mut().find(|worker| worker.process.id() == process) {
        // A process that has ended already needs no signal.
        let _ = worker.process.kill();
        worker.killed_at = Some(Instant::now());
    }
    Redirect::to("/")
}

/// The page beside the console. It loads itself again each second.
async fn page(State(shown): State<Arc<Shown>>) -> Html<String> {
    let totals = shown.totals.lock().expect("no code panics while it holds the totals").clone();
    let (charges, cents) = {
        let charges = shown.ledger.charges.lock().expect("no code panics while it holds the ledger");
        (charges.len(), charges.values().sum::<u64>())
    };
    let second = second(&shown);
    let gateway = match second {
        _ if DOWN.contains(&second) => format!("<strong>DOWN</strong> for {} more seconds", DOWN.end - second),
        _ => format!("up; down in {} seconds", (DOWN.start + 60 - second) % 60),
    };
    let bank = if second < 30 { "<strong>AWAY</strong>" } else { "answers" };
    let ahead = charges.saturating_sub(totals.charged);
    let balance = match charges >= totals.charged && ahead <= totals.open && cents >= totals.charged_cents {
        true => {
            format!("The ledger balances: each payment that completed was charged once, and {ahead} charges belong to payments under way.")
        }
        false => "<strong>THE LEDGER DOES NOT BALANCE.</strong>".to_owned(),
    };
    let workers: String = {
        let mut workers = shown.workers.lock().expect("no code panics while it holds the workers");
        let row = |worker: &mut Worker| match (worker.process.id(), worker.process.try_wait()) {
            (process, Ok(None)) => format!(
                "<tr><td>{process}<td>runs<td><form method=post action=/kill><button name=process value={process}>kill it</button></form>"
            ),
            (process, _) => format!("<tr><td>{process}<td><strong>dead</strong><td>a new one starts soon"),
        };
        workers.iter_mut().map(row).collect()
    };
    let repeats = shown.ledger.repeats.load(Ordering::Relaxed);
    Html(format!(
        "<!doctype html><html lang=en><meta charset=utf-8><meta http-equiv=refresh content=1><meta name=viewport content='width=device-width'>\
         <title>Payments</title><style>:root{{color-scheme:light dark;font:15px/1.5 system-ui}}body{{max-width:44rem;margin:1rem auto;padding:0 1rem}}\
         td,th{{padding:.1rem 1rem .1rem 0;text-align:left}}td.n{{text-align:right;font-variant-numeric:tabular-nums}}strong{{color:#d33}}</style>\
         <h1>Payments in motion</h1><p><a href=/fsm target=_blank>The console</a> shows every one of them: open it beside this page.\
         <h2>The world outside</h2><p>The gateway is {gateway}. It loses three answers in ten. The bank of card 6011-0077 {bank}.\
         <h2>Worker processes</h2><table><tr><th>process<th>status<th>{workers}</table>\
         <h2>The ledger</h2><table><tr><th><th>payments<th>cents\
         <tr><td>charged at the gateway<td class=n>{charges}<td class=n>{cents}\
         <tr><td>completed in the database<td class=n>{}<td class=n>{}\
         <tr><td>under way or in error<td class=n>{}<td>\
         <tr><td>of those, <a href='/fsm/instances?machine=payment&amp;status=error' target=_blank>in error</a><td class=n>{}<td></table>\
         <p>{balance} {repeats} charges were repeated after their answer was lost, and changed nothing.",
        totals.charged, totals.charged_cents, totals.open, totals.in_error
    ))
}
