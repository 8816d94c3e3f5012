//! `fsm migrate`: migrates the tables or shows their version, of all partitions if the database has partitions.

use fsm_core::time::Timestamp;
use fsm_runtime::admin;
use fsm_store::migrate::{Step, script};
use serde_json::{Value, json};

use super::session::Session;
use crate::args::{Kind, Migrate};
use crate::problem::Problem;
use crate::table::{BAD, Cell, GOOD, OPEN, Table};

pub(super) async fn run(session: &mut Session<'_, '_>, migrate: &Migrate) -> Result<(), Problem> {
    match migrate {
        Migrate::Up => {
            for (partition, opening) in session.each_partition().await? {
                admin::migrate(&opening.acting()).await.map_err(|error| Problem::from(error).of_partition(partition))?;
            }
            status(session).await
        }
        Migrate::Status => status(session).await,
        Migrate::Check => check(session).await,
        Migrate::Print { kind } => {
            let is_postgres = kind.map_or_else(|| session.opening.is_postgres(), |kind| kind == Kind::Postgres);
            let now = session.stage.now.unwrap_or_else(|| Timestamp::from(std::time::SystemTime::now()));
            let script = script(is_postgres, now);
            if session.is_json { session.stage.json(&json!({ "script": script })) } else { session.stage.text(&script) }
        }
    }
}

/// Checks all partitions, and returns an error if one of them is not up to date.
async fn check(session: &mut Session<'_, '_>) -> Result<(), Problem> {
    let all = session.each_partition().await?;
    let mut wrong = Vec::new();
    for (partition, opening) in &all {
        if let Err(error) = admin::check_migrations(opening).await {
            wrong.push(Problem::from(error).of_partition(*partition));
        }
    }
    if wrong.len() > 1 {
        wrong.iter().for_each(|problem| session.stage.say(&problem.to_string()));
        return Err(Problem::Database(format!("{} of {} partitions cannot be used", wrong.len(), all.len())));
    }
    wrong.pop().map_or(Ok(()), Err)?;
    session.stage.say("the tables are up to date");
    if session.is_json { session.stage.json(&json!({ "up_to_date": true })) } else { Ok(()) }
}

async fn status(session: &mut Session<'_, '_>) -> Result<(), Problem> {
    let mut all = Vec::new();
    for (partition, opening) in session.each_partition().await? {
        let steps = admin::migrations(&opening).await.map_err(|error| Problem::from(error).of_partition(partition))?;
        all.extend(steps.into_iter().map(|step| (partition, step)));
    }
    if session.is_json {
        let migrations: Vec<_> = all.iter().map(|(partition, step)| told(*partition, step)).collect();
        return session.stage.json(&json!({ "migrations": migrations }));
    }
    let is_partitioned = all.iter().any(|(partition, _)| partition.is_some());
    let heads: &[&str] =
        if is_partitioned { &["PARTITION", "VERSION", "NAME", "APPLIED", ""] } else { &["VERSION", "NAME", "APPLIED", ""] };
    let mut table = Table::new(heads);
    for (partition, step) in &all {
        let word = match (step.applied_at, step.is_ours) {
            (Some(_), true) => Cell::styled("applied", GOOD),
            (Some(_), false) => Cell::styled("of another release", BAD),
            (None, _) => Cell::styled("missing", OPEN),
        };
        let applied = step.applied_at.map_or_else(|| "-".to_owned(), |at| at.to_string());
        let cells = [Cell::from(step.version.to_string()), Cell::from(&step.name), Cell::from(applied), word];
        table.row(partition.map(|number| Cell::from(number.to_string())).into_iter().chain(cells));
    }
    session.stage.table(&table)
}

fn told(partition: Option<u32>, step: &Step) -> Value {
    json!({
        "partition": partition,
        "version": step.version,
        "name": step.name,
        "applied_at": step.applied_at.map(|at| at.to_string()),
        "is_ours": step.is_ours,
    })
}
