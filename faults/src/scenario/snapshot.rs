//! A reader holds an old snapshot, so that dead rows cannot be removed by vacuum or a checkpoint.

use std::time::Duration;

use crate::Failure;
use crate::child::Spec;
use crate::load::Load;
use crate::report::Report;
use crate::size::Size;
use crate::sql;
use crate::test_run::TestRun;
use crate::test_server::{Kind, TestServer};

/// The rate of transitions must not drop to less than one in this many. The rate varies on a busy machine, but table bloat slows a queue
/// far more.
const AS_FAST: i64 = 5;

pub async fn run(test_server: &mut TestServer, kind: Kind, size: Size) -> Result<Report, Failure> {
    let each = Duration::from_secs(size.seconds(2, 120));
    let mut test_run = TestRun::open(test_server, "snapshot", kind, size.seed).await?;
    test_run.lease = Duration::from_secs(5);
    for _ in 0..2 {
        let spec = test_run.spec("node");
        test_run.start(&Spec { load: Load { callers: 24, ..spec.load }, ..spec })?;
    }
    test_run.until_transitions(100).await?;
    let before = rate(&test_run, each).await?;
    let mut reader = test_run.db().await?;
    reader.run(if kind == Kind::Postgres { sql::SNAPSHOT_POSTGRES } else { sql::SNAPSHOT_SQLITE }).await?;
    let seen = reader.number(sql::TRANSITIONS).await?;
    tokio::time::sleep(each).await;
    let meanwhile = rate(&test_run, each).await?;
    test_run.require(reader.number(sql::TRANSITIONS).await? == seen, "the reader still sees what it saw first");
    drop(reader);
    let seconds = i64::try_from(each.as_secs())?;
    test_run.note(format!("{} transitions a second before, {} under the snapshot", before / seconds, meanwhile / seconds));
    test_run.require(meanwhile * AS_FAST >= before, "work goes on as fast under an old snapshot");
    Ok(test_run.finish().await?.0)
}

/// The number of transitions in `each`.
async fn rate(test_run: &TestRun<'_>, each: Duration) -> Result<i64, Failure> {
    let before = test_run.transitions().await?;
    tokio::time::sleep(each).await;
    Ok(test_run.transitions().await? - before)
}
