//! `fsm send`: sends an event to an instance. The graph decides whether it is accepted.

use fsm_core::decide::send::SendOutcome;
use fsm_core::machine::Machine;
use serde_json::json;

use super::liveness::Liveness;
use super::session::{Session, check_key};
use crate::args::Send;
use crate::problem::Problem;
use crate::table::{Cell, GOOD, Table};

pub(super) async fn run(session: &mut Session<'_, '_>, send: Send) -> Result<(), Problem> {
    let admin = session.to_act_on_key(&send.key).await?;
    check_key(&admin, &send.key)?;
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
    sending = sending.priority(send.priority);
    if send.reject_if_busy {
        sending = sending.reject_if_busy();
    }
    let sent = sending.await?;
    let alive = Liveness::of(&admin).await?.alive();
    let (word, says) = match (sent.outcome, alive) {
        (SendOutcome::Started, 0) => ("started", "its call waits for a worker: none is alive"),
        (SendOutcome::Started, _) => ("started", "its call is due, and a worker runs it"),
        (SendOutcome::Queued, 0) => ("queued", "the instance is busy: it waits in the inbox; no worker is alive"),
        (SendOutcome::Queued, _) => ("queued", "the instance is busy: it waits in the inbox"),
        (SendOutcome::Scheduled, 0) => ("scheduled", "it is delivered later, if a worker is alive then: none is now"),
        (SendOutcome::Scheduled, _) => ("scheduled", "it is delivered later"),
        (SendOutcome::Duplicate, _) => ("duplicate", "it was sent before; nothing happened now"),
    };
    if session.is_json {
        let answer = json!({
            "machine": send.machine,
            "key": send.key,
            "outcome": word,
            "instance": sent.instance,
            "call": sent.call,
            "workers_alive": alive,
        });
        return session.stage.json(&answer);
    }
    let mut table = Table::new(&["MACHINE", "KEY", "EVENT", "OUTCOME", ""]);
    table.row([Cell::from(&send.machine), Cell::from(&send.key), Cell::from(&send.event), Cell::styled(word, GOOD), Cell::from(says)]);
    session.stage.table(&table)
}

/// Returns an error if no edge of the machine takes this event.
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
