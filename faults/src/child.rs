//! The child process: a worker, a sender or both. It runs until it is killed or the harness ends.

use std::io::BufRead;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use fsm::{Client, Handle, Runtime};
use serde::{Deserialize, Serialize};

use crate::Failure;
use crate::basket::{Basket, Item};
use crate::bell::{self, Bell};
use crate::crane::{self, Crane};
use crate::ledger::{Ledger, Line};
use crate::load::{Caller, Load};
use crate::machine::{Account, OnPostgres, Receipt, Till};
use crate::purchase::Purchase;
use crate::random::Random;

/// The settings of a child process.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Spec {
    /// The name of its ledger.
    pub name: String,
    pub url: String,
    /// The folder of the ledgers.
    pub folder: PathBuf,
    /// True if it runs verbs.
    pub runs_verbs: bool,
    pub load: Load,
    pub lease: Duration,
    pub concurrency: u32,
    pub connections: u32,
    /// The time limit of one database operation.
    pub deadline: Duration,
    /// The limit of each inbox. Senders treat a refusal for lack of room as a mistake, so it has to be above what they send.
    pub inbox: u64,
    /// True if nobody can tell whether this process still exists, as in a container.
    pub is_in_a_container: bool,
    /// True if it has a schedule that rings every second.
    pub has_schedule: bool,
    /// The number of seconds by which its clock is ahead.
    pub clock_ahead_s: i64,
    /// The number of threads of its tokio runtime.
    pub threads: usize,
    pub seed: u64,
}

/// The line on a child's input after which it sends nothing more.
pub const STOP_SENDING: &str = "rest";

/// Runs until the process ends.
pub fn run(spec: &Spec) -> Result<(), Failure> {
    if spec.clock_ahead_s != 0 {
        fsm::testing::set_clock_ahead(spec.clock_ahead_s.saturating_mul(1_000_000));
    }
    let stops_sending = Arc::<AtomicBool>::default();
    let stop_flag = Arc::clone(&stops_sending);
    std::thread::Builder::new().name("orders".into()).spawn(move || read_commands(&stop_flag))?;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(spec.threads).enable_all().build()?;
    runtime.block_on(run_until_killed(spec, stops_sending))
}

/// The input ends when the harness ends, in whatever way. The child then ends too.
fn read_commands(stops_sending: &AtomicBool) {
    for line in std::io::stdin().lock().lines().map_while(Result::ok) {
        if line == STOP_SENDING {
            stops_sending.store(true, Ordering::Relaxed);
        }
    }
    std::process::exit(0);
}

async fn run_until_killed(spec: &Spec, stops_sending: Arc<AtomicBool>) -> Result<(), Failure> {
    let ledger = Ledger::open(&spec.folder, &spec.name)?;
    let (targets, _alive) = if spec.runs_verbs {
        let runtime = retry_until_available(async || start(spec, &ledger).await).await?;
        ((runtime.machine(), runtime.machine(), runtime.machine()), (Some(runtime), None))
    } else {
        let client = retry_until_available(async || Client::connect(&spec.url).await).await?;
        ((client.machine(), client.machine(), client.machine()), (None, Some(client)))
    };
    send_all(spec, targets, &ledger, stops_sending).await?;
    std::future::pending().await
}

/// Starts the runtime of a child that runs verbs.
pub async fn start(spec: &Spec, ledger: &Ledger) -> Result<Runtime, fsm::Error> {
    let builder = Runtime::builder().database(&spec.url).only::<Account>().only::<Receipt>().only::<Till>().only::<Purchase>();
    let builder = builder.only::<Basket>().only::<Item>().only::<Bell>();
    let builder = if spec.has_schedule { with_cranes(builder.schedule(bell::schedule())) } else { builder };
    let builder = builder.data(ledger.clone()).data(OnPostgres(spec.url.starts_with("postgres")));
    let builder = builder.lease(spec.lease).poll_interval(Duration::from_millis(100)).concurrency(spec.concurrency).inbox_limit(spec.inbox);
    let builder = if spec.is_in_a_container { builder.in_a_container() } else { builder };
    builder.connections(spec.connections).operation_timeout(spec.deadline).start().await
}

/// Each moment of the schedule sends boxes to cranes, which work under limits.
fn with_cranes(builder: fsm::Builder) -> fsm::Builder {
    crane::limits().into_iter().fold(builder.only::<Crane>(), |builder, (name, limit)| builder.limit(name, limit))
}

/// Retries while the database is unavailable.
async fn retry_until_available<T>(open: impl AsyncFn() -> Result<T, fsm::Error>) -> Result<T, fsm::Error> {
    loop {
        match open().await {
            Err(error) if error.is_database() => tokio::time::sleep(Duration::from_millis(100)).await,
            opened => return opened,
        }
    }
}

async fn send_all(
    spec: &Spec,
    (accounts, purchases, baskets): (Handle<Account>, Handle<Purchase>, Handle<Basket>),
    ledger: &Ledger,
    stops_sending: Arc<AtomicBool>,
) -> Result<(), Failure> {
    let callers = (0..spec.load.callers).map(|n| {
        let caller = Caller {
            accounts: accounts.clone(),
            purchases: purchases.clone(),
            baskets: baskets.clone(),
            ledger: ledger.clone(),
            load: spec.load.clone(),
            random: Random::new(spec.seed.wrapping_mul(1000).wrapping_add(n as u64)),
            name: format!("{}-{n}", spec.name),
            stops_sending: Arc::clone(&stops_sending),
        };
        tokio::spawn(caller.run())
    });
    for caller in callers.collect::<Vec<_>>() {
        caller.await??;
    }
    Ok(ledger.sure(&Line::StoppedSending).await?)
}
