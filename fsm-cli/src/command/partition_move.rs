//! `fsm partitions move`: moves a partition to another database.

use std::time::Instant;

use fsm_runtime::admin::partition_move::{self, Step};
use serde_json::json;

use super::session::Session;
use crate::args::Move;
use crate::problem::Problem;
use crate::stage::rough;

pub(super) async fn run(session: &mut Session<'_, '_>, wanted: &Move) -> Result<(), Problem> {
    match &wanted.to {
        Some(to) => move_to(session, wanted.number, to, wanted.ignore_clocks).await,
        None => cancel(session, wanted.number).await,
    }
}

async fn move_to(session: &mut Session<'_, '_>, number: u32, to: &str, ignores_clocks: bool) -> Result<(), Problem> {
    let Some(moving) = partition_move::begin(&session.opening, number, to).await? else {
        if session.is_json {
            return session.stage.json(&json!({ "partition": number, "moved": false }));
        }
        session.stage.say(&format!("partition {number} is there already; nothing was changed"));
        return Ok(());
    };
    let mut moving = if ignores_clocks { moving.ignore_clocks() } else { moving };
    let (old_schema, from) = (moving.old_schema(), moving.from().database);
    let from = from.unwrap_or_else(|| "the database of the directory".to_owned());
    let (mut rows, mut frozen_at) = (0, None);
    for step in Step::ALL {
        if step == Step::Freeze {
            frozen_at = Some(Instant::now());
        }
        rows += moving.step(step).await.map_err(|error| interrupted(number, step, error.into()))?;
        let told = match step {
            Step::Announce => continue,
            Step::Prepare => "the tables are ready at the new place".to_owned(),
            Step::Freeze => "the partition is frozen: programs wait for its new place".to_owned(),
            Step::Copy => format!("{rows} rows were copied"),
            Step::Switch => "the directory lists the new place".to_owned(),
        };
        session.stage.say(&told);
    }
    let frozen = frozen_at.map(|at| at.elapsed()).unwrap_or_default();
    if session.is_json {
        let frozen_ms = u64::try_from(frozen.as_millis()).unwrap_or(u64::MAX);
        return session
            .stage
            .json(&json!({ "partition": number, "moved": true, "rows": rows, "frozen_ms": frozen_ms, "old_schema": old_schema }));
    }
    session.stage.say(&format!(
        "partition {number} was moved, and could not be used for {}; its old rows are in {from}, as `{old_schema}`, until you drop that schema",
        rough(frozen)
    ));
    Ok(())
}

async fn cancel(session: &mut Session<'_, '_>, number: u32) -> Result<(), Problem> {
    partition_move::cancel(&session.opening, number).await?;
    if session.is_json {
        return session.stage.json(&json!({ "partition": number, "cancelled": true }));
    }
    session.stage.say(&format!("the move of partition {number} is cancelled; the partition is used at its old place"));
    Ok(())
}

/// The problem of a step, with what to do next.
fn interrupted(number: u32, step: Step, problem: Problem) -> Problem {
    let state = match step {
        Step::Announce | Step::Prepare => "programs use the old place until then",
        Step::Freeze | Step::Copy | Step::Switch => "programs may not be able to use the partition until then",
    };
    let then = format!("run the same command again, or `fsm partitions move {number} --cancel`; {state}");
    match problem {
        Problem::Database(text) => Problem::Database(format!("{text}\n{then}")),
        other => other,
    }
}
