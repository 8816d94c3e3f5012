//! Retention deletes ended instances with very long calls under load, in small steps, and no sender waits for it.

use std::time::{Duration, Instant};

use crate::Failure;
use crate::child::Spec;
use crate::ledger::{self, Line};
use crate::load::{Load, now_us};
use crate::report::Report;
use crate::size::Size;
use crate::sql;
use crate::test_run::TestRun;
use crate::test_server::{Kind, TestServer};

/// The limit for all rows to be deleted. The pruner begins within ten seconds.
const LIMIT: Duration = Duration::from_secs(20 * 60);
/// The limit on the 99th percentile of the senders' answers meanwhile.
const P99: Duration = Duration::from_secs(1);
/// The log message of the engine after each step.
const STEP: &str = "a step of pruning";

pub async fn run(test_server: &mut TestServer, kind: Kind, size: Size) -> Result<Report, Failure> {
    let mut test_run = TestRun::open(test_server, "prune", kind, size.seed).await?;
    // To check the invariants of all these rows takes longer than to delete them.
    test_run.check_no_more();
    let attempts = if size.is_short { 500 } else { 20_000 };
    let fill = match kind {
        Kind::Sqlite => sql::FILL_ENDED_SQLITE,
        Kind::Postgres => sql::FILL_ENDED_POSTGRES,
    };
    let mut db = test_run.db().await?;
    for instance in 1..=sql::FILLED {
        db.run_with(fill[0], &[instance, attempts]).await?;
        db.run_with(fill[1], &[instance, attempts]).await?;
    }
    let says = [("FSM_FAULTS_LOG", "warn,fsm_runtime::pruner=debug")];
    let load = Load { callers: 4, is_timed: true, ..Load::default() };
    let node = test_run.spec("node");
    test_run.start_with(&Spec { load: load.clone(), ..node }, &says)?;
    let sender = test_run.sender();
    test_run.start(&Spec { load, ..sender })?;

    let (begun, mut from_us) = (Instant::now(), None);
    loop {
        if from_us.is_none() && test_run.output_lines_with(STEP)? > 0 {
            from_us = Some(now_us());
        }
        let left = db.number(sql::ENDED_LEFT).await?;
        if left == 0 {
            break;
        }
        if begun.elapsed() > LIMIT {
            test_run.require(false, format!("all that ended long ago is deleted within {LIMIT:?}, but {left} instances are left"));
            break;
        }
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
    let (from_us, until_us) = (from_us.unwrap_or_else(now_us), now_us());
    test_run.note(format!(
        "{} instances with {attempts} attempts each were deleted in {:.0} s",
        sql::FILLED,
        Duration::from_micros(until_us - from_us).as_secs_f32()
    ));
    note_steps(&mut test_run)?;
    judge(&mut test_run, from_us, until_us)?;
    Ok(test_run.finish().await?.0)
}

/// Notes the number of steps and the duration of the longest one.
fn note_steps(test_run: &mut TestRun<'_>) -> Result<(), Failure> {
    let (mut steps, mut longest_us) = (0, 0);
    for line in test_run.lines()?.iter().filter(|line| line.contains(STEP)) {
        let took = line.split_whitespace().find_map(|word| word.strip_prefix("took_us=")).and_then(|number| number.parse::<u64>().ok());
        steps += 1;
        longest_us = took.unwrap_or(0).max(longest_us);
    }
    test_run.note(format!("{steps} steps, the longest took {:.0} ms", Duration::from_micros(longest_us).as_secs_f64() * 1000.0));
    test_run.require(steps > 0, "pruning goes in steps");
    Ok(())
}

/// Judges the durations of the sends that began between these times.
fn judge(test_run: &mut TestRun<'_>, from_us: u64, until_us: u64) -> Result<(), Failure> {
    let lines = ledger::read_all(test_run.folder.path())?.into_iter().flat_map(|ledger| ledger.lines);
    let mut times: Vec<u64> = lines
        .filter_map(|line| match line {
            Line::Latency { began_us, took_us, is_send: true, .. } if (from_us..until_us).contains(&began_us) => Some(took_us),
            _ => None,
        })
        .collect();
    times.sort_unstable();
    let Some(p99_us) = times.get(times.len() * 99 / 100) else {
        test_run.require(false, "something is acknowledged while old rows are deleted");
        return Ok(());
    };
    let (p99, slowest) = (Duration::from_micros(*p99_us), Duration::from_micros(times.last().copied().unwrap_or(0)));
    let ms = |time: Duration| time.as_secs_f64() * 1000.0;
    test_run.note(format!(
        "{} acknowledged meanwhile, 99 % within {:.0} ms, the slowest after {:.0} ms",
        times.len(),
        ms(p99),
        ms(slowest)
    ));
    test_run.require(p99 < P99, format!("99 % are acknowledged within {P99:?} while old rows are deleted, not {p99:?}"));
    Ok(())
}
