//! Many processes write to few instances, and each transition writes to several of them. A wrong lock order would cause a deadlock.

use std::time::Duration;

use crate::Failure;
use crate::child::Spec;
use crate::load::Load;
use crate::report::Report;
use crate::size::Size;
use crate::test_run::TestRun;
use crate::test_server::{Kind, TestServer};

pub async fn run(test_server: &mut TestServer, kind: Kind, size: Size) -> Result<Report, Failure> {
    let mut test_run = TestRun::open(test_server, "writers", kind, size.seed).await?;
    test_run.lease = Duration::from_secs(5);
    for _ in 0..4 {
        let spec = test_run.spec("node");
        test_run.start(&Spec { load: Load { callers: 24, ms: 0, tills: 8, ..spec.load }, ..spec })?;
    }
    tokio::time::sleep(Duration::from_secs(size.seconds(6, 600))).await;
    // `finish` requires that the server has detected no deadlock.
    Ok(test_run.finish().await?.0)
}
