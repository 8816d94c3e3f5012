//! Many processes write to few instances, and each transition writes to several of them. A wrong lock order would cause a deadlock.

use std::time::Duration;

use crate::Failure;
use crate::child::Spec;
use crate::load::Load;
use crate::report::Report;
use crate::size::Size;
use crate::stage::Stage;
use crate::test_server::{Kind, TestServer};

pub async fn run(test_server: &mut TestServer, kind: Kind, size: Size) -> Result<Report, Failure> {
    let mut stage = Stage::open(test_server, "writers", kind, size.seed).await?;
    stage.lease = Duration::from_secs(5);
    for _ in 0..4 {
        let spec = stage.spec("node");
        stage.start(&Spec { load: Load { lanes: 24, ms: 0, tills: 8, ..spec.load }, ..spec })?;
    }
    tokio::time::sleep(Duration::from_secs(size.seconds(6, 600))).await;
    // `finish` requires that the server has detected no deadlock.
    Ok(stage.finish().await?.0)
}
