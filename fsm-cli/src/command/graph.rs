//! `fsm graph`: prints a machine as a diagram.

use std::collections::BTreeMap;

use fsm_core::diagram;
use fsm_core::instance::Status;
use fsm_runtime::admin::whole::WholeDatabase;
use serde_json::json;

use super::session::Session;
use crate::args::{Format, Graph};
use crate::problem::Problem;

/// The maximum number of instances of one status that are counted.
const MOST: u32 = 5000;

/// The number of instances in a state.
#[derive(Default)]
struct Count {
    instances: u64,
    in_error: u64,
    /// The number of instances that were cancelled in this state. They are not part of `instances`.
    cancelled: u64,
    /// True if the count stopped at the limit.
    has_more: bool,
}

impl Count {
    fn says(&self) -> String {
        let plus = if self.has_more { "+" } else { "" };
        let mut says = format!("{}{plus}", self.instances);
        for (count, what) in [(self.in_error, "in error"), (self.cancelled, "cancelled")] {
            if count > 0 {
                says.push_str(&format!(", {count} {what}"));
            }
        }
        says
    }
}

pub(super) async fn run(session: &mut Session<'_, '_>, graph: &Graph) -> Result<(), Problem> {
    let database = session.to_read_all().await?;
    show(session, &database, graph).await?;
    session.check_partitions(&database)
}

async fn show(session: &mut Session<'_, '_>, database: &WholeDatabase, graph: &Graph) -> Result<(), Problem> {
    let machine = &database.machine(&graph.machine)?.machine;
    let (counted, more) = match (graph.counts, graph.all) {
        (false, _) => (Vec::new(), Vec::new()),
        (true, true) => (database.counts(&graph.machine).await?, Vec::new()),
        (true, false) => database.newest_counts(&graph.machine, MOST).await?,
    };
    let mut counts: BTreeMap<String, Count> = BTreeMap::new();
    for (status, state, count) in counted {
        let Some(state) = state else { continue };
        let at = counts.entry(state).or_default();
        match status {
            Status::Cancelled => at.cancelled += count,
            _ => at.instances += count,
        }
        at.in_error += if status == Status::Error { count } else { 0 };
        at.has_more |= more.contains(&if status.is_ended() { Status::Completed } else { status });
    }
    let note = |state: &str| counts.get(state).map(Count::says);
    let drawn = match graph.format {
        Format::Mermaid => diagram::mermaid_noted(machine, note),
        Format::Dot => diagram::dot_noted(machine, note),
        Format::Svg => diagram::svg::svg_noted(machine, note),
    };
    if session.is_json {
        let counts = graph.counts.then(|| {
            let of = |(state, at): (&String, &Count)| {
                json!({ "state": state, "instances": at.instances, "in_error": at.in_error, "cancelled": at.cancelled, "more": at.has_more })
            };
            counts.iter().map(of).collect::<Vec<_>>()
        });
        return session.stage.json(&json!({ "machine": machine, "diagram": drawn, "counts": counts }));
    }
    if !more.is_empty() {
        let of: Vec<_> = more.iter().map(|status| if *status == Status::Completed { "ended".into() } else { status.to_string() }).collect();
        session.stage.say(&format!("counted among the newest {MOST} that are {}: there are more; --all counts them", of.join(", ")));
    }
    session.stage.text(&drawn.lines().map(|line| crate::clean::clean(line) + "\n").collect::<String>())
}
