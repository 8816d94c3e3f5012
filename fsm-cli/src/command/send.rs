//! `fsm send`: an event to an instance, checked against the graph.

use fsm_core::decide::send::SendOutcome;
use fsm_core::machine::Machine;
use serde_json::json;

use super::Session;
use crate::args::Send;
use crate::problem::Problem;
use crate::table::{Cell, GOOD, Table};

pub(super) async fn run(session: &mut Session<'_, '_>, send: Send) -> Result<(), Problem> {
    let admin = session.to_act().await?;
    check(&admin.machine(&send.machine)?.machine, &send.event)?;
    let payload = match send.payload.as_str() {
        "-" => {
            let mut text = String::new();
            session.stage.input.read_to_string(&mut text)?;
            text
        }
        given => given.to_owned(),
    };
    let mut sending = admin.send(&send.machine, &send.key, &send.event, &payload);
    if let Some(id) = &send.dedup {
        sending = sending.dedup(id);
    }
    if let Some(wait) = send.after {
        sending = sending.after(wait);
    }
    if send.reject_if_busy {
        sending = sending.reject_if_busy();
    }
    let sent = sending.await?;
    let (word, says) = match sent.outcome {
        SendOutcome::Started => ("started", "its transition has begun"),
        SendOutcome::Queued => ("queued", "the instance is busy: it waits in the inbox"),
        SendOutcome::Scheduled => ("scheduled", "it is delivered later"),
        SendOutcome::Duplicate => ("duplicate", "it was sent before; nothing happened now"),
    };
    if session.is_json {
        let answer = json!({ "machine": send.machine, "key": send.key, "outcome": word, "instance": sent.instance, "call": sent.call });
        return session.stage.json(&answer);
    }
    let mut table = Table::new(&["MACHINE", "KEY", "EVENT", "FATE", ""]);
    table.row([Cell::from(&send.machine), Cell::from(&send.key), Cell::from(&send.event), Cell::styled(word, GOOD), Cell::from(says)]);
    session.stage.table(&table)
}

/// Whether any state of the machine takes this event from outside.
fn check(machine: &Machine, event: &str) -> Result<(), Problem> {
    let mut events: Vec<&str> = Vec::new();
    for edge in machine.edges.iter().filter(|edge| edge.after.is_none()) {
        if !events.contains(&edge.event.as_str()) {
            events.push(&edge.event);
        }
    }
    if events.contains(&event) {
        return Ok(());
    }
    let known: Vec<_> = events.iter().map(|event| format!("`{event}`")).collect();
    Err(Problem::NotFound(format!("`{}` takes no event `{event}`; it takes {}", machine.name, known.join(", "))))
}
