//! `fsm import`: reads the output of `fsm export` into another database.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::Path;

use fsm_runtime::admin::transfer::import;
use serde_json::json;

use super::session::Session;
use crate::args::Import;
use crate::problem::Problem;
use crate::progress::Progress;

pub(super) async fn run(session: &mut Session<'_, '_>, import: &Import) -> Result<(), Problem> {
    let mut file = match import.file.to_str() {
        Some("-") => None,
        _ => Some(opened(&import.file)?),
    };
    let mut rows = import::import(&session.opening.clone().acting()).await?;
    let (mut line, mut number) = (String::new(), 0_u64);
    let progress = Progress::of(session.stage, None, "rows");
    loop {
        line.clear();
        number += 1;
        let read = match &mut file {
            Some(file) => file.read_line(&mut line),
            None => session.stage.input.read_line(&mut line),
        };
        if read.map_err(|error| Problem::Failed(format!("line {number} cannot be read: {error}")))? == 0 {
            break;
        }
        if !line.trim().is_empty() {
            rows.line(&line).await.map_err(|error| at(number, error.into()))?;
            progress.at(number);
        }
    }
    let imported = rows.finish().await?;
    drop(progress);
    if session.is_json {
        let answer = json!({
            "machines": imported.machines,
            "rows": imported.rows,
            "executing": imported.executing,
            "unreadable": imported.unreadable,
            "there_already": imported.there_already,
        });
        return session.stage.json(&answer);
    }
    let machines: Vec<_> = imported.machines.iter().map(|machine| format!("`{machine}`")).collect();
    session.stage.say(&format!("{} rows of {} were imported; `fsm doctor --deep` checks them", imported.rows, machines.join(", ")));
    if imported.executing > 0 {
        let says = format!("{} attempts among them were executing: they count as lost once a process works here", imported.executing);
        session.stage.say(&says);
    }
    if imported.unreadable > 0 {
        let says =
            format!("{} rows are not among them: the export could not read them, or the instance that they belong to", imported.unreadable);
        session.stage.say(&says);
    }
    if !imported.there_already.is_empty() {
        let numbers: Vec<_> = imported.there_already.iter().map(u32::to_string).collect();
        session.stage.say(&format!("the partitions {} had their rows already, and are as they were", numbers.join(", ")));
    }
    Ok(())
}

fn opened(path: &Path) -> Result<BufReader<File>, Problem> {
    match File::open(path) {
        Ok(file) => Ok(BufReader::new(file)),
        Err(error) => Err(Problem::Failed(format!("`{}` cannot be opened: {error}", path.display()))),
    }
}

/// Adds the line number to an error of the import. Nothing was imported.
fn at(number: u64, problem: Problem) -> Problem {
    let with = |text: String| format!("line {number}: {text}; nothing was imported");
    match problem {
        Problem::Usage(text) | Problem::Failed(text) => Problem::Failed(with(text)),
        Problem::Conflict(text) => Problem::Conflict(with(text)),
        Problem::Database(text) => Problem::Database(with(text)),
        other => other,
    }
}
