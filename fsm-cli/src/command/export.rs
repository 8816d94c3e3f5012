//! `fsm export`: writes all rows as lines of JSON.

use std::fs::{File, OpenOptions};
use std::io::{BufWriter, Write};
use std::path::Path;

use fsm_runtime::admin::whole::WholeDatabase;

use super::session::Session;
use crate::args::Export;
use crate::clean::clean_json;
use crate::problem::Problem;
use crate::progress::Progress;
use crate::stage::Stage;

pub(super) async fn run(session: &mut Session<'_, '_>, export: &Export) -> Result<(), Problem> {
    let database = session.to_read_all().await?;
    database.check_complete()?;
    if let Some((count, until)) = database.alive().await?.filter(|_| !export.live) {
        let remedy = "stop them first, or the same instances go on here and where this is imported; --live exports all the same";
        return Err(Problem::Refused(format!("{count} processes work on {}, with leases until {until}: {remedy}", place(&database))));
    }
    let mut out = Output::of(export.output.as_deref(), session.stage.width.is_some())?;
    let all = match export.machine {
        None => database.rows_about().await?,
        Some(_) => None,
    };
    let Written { rows, executing, unreadable } = write(&database, export, all, &mut out, session.stage).await?;
    out.finish(session.stage)?;
    session.stage.say(&format!("{rows} rows of {} were exported", place(&database)));
    if executing > 0 {
        session.stage.say(&format!("{executing} attempts among them were executing: where this is imported they count as lost"));
    }
    match unreadable {
        0 => Ok(()),
        n => Err(Problem::Failed(format!(
            "{n} rows could not be read; the export names them as `unreadable`, and an import leaves them out"
        ))),
    }
}

/// The name of the database in messages: that of its first partition, with the number of all.
fn place(database: &WholeDatabase) -> String {
    match database.opened() {
        [one] => one.place().to_owned(),
        several => format!("the {} partitions, of which {} is the first,", several.len(), several[0].place()),
    }
}

/// The number of rows in the export, and how many of them execute or could not be read.
struct Written {
    rows: u64,
    executing: u64,
    unreadable: u64,
}

async fn write(
    database: &WholeDatabase,
    export: &Export,
    all: Option<u64>,
    out: &mut Output,
    stage: &mut Stage<'_>,
) -> Result<Written, Problem> {
    let progress = Progress::of(stage, all, "rows");
    let mut rows = database.export(export.machine.as_deref()).await?;
    while let Some(lines) = rows.next().await? {
        lines.iter().try_for_each(|line| out.line(line, stage))?;
        progress.at(rows.rows());
    }
    Ok(Written { rows: rows.rows(), executing: rows.executing(), unreadable: rows.unreadable() })
}

/// Creates a file that only its owner can read. An existing file or symbolic link is an error, because another user may have created it.
fn private(path: &Path) -> std::io::Result<File> {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(path)
}

/// The destination of the lines.
enum Output {
    File(BufWriter<File>),
    /// The standard output. Control characters are escaped if it is a terminal.
    Stage {
        is_terminal: bool,
    },
}

impl Output {
    fn of(path: Option<&Path>, is_terminal: bool) -> Result<Output, Problem> {
        let Some(path) = path else { return Ok(Output::Stage { is_terminal }) };
        match private(path) {
            Ok(file) => Ok(Output::File(BufWriter::new(file))),
            Err(error) => Err(Problem::Failed(format!("`{}` cannot be made: {error}", path.display()))),
        }
    }

    fn line(&mut self, line: &str, stage: &mut Stage<'_>) -> Result<(), Problem> {
        match self {
            Output::File(file) => Ok(writeln!(file, "{line}")?),
            Output::Stage { is_terminal: true } => stage.line(&clean_json(line)),
            Output::Stage { is_terminal: false } => stage.line(line),
        }
    }

    /// Flushes all lines to the destination.
    fn finish(self, stage: &mut Stage<'_>) -> Result<(), Problem> {
        match self {
            Output::File(file) => {
                let file = file.into_inner().map_err(|error| Problem::from(error.into_error()))?;
                Ok(file.sync_all()?)
            }
            Output::Stage { .. } => stage.flush(),
        }
    }
}
