//! Worker processes that also send are killed by SIGKILL repeatedly, at any point, and replaced by new ones.

use std::time::{Duration, Instant};

use crate::child::Spec;
use crate::load::Load;
use crate::random::Random;
use crate::report::Report;
use crate::size::Size;
use crate::test_run::TestRun;
use crate::test_server::{Kind, TestServer};
use crate::{Failure, sql};

/// The number of processes that work and send at the same time. One more only sends.
const NODES: usize = 3;
/// The time limit of the scenario.
const LIMIT: Duration = Duration::from_secs(3600);

pub async fn run(test_server: &mut TestServer, kind: Kind, size: Size) -> Result<Report, Failure> {
    let (kills, transitions) = (size.kills(20, 1000), i64::try_from(size.transitions(1000, 200_000))?);
    let mut test_run = TestRun::open(test_server, "kill", kind, size.seed).await?;
    test_run.lease = Duration::from_millis(600);
    for _ in 0..NODES {
        let spec = node(&mut test_run);
        test_run.start(&spec)?;
    }
    let sender = with_many_callers(test_run.sender());
    test_run.start(&sender)?;

    let mut random = Random::new(size.seed);
    let (mut killed, mut done, begun) = (0, 0, Instant::now());
    while killed < kills || done < transitions {
        if begun.elapsed() > LIMIT {
            return Err(format!("{killed} kills and {done} transitions within {LIMIT:?}").into());
        }
        tokio::time::sleep(Duration::from_millis(50 + random.below(300))).await;
        let index = usize::try_from(random.below(NODES as u64 * 4 + 1))? / 4;
        test_run.children[index].kill()?;
        killed += 1;
        let next = if index < NODES { node(&mut test_run) } else { with_many_callers(test_run.sender()) };
        test_run.replace(index, &next)?;
        if killed % 10 == 0 {
            done = test_run.transitions().await?;
        }
    }
    test_run.note(format!("{killed} kills while {done} transitions committed"));
    let moments = test_run.db().await?.number(sql::MOMENTS).await?;
    test_run.note(format!("{moments} moments of a schedule"));
    test_run.require(moments > 0, "the schedule sent its moments");
    let parked = test_run.db().await?.number(sql::PARKED).await?;
    test_run.note(format!("{parked} boxes parked under limits"));
    test_run.require(parked > 0, "calls ran under limits");
    Ok(test_run.finish().await?.0)
}

/// The lease of a process would last for an hour after its death. Its attempts go on because others on the machine see that it is gone.
pub async fn takeover(test_server: &mut TestServer, kind: Kind, size: Size) -> Result<Report, Failure> {
    let kills = usize::try_from(size.kills(6, 200))?;
    let mut test_run = TestRun::open(test_server, "takeover", kind, size.seed).await?;
    test_run.lease = Duration::from_secs(3600);
    for _ in 0..NODES {
        let spec = node(&mut test_run);
        test_run.start(&spec)?;
    }
    let mut random = Random::new(size.seed);
    for killed in 0..kills {
        tokio::time::sleep(Duration::from_millis(200 + random.below(600))).await;
        test_run.children[killed % NODES].kill()?;
        let next = node(&mut test_run);
        test_run.replace(killed % NODES, &next)?;
    }
    test_run.note(format!("{kills} kills"));
    let (mut report, rows) = test_run.finish().await?;
    report.require(rows.ended("lost") > 0, "attempts were taken over");
    Ok(report)
}

/// The longest life of a container.
const LIFE: Duration = Duration::from_secs(10);

/// Nobody can tell whether the process of a container exists, so its lease decides, and all containers live for a third of a lease. They are
/// killed at the same time, so that none of them ever waits for a whole lease.
pub async fn restart(test_server: &mut TestServer, kind: Kind, size: Size) -> Result<Report, Failure> {
    let restarts = size.kills(9, 30);
    // In the short form, a container and its lease are shorter.
    let life = if size.is_short { LIFE / 10 } else { LIFE };
    let mut test_run = TestRun::open(test_server, "restart", kind, size.seed).await?;
    test_run.lease = 3 * life;
    for _ in 0..NODES {
        let spec = node_in_a_container(&mut test_run);
        test_run.start(&spec)?;
    }
    for _ in 0..restarts {
        let before = test_run.transitions().await?;
        tokio::time::sleep(life).await;
        test_run.children.iter_mut().try_for_each(|child| child.kill())?;
        let made = test_run.transitions().await? - before;
        test_run.require(made > 0, format!("a life of {life:?} makes progress"));
        for index in 0..NODES {
            let next = node_in_a_container(&mut test_run);
            test_run.replace(index, &next)?;
        }
    }
    let lost = test_run.db().await?.number(sql::LOST).await?;
    test_run.note(format!("{restarts} restarts of all containers, each after {life:?}, {lost} attempts taken over meanwhile"));
    test_run.require(lost > 0, "attempts of dead containers are taken over by containers that die too");
    Ok(test_run.finish().await?.0)
}

fn node_in_a_container(test_run: &mut TestRun<'_>) -> Spec {
    // The verbs run for long enough that each death finds running ones.
    let spec = with_many_callers(test_run.spec("node"));
    Spec { is_in_a_container: true, load: Load { ms: 60, ..spec.load }, ..spec }
}

fn node(test_run: &mut TestRun<'_>) -> Spec {
    Spec { has_schedule: true, ..with_many_callers(test_run.spec("node")) }
}

fn with_many_callers(spec: Spec) -> Spec {
    Spec { load: Load { callers: 24, ..spec.load }, ..spec }
}
