//! Measures the speed of the engine through its public API, beside the lean limit and its own statements. `cargo xtask bench` runs it.

#[path = "engine/arguments.rs"]
mod arguments;
#[path = "engine/chart.rs"]
mod chart;
#[path = "engine/children.rs"]
mod children;
#[path = "engine/compare.rs"]
mod compare;
#[path = "engine/database.rs"]
mod database;
#[path = "engine/fan_in.rs"]
mod fan_in;
#[path = "engine/interrupt.rs"]
mod interrupt;
#[path = "engine/lasting.rs"]
mod lasting;
#[path = "engine/lean.rs"]
mod lean;
#[path = "engine/limit.rs"]
mod limit;
#[path = "engine/load.rs"]
mod load;
#[path = "engine/machine.rs"]
mod machine;
#[path = "engine/memory.rs"]
mod memory;
#[path = "engine/partitions.rs"]
mod partitions;
#[path = "engine/processes.rs"]
mod processes;
#[path = "engine/rate_limit.rs"]
mod rate_limit;
#[path = "engine/report.rs"]
mod report;
#[path = "engine/send_many.rs"]
mod send_many;
#[path = "engine/sizes.rs"]
mod sizes;

use std::error::Error;

use arguments::{Arguments, Measurement};
use database::Database;
use report::Report;

/// The library leaves the choice of the allocator to its user. This one takes about an eighth off the CPU time of a transition.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments = Arguments::of_this_process();
    if arguments.is_verbose {
        tracing_subscriber::fmt().with_env_filter(tracing_subscriber::EnvFilter::from_default_env()).with_writer(std::io::stderr).init();
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    if let Some(url) = &arguments.memory_of {
        return runtime.block_on(memory::measure(url));
    }
    if let Some((url, words)) = arguments.work_on.split_first() {
        return runtime.block_on(processes::work(url, words));
    }
    let mut reports = Vec::new();
    for database in arguments.databases() {
        eprintln!("# {}", database.title());
        let report = runtime.block_on(measure(database, &arguments))?;
        if !arguments.is_json {
            println!("{}", report.table());
        }
        reports.push(report);
    }
    if let Some(folder) = &arguments.charts {
        chart::draw(&reports, folder)?;
    }
    if arguments.is_json {
        println!("{}", serde_json::to_string_pretty(&reports.iter().map(Report::json).collect::<Vec<_>>())?);
    }
    Ok(())
}

async fn measure(database: Database, arguments: &Arguments) -> Result<Report, Box<dyn Error>> {
    let mut bench_database = database.make().await?;
    let mut report = Report::new(&bench_database.describe().await?, &arguments.command());
    if arguments.has(Measurement::Compare) {
        compare::measure(&bench_database, arguments, &mut report).await?;
        bench_database = bench_database.renewed().await?;
    }
    if arguments.has(Measurement::Memory) {
        memory::measure_in_child_process(&bench_database, &mut report)?;
        // Its instances would go on to fail and be retried beside the other measurements.
        bench_database = bench_database.renewed().await?;
    }
    if arguments.has(Measurement::Limit) {
        limit::measure(&bench_database, arguments, &mut report).await?;
        // Its rows are not valid instances, and the invariants would report them.
        bench_database = bench_database.renewed().await?;
    }
    if arguments.has(Measurement::Transitions)
        || arguments.has(Measurement::Idle)
        || arguments.has(Measurement::Chain)
        || arguments.has(Measurement::Retries)
    {
        load::measure_with_workers(&bench_database, arguments, &mut report).await?;
    }
    if arguments.has(Measurement::Enqueue) {
        load::measure_sends(&bench_database, arguments, &mut report).await?;
    }
    if arguments.has(Measurement::SendMany) {
        // The rows that are inserted beside it are no calls of the engine.
        bench_database = bench_database.renewed().await?;
        send_many::measure(&bench_database, &mut report).await?;
        bench_database = bench_database.renewed().await?;
    }
    if arguments.has(Measurement::Across) {
        processes::measure_across(&bench_database, &mut report).await?;
    }
    if arguments.has(Measurement::Processes) {
        processes::measure_several(&bench_database, arguments, &mut report).await?;
    }
    if arguments.has(Measurement::FanIn) {
        fan_in::measure(&bench_database, &mut report).await?;
    }
    if arguments.has(Measurement::Interrupt) {
        interrupt::measure(&bench_database, &mut report).await?;
    }
    if arguments.has(Measurement::Children) {
        children::measure(&bench_database, &mut report).await?;
    }
    if arguments.names(Measurement::Partitions) {
        partitions::measure(&bench_database, arguments, &mut report).await?;
    }
    if arguments.names(Measurement::RateLimit) {
        rate_limit::measure(&bench_database, arguments, &mut report).await?;
    }
    if arguments.names(Measurement::Lasting) || arguments.names(Measurement::Snapshot) {
        bench_database = bench_database.renewed().await?;
        lasting::measure(&bench_database, arguments, &mut report).await?;
    }
    bench_database.remove().await?;
    Ok(report)
}
