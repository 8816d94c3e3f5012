//! `fsm partitions`: creates, lists and checks the partitions of a PostgreSQL database.

use fsm_runtime::admin::partitions::{self, PartitionCheck};
use fsm_store::partitions::PartitionPlace;
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
    }
}

async fn create(session: &mut Session<'_, '_>, init: &Init) -> Result<(), Problem> {
    let created = partitions::create(&session.opening, init.number, &init.urls).await?;
    let count = created.places.len();
    if session.is_json {
        let places: Vec<_> = created.places.iter().map(told).collect();
        return session.stage.json(&json!({ "created": created.is_new, "partitions": places }));
    }
    show(session, &created.places)?;
    session.stage.say(&match created.is_new {
        true => format!("{count} partitions are ready; their number does not change later"),
        false => format!("the {count} partitions existed already; nothing was changed"),
    });
    Ok(())
}

async fn list(session: &mut Session<'_, '_>) -> Result<(), Problem> {
    let places = partitions::list(&session.opening).await?;
    if session.is_json {
        return session.stage.json(&json!({ "partitions": places.iter().map(told).collect::<Vec<_>>() }));
    }
    show(session, &places)?;
    if places.is_empty() {
        session.stage.say(NONE);
    }
    Ok(())
}

const NONE: &str = "the database has no partitions; `fsm partitions init N` creates them in a PostgreSQL database without tables";

async fn check(session: &mut Session<'_, '_>) -> Result<(), Problem> {
    let places = partitions::list(&session.opening).await?;
    if places.is_empty() {
        return Err(Problem::Usage(NONE.into()));
    }
    let progress = Progress::of(session.stage, Some(places.len() as u64), "partitions");
    let mut checked = Vec::with_capacity(places.len());
    for place in &places {
        checked.push(partitions::check(&session.opening, place).await);
        progress.at(checked.len() as u64);
    }
    drop(progress);
    let broken = checked.iter().filter(|check| !check.problems.is_empty()).count();
    if session.is_json {
        let shown: Vec<_> = places.iter().zip(&checked).map(|(place, check)| told_check(place, check)).collect();
        session.stage.json(&json!({ "broken": broken, "partitions": shown }))?;
    } else {
        let mut table = Table::of_sentences(&["PARTITION", "SCHEMA", "INSTANCES", "FINDING"]);
        for (place, check) in places.iter().zip(&checked) {
            let row = |finding| {
                [
                    Cell::from(place.partition.number().to_string()),
                    Cell::from(&place.schema),
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
        n => Err(Problem::Failed(format!("{n} of {} partitions have a problem", places.len()))),
    }
}

fn show(session: &mut Session<'_, '_>, places: &[PartitionPlace]) -> Result<(), Problem> {
    let mut table = Table::new(&["PARTITION", "SCHEMA", "DATABASE"]);
    for place in places {
        let url = place.shown_url().unwrap_or_else(|| "that of the directory".to_owned());
        table.row([Cell::from(place.partition.number().to_string()), Cell::from(&place.schema), Cell::from(url)]);
    }
    session.stage.table(&table)
}

fn told(place: &PartitionPlace) -> Value {
    json!({ "partition": place.partition.number(), "schema": place.schema, "url": place.shown_url() })
}

fn told_check(place: &PartitionPlace, check: &PartitionCheck) -> Value {
    let mut told = told(place);
    told["instances"] = json!(check.instances);
    told["problems"] = json!(check.problems);
    told
}
