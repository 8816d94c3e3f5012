//! Two PostgreSQL servers with the partitions of one database, by turns.

use std::time::{Duration, Instant};

use fsm::testing::cluster::{self, Cluster, Frozen};
use fsm_runtime::admin::Opening;
use fsm_runtime::admin::partitions;

use crate::child::Spec;
use crate::load::{Load, Sends};
use crate::report::Report;
use crate::rows::Db;
use crate::test_run::TestRun;
use crate::test_server::{Folder, Kind, TestServer};
use crate::{Failure, sql};

/// The number of partitions. Those with an odd number are created on the second server.
pub const PARTITIONS: u32 = 4;
/// The number of processes that work and send.
pub const NODES: usize = 3;
/// The number of instances to which verbs of all partitions send.
const TILLS: u64 = 12;
/// The time limit for work to go on.
const LIMIT: Duration = Duration::from_secs(60);
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// The second server, and the URLs of the databases on both.
pub struct Servers {
    second: Cluster,
    /// The URL of the database on each server. The first one has the directory.
    pub urls: [String; 2],
    frozen: Option<Frozen>,
}

/// The settings of a process that works and sends to accounts. The calls of its schedule run under limits of all partitions.
pub fn node(test_run: &mut TestRun<'_>) -> Spec {
    let node = test_run.spec("node");
    // A row of a booking would be in a table of no partition.
    let load = Load { tills: TILLS, books: 0, stays_in_partition: true, callers: 8, ..node.load };
    Spec { load, deadline: Duration::from_secs(1), has_schedule: true, ..node }
}

/// The settings of a process that works and sends baskets.
pub fn baskets(test_run: &mut TestRun<'_>) -> Spec {
    let node = node(test_run);
    let load = Load { sends: Sends::Baskets, stays_in_partition: false, tills: 0, callers: 4, ms: 20, pause_ms: 20, ..node.load };
    Spec { load, ..node }
}

impl Servers {
    /// Starts the second server, and creates a database with partitions on both.
    pub async fn start(test_server: &mut TestServer) -> Result<Servers, Failure> {
        let first = test_server.database("").await?;
        let second = tokio::task::block_in_place(cluster::start_own)?;
        let urls = [first, second.url()];
        partitions::create(&Opening::to_act(&urls[0]), PARTITIONS, &urls).await?;
        Ok(Servers { second, urls, frozen: None })
    }

    /// Opens a run on both servers, with processes that work and send.
    pub async fn open_run<'g>(&self, test_server: &'g mut TestServer, name: &str, kind: Kind, seed: u64) -> Result<TestRun<'g>, Failure> {
        let mut test_run = TestRun::at(test_server, kind, seed, Folder::new(name)?, self.urls[0].clone()).await?;
        for _ in 0..NODES {
            let node = node(&mut test_run);
            test_run.start(&node)?;
        }
        for partition in 0..PARTITIONS {
            self.until_progress(partition, 20).await?;
        }
        Ok(test_run)
    }

    /// Starts a process that sends baskets, whose items are in all partitions.
    pub fn add_baskets(test_run: &mut TestRun<'_>) -> Result<usize, Failure> {
        let spec = baskets(test_run);
        test_run.start(&spec)
    }

    /// Kills a server, as a crash would.
    pub fn kill(&mut self, test_run: &mut TestRun<'_>, server: usize) -> Result<(), Failure> {
        tokio::task::block_in_place(|| Ok(self.cluster(test_run, server)?.stop()?))
    }

    /// Starts a server that was killed.
    pub fn restart(&mut self, test_run: &mut TestRun<'_>, server: usize) -> Result<(), Failure> {
        tokio::task::block_in_place(|| Ok(self.cluster(test_run, server)?.start()?))
    }

    /// Stops all processes of a server, so that it does not answer.
    pub fn freeze(&mut self, test_run: &mut TestRun<'_>, server: usize) -> Result<(), Failure> {
        self.frozen = Some(self.cluster(test_run, server)?.freeze()?);
        Ok(())
    }

    /// Lets a frozen server go on.
    pub fn thaw(&mut self) {
        self.frozen = None;
    }

    fn cluster<'c>(&'c mut self, test_run: &'c mut TestRun<'_>, server: usize) -> Result<&'c mut Cluster, Failure> {
        if server == 0 { test_run.test_server.cluster() } else { Ok(&mut self.second) }
    }

    /// Terminates all connections of the engine to a server. Returns their number.
    pub async fn cut(&self, server: usize) -> Result<i64, Failure> {
        Db::connect(&self.urls[server]).await?.number(sql::TERMINATE_ALL).await
    }

    /// The place of a partition that is created: its server. Only the scenario `move` changes it.
    pub fn first_place(partition: u32) -> usize {
        usize::from(partition % 2 == 1)
    }

    /// Waits until `wanted` more transitions are committed in a partition that has not moved.
    pub async fn until_progress(&self, partition: u32, wanted: i64) -> Result<(), Failure> {
        self.until_progress_at(Servers::first_place(partition), partition, wanted).await
    }

    /// Waits until `wanted` more transitions are committed in a partition on this server.
    pub async fn until_progress_at(&self, server: usize, partition: u32, wanted: i64) -> Result<(), Failure> {
        let mut db = Db::connect_to_partition(&self.urls[server], &format!("fsm_{partition:04}")).await?;
        let (before, limit) = (db.number(sql::TRANSITIONS).await?, Instant::now() + LIMIT);
        while db.number(sql::TRANSITIONS).await? < before + wanted {
            if Instant::now() > limit {
                return Err(format!("partition {partition} did not make {wanted} transitions within {LIMIT:?}").into());
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
        Ok(())
    }

    /// Ends the run, and checks each partition too.
    pub async fn finish(self, test_run: TestRun<'_>) -> Result<Report, Failure> {
        let by_partition = test_run.databases().await?.numbers(sql::TRANSITIONS).await?;
        let (mut report, _) = test_run.finish().await?;
        report.notes.push(format!("transitions by partition: {by_partition:?}"));
        let opening = Opening::to_read(&self.urls[0]);
        for listed in partitions::list(&opening).await? {
            let checked = partitions::check(&opening, &listed.place).await;
            report.require(checked.problems.is_empty(), format!("partition {:?} is well: {:?}", listed.place, checked.problems));
        }
        Ok(report)
    }
}
