//! One of two servers with partitions is killed, frozen or cut off, and processes are killed. Meanwhile the partitions of the other server go on.
//! Items are in other partitions than their baskets, and limits count in all partitions.

use std::time::{Duration, Instant};

use crate::random::Random;
use crate::report::Report;
use crate::servers::{NODES, PARTITIONS, Servers, baskets, node};
use crate::size::Size;
use crate::test_run::TestRun;
use crate::test_server::{Kind, TestServer};
use crate::{Failure, sql};

/// The minimum number of transitions in each partition of the other server during a fault.
const MEANWHILE: i64 = 10;
/// The minimum duration of a fault, longer than the lease and the time limit of a database operation.
const AWAY: Duration = Duration::from_millis(1500);
/// The limit for all instances to settle. The events that a killed process had claimed for another partition wait until its claim ends.
const SETTLE_LIMIT: Duration = Duration::from_secs(600);
/// The pause between two cuts of the connections.
const CUT_INTERVAL: Duration = Duration::from_millis(50);

/// The faults, by turns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fault {
    Kill,
    Freeze,
    Cut,
}

const FAULTS: [Fault; 3] = [Fault::Kill, Fault::Freeze, Fault::Cut];

pub async fn run(test_server: &mut TestServer, kind: Kind, size: Size) -> Result<Report, Failure> {
    let faults = usize::try_from(size.kills(3, 36))?;
    let mut servers = Servers::start(test_server).await?;
    let mut test_run = servers.open_run(test_server, "partition-postgres", kind, size.seed).await?;
    test_run.settle_within = SETTLE_LIMIT;
    let of_baskets = Servers::add_baskets(&mut test_run)?;
    let (mut connections, mut random) = (0, Random::new(size.seed));
    for (index, fault) in FAULTS.iter().cycle().take(faults).enumerate() {
        // Every server has every fault within six.
        let server = (index + usize::from(size.seed % 2 == 1)) % 2;
        // A process dies before the server does, or while the server is away.
        if random.one_in(2) {
            kill_one(&mut test_run, of_baskets, &mut random)?;
        }
        connections += perform(&mut servers, &mut test_run, *fault, server, of_baskets, &mut random).await?;
        until_progress(&servers, server).await?;
    }
    let limit = Instant::now() + SETTLE_LIMIT;
    let (mut parked, mut elsewhere, mut assembled) = (0, 0, 0);
    while parked == 0 || elsewhere == 0 || assembled == 0 {
        if Instant::now() > limit {
            return Err(format!("{parked} boxes parked, {elsewhere} items elsewhere and {assembled} baskets called").into());
        }
        let mut all = test_run.databases().await?;
        (parked, elsewhere, assembled) =
            (all.sum(sql::PARKED).await?, all.sum(sql::ITEMS_ELSEWHERE).await?, all.sum(sql::ASSEMBLED).await?);
        tokio::time::sleep(CUT_INTERVAL).await;
    }
    test_run.note(format!(
        "{faults} faults of a server, {connections} connections cut, {assembled} baskets called after their last item, {elsewhere} items in other \
         partitions, {parked} boxes parked under limits"
    ));
    servers.finish(test_run).await
}

/// Carries out a fault, and undoes it after the other server has made progress. Returns the number of connections that were cut.
async fn perform(
    servers: &mut Servers,
    test_run: &mut TestRun<'_>,
    fault: Fault,
    server: usize,
    of_baskets: usize,
    random: &mut Random,
) -> Result<i64, Failure> {
    match fault {
        Fault::Kill => servers.kill(test_run, server)?,
        Fault::Freeze => servers.freeze(test_run, server)?,
        Fault::Cut => {}
    }
    kill_one(test_run, of_baskets, random)?;
    let (progress, cut) = tokio::join!(until_progress(servers, 1 - server), meanwhile(servers, fault, server));
    // The next scenario needs the server, even if this one fails.
    match fault {
        Fault::Kill => servers.restart(test_run, server)?,
        Fault::Freeze => servers.thaw(),
        Fault::Cut => {}
    }
    if let Err(error) = progress {
        test_run.require(false, format!("the other server goes on during {fault:?} of server {server}: {error}"));
    }
    cut
}

/// Kills a process, and starts another one in its place. Without the directory that one starts when the server is back.
fn kill_one(test_run: &mut TestRun<'_>, of_baskets: usize, random: &mut Random) -> Result<(), Failure> {
    let index = usize::try_from(random.below(NODES as u64 + 1))?;
    test_run.children[index].kill()?;
    let next = if index == of_baskets { baskets(test_run) } else { node(test_run) };
    test_run.replace(index, &next)
}

/// Waits for the duration of a fault, and cuts connections if that is the fault. Returns their number.
async fn meanwhile(servers: &Servers, fault: Fault, server: usize) -> Result<i64, Failure> {
    let (begun, mut cut) = (Instant::now(), 0);
    while begun.elapsed() < AWAY {
        if fault == Fault::Cut {
            cut += servers.cut(server).await?;
        }
        tokio::time::sleep(CUT_INTERVAL).await;
    }
    Ok(cut)
}

/// Waits until each partition of a server makes progress.
async fn until_progress(servers: &Servers, server: usize) -> Result<(), Failure> {
    for partition in (0..PARTITIONS).filter(|partition| Servers::first_place(*partition) == server) {
        servers.until_progress(partition, MEANWHILE).await?;
    }
    Ok(())
}
