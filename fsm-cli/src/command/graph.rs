//! `fsm graph`: a machine as a diagram.

use std::collections::BTreeMap;

use fsm_core::diagram;
use fsm_core::instance::Status;
use serde_json::json;

use super::Session;
use crate::args::{Format, Graph};
use crate::problem::Problem;

pub(super) async fn run(session: &mut Session<'_, '_>, graph: &Graph) -> Result<(), Problem> {
    let admin = session.to_read().await?;
    let machine = &admin.machine(&graph.machine)?.machine;
    let mut counts: BTreeMap<String, (u64, u64)> = BTreeMap::new();
    if graph.counts {
        for (status, state, count) in admin.counts(&graph.machine).await? {
            let Some(state) = state else { continue };
            let (all, in_error) = counts.entry(state).or_default();
            *all += count;
            *in_error += if status == Status::Error { count } else { 0 };
        }
    }
    let note = |state: &str| match counts.get(state) {
        None => None,
        Some((all, 0)) => Some(format!("{all}")),
        Some((all, in_error)) => Some(format!("{all}, {in_error} in error")),
    };
    let drawn = match graph.format {
        Format::Mermaid => diagram::mermaid_noted(machine, note),
        Format::Dot => diagram::dot_noted(machine, note),
        Format::Svg => diagram::svg::svg_noted(machine, note),
    };
    if session.is_json {
        let counts = graph.counts.then(|| {
            let of = |(state, (all, in_error)): (&String, &(u64, u64))| json!({ "state": state, "instances": all, "in_error": in_error });
            counts.iter().map(of).collect::<Vec<_>>()
        });
        return session.stage.json(&json!({ "machine": machine, "diagram": drawn, "counts": counts }));
    }
    session.stage.text(&drawn.lines().map(|line| crate::clean::clean(line) + "\n").collect::<String>())
}
