//! Resident memory: idle, with many callers, and with many instances that wait for a retry. It is measured in a child process, so that
//! other measurements do not count.

use std::error::Error;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use fsm::Runtime;

use crate::arguments::Instances;
use crate::database::BenchDatabase;
use crate::load::{Load, begin_all};
use crate::machine::{Counters, NotBefore, Pulse, now_us};
use crate::report::Report;

const WAITING: usize = 100_000;
const CALLERS: usize = 256;

/// Measures in a child process, which prints one figure per line.
pub fn measure_in_child_process(bench_database: &BenchDatabase, report: &mut Report) -> Result<(), Box<dyn Error>> {
    let output = Command::new(std::env::current_exe()?).args(["--memory-of", &bench_database.url]).output()?;
    let text = String::from_utf8(output.stdout)?;
    let figures: Vec<f64> = text.lines().map(str::parse).collect::<Result<_, _>>()?;
    let [idle, busy, before, waiting] = figures[..] else {
        return Err(format!("the memory was not measured: {}", String::from_utf8_lossy(&output.stderr)).into());
    };
    report.put("resident, idle", idle, "MB", "");
    report.put(format!("resident, {CALLERS} callers"), busy, "MB", "");
    let each = (waiting - before) * 1e6 / WAITING as f64;
    report.put(format!("resident, {WAITING} waiting to be retried"), waiting, "MB", format!("{before:.1} MB before: {each:.0} bytes each"));
    Ok(())
}

/// Measures and prints the figures; this is the task of the child process.
pub async fn measure(url: &str) -> Result<(), Box<dyn Error>> {
    let runtime = Runtime::builder().database(url).only::<Pulse>().data(Arc::new(Counters::default())).start().await?;
    tokio::time::sleep(Duration::from_millis(300)).await;
    println!("{}", resident()?);
    begin_all(&runtime, "memory", 2000).await?;
    let load = Load::begin(&runtime, "memory", Instances::as_made(2000), CALLERS);
    tokio::time::sleep(Duration::from_secs(2)).await;
    println!("{}", resident()?);
    load.end().await?;
    // As many concurrent calls as below, and more instances than the snapshot cache holds, so that the memory for these is not counted as
    // growth.
    wait_for_an_hour(&runtime, "before", 50_000).await?;
    println!("{}", resident()?);
    wait_for_an_hour(&runtime, "waiting", WAITING).await?;
    println!("{}", resident()?);
    Ok(())
}

async fn wait_for_an_hour(runtime: &Runtime, prefix: &str, count: usize) -> Result<(), Box<dyn Error>> {
    let due_us = now_us() + 3_600_000_000;
    begin_all(runtime, prefix, count).await?;
    crate::load::for_each_instance(runtime, prefix, count, move |handle, key| async move {
        handle.send(&key, NotBefore { due_us }).await?;
        Ok(())
    })
    .await?;
    tokio::time::sleep(Duration::from_millis(500)).await;
    Ok(())
}

/// Returns the resident memory of this process in MB.
fn resident() -> Result<f64, Box<dyn Error>> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).ok_or("this system does not say how much memory is resident")?;
    let kilobytes: f64 = line.trim().trim_end_matches(" kB").parse()?;
    Ok(kilobytes / 1e3)
}
