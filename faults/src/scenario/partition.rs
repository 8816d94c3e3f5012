//! One of two servers with partitions is killed, frozen or cut off. Meanwhile the partitions of the other one go on.

use std::time::{Duration, Instant};

use crate::Failure;
use crate::report::Report;
use crate::servers::{PARTITIONS, Servers};
use crate::size::Size;
use crate::test_run::TestRun;
use crate::test_server::{Kind, TestServer};

/// The minimum number of transitions in each partition of the other server during a fault.
const MEANWHILE: i64 = 10;
/// The minimum duration of a fault, longer than the lease and the time limit of a database operation.
const AWAY: Duration = Duration::from_millis(1500);
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
    let mut connections = 0;
    for (index, fault) in FAULTS.iter().cycle().take(faults).enumerate() {
        // Every server has every fault within six.
        let server = (index + usize::from(size.seed % 2 == 1)) % 2;
        connections += perform(&mut servers, &mut test_run, *fault, server).await?;
        until_progress(&servers, server).await?;
    }
    test_run.note(format!("{faults} faults of a server, {connections} connections cut"));
    servers.finish(test_run).await
}

/// Carries out a fault, and undoes it after the other server has made progress. Returns the number of connections that were cut.
async fn perform(servers: &mut Servers, test_run: &mut TestRun<'_>, fault: Fault, server: usize) -> Result<i64, Failure> {
    match fault {
        Fault::Kill => servers.kill(test_run, server)?,
        Fault::Freeze => servers.freeze(test_run, server)?,
        Fault::Cut => {}
    }
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
