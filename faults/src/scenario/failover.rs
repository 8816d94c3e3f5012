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
use crate::stage::Stage;
use crate::test_server::{Folder, Kind, TestServer};

/// The limit for work to continue after the cluster accepts writes again.
const RESUMES: Duration = Duration::from_secs(2);
/// The limit for the cluster to accept writes again.
const ACCEPTS: Duration = Duration::from_secs(60);
/// A gap between writes that is longer than this counts as a failover.
const PAUSE: Duration = Duration::from_millis(700);
/// The time limit of a write that tests whether the cluster accepts writes.
const WRITE: Duration = Duration::from_millis(1000);
const LOOK: Duration = Duration::from_millis(20);
const DATABASE: &str = "faults";

/// A fault of the cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Act {
    Switchover,
    Kill,
    Freeze,
}

/// A fault, with its time and the time at which the cluster accepted writes again, in microseconds since 1970.
struct Done {
    act: Act,
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
    let mut stage = Stage::at(test_server, kind, size.seed, folder, cluster.through_proxy(DATABASE)).await?;
    // The load must not starve the servers' heartbeats.
    stage.prefix = &["nice", "-n", "10"];
    // Longer than any failover, so that no lease expires.
    stage.lease = Duration::from_secs(60);
    let load = Load { lanes: 8, is_timed: true, ..Load::default() };
    let mut ways = BTreeMap::new();
    for (way, url) in [("haproxy", cluster.through_proxy(DATABASE)), ("several hosts", cluster.of_all(DATABASE))] {
        for works in [true, false] {
            let spec = stage.spec(if works { "node" } else { "sender" });
            ways.insert(spec.name.clone(), way);
            stage.start(&Spec { url: url.clone(), works, load: load.clone(), ..spec })?;
        }
    }
    stage.until_transitions(200).await?;
    let writes = Writes::begin(&cluster);
    let mut done = Vec::new();
    let acts = acts(size);
    for (place, act) in acts.iter().enumerate() {
        if let Err(error) = tokio::task::block_in_place(|| cluster.until_complete()) {
            stage.require(false, error);
            break;
        }
        done.push(perform(&mut cluster, &writes, *act).await?);
        // The short form ends with two servers, the minimum for a commit.
        if size.is_short && place + 1 == acts.len() {
            break;
        }
        match *act {
            Act::Kill => cluster.start_node(done[place].leader)?,
            Act::Freeze => cluster.thaw(done[place].leader)?,
            Act::Switchover => {}
        }
    }
    drop(writes);
    judge(&mut stage, &done, &ways)?;
    let (mut report, rows) = stage.finish().await?;
    report.require(rows.ended("lost") == 0, "nothing is lost, for every worker lives");
    report.require(rows.instances.values().all(|one| one.status != "error"), "no instance is in error, for no verb failed for good");
    drop(cluster);
    Ok(report)
}

/// The faults, in an order that depends on the seed.
fn acts(size: Size) -> Vec<Act> {
    if size.is_short {
        return vec![Act::Switchover, Act::Kill];
    }
    let mut acts = Vec::new();
    for (act, often) in [(Act::Switchover, 5), (Act::Kill, 5), (Act::Freeze, 2)] {
        acts.extend(std::iter::repeat_n(act, usize::try_from(size.kills.unwrap_or(often)).unwrap_or(0)));
    }
    let mut random = Random::new(size.seed);
    for last in (1..acts.len()).rev() {
        acts.swap(last, usize::try_from(random.below(last as u64 + 1)).unwrap_or(0));
    }
    acts
}

/// Carries out the fault, and waits until the cluster accepts writes again.
async fn perform(cluster: &mut Patroni, writes: &Writes, act: Act) -> Result<Done, Failure> {
    let leader = cluster.leader().ok_or("no node leads")?;
    let at_us = now_us();
    match act {
        Act::Switchover => tokio::task::block_in_place(|| cluster.switch_over())?,
        Act::Kill => cluster.kill(leader)?,
        Act::Freeze => cluster.freeze(leader)?,
    }
    let accepts_us = writes.accepted_again(at_us).await?;
    // Each process has time to continue before the old leader is back.
    tokio::time::sleep(RESUMES + RESUMES / 2).await;
    Ok(Done { act, leader, at_us, accepts_us })
}

/// Writes of the harness to each server, without a proxy. They show when the cluster accepts writes.
struct Writes {
    /// The times of the committed writes, in microseconds since 1970.
    committed: Arc<Mutex<Vec<u64>>>,
    tasks: Vec<JoinHandle<()>>,
}

impl Writes {
    fn begin(cluster: &Patroni) -> Writes {
        let committed = Arc::<Mutex<Vec<u64>>>::default();
        let tasks = (0..NODES).map(|node| tokio::spawn(write_for_ever(cluster.of(node, DATABASE), Arc::clone(&committed)))).collect();
        Writes { committed, tasks }
    }

    /// The time of the first committed write after the last gap since `since_us`.
    async fn accepted_again(&self, since_us: u64) -> Result<u64, Failure> {
        let limit = Instant::now() + ACCEPTS;
        while Instant::now() < limit {
            let mut times = self.committed.lock().unwrap_or_else(PoisonError::into_inner).clone();
            times.sort_unstable();
            let mut after = times.windows(2).filter(|pair| pair[1] > since_us);
            if let Some(pair) = after.rfind(|pair| u128::from(pair[1] - pair[0]) > PAUSE.as_micros()) {
                return Ok(pair[1]);
            }
            tokio::time::sleep(LOOK).await;
        }
        Err(format!("the cluster accepts no write within {ACCEPTS:?}").into())
    }
}

impl Drop for Writes {
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
        tokio::time::sleep(LOOK).await;
    }
}

/// Writes through haproxy. Retries, because haproxy may not know the leader yet.
async fn write_to(url: &str, statement: &str) -> Result<(), Failure> {
    let limit = Instant::now() + ACCEPTS;
    loop {
        let written = async {
            let mut conn = PgConnection::connect(url).await?;
            sqlx::raw_sql(AssertSqlSafe(statement.to_owned())).execute(&mut conn).await.map(drop)
        };
        match written.await {
            Ok(()) => return Ok(()),
            Err(error) if Instant::now() > limit => return Err(error.into()),
            Err(_) => tokio::time::sleep(10 * LOOK).await,
        }
    }
}

/// Requires that each process gets an acknowledgement soon after the cluster accepts writes again, after each fault.
fn judge(stage: &mut Stage<'_>, done: &[Done], ways: &BTreeMap<String, &'static str>) -> Result<(), Failure> {
    let ledgers = ledger::read_all(stage.folder.path())?;
    let mut slowest: BTreeMap<(&str, &str), Duration> = BTreeMap::new();
    for Done { act, at_us, accepts_us, .. } in done {
        let act_name = match act {
            Act::Switchover => "switchover",
            Act::Kill => "killed node",
            Act::Freeze => "frozen node",
        };
        stage.note(format!("{act_name}: writes again after {:.1} s", Duration::from_micros(accepts_us - at_us).as_secs_f32()));
        for told in &ledgers {
            let Some(way) = ways.get(&told.process) else { continue };
            // An answer also counts if the request began before that time.
            let acknowledged = told.lines.iter().filter_map(|line| match line {
                Line::Took { began_us, took_us, is_ok: true, .. } => Some(began_us + took_us),
                _ => None,
            });
            let first = acknowledged.filter(|when| when >= accepts_us).min();
            match first {
                Some(first) => {
                    let wait = Duration::from_micros(first - accepts_us);
                    let slowest = slowest.entry((act_name, way)).or_default();
                    *slowest = wait.max(*slowest);
                    if wait > RESUMES {
                        stage.require(
                            false,
                            format!("{} goes on within {RESUMES:?} after a {act_name}, not after {wait:.1?} ({way})", told.process),
                        );
                    }
                }
                None => stage.require(false, format!("{} goes on after a {act_name} ({way})", told.process)),
            }
        }
    }
    for ((act, way), wait) in slowest {
        stage.note(format!("{act} through {way}: the slowest process goes on {:.1} s later", wait.as_secs_f32()));
    }
    Ok(())
}
