//! Diagrams of a machine as text: Mermaid for pages that render it, Graphviz for files. The same machine always gives the same text.

mod layout;
pub mod svg;

use crate::duration;
use crate::machine::{Edge, Machine, Wait};

/// The words that are reserved in a Mermaid state diagram, in lower case.
const MERMAID_WORDS: [&str; 19] = [
    "accdescr",
    "acctitle",
    "as",
    "class",
    "classdef",
    "click",
    "default",
    "direction",
    "end",
    "hide",
    "href",
    "note",
    "root_end",
    "root_start",
    "scale",
    "state",
    "statediagram",
    "style",
    "title",
];

/// Returns a Mermaid `stateDiagram-v2`: the edges in the order of their declaration, then the ends. It ends with a line feed.
pub fn mermaid(machine: &Machine) -> String {
    mermaid_noted(machine, |_| None)
}

/// Returns the same diagram with a note beside the name of each state for which `note` returns a text.
pub fn mermaid_noted(machine: &Machine, note: impl Fn(&str) -> Option<String>) -> String {
    let names: Vec<&str> = machine.states().collect();
    let id = |name: &str| match names.iter().position(|known| *known == name) {
        Some(place) if !is_plain(name) => format!("s{place}_"),
        _ => name.to_owned(),
    };
    let mut text = String::from("stateDiagram-v2\n");
    for name in &names {
        let note = note(name).map(|note| format!(" ({note})"));
        if note.is_some() || !is_plain(name) {
            text.push_str(&format!("    state \"{}\" as {}\n", mermaid_text(&format!("{name}{}", note.unwrap_or_default())), id(name)));
        }
    }
    for edge in &machine.edges {
        let from = edge.from.as_deref().map_or("[*]".to_owned(), id);
        text.push_str(&format!("    {from} --> {}: {}\n", id(&edge.to), mermaid_text(&label(edge))));
    }
    for end in &machine.ends {
        text.push_str(&format!("    {} --> [*]\n", id(end)));
    }
    text
}

/// Returns a Graphviz `digraph`: the states in the order of their declaration, ends with a double border, then the edges. It ends with a
/// line feed.
pub fn dot(machine: &Machine) -> String {
    dot_noted(machine, |_| None)
}

/// Returns the same diagram with a note below the name of each state for which `note` returns a text.
pub fn dot_noted(machine: &Machine, note: impl Fn(&str) -> Option<String>) -> String {
    let mut text = format!("digraph {} {{\n    rankdir = LR;\n    node [shape = box, style = rounded];\n", quoted(&machine.name));
    // No state has this name, because it is not an identifier.
    let start = quoted("[*]");
    if machine.starts().next().is_some() {
        text.push_str(&format!("    {start} [shape = point];\n"));
    }
    for state in machine.states() {
        let label = note(state).map(|note| format!("label = {}", quoted(&format!("{state}\n{note}"))));
        let border = machine.is_end(state).then(|| "peripheries = 2".to_owned());
        let attributes: Vec<_> = label.into_iter().chain(border).collect();
        let attributes = if attributes.is_empty() { String::new() } else { format!(" [{}]", attributes.join(", ")) };
        text.push_str(&format!("    {}{attributes};\n", quoted(state)));
    }
    for edge in &machine.edges {
        let from = edge.from.as_deref().map_or(start.clone(), quoted);
        let style = match edge {
            Edge { after: Some(_), .. } => ", style = dashed",
            Edge { stays_on: Some(_), .. } => ", style = dotted",
            Edge { interrupts: true, .. } => ", style = bold",
            _ => "",
        };
        text.push_str(&format!("    {from} -> {} [label = {}{style}];\n", quoted(&edge.to), quoted(&label(edge))));
    }
    text.push_str("}\n");
    text
}

/// Returns the label of an edge: its event, or the wait of a timer. For an internal transition, the verb follows the event.
fn label(edge: &Edge) -> String {
    match (&edge.after, &edge.stays_on) {
        (Some(Wait::Fixed(wait)), _) => format!("after {}", duration::display(*wait)),
        (Some(Wait::Computed(function)), _) => format!("after {function}()"),
        (None, Some(verb)) => format!("{} / {verb} (stays)", edge.event),
        (None, None) if edge.interrupts => format!("{} (interrupts)", edge.event),
        (None, None) => edge.event.clone(),
    }
}

/// True if Mermaid accepts the name as an identifier.
fn is_plain(name: &str) -> bool {
    let is_word = name.starts_with(|c: char| c.is_ascii_alphabetic()) && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    // A name that ends with `_` could collide with the generated ids, such as `s3_`.
    is_word && !name.ends_with('_') && !MERMAID_WORDS.contains(&name.to_ascii_lowercase().as_str())
}

/// Escapes text for Mermaid, which writes special characters as `#`, the number of the character, and `;`.
fn mermaid_text(text: &str) -> String {
    let is_harmless = |c: char| c.is_alphanumeric() || matches!(c, ' ' | '_' | '.' | ',' | '(' | ')' | '-');
    text.chars().map(|c| if is_harmless(c) { c.to_string() } else { format!("#{};", u32::from(c)) }).collect()
}

/// Returns a quoted Graphviz string.
fn quoted(text: &str) -> String {
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n"))
}

#[cfg(test)]
mod tests;
