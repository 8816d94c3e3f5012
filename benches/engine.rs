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
#[path = "engine/processes.rs"]
mod processes;
#[path = "engine/rate_limit.rs"]
mod rate_limit;
#[path = "engine/report.rs"]
mod report;
#[path = "engine/sizes.rs"]
mod sizes;

use std::error::Error;

use arguments::{Arguments, Part};
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
    let mut place = database.make().await?;
    let mut report = Report::new(&place.describe().await?, &arguments.command());
    if arguments.has(Part::Compare) {
        compare::measure(&place, arguments, &mut report).await?;
        place.remove().await?;
        place = database.make().await?;
    }
    if arguments.has(Part::Memory) {
        memory::in_a_process_of_its_own(&place, &mut report)?;
    }
    if arguments.has(Part::Limit) {
        limit::measure(&place, arguments, &mut report).await?;
        // Its rows are not valid instances, and the invariants would report them.
        place.remove().await?;
        place = database.make().await?;
    }
    if arguments.has(Part::Transitions) || arguments.has(Part::Idle) || arguments.has(Part::Chain) || arguments.has(Part::Retries) {
        load::working(&place, arguments, &mut report).await?;
    }
    if arguments.has(Part::Enqueue) {
        load::sending(&place, arguments, &mut report).await?;
    }
    if arguments.has(Part::Across) {
        processes::across(&place, &mut report).await?;
    }
    if arguments.has(Part::Processes) {
        processes::several(&place, arguments, &mut report).await?;
    }
    if arguments.has(Part::FanIn) {
        fan_in::measure(&place, &mut report).await?;
    }
    if arguments.has(Part::Interrupt) {
        interrupt::measure(&place, &mut report).await?;
    }
    if arguments.has(Part::Children) {
        children::measure(&place, &mut report).await?;
    }
    if arguments.names(Part::RateLimit) {
        rate_limit::measure(&place, arguments, &mut report).await?;
    }
    if arguments.names(Part::Lasting) || arguments.names(Part::Snapshot) {
        place.remove().await?;
        place = database.make().await?;
        lasting::measure(&place, arguments, &mut report).await?;
    }
    place.remove().await?;
    Ok(report)
}
