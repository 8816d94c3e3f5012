//! The engine beside its limits: the lean layout, and its own statements alone. They are measured alternately, in three rounds, and the
//! figures are medians. Ratios come first, because the speed of a machine changes from minute to minute, and a ratio within one run does
//! not.

use std::error::Error;
use std::time::Duration;

use crate::arguments::{Arguments, Instances};
use crate::database::BenchDatabase;
use crate::load::{Load, WARM_UP, begin_all};
use crate::report::Report;
use crate::{lean, limit};

type Result<T = (), E = Box<dyn Error>> = std::result::Result<T, E>;

pub const ROUNDS: usize = 3;
/// The batch size of both limits. The engine's batches reach it under load.
const BATCH: usize = 100;
const CALLERS: [usize; 2] = [256, 2000];

/// The rates of all rounds, by measurement.
#[derive(Default)]
struct Rates {
    lean: Vec<f64>,
    statements: Vec<f64>,
    engine: [Vec<f64>; CALLERS.len()],
}

/// Measures all of them alternately, and reports the ratios and then the rates.
pub async fn measure(bench_database: &BenchDatabase, arguments: &Arguments, report: &mut Report) -> Result {
    let runtime = bench_database.builder().data(std::sync::Arc::<crate::machine::Counters>::default()).start().await?;
    begin_all(&runtime, "compared", arguments.instances().count).await?;
    let mut rates = Rates::default();
    for round in 1..=ROUNDS {
        eprintln!("round {round} of {ROUNDS}: lean layout, own statements, {} callers", CALLERS.map(|n| n.to_string()).join(" and "));
        let apart = bench_database.kind.make().await?;
        rates.lean.push(lean::measure(&apart, arguments.instances(), BATCH, arguments.each).await.map_err(|error| error.to_string())?);
        apart.migrate().await?;
        rates
            .statements
            .push(limit::measure_one(&apart, arguments.instances(), BATCH, arguments.each).await.map_err(|error| error.to_string())?);
        apart.remove().await?;
        for (callers, rates) in CALLERS.into_iter().zip(&mut rates.engine) {
            rates.push(engine(&runtime, arguments.instances(), callers, arguments.each).await?);
        }
    }
    runtime.shutdown().await?;
    rates.report(bench_database, report);
    Ok(())
}

async fn engine(runtime: &fsm::Runtime, instances: Instances, callers: usize, each: Duration) -> Result<f64> {
    let load = Load::begin(runtime, "compared", instances, callers);
    tokio::time::sleep(WARM_UP).await;
    let rate = load.rate(each).await;
    load.end().await?;
    Ok(rate)
}

impl Rates {
    fn report(self, bench_database: &BenchDatabase, report: &mut Report) {
        let (lean, statements) = (spread(self.lean), spread(self.statements));
        let engine = self.engine.map(spread);
        for (callers, rate) in CALLERS.into_iter().zip(&engine) {
            let comment = format!("{:.0} % of the engine's own statements", 100.0 * rate.median / statements.median);
            report.put(format!("{callers} callers, share of the lean limit"), 100.0 * rate.median / lean.median, "%", comment);
        }
        let share = 100.0 * engine[0].median / engine[1].median;
        report.put("256 callers, share of 2000 callers", share, "%", "");
        report.put(
            format!("lean limit, batches of {BATCH}"),
            lean.median,
            "a second",
            format!("{}; {lean}", lean::about(bench_database.kind)),
        );
        report.put(format!("own statements, batches of {BATCH}"), statements.median, "a second", statements.to_string());
        for (callers, rate) in CALLERS.into_iter().zip(&engine) {
            report.put(format!("engine, {callers} callers"), rate.median, "a second", rate.to_string());
        }
    }
}

/// The median of several rates, with the lowest and the highest.
pub struct Spread {
    pub median: f64,
    lowest: f64,
    highest: f64,
}

pub fn spread(mut rates: Vec<f64>) -> Spread {
    rates.sort_unstable_by(f64::total_cmp);
    let at = |index: usize| rates.get(index).copied().unwrap_or(0.0);
    Spread { median: at(rates.len() / 2), lowest: at(0), highest: at(rates.len().saturating_sub(1)) }
}

impl std::fmt::Display for Spread {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "median of {ROUNDS}, {:.0} to {:.0}", self.lowest, self.highest)
    }
}
