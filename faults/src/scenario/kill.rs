//! Worker processes that also send are killed by SIGKILL repeatedly, at any point, and replaced by new ones.

use std::time::{Duration, Instant};

use crate::child::Spec;
use crate::load::Load;
use crate::random::Random;
use crate::report::Report;
use crate::size::Size;
use crate::stage::Stage;
use crate::test_server::{Kind, TestServer};
use crate::{Failure, sql};

/// The number of processes that work and send at the same time. One more only sends.
const NODES: usize = 3;
/// The time limit of the scenario.
const LIMIT: Duration = Duration::from_secs(3600);

pub async fn run(test_server: &mut TestServer, kind: Kind, size: Size) -> Result<Report, Failure> {
    let (kills, transitions) = (size.kills(20, 1000), i64::try_from(size.transitions(1000, 200_000))?);
    let mut stage = Stage::open(test_server, "kill", kind, size.seed).await?;
    stage.lease = Duration::from_millis(600);
    for _ in 0..NODES {
        let spec = node(&mut stage);
        stage.start(&spec)?;
    }
    let sender = lively(stage.sender());
    stage.start(&sender)?;

    let mut random = Random::new(size.seed);
    let (mut killed, mut done, begun) = (0, 0, Instant::now());
    while killed < kills || done < transitions {
        if begun.elapsed() > LIMIT {
            return Err(format!("{killed} kills and {done} transitions within {LIMIT:?}").into());
        }
        tokio::time::sleep(Duration::from_millis(50 + random.below(300))).await;
        let place = usize::try_from(random.below(NODES as u64 * 4 + 1))? / 4;
        stage.children[place].kill()?;
        killed += 1;
        let next = if place < NODES { node(&mut stage) } else { lively(stage.sender()) };
        stage.replace(place, &next)?;
        if killed % 10 == 0 {
            done = stage.transitions().await?;
        }
    }
    stage.note(format!("{killed} kills while {done} transitions committed"));
    let moments = stage.db().await?.number(sql::MOMENTS).await?;
    stage.note(format!("{moments} moments of a schedule"));
    stage.require(moments > 0, "the schedule sent its moments");
    let parked = stage.db().await?.number(sql::PARKED).await?;
    stage.note(format!("{parked} boxes parked under limits"));
    stage.require(parked > 0, "calls ran under limits");
    Ok(stage.finish().await?.0)
}

/// The lease of a process would last for an hour after its death. Its attempts go on because others on the machine see that it is gone.
pub async fn takeover(test_server: &mut TestServer, kind: Kind, size: Size) -> Result<Report, Failure> {
    let kills = usize::try_from(size.kills(6, 200))?;
    let mut stage = Stage::open(test_server, "takeover", kind, size.seed).await?;
    stage.lease = Duration::from_secs(3600);
    for _ in 0..NODES {
        let spec = node(&mut stage);
        stage.start(&spec)?;
    }
    let mut random = Random::new(size.seed);
    for killed in 0..kills {
        tokio::time::sleep(Duration::from_millis(200 + random.below(600))).await;
        stage.children[killed % NODES].kill()?;
        let next = node(&mut stage);
        stage.replace(killed % NODES, &next)?;
    }
    stage.note(format!("{kills} kills"));
    let (mut report, rows) = stage.finish().await?;
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
    let mut stage = Stage::open(test_server, "restart", kind, size.seed).await?;
    stage.lease = 3 * life;
    for _ in 0..NODES {
        let spec = contained(&mut stage);
        stage.start(&spec)?;
    }
    for _ in 0..restarts {
        let before = stage.transitions().await?;
        tokio::time::sleep(life).await;
        stage.children.iter_mut().try_for_each(|child| child.kill())?;
        let made = stage.transitions().await? - before;
        stage.require(made > 0, format!("a life of {life:?} makes progress"));
        for place in 0..NODES {
            let next = contained(&mut stage);
            stage.replace(place, &next)?;
        }
    }
    let lost = stage.db().await?.number(sql::LOST).await?;
    stage.note(format!("{restarts} restarts of all containers, each after {life:?}, {lost} attempts taken over meanwhile"));
    stage.require(lost > 0, "attempts of dead containers are taken over by containers that die too");
    Ok(stage.finish().await?.0)
}

fn contained(stage: &mut Stage<'_>) -> Spec {
    // The verbs run for long enough that each death finds running ones.
    let spec = lively(stage.spec("node"));
    Spec { is_in_a_container: true, load: Load { ms: 60, ..spec.load }, ..spec }
}

fn node(stage: &mut Stage<'_>) -> Spec {
    Spec { has_schedule: true, ..lively(stage.spec("node")) }
}

fn lively(spec: Spec) -> Spec {
    Spec { load: Load { lanes: 24, ..spec.load }, ..spec }
}
