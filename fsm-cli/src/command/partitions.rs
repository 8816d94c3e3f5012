//! `fsm partitions`: creates, lists and checks the partitions of a PostgreSQL database.

use fsm_runtime::admin::partitions::{self, ListedPartition, PartitionCheck};
use serde_json::{Value, json};

use super::session::Session;
use crate::args::{Init, Partitions};
use crate::problem::Problem;
use crate::progress::Progress;
use crate::table::{BAD, Cell, GOOD, Table};

pub(super) async fn run(session: &mut Session<'_, '_>, wanted: &Partitions) -> Result<(), Problem> {
    if session.partition.is_some() {
        return Err(Problem::Usage("`fsm partitions` is about all partitions; leave out `--partition`".into()));
    }
    match wanted {
        Partitions::Init(init) => create(session, init).await,
        Partitions::List => list(session).await,
        Partitions::Check => check(session).await,
        #[cfg(feature = "postgres")]
        Partitions::Move(wanted) => super::partition_move::run(session, wanted).await,
    }
}

async fn create(session: &mut Session<'_, '_>, init: &Init) -> Result<(), Problem> {
    let created = partitions::create(&session.opening, init.number, &init.urls).await?;
    let count = created.partitions.len();
    if session.is_json {
        let partitions: Vec<_> = created.partitions.iter().map(told).collect();
        return session.stage.json(&json!({ "created": created.is_new, "partitions": partitions }));
    }
    show(session, &created.partitions)?;
    session.stage.say(&match created.is_new {
        true => format!("{count} partitions are ready; their number does not change later"),
        false => format!("the {count} partitions existed already; nothing was changed"),
    });
    Ok(())
}

async fn list(session: &mut Session<'_, '_>) -> Result<(), Problem> {
    let all = partitions::list(&session.opening).await?;
    if session.is_json {
        return session.stage.json(&json!({ "partitions": all.iter().map(told).collect::<Vec<_>>() }));
    }
    show(session, &all)?;
    if all.is_empty() {
        session.stage.say(NONE);
    }
    Ok(())
}

const NONE: &str = "the database has no partitions; `fsm partitions init N` creates them in a PostgreSQL database without tables";

async fn check(session: &mut Session<'_, '_>) -> Result<(), Problem> {
    let all = partitions::list(&session.opening).await?;
    if all.is_empty() {
        return Err(Problem::Usage(NONE.into()));
    }
    let progress = Progress::of(session.stage, Some(all.len() as u64), "partitions");
    let mut checked = Vec::with_capacity(all.len());
    for one in &all {
        checked.push(partitions::check(&session.opening, &one.place).await);
        progress.at(checked.len() as u64);
    }
    drop(progress);
    let broken = checked.iter().filter(|check| !check.problems.is_empty()).count();
    if session.is_json {
        let shown: Vec<_> = all.iter().zip(&checked).map(|(one, check)| told_check(one, check)).collect();
        session.stage.json(&json!({ "broken": broken, "partitions": shown }))?;
    } else {
        let mut table = Table::of_sentences(&["PARTITION", "SCHEMA", "INSTANCES", "FINDING"]);
        for (one, check) in all.iter().zip(&checked) {
            let row = |finding| {
                [
                    Cell::from(one.place.partition.number().to_string()),
                    Cell::from(&one.place.schema),
                    Cell::from(check.instances.to_string()),
                    finding,
                ]
            };
            if check.problems.is_empty() {
                table.row(row(Cell::styled("ok", GOOD)));
            }
            check.problems.iter().for_each(|problem| table.row(row(Cell::styled(problem, BAD))));
        }
        session.stage.table(&table)?;
    }
    match broken {
        0 => Ok(()),
        n => Err(Problem::Failed(format!("{n} of {} partitions have a problem", all.len()))),
    }
}

fn show(session: &mut Session<'_, '_>, all: &[ListedPartition]) -> Result<(), Problem> {
    let is_moving = all.iter().any(|one| one.place.moving_to.is_some());
    let mut table =
        Table::new(if is_moving { &["PARTITION", "SCHEMA", "DATABASE", "MOVING TO"] } else { &["PARTITION", "SCHEMA", "DATABASE"] });
    for one in all {
        let database = one.database.as_deref().unwrap_or("that of the directory");
        let number = one.place.partition.number().to_string();
        let mut cells = vec![Cell::from(number), Cell::from(&one.place.schema), Cell::from(database)];
        cells.extend(is_moving.then(|| Cell::from(one.place.shown_target().unwrap_or_default())));
        table.row(cells);
    }
    session.stage.table(&table)
}

fn told(ListedPartition { place, .. }: &ListedPartition) -> Value {
    let (number, schema) = (place.partition.number(), &place.schema);
    json!({ "partition": number, "schema": schema, "url": place.shown_url(), "place_number": place.place_number, "moving_to": place.shown_target() })
}

fn told_check(one: &ListedPartition, check: &PartitionCheck) -> Value {
    let mut told = told(one);
    told["instances"] = json!(check.instances);
    told["problems"] = json!(check.problems);
    told
}
