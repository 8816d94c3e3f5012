//! `fsm migrate`: migrates the tables or shows their version.

use fsm_core::time::Timestamp;
use fsm_runtime::admin::{self, Opening};
use fsm_store::migrate::script;
use serde_json::json;

use super::session::Session;
use crate::args::{Kind, Migrate};
use crate::problem::Problem;
use crate::table::{BAD, Cell, GOOD, OPEN, Table};

pub(super) async fn run(session: &mut Session<'_, '_>, migrate: &Migrate) -> Result<(), Problem> {
    let opening = session.opening.clone().acting();
    match migrate {
        Migrate::Up => {
            admin::migrate(&opening).await?;
            status(session, &opening).await
        }
        Migrate::Status => status(session, &opening).await,
        Migrate::Check => {
            admin::check_migrations(&opening).await?;
            session.stage.say("the tables are up to date");
            if session.is_json { session.stage.json(&json!({ "up_to_date": true })) } else { Ok(()) }
        }
        Migrate::Print { kind } => {
            let is_postgres = kind.map_or_else(|| opening.is_postgres(), |kind| kind == Kind::Postgres);
            let now = session.stage.now.unwrap_or_else(|| Timestamp::from(std::time::SystemTime::now()));
            let script = script(is_postgres, now);
            if session.is_json { session.stage.json(&json!({ "script": script })) } else { session.stage.text(&script) }
        }
    }
}

async fn status(session: &mut Session<'_, '_>, opening: &Opening) -> Result<(), Problem> {
    let steps = admin::migrations(opening).await?;
    if session.is_json {
        let of = |step: &fsm_store::migrate::Step| {
            json!({
                "version": step.version,
                "name": step.name,
                "applied_at": step.applied_at.map(|at| at.to_string()),
                "is_ours": step.is_ours,
            })
        };
        return session.stage.json(&json!({ "migrations": steps.iter().map(of).collect::<Vec<_>>() }));
    }
    let mut table = Table::new(&["VERSION", "NAME", "APPLIED", ""]);
    for step in &steps {
        let word = match (step.applied_at, step.is_ours) {
            (Some(_), true) => Cell::styled("applied", GOOD),
            (Some(_), false) => Cell::styled("of another release", BAD),
            (None, _) => Cell::styled("missing", OPEN),
        };
        let applied = step.applied_at.map_or_else(|| "-".to_owned(), |at| at.to_string());
        table.row([Cell::from(step.version.to_string()), Cell::from(&step.name), Cell::from(applied), word]);
    }
    session.stage.table(&table)
}
