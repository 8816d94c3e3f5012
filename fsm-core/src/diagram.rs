//! Diagrams of a machine as text: Mermaid for pages that render it, Graphviz for files. The same machine always gives the same text.

mod layout;
pub mod svg;

use crate::duration;
use crate::machine::{Edge, Machine};

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
        let style = if edge.after.is_some() { ", style = dashed" } else { "" };
        text.push_str(&format!("    {from} -> {} [label = {}{style}];\n", quoted(&edge.to), quoted(&label(edge))));
    }
    text.push_str("}\n");
    text
}

/// Returns the label of an edge: its event, or the wait of a timer.
fn label(edge: &Edge) -> String {
    match edge.after {
        Some(wait) => format!("after {}", duration::display(wait)),
        None => edge.event.clone(),
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
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::machine::{TIMEOUT, Verb};

    fn edge(from: impl Into<Option<&'static str>>, event: &str, to: &str) -> Edge {
        Edge { from: from.into().map(str::to_owned), event: event.to_owned(), to: to.to_owned(), after: None }
    }

    fn timer(from: &'static str, after: Duration, to: &str) -> Edge {
        Edge { after: Some(after), ..edge(from, TIMEOUT, to) }
    }

    fn machine(name: &str, edges: Vec<Edge>, ends: &[&str]) -> Machine {
        let mut verbs: Vec<Verb> = Vec::new();
        for edge in &edges {
            if !verbs.iter().any(|verb| verb.name == edge.to) {
                verbs.push(Verb { name: edge.to.clone(), event: edge.event.clone(), timeout: None, retry: None });
            }
        }
        let ends = ends.iter().map(|end| (*end).to_owned()).collect();
        Machine { name: name.to_owned(), docs: String::new(), verbs, edges, ends, record: None }
    }

    fn payment() -> Machine {
        let edges = vec![
            edge(None, "OnlinePaymentCreated", "created"),
            edge("created", "OnlinePaymentPaid", "paid"),
            edge("created", "OnlinePaymentFailed", "failed"),
            timer("created", Duration::from_secs(30 * 60), "expired"),
            edge("paid", "OnlinePaymentCompleted", "completed"),
            edge("created", "Cancel", "cancelled"),
            edge("paid", "Cancel", "refunding"),
            edge("refunding", "OnlinePaymentCompleted", "completed"),
        ];
        machine("payment", edges, &["completed", "failed", "expired", "cancelled"])
    }

    /// A machine with names that have a special meaning in each of the languages.
    fn awkward() -> Machine {
        let edges = vec![
            edge(None, "shop::Order<\"a\">", "end"),
            edge("end", "A; B --> C", "état"),
            edge("état", "back\\slash", "s0_"),
            edge("s0_", "Again", "s0_"),
        ];
        machine("the \"shop\"", edges, &["s0_"])
    }

    #[test]
    fn svg_has_each_state_once_and_no_box_on_another() {
        for machine in [payment(), awkward(), machine("empty", Vec::new(), &[])] {
            let drawn = svg::svg(&machine);
            assert_eq!(drawn, svg::svg(&machine));
            assert_eq!(drawn.matches("data-state=").count(), machine.states().count(), "{drawn}");
            assert!(drawn.chars().all(|c| c == '\n' || !c.is_control()) && !drawn.contains("Order<"), "{drawn}");
            let number = |rect: &str, name: &str| {
                let rest = rect.split_once(&format!(" {name}=\"")).map_or("0", |(_, rest)| rest);
                rest.split('"').next().and_then(|number| number.parse::<i64>().ok()).unwrap_or_default()
            };
            let boxes: Vec<_> = drawn.split("data-state=").skip(1).collect();
            let places: Vec<_> = boxes.iter().map(|one| ["x", "y", "width", "height"].map(|name| number(one, name))).collect();
            for (n, [x, y, width, height]) in places.iter().enumerate() {
                for [other_x, other_y, other_width, _] in &places[n + 1..] {
                    let is_apart = *other_x >= x + width || *x >= other_x + other_width || (other_y - y).abs() >= *height;
                    assert!(is_apart, "{drawn}");
                }
            }
        }
    }

    #[test]
    fn svg_has_no_label_on_a_box_or_on_another_label() {
        let number = |text: &str, name: &str| -> i64 {
            let rest = text.split_once(&format!(" {name}=\"")).map_or("", |(_, rest)| rest);
            rest.split('"').next().and_then(|number| number.parse().ok()).expect("there is a number")
        };
        let drawn = svg::svg(&payment());
        let of_box = |one: &str| [number(one, "x"), number(one, "y"), number(one, "width"), number(one, "height")];
        let mut areas: Vec<[i64; 4]> = drawn.split("data-state=").skip(1).map(of_box).collect();
        let boxes = areas.len();
        for line in drawn.lines().filter(|line| line.contains("class=\"label\"")) {
            for text in line.split("<text").skip(1) {
                let letters =
                    text.split_once('>').and_then(|(_, rest)| rest.split('<').next()).map_or(0, |text| text.chars().count() as i64);
                areas.push([number(text, "x") - letters * 4, number(text, "y") - 11, letters * 8, 13]);
            }
        }
        assert_eq!(areas.len(), boxes + payment().edges.len());
        for (n, one) in areas.iter().enumerate() {
            for other in &areas[n + 1..] {
                let is_apart = |at: usize| one[at] >= other[at] + other[at + 2] || other[at] >= one[at] + one[at + 2];
                assert!(is_apart(0) || is_apart(1), "{one:?} and {other:?} in {drawn}");
            }
        }
    }

    #[test]
    fn a_payment_in_mermaid() {
        let expected = "\
stateDiagram-v2
    [*] --> created: OnlinePaymentCreated
    created --> paid: OnlinePaymentPaid
    created --> failed: OnlinePaymentFailed
    created --> expired: after 30m
    paid --> completed: OnlinePaymentCompleted
    created --> cancelled: Cancel
    paid --> refunding: Cancel
    refunding --> completed: OnlinePaymentCompleted
    completed --> [*]
    failed --> [*]
    expired --> [*]
    cancelled --> [*]
";
        assert_eq!(mermaid(&payment()), expected);
    }

    #[test]
    fn a_payment_in_graphviz() {
        let expected = r#"digraph "payment" {
    rankdir = LR;
    node [shape = box, style = rounded];
    "[*]" [shape = point];
    "created";
    "paid";
    "failed" [peripheries = 2];
    "expired" [peripheries = 2];
    "completed" [peripheries = 2];
    "cancelled" [peripheries = 2];
    "refunding";
    "[*]" -> "created" [label = "OnlinePaymentCreated"];
    "created" -> "paid" [label = "OnlinePaymentPaid"];
    "created" -> "failed" [label = "OnlinePaymentFailed"];
    "created" -> "expired" [label = "after 30m", style = dashed];
    "paid" -> "completed" [label = "OnlinePaymentCompleted"];
    "created" -> "cancelled" [label = "Cancel"];
    "paid" -> "refunding" [label = "Cancel"];
    "refunding" -> "completed" [label = "OnlinePaymentCompleted"];
}
"#;
        assert_eq!(dot(&payment()), expected);
    }

    #[test]
    fn awkward_names_in_mermaid() {
        let expected = "\
stateDiagram-v2
    state \"end\" as s0_
    state \"état\" as s1_
    state \"s0_\" as s2_
    [*] --> s0_: shop#58;#58;Order#60;#34;a#34;#62;
    s0_ --> s1_: A#59; B --#62; C
    s1_ --> s2_: back#92;slash
    s2_ --> s2_: Again
    s2_ --> [*]
";
        assert_eq!(mermaid(&awkward()), expected);
    }

    #[test]
    fn awkward_names_in_graphviz() {
        let expected = r#"digraph "the \"shop\"" {
    rankdir = LR;
    node [shape = box, style = rounded];
    "[*]" [shape = point];
    "end";
    "état";
    "s0_" [peripheries = 2];
    "[*]" -> "end" [label = "shop::Order<\"a\">"];
    "end" -> "état" [label = "A; B --> C"];
    "état" -> "s0_" [label = "back\\slash"];
    "s0_" -> "s0_" [label = "Again"];
}
"#;
        assert_eq!(dot(&awkward()), expected);
    }
}
