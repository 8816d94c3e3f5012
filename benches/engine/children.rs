//! Children: the time from the send to a parent until it has been called, because the last of its children has ended.

use std::error::Error;
use std::time::{Duration, Instant};

use fsm::prelude::*;
use serde::{Deserialize, Serialize};

use crate::database::BenchDatabase;
use crate::report::Report;

/// The number of children, which is the maximum of one attempt.
const CHILDREN: u64 = 10_000;
/// A parent that was not called by then is lost.
const LIMIT: Duration = Duration::from_secs(600);

#[derive(Debug, Clone, Serialize, Deserialize)]
struct Gather {
    children: u64,
}
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Run;

#[verb]
async fn gathering(ctx: &mut Ctx<'_>, event: Gather) -> fsm::Result {
    let key = ctx.key().to_owned();
    ctx.start_children::<Leaf>((0..event.children).map(|n| (format!("{key}/{n}"), Run)))?;
    Ok(())
}
#[verb]
async fn gathered(all: ChildrenEnded) -> fsm::Result {
    if all.count() == CHILDREN { Ok(()) } else { Err(Failure::new(format!("{} children", all.count()))) }
}
#[verb]
async fn run(_event: Run) -> fsm::Result {
    Ok(())
}

fsm! {
    machine Root = "bench_root" {
        start gathering;
        gathering -> gathered;
        end gathered;
    }
}
fsm! {
    machine Leaf = "bench_leaf" {
        start run;
        end run;
    }
}

/// Measures one parent.
pub async fn measure(bench_database: &BenchDatabase, report: &mut Report) -> Result<(), Box<dyn Error>> {
    let ended = std::sync::Arc::<crate::machine::Counters>::default();
    let runtime = bench_database.builder().only::<Root>().only::<Leaf>().data(ended).start().await?;
    let roots = runtime.machine::<Root>();
    let begun = Instant::now();
    roots.send("root", Gather { children: CHILDREN }).await?;
    let root = roots.wait("root").for_end().within(LIMIT).await?;
    let took = begun.elapsed();
    if (root.status, root.version) != (Status::Completed, 2) {
        return Err(format!("the parent is {} after {} transitions: {:?}", root.status, root.version, root.error).into());
    }
    let rate = CHILDREN as f64 / took.as_secs_f64();
    report.put(
        format!("a parent of {CHILDREN} children, sent to called"),
        took.as_secs_f64() * 1000.0,
        "ms",
        format!("{rate:.0} children a second"),
    );
    let violations = runtime.check_invariants().await?;
    if !violations.is_empty() {
        return Err(format!("the database is not as it must be: {violations:?}").into());
    }
    Ok(runtime.shutdown().await?)
}
