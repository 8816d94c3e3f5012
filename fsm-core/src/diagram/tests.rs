//! Tests of the diagrams: Mermaid, Graphviz and SVG.

use std::time::Duration;

use super::*;
use crate::machine::Verb;

fn edge(from: impl Into<Option<&'static str>>, event: &str, to: &str) -> Edge {
    Edge::new(from.into(), event, to)
}

fn machine(name: &str, edges: Vec<Edge>, ends: &[&str]) -> Machine {
    let mut verbs: Vec<Verb> = Vec::new();
    for edge in &edges {
        if !verbs.iter().any(|verb| verb.name == edge.to) {
            verbs.push(Verb { name: edge.to.clone(), event: edge.event.clone(), timeout: None, retry: None, limit: None });
        }
    }
    let ends = ends.iter().map(|end| (*end).to_owned()).collect();
    Machine { name: name.to_owned(), docs: String::new(), verbs, edges, ends, record: None, search: Vec::new(), fair_by: None }
}

fn payment() -> Machine {
    let edges = vec![
        edge(None, "OnlinePaymentCreated", "created"),
        edge("created", "OnlinePaymentPaid", "paid"),
        edge("created", "OnlinePaymentFailed", "failed"),
        Edge::timer("created", Duration::from_secs(30 * 60), "expired"),
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
            let letters = text.split_once('>').and_then(|(_, rest)| rest.split('<').next()).map_or(0, |text| text.chars().count() as i64);
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

/// A machine with each kind of edge.
fn subscription() -> Machine {
    let edges = vec![
        edge(None, "Step", "opened"),
        edge("opened", "Step", "active"),
        Edge::stay("active", "CardUpdated", "card_updated"),
        edge("active", "Cancel", "cancelled").interrupting(),
        Edge { after: Some(Wait::Computed("trial_length".into())), ..edge("active", "Timeout", "expired") },
        Edge::timer("opened", Duration::from_secs(60), "expired"),
    ];
    machine("sub", edges, &["cancelled", "expired"])
}

#[test]
fn internal_transitions_interrupts_and_computed_timers_differ_from_other_edges() {
    let mermaid = mermaid(&subscription());
    for line in [
        "active --> active: CardUpdated #47; card_updated (stays)",
        "active --> cancelled: Cancel (interrupts)",
        "active --> expired: after trial_length()",
        "opened --> expired: after 1m",
    ] {
        assert!(mermaid.contains(line), "{mermaid}");
    }
    let dot = dot(&subscription());
    for line in [
        r#""active" -> "active" [label = "CardUpdated / card_updated (stays)", style = dotted];"#,
        r#""active" -> "cancelled" [label = "Cancel (interrupts)", style = bold];"#,
        r#""active" -> "expired" [label = "after trial_length()", style = dashed];"#,
    ] {
        assert!(dot.contains(line), "{dot}");
    }
    let svg = svg::svg(&subscription());
    let line = |from: &str, to: &str| {
        let start = format!("data-from=\"{from}\" data-to=\"{to}\"");
        svg.lines().find(|line| line.contains(&start)).unwrap_or_else(|| panic!("{svg}")).to_owned()
    };
    assert!(line("active", "active").contains("stroke-dasharray=\"1 3\""), "{svg}");
    assert!(line("active", "cancelled").contains("stroke-width=\"2\""), "{svg}");
    assert!(line("active", "expired").contains("stroke-dasharray=\"5 3\""), "{svg}");
    assert!(!line("opened", "active").contains("stroke-"), "{svg}");
    assert_eq!(svg.matches("data-state=").count(), 4, "{svg}");
}
