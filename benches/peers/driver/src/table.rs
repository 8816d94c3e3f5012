//! The table of all figures, as text or as JSON.

use serde_json::{Value, json};

use crate::arguments::Arguments;
use crate::databases::Databases;
use crate::peers::Database;
use crate::run::{Measured, number};

/// A column: its heading in two lines, and the figure in it.
struct Column {
    above: String,
    below: String,
    what: String,
}

/// The peers side by side, followed by the differences that the figures do not show.
pub fn text(arguments: &Arguments, databases: &Databases, measured: &[Measured], skipped: &[(&str, String)]) -> String {
    let mut lines = vec![String::new(), arguments.command.clone()];
    lines.extend(databases.described.iter().cloned());
    for (title, is_sqlite) in [("PostgreSQL", false), ("SQLite", true)] {
        let some: Vec<_> = measured.iter().filter(|one| (one.peer.database != Database::Postgres) == is_sqlite).collect();
        if !some.is_empty() {
            lines.push(String::new());
            lines.extend(grid(title, &columns(arguments), &some));
        }
    }
    lines.push(String::new());
    lines.push(
        "enqueue: each caller waits until its job is durable, nothing works. both: sent, run and done. A second; latencies in ms."
            .to_owned(),
    );
    lines.push("bulk: 4 callers with 500 jobs a call, at most 10,000 under way. A figure that is not there: the peer has no such call, or it failed.".to_owned());
    for one in measured {
        lines.push(String::new());
        lines.push(format!("{} {}", one.peer.name, one.version));
        lines.push(format!("  keeps     {}", one.peer.keeps));
        lines.push(format!("  differs   {}", one.peer.differs));
        lines.extend(notes(one).into_iter().map(|(name, text)| format!("  {name:<9} {text}")));
        let besides = one.values.iter().filter(|figure| figure.what.starts_with("both") && !figure.beside.is_empty());
        lines.extend(besides.map(|figure| format!("  {:<9} {}", figure.what, figure.beside)));
        lines.extend(one.failures.iter().map(|why| format!("  FAILED    {why}")));
        lines.extend(one.commands.iter().map(|command| format!("  $ {command}")));
    }
    lines.extend(skipped.iter().map(|(name, why)| format!("\n{name} was SKIPPED: {why}")));
    lines.join("\n")
}

/// The same content as JSON.
pub fn json(arguments: &Arguments, databases: &Databases, measured: &[Measured], skipped: &[(&str, String)]) -> Value {
    let peers: Vec<Value> = measured.iter().map(one).collect();
    let skipped: Vec<Value> = skipped.iter().map(|(name, why)| json!({"name": name, "why": why})).collect();
    json!({"command": arguments.command, "machine": databases.described, "peers": peers, "skipped": skipped})
}

fn one(measured: &Measured) -> Value {
    let figures = measured.values.iter();
    let figures = figures.map(|figure| json!({"what": figure.what, "value": figure.value, "unit": figure.unit, "beside": figure.beside}));
    let notes = measured.notes.iter().map(|(figure, name, text)| json!({"figure": figure, "note": name, "text": text}));
    json!({
        "name": measured.peer.name,
        "version": measured.version,
        "database": format!("{:?}", measured.peer.database),
        "keeps": measured.peer.keeps,
        "differs": measured.peer.differs,
        "figures": figures.collect::<Vec<_>>(),
        "notes": notes.collect::<Vec<_>>(),
        "failures": measured.failures,
        "commands": measured.commands,
    })
}

fn columns(arguments: &Arguments) -> Vec<Column> {
    let mut columns = Vec::new();
    for what in ["enqueue", "both"] {
        let mut put = |below: String, what_else: &str| {
            let above = if columns.last().is_some_and(|last: &Column| last.what.starts_with(what)) { "" } else { what };
            columns.push(Column { above: above.to_owned(), below, what: format!("{what}, {what_else}") });
        };
        for callers in &arguments.callers {
            put(callers.to_string(), &format!("{callers} callers"));
        }
        put("bulk".to_owned(), "in bulk");
    }
    for (above, what) in [("to start", "idle, to the start"), ("to end", "idle, to the end")] {
        columns.push(Column { above: above.to_owned(), below: "p50".to_owned(), what: format!("{what}, p50") });
        columns.push(Column { above: String::new(), below: "p99".to_owned(), what: format!("{what}, p99") });
    }
    columns
}

fn grid(title: &str, columns: &[Column], measured: &[&Measured]) -> Vec<String> {
    let row = |name: &str, cells: Vec<String>| {
        let cells: String = cells.iter().map(|cell| format!("{cell:>10}")).collect();
        format!("{name:<30}{cells}").trim_end().to_owned()
    };
    let mut lines = vec![
        row(title, columns.iter().map(|column| column.above.clone()).collect()),
        row("", columns.iter().map(|column| column.below.clone()).collect()),
    ];
    for one in measured {
        let cells = columns.iter().map(|column| one.value(&column.what).map_or("–".to_owned(), number)).collect();
        lines.push(row(&format!("{} {}", one.peer.name, one.version), cells));
    }
    lines
}

/// The settings of each figure and the way in which the end of a job is detected. Equal notes are shown once.
fn notes(measured: &Measured) -> Vec<(String, String)> {
    let mut notes: Vec<(String, String)> = Vec::new();
    for (figure, name, text) in &measured.notes {
        let name = if name == "settings" { figure } else { name };
        if !notes.iter().any(|(known, said)| known == name && said == text) {
            notes.push((name.clone(), text.clone()));
        }
    }
    notes
}
