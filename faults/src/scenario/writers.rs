//! Many processes write to few instances, and each transition writes to several of them. A wrong lock order would cause a deadlock.

use std::time::Duration;

use super::Size;
use crate::Failure;
use crate::child::Spec;
use crate::ground::{Ground, Kind};
use crate::load::Load;
use crate::report::Report;
use crate::stage::Stage;

pub async fn run(ground: &mut Ground, kind: Kind, size: Size) -> Result<Report, Failure> {
    let mut stage = Stage::open(ground, "writers", kind, size.seed).await?;
    stage.lease = Duration::from_secs(5);
    for _ in 0..4 {
        let spec = stage.spec("node");
        stage.start(&Spec { load: Load { lanes: 24, ms: 0, tills: 8, ..spec.load }, ..spec })?;
    }
    tokio::time::sleep(Duration::from_secs(size.seconds(6, 600))).await;
    // `finish` requires that the server has detected no deadlock.
    Ok(stage.finish().await?.0)
}
