//! A reader holds an old snapshot, so that dead rows cannot be removed by vacuum or a checkpoint.

use std::time::Duration;

use crate::Failure;
use crate::child::Spec;
use crate::load::Load;
use crate::report::Report;
use crate::size::Size;
use crate::sql;
use crate::stage::Stage;
use crate::test_server::{Kind, TestServer};

/// The rate of transitions must not drop to less than one in this many. The rate varies on a busy machine, but table bloat slows a queue
/// far more.
const AS_FAST: i64 = 5;

pub async fn run(test_server: &mut TestServer, kind: Kind, size: Size) -> Result<Report, Failure> {
    let each = Duration::from_secs(size.seconds(2, 120));
    let mut stage = Stage::open(test_server, "snapshot", kind, size.seed).await?;
    stage.lease = Duration::from_secs(5);
    for _ in 0..2 {
        let spec = stage.spec("node");
        stage.start(&Spec { load: Load { lanes: 24, ..spec.load }, ..spec })?;
    }
    stage.until_transitions(100).await?;
    let before = rate(&stage, each).await?;
    let mut reader = stage.db().await?;
    reader.run(if kind == Kind::Postgres { sql::SNAPSHOT_POSTGRES } else { sql::SNAPSHOT_SQLITE }).await?;
    let seen = reader.number(sql::TRANSITIONS).await?;
    tokio::time::sleep(each).await;
    let meanwhile = rate(&stage, each).await?;
    stage.require(reader.number(sql::TRANSITIONS).await? == seen, "the reader still sees what it saw first");
    drop(reader);
    let seconds = i64::try_from(each.as_secs())?;
    stage.note(format!("{} transitions a second before, {} under the snapshot", before / seconds, meanwhile / seconds));
    stage.require(meanwhile * AS_FAST >= before, "work goes on as fast under an old snapshot");
    Ok(stage.finish().await?.0)
}

/// The number of transitions in `each`.
async fn rate(stage: &Stage<'_>, each: Duration) -> Result<i64, Failure> {
    let before = stage.transitions().await?;
    tokio::time::sleep(each).await;
    Ok(stage.transitions().await? - before)
}
