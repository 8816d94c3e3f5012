//! Transitions on a database with partitions, all on one server, beside a database without partitions. They are measured alternately, in three
//! rounds, and the figures are medians. The keys of the callers are spread over the partitions.

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use fsm::Runtime;
use fsm_runtime::admin::{Opening, partitions};

use crate::arguments::{Arguments, Instances};
use crate::compare::{ROUNDS, Spread, spread};
use crate::database::BenchDatabase;
use crate::load::{Load, WARM_UP, begin_all};
use crate::machine::Counters;
use crate::report::Report;

type Result<T = (), E = Box<dyn Error>> = std::result::Result<T, E>;

/// The numbers of partitions; `None` is a database without partitions.
const PARTITIONS: [Option<u32>; 4] = [None, Some(1), Some(2), Some(8)];
const CALLERS: [usize; 2] = [256, 2000];

/// A database with its rates.
struct Measured {
    partitions: Option<u32>,
    bench_database: BenchDatabase,
    rates: [Vec<f64>; CALLERS.len()],
}

/// Measures all of them alternately, and reports the ratios and then the rates. Only PostgreSQL has partitions.
pub async fn measure(bench_database: &BenchDatabase, arguments: &Arguments, report: &mut Report) -> Result {
    if !bench_database.kind.is_postgres() {
        return Ok(());
    }
    let mut all = Vec::with_capacity(PARTITIONS.len());
    for partitions in PARTITIONS {
        all.push(Measured::prepared(bench_database, partitions, arguments).await?);
    }
    for round in 1..=ROUNDS {
        eprintln!("round {round} of {ROUNDS}: without partitions, and with 1, 2 and 8");
        for measured in &mut all {
            measured.measure(arguments).await?;
        }
    }
    let mut spreads = Vec::with_capacity(all.len());
    for measured in all {
        let title = measured.partitions.map_or_else(|| "no partitions".to_owned(), |of| format!("{of} of them"));
        spreads.push((title, measured.ended().await?));
    }
    for (title, rates) in &spreads[1..] {
        for ((callers, rate), plain) in CALLERS.into_iter().zip(rates).zip(&spreads[0].1) {
            let share = 100.0 * rate.median / plain.median;
            report.put(format!("partitions, {title}, {callers} callers"), share, "%", "of the rate without partitions");
        }
    }
    for (title, rates) in &spreads {
        for (callers, rate) in CALLERS.into_iter().zip(rates) {
            report.put(format!("partitions, {title}, {callers} callers"), rate.median, "a second", rate.to_string());
        }
    }
    Ok(())
}

impl Measured {
    /// Creates the database and its instances.
    async fn prepared(other: &BenchDatabase, partitions: Option<u32>, arguments: &Arguments) -> Result<Measured> {
        let bench_database = other.kind.make().await?;
        if let Some(number) = partitions {
            partitions::create(&Opening::to_act(&bench_database.url), number, &[]).await?;
        }
        let measured = Measured { partitions, bench_database, rates: Default::default() };
        let runtime = measured.start().await?;
        begin_all(&runtime, "placed", arguments.instances().count).await?;
        runtime.shutdown().await?;
        Ok(measured)
    }

    async fn start(&self) -> Result<Runtime> {
        Ok(self.bench_database.builder().data(Arc::<Counters>::default()).start().await?)
    }

    /// Measures one rate for each number of callers, in a runtime of its own.
    async fn measure(&mut self, arguments: &Arguments) -> Result {
        let runtime = self.start().await?;
        for (callers, rates) in CALLERS.into_iter().zip(&mut self.rates) {
            rates.push(rate(&runtime, arguments.instances(), callers, arguments.each).await?);
        }
        Ok(runtime.shutdown().await?)
    }

    /// Checks the invariants, deletes the database and returns the rates.
    async fn ended(self) -> Result<[Spread; CALLERS.len()]> {
        self.bench_database.analyze().await?;
        let runtime = self.start().await?;
        let violations = runtime.check_invariants().await?;
        if !violations.is_empty() {
            return Err(format!("the database is not as it must be: {violations:?}").into());
        }
        runtime.shutdown().await?;
        self.bench_database.remove().await?;
        Ok(self.rates.map(spread))
    }
}

async fn rate(runtime: &Runtime, instances: Instances, callers: usize, each: Duration) -> Result<f64> {
    let load = Load::begin(runtime, "placed", instances, callers);
    tokio::time::sleep(WARM_UP).await;
    let rate = load.rate(each).await;
    load.end().await?;
    Ok(rate)
}
