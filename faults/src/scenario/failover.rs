//! Failover of a PostgreSQL cluster under load: switchovers, killed nodes and frozen nodes. Half of the processes connect through haproxy,
//! the others with a URL of all servers.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use sqlx::{AssertSqlSafe, Connection, PgConnection};
use tokio::task::JoinHandle;

use crate::Failure;
use crate::child::Spec;
use crate::ledger::{self, Line};
use crate::load::{Load, now_us};
use crate::patroni::{NODES, Patroni};
use crate::random::Random;
use crate::report::Report;
use crate::size::Size;
use crate::test_run::TestRun;
use crate::test_server::{Folder, Kind, TestServer};

/// The limit for work to continue after the cluster accepts writes again.
const RESUME_LIMIT: Duration = Duration::from_secs(2);
/// The limit for the cluster to accept writes again.
const WRITABLE_LIMIT: Duration = Duration::from_secs(60);
/// A gap between writes that is longer than this counts as a failover.
const PAUSE: Duration = Duration::from_millis(700);
/// The time limit of a write that tests whether the cluster accepts writes.
const WRITE: Duration = Duration::from_millis(1000);
const POLL_INTERVAL: Duration = Duration::from_millis(20);
const DATABASE: &str = "faults";

/// A fault of the cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fault {
    Switchover,
    Kill,
    Freeze,
}

/// A fault, with its time and the time at which the cluster accepted writes again, in microseconds since 1970.
struct PerformedFault {
    fault: Fault,
    /// The node that was the leader.
    leader: usize,
    at_us: u64,
    accepts_us: u64,
}

pub async fn run(test_server: &mut TestServer, kind: Kind, size: Size) -> Result<Report, Failure> {
    let folder = Folder::new("failover-postgres")?;
    // PostgreSQL's user creates its files in this folder.
    let mut cluster = match tokio::task::block_in_place(|| Patroni::start(folder.path())) {
        Ok(cluster) => cluster,
        Err(error) => {
            let mut folder = folder;
            folder.is_kept = !error.is::<crate::Skipped>();
            return Err(error);
        }
    };
    write_to(&cluster.through_proxy("postgres"), &format!("create database {DATABASE}")).await?;
    write_to(&cluster.through_proxy(DATABASE), "create table fault_probes (at bigint not null)").await?;
    let mut test_run = TestRun::at(test_server, kind, size.seed, folder, cluster.through_proxy(DATABASE)).await?;
    // The load must not starve the servers' heartbeats.
    test_run.prefix = &["nice", "-n", "10"];
    // Longer than any failover, so that no lease expires.
    test_run.lease = Duration::from_secs(60);
    let load = Load { callers: 8, is_timed: true, ..Load::default() };
    let mut routes = BTreeMap::new();
    for (route, url) in [("haproxy", cluster.through_proxy(DATABASE)), ("several hosts", cluster.of_all(DATABASE))] {
        for runs_verbs in [true, false] {
            let spec = test_run.spec(if runs_verbs { "node" } else { "sender" });
            routes.insert(spec.name.clone(), route);
            test_run.start(&Spec { url: url.clone(), runs_verbs, load: load.clone(), ..spec })?;
        }
    }
    test_run.until_transitions(200).await?;
    let writes = ProbeWrites::begin(&cluster);
    let mut performed = Vec::new();
    let faults = faults(size);
    for (index, fault) in faults.iter().enumerate() {
        if let Err(error) = tokio::task::block_in_place(|| cluster.until_complete()) {
            test_run.require(false, error);
            break;
        }
        performed.push(perform(&mut cluster, &writes, *fault).await?);
        // The short form ends with two servers, the minimum for a commit.
        if size.is_short && index + 1 == faults.len() {
            break;
        }
        match *fault {
            Fault::Kill => cluster.start_node(performed[index].leader)?,
            Fault::Freeze => cluster.thaw(performed[index].leader)?,
            Fault::Switchover => {}
        }
    }
    drop(writes);
    judge(&mut test_run, &performed, &routes)?;
    let (mut report, rows) = test_run.finish().await?;
    report.require(rows.ended("lost") == 0, "nothing is lost, for every worker lives");
    report.require(rows.instances.values().all(|one| one.status != "error"), "no instance is in error, because no verb failed permanently");
    drop(cluster);
    Ok(report)
}

/// The faults, in an order that depends on the seed.
fn faults(size: Size) -> Vec<Fault> {
    if size.is_short {
        return vec![Fault::Switchover, Fault::Kill];
    }
    let mut faults = Vec::new();
    for (fault, often) in [(Fault::Switchover, 5), (Fault::Kill, 5), (Fault::Freeze, 2)] {
        faults.extend(std::iter::repeat_n(fault, usize::try_from(size.kills.unwrap_or(often)).unwrap_or(0)));
    }
    let mut random = Random::new(size.seed);
    for last in (1..faults.len()).rev() {
        faults.swap(last, usize::try_from(random.below(last as u64 + 1)).unwrap_or(0));
    }
    faults
}

/// Carries out the fault, and waits until the cluster accepts writes again.
async fn perform(cluster: &mut Patroni, writes: &ProbeWrites, fault: Fault) -> Result<PerformedFault, Failure> {
    let leader = cluster.leader().ok_or("no node leads")?;
    let at_us = now_us();
    match fault {
        Fault::Switchover => tokio::task::block_in_place(|| cluster.switch_over())?,
        Fault::Kill => cluster.kill(leader)?,
        Fault::Freeze => cluster.freeze(leader)?,
    }
    let accepts_us = writes.accepted_again(at_us).await?;
    // Each process has time to continue before the old leader is back.
    tokio::time::sleep(RESUME_LIMIT + RESUME_LIMIT / 2).await;
    Ok(PerformedFault { fault, leader, at_us, accepts_us })
}

/// Writes of the harness to each server, without a proxy. They show when the cluster accepts writes.
struct ProbeWrites {
    /// The times of the committed writes, in microseconds since 1970.
    committed: Arc<Mutex<Vec<u64>>>,
    tasks: Vec<JoinHandle<()>>,
}

impl ProbeWrites {
    fn begin(cluster: &Patroni) -> ProbeWrites {
        let committed = Arc::<Mutex<Vec<u64>>>::default();
        let tasks = (0..NODES).map(|node| tokio::spawn(write_for_ever(cluster.of(node, DATABASE), Arc::clone(&committed)))).collect();
        ProbeWrites { committed, tasks }
    }

    /// The time of the first committed write after the last gap since `since_us`.
    async fn accepted_again(&self, since_us: u64) -> Result<u64, Failure> {
        let limit = Instant::now() + WRITABLE_LIMIT;
        while Instant::now() < limit {
            let mut times = self.committed.lock().unwrap_or_else(PoisonError::into_inner).clone();
            times.sort_unstable();
            let mut after = times.windows(2).filter(|pair| pair[1] > since_us);
            if let Some(pair) = after.rfind(|pair| u128::from(pair[1] - pair[0]) > PAUSE.as_micros()) {
                return Ok(pair[1]);
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
        Err(format!("the cluster accepts no write within {WRITABLE_LIMIT:?}").into())
    }
}

impl Drop for ProbeWrites {
    fn drop(&mut self) {
        self.tasks.iter().for_each(JoinHandle::abort);
    }
}

/// Writes to one server until the task is aborted.
async fn write_for_ever(url: String, committed: Arc<Mutex<Vec<u64>>>) {
    let mut open: Option<PgConnection> = None;
    loop {
        let writing = async {
            let mut conn = match open.take() {
                Some(conn) => conn,
                None => PgConnection::connect(&url).await?,
            };
            sqlx::raw_sql("insert into fault_probes values (1)").execute(&mut conn).await.map(|_| conn)
        };
        if let Ok(Ok(conn)) = tokio::time::timeout(WRITE, writing).await {
            committed.lock().unwrap_or_else(PoisonError::into_inner).push(now_us());
            open = Some(conn);
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}

/// Writes through haproxy. Retries, because haproxy may not know the leader yet.
async fn write_to(url: &str, statement: &str) -> Result<(), Failure> {
    let limit = Instant::now() + WRITABLE_LIMIT;
    loop {
        let written = async {
            let mut conn = PgConnection::connect(url).await?;
            sqlx::raw_sql(AssertSqlSafe(statement.to_owned())).execute(&mut conn).await.map(drop)
        };
        match written.await {
            Ok(()) => return Ok(()),
            Err(error) if Instant::now() > limit => return Err(error.into()),
            Err(_) => tokio::time::sleep(10 * POLL_INTERVAL).await,
        }
    }
}

/// Requires that each process gets an acknowledgement soon after the cluster accepts writes again, after each fault.
fn judge(test_run: &mut TestRun<'_>, performed: &[PerformedFault], routes: &BTreeMap<String, &'static str>) -> Result<(), Failure> {
    let ledgers = ledger::read_all(test_run.folder.path())?;
    let mut slowest: BTreeMap<(&str, &str), Duration> = BTreeMap::new();
    for PerformedFault { fault, at_us, accepts_us, .. } in performed {
        let fault_name = match fault {
            Fault::Switchover => "switchover",
            Fault::Kill => "killed node",
            Fault::Freeze => "frozen node",
        };
        test_run.note(format!("{fault_name}: writes again after {:.1} s", Duration::from_micros(accepts_us - at_us).as_secs_f32()));
        for of_process in &ledgers {
            let Some(route) = routes.get(&of_process.process) else { continue };
            // An answer also counts if the request began before that time.
            let acknowledged = of_process.lines.iter().filter_map(|line| match line {
                Line::Latency { began_us, took_us, is_ok: true, .. } => Some(began_us + took_us),
                _ => None,
            });
            let first = acknowledged.filter(|when| when >= accepts_us).min();
            match first {
                Some(first) => {
                    let wait = Duration::from_micros(first - accepts_us);
                    let slowest = slowest.entry((fault_name, route)).or_default();
                    *slowest = wait.max(*slowest);
                    if wait > RESUME_LIMIT {
                        test_run.require(
                            false,
                            format!(
                                "{} goes on within {RESUME_LIMIT:?} after a {fault_name}, not after {wait:.1?} ({route})",
                                of_process.process
                            ),
                        );
                    }
                }
                None => test_run.require(false, format!("{} goes on after a {fault_name} ({route})", of_process.process)),
            }
        }
    }
    for ((fault, route), wait) in slowest {
        test_run.note(format!("{fault} through {route}: the slowest process goes on {:.1} s later", wait.as_secs_f32()));
    }
    Ok(())
}
