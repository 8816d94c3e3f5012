//! `fsm limits`: lists limits and changes their settings.

use std::time::Duration;

use fsm_core::limit::Limit;
use fsm_runtime::admin::limits::{LimitChange, MOST_COUNTED};
use fsm_store::limits::ShownLimit;
use serde_json::{Value, json};

use super::session::Session;
use crate::args::{Limits, SetLimit};
use crate::clean::clean;
use crate::problem::Problem;
use crate::table::{Cell, OPEN, Table};

pub(super) async fn run(session: &mut Session<'_, '_>, act: Option<Limits>) -> Result<(), Problem> {
    let (database, shown) = match act {
        None => {
            let database = session.to_read_all().await?;
            let shown = database.limits().await?;
            (database, shown)
        }
        Some(Limits::Set(_)) if session.partition.is_some() => {
            return Err(Problem::Usage("a limit has one setting for all partitions; leave out `--partition`".to_owned()));
        }
        Some(Limits::Set(set)) => {
            let change = change(&set);
            if change == LimitChange::default() {
                let options = "`--concurrency`, `--per-second`, `--per-minute`, `--per-hour`, `--burst`, `--no-concurrency` or `--no-rate`";
                return Err(Problem::Usage(format!("say what to change by {options}")));
            }
            let actor = set.actor.or_else(|| session.stage.actor.clone()).unwrap_or_else(|| "unknown".to_owned());
            let database = session.to_act_on_all().await?;
            let changed = database.change_limit(&set.name, change, &actor).await?;
            (database, vec![changed])
        }
    };
    if session.is_json {
        session.stage.json(&json!({ "limits": shown.iter().map(told).collect::<Vec<_>>() }))?;
        return session.check_partitions(&database);
    }
    let mut table = Table::new(&["LIMIT", "COUNTS", "AT ONCE", "RATE", "RUNNING", "WAITING", "SET BY"]);
    for limit in &shown {
        let waiting = counted(limit.waiting);
        table.row([
            Cell::from(clean(&limit.name)),
            Cell::from(limit.limit.by.as_deref().map_or_else(|| "all calls".to_owned(), |field| format!("each {}", clean(field)))),
            Cell::from(limit.limit.concurrency.map_or_else(|| "any".to_owned(), |most| most.to_string())),
            Cell::from(limit.limit.rate.map_or_else(|| "any".to_owned(), |rate| rate.to_string())),
            Cell::from(counted(limit.running)),
            if limit.waiting > 0 { Cell::styled(waiting, OPEN) } else { Cell::from(waiting) },
            Cell::from(limit.changed.0.as_deref().map_or_else(|| "the code".to_owned(), clean)),
        ]);
    }
    session.stage.table(&table)?;
    if table.is_empty() {
        session.stage.say("no program has declared a limit on this database");
    }
    session.check_partitions(&database)
}

fn change(set: &SetLimit) -> LimitChange {
    let rates = [(set.per_second, 1), (set.per_minute, 60), (set.per_hour, 3600)];
    let rate = rates.into_iter().find_map(|(starts, seconds)| Some((starts?, Duration::from_secs(seconds))));
    LimitChange {
        concurrency: if set.no_concurrency { Some(None) } else { set.concurrency.map(Some) },
        rate: if set.no_rate { Some(None) } else { rate.map(Some) },
        burst: set.burst,
    }
}

fn counted(count: u32) -> String {
    if count >= MOST_COUNTED { format!("{count} or more") } else { count.to_string() }
}

fn told(limit: &ShownLimit) -> Value {
    let setting = |limit: &Limit| {
        json!({
            "by": limit.by,
            "concurrency": limit.concurrency,
            "starts": limit.rate.map(|rate| rate.starts),
            "per_us": limit.rate.map(|rate| u64::try_from(rate.per.as_micros()).unwrap_or(u64::MAX)),
            "burst": limit.rate.map(|rate| rate.burst),
        })
    };
    json!({
        "name": limit.name,
        "setting": setting(&limit.limit),
        "declared": limit.declared.as_ref().map(setting),
        "changed_by": limit.changed.0,
        "changed_at": limit.changed.1.map(|at| at.to_string()),
        "running": limit.running,
        "waiting": limit.waiting,
    })
}
