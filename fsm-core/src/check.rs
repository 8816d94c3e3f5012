//! The rules that a graph must keep. They work on names alone, so that `fsm!` and any other front end can use them.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};

/// A graph as it was written: names in the order of declaration, not yet resolved.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Graph {
    /// The states that an instance can begin in.
    pub starts: Vec<String>,
    /// The edges, from a state to a state, including timers.
    pub edges: Vec<(String, String)>,
    /// The states of the internal transitions.
    pub stays: Vec<String>,
    /// The states in which an instance is completed.
    pub ends: Vec<String>,
}

/// The location of a mistake: an index into the list of that name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Location {
    /// The graph as a whole.
    Graph,
    /// A name under `starts`.
    Start(usize),
    /// The state that an edge leaves.
    EdgeFrom(usize),
    /// The state that an edge enters.
    EdgeTo(usize),
    /// The state of an internal transition.
    Stay(usize),
    /// A name under `ends`.
    End(usize),
}

/// A broken rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mistake {
    /// The location.
    pub location: Location,
    /// The message: what is rejected, and what is expected.
    pub message: String,
    /// The advice: a declaration that would be accepted.
    pub help: String,
}

/// Returns all mistakes of a graph, in the order of the rules. A mistake that only follows from another one is left out.
pub fn check(graph: &Graph) -> Vec<Mistake> {
    let names = Names::of(graph);
    let rules = [
        the_machine_is_not_empty,
        there_is_a_start,
        every_state_is_entered,
        every_state_can_be_reached,
        every_state_has_a_way_out,
        no_edge_leaves_an_end,
        no_end_takes_an_event,
        no_edge_is_there_twice,
        no_start_is_there_twice,
        no_end_is_there_twice,
    ];
    rules.iter().flat_map(|rule| rule(graph, &names)).collect()
}

/// The sets of names that the rules need, computed once.
struct Names<'g> {
    /// The states that a start or an edge enters, each with the first location that does, in that order.
    entered: Vec<(&'g str, Location)>,
    /// The names that no start and no edge enters, each with the state that was probably meant.
    unknown: BTreeMap<&'g str, Option<&'g str>>,
    /// Those of `unknown` that are right, each with the entered state that is its misspelling.
    misspelled: BTreeMap<&'g str, &'g str>,
    /// Either spelling may be the right one, because both are used equally often.
    unsure: BTreeSet<&'g str>,
}

impl<'g> Names<'g> {
    fn of(graph: &'g Graph) -> Names<'g> {
        let starts = graph.starts.iter().enumerate().map(|(i, start)| (start.as_str(), Location::Start(i)));
        let targets = graph.edges.iter().enumerate().map(|(i, (_, to))| (to.as_str(), Location::EdgeTo(i)));
        let mut known = BTreeSet::new();
        let entered: Vec<(&str, Location)> = starts.chain(targets).filter(|(name, _)| known.insert(*name)).collect();
        let named = graph.edges.iter().map(|(from, _)| from).chain(&graph.ends).chain(&graph.stays).map(String::as_str);
        let unknown: BTreeMap<&str, Option<&str>> =
            named.filter(|name| !known.contains(name)).map(|name| (name, nearest(name, known.iter().copied()))).collect();
        let (mut misspelled, mut unsure) = (BTreeMap::new(), BTreeSet::new());
        for (name, entered) in unknown.iter().filter_map(|(name, entered)| Some((*name, (*entered)?))) {
            match uses(graph, name).cmp(&uses(graph, entered)) {
                Ordering::Greater => drop(misspelled.insert(entered, name)),
                Ordering::Equal => drop(unsure.insert(name)),
                Ordering::Less => {}
            }
        }
        Names { entered, unknown, misspelled, unsure }
    }

    /// Returns the state that a name stands for: itself, or the one that was probably meant.
    fn meant(&self, name: &'g str) -> &'g str {
        self.unknown.get(name).copied().flatten().unwrap_or(name)
    }
}

/// The number of uses of a name. A name under `starts` or `ends` counts twice, because names in those lists are usually right.
fn uses(graph: &Graph, name: &str) -> usize {
    let edges = graph.edges.iter().flat_map(|(from, to)| [from, to]);
    let listed = graph.starts.iter().chain(&graph.ends);
    edges.chain(&graph.stays).chain(listed.clone()).chain(listed).filter(|other| *other == name).count()
}

/// Returns each state that is probably misspelled where it is entered, with the right spelling, and each pair of names of which one is
/// misspelled. Both names stand for one state, so other mistakes about them are not worth reporting.
pub fn misspelled(graph: &Graph) -> BTreeMap<String, String> {
    let names = Names::of(graph);
    let unsure = names.unsure.iter().filter_map(|name| Some((names.unknown.get(name).copied()??, *name)));
    names.misspelled.iter().map(|(entered, name)| (*entered, *name)).chain(unsure).map(|(a, b)| (a.to_owned(), b.to_owned())).collect()
}

fn the_machine_is_not_empty(graph: &Graph, _: &Names<'_>) -> Vec<Mistake> {
    if *graph != Graph::default() {
        return Vec::new();
    }
    let message = "the machine is empty: a machine has at least one state that it starts in";
    let help = "declare `start a;`, edges like `a -> b;` and `end b;`";
    vec![mistake(Location::Graph, message, help)]
}

fn there_is_a_start(graph: &Graph, names: &Names<'_>) -> Vec<Mistake> {
    if !graph.starts.is_empty() || *graph == Graph::default() {
        return Vec::new();
    }
    let first = graph.edges.first().map(|(from, _)| from).or(graph.ends.first());
    let first = first.map_or("a", |name| names.meant(name));
    vec![mistake(
        Location::Graph,
        "no start: no state of the machine is one that an instance can begin in",
        format!("declare `start {first};`"),
    )]
}

fn every_state_is_entered(graph: &Graph, names: &Names<'_>) -> Vec<Mistake> {
    // Without a start, nothing enters the first states. `there_is_a_start` reports that already.
    let is_unknown = |name: &str| names.unknown.contains_key(name) && (!graph.starts.is_empty() || names.meant(name) != name);
    let froms = graph.edges.iter().enumerate().map(|(i, (from, _))| (from, Location::EdgeFrom(i)));
    let ends = graph.ends.iter().enumerate().map(|(i, end)| (end, Location::End(i)));
    let stays = graph.stays.iter().enumerate().map(|(i, state)| (state, Location::Stay(i)));
    let is_right = |name: &str| names.misspelled.values().any(|right| *right == name);
    let mut reported = BTreeSet::new();
    // If both names may be right, one location is enough.
    let mut is_first_report = |name: &'_ String| !names.unsure.contains(name.as_str()) || reported.insert(name.clone());
    let unknown: Vec<_> =
        froms.chain(stays).chain(ends).filter(|(name, _)| is_unknown(name) && !is_right(name) && is_first_report(name)).collect();
    let unknown = unknown.into_iter().map(|(name, location)| {
        let states = listed(names.entered.iter().map(|(name, _)| names.misspelled.get(name).copied().unwrap_or(name)));
        match names.meant(name) {
            meant if names.unsure.contains(name.as_str()) => {
                let message =
                    format!("`{name}` and `{meant}` are spelled alike: nothing enters `{name}`, and one of them is probably misspelled");
                mistake(location, message, format!("write `{meant}` here, or `{name}` where `{meant}` is entered"))
            }
            meant if meant != name => {
                let message = format!("unknown state `{name}`: nothing enters it; the states are {states}");
                mistake(location, message, format!("did you mean `{meant}`?"))
            }
            _ => {
                let message = format!("unknown state `{name}`: nothing enters it; the states are {states}");
                mistake(location, message, format!("add an edge that leads to it, like `… -> {name};`, or `start {name};`"))
            }
        }
    });
    let misspelled = names.entered.iter().filter_map(|(name, location)| {
        let right = names.misspelled.get(name)?;
        let message = format!("unknown state `{name}`: elsewhere in the machine it is `{right}`");
        Some(mistake(*location, message, format!("did you mean `{right}`?")))
    });
    unknown.chain(misspelled).collect()
}

fn every_state_can_be_reached(graph: &Graph, names: &Names<'_>) -> Vec<Mistake> {
    if graph.starts.is_empty() {
        return Vec::new();
    }
    let mut reached: BTreeSet<&str> = graph.starts.iter().map(String::as_str).collect();
    // States behind an unknown state are not reported as well.
    reached.extend(names.unknown.keys());
    // A state whose name the stuck state was probably meant to be is not reported either.
    reached.extend(stuck(graph, names).filter_map(|(name, _)| nearest(name, others(names, name))));
    loop {
        let next: Vec<&str> = graph
            .edges
            .iter()
            .filter(|(from, to)| reached.contains(from.as_str()) && !reached.contains(to.as_str()))
            .map(|(_, to)| to.as_str())
            .collect();
        if next.is_empty() {
            break;
        }
        reached.extend(next);
    }
    let cut_off = names.entered.iter().filter(|(name, _)| !reached.contains(name));
    cut_off
        .map(|(name, location)| {
            let message = format!("the state `{name}` cannot be reached: every state is on a path from a start");
            mistake(*location, message, format!("add an edge from a state that can be reached, or `start {name};`"))
        })
        .collect()
}

/// Returns the states that no edge leaves and that are not ends, with the first location that enters each.
fn stuck<'n>(graph: &Graph, names: &'n Names<'_>) -> impl Iterator<Item = (&'n str, Location)> {
    let left = graph.edges.iter().map(|(from, _)| from).chain(&graph.ends);
    let left: BTreeSet<String> = left.map(|name| names.meant(name).to_owned()).collect();
    names.entered.iter().filter(move |(name, _)| !left.contains(*name)).copied()
}

/// Returns every state but this one.
fn others<'n>(names: &'n Names<'_>, name: &'n str) -> impl Iterator<Item = &'n str> {
    names.entered.iter().map(|(other, _)| *other).filter(move |other| *other != name)
}

fn every_state_has_a_way_out(graph: &Graph, names: &Names<'_>) -> Vec<Mistake> {
    stuck(graph, names)
        .map(|(name, location)| {
            let message = format!("the state `{name}` has no way out: a state has an edge that leaves it, or stands under `end`");
            let alike = nearest(name, others(names, name)).map_or_else(String::new, |other| format!("; or did you mean `{other}`?"));
            mistake(location, message, format!("add `end {name};` or an edge `{name} -> …;`{alike}"))
        })
        .collect()
}

fn no_edge_leaves_an_end(graph: &Graph, _: &Names<'_>) -> Vec<Mistake> {
    let leaving = graph.edges.iter().enumerate().filter(|(_, (from, _))| graph.ends.contains(from));
    leaving
        .map(|(i, (from, to))| {
            let message = format!("the edge `{from} -> {to}` leaves an end: an instance in `{from}` is completed and takes no event");
            mistake(Location::EdgeFrom(i), message, format!("remove the edge, or take `{from}` out of `end`"))
        })
        .collect()
}

fn no_end_takes_an_event(graph: &Graph, _: &Names<'_>) -> Vec<Mistake> {
    let staying = graph.stays.iter().enumerate().filter(|(_, state)| graph.ends.contains(state));
    staying
        .map(|(i, state)| {
            let message = format!("`{state} stays on …` is in an end: an instance in `{state}` is completed and takes no event");
            mistake(Location::Stay(i), message, format!("remove it, or take `{state}` out of `end`"))
        })
        .collect()
}

fn no_edge_is_there_twice(graph: &Graph, _: &Names<'_>) -> Vec<Mistake> {
    repeated(&graph.edges)
        .map(|(i, (from, to))| {
            mistake(Location::EdgeTo(i), format!("the edge `{from} -> {to}` is there twice: each edge is declared once"), "remove one")
        })
        .collect()
}

fn no_start_is_there_twice(graph: &Graph, _: &Names<'_>) -> Vec<Mistake> {
    repeated(&graph.starts)
        .map(|(i, name)| mistake(Location::Start(i), format!("`{name}` is a start twice: each start is declared once"), "remove one"))
        .collect()
}

fn no_end_is_there_twice(graph: &Graph, _: &Names<'_>) -> Vec<Mistake> {
    repeated(&graph.ends)
        .map(|(i, name)| mistake(Location::End(i), format!("`{name}` is an end twice: each end is declared once"), "remove one"))
        .collect()
}

fn mistake(location: Location, message: impl Into<String>, help: impl Into<String>) -> Mistake {
    Mistake { location, message: message.into(), help: help.into() }
}

/// Returns each item that is equal to an earlier one, with its index.
fn repeated<T: Ord>(items: &[T]) -> impl Iterator<Item = (usize, &T)> {
    let mut seen = BTreeSet::new();
    items.iter().enumerate().filter(move |(_, item)| !seen.insert(*item))
}

/// Formats names for messages: `` `a`, `b` and `c` ``.
pub fn listed<'n>(names: impl IntoIterator<Item = &'n str>) -> String {
    let quoted: Vec<String> = names.into_iter().map(|name| format!("`{name}`")).collect();
    match quoted.split_last() {
        None => "none".into(),
        Some((last, [])) => last.clone(),
        Some((last, rest)) => format!("{} and {last}", rest.join(", ")),
    }
}

/// Returns the known name that `name` was probably meant to be: at most one letter in three differs.
pub fn nearest<'n>(name: &str, known: impl IntoIterator<Item = &'n str>) -> Option<&'n str> {
    let most = (name.chars().count() / 3).max(1);
    let distances = known.into_iter().map(|other| (strsim::osa_distance(name, other), other));
    distances.filter(|(distance, other)| *distance <= most && *distance < other.chars().count()).min().map(|(_, other)| other)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Parses `"a b: a>b b>c: c: a"`: starts, edges, ends and the states of internal transitions.
    fn graph(text: &str) -> Graph {
        let parts: Vec<Vec<String>> = text.split(':').map(|part| part.split_whitespace().map(str::to_owned).collect()).collect();
        let edge = |text: &String| text.split_once('>').map(|(from, to)| (from.to_owned(), to.to_owned())).unwrap();
        let stays = parts.get(3).cloned().unwrap_or_default();
        Graph { starts: parts[0].clone(), edges: parts[1].iter().map(edge).collect(), stays, ends: parts[2].clone() }
    }

    #[test]
    fn graphs_without_a_mistake() {
        let cases = [
            "a:: a",
            "a b: a>c b>c: c",
            "created: created>paid created>failed created>expired paid>completed: completed failed expired",
            // A machine may run forever.
            "a: a>a:",
            "a: a>b b>a:",
            "a: a>b: b: a a",
        ];
        for text in cases {
            assert_eq!(check(&graph(text)), [], "{text}");
        }
    }

    #[test]
    fn each_mistake_at_its_place_and_no_other() {
        use Location::*;
        let cases: [(&str, &[(Location, &str)]); 21] = [
            ("a: a>b: b: b", &[(Stay(0), "`b stays on …` is in an end")]),
            ("created: created>b: b: createt", &[(Stay(0), "unknown state `createt`")]),
            ("a::: a", &[(Start(0), "the state `a` has no way out")]),
            ("::", &[(Graph, "the machine is empty")]),
            (": a>b: b", &[(Graph, "no start")]),
            (":: b", &[(Graph, "no start")]),
            ("a: a>b: b zebra", &[(End(1), "unknown state `zebra`")]),
            ("a: a>b zebra>c: b c", &[(EdgeFrom(1), "unknown state `zebra`")]),
            ("created: created>paid piad>done: done", &[(EdgeFrom(1), "`piad` and `paid` are spelled alike")]),
            ("created: created>paid paidd>done: done", &[(EdgeFrom(1), "`paidd` and `paid` are spelled alike")]),
            // The name counts once more under `ends`.
            ("created: created>pai: paid", &[(EdgeTo(0), "unknown state `pai`: elsewhere in the machine it is `paid`")]),
            ("created: created>paid: pai", &[(EdgeTo(0), "unknown state `paid`: elsewhere in the machine it is `pai`")]),
            ("created: created>paid paid>created: pai", &[(End(0), "`pai` and `paid` are spelled alike")]),
            ("created: created>paid paid>created paid>done: pai done", &[(End(0), "unknown state `pai`")]),
            ("a creatd: a>paid created>paid created>done: paid done", &[(EdgeFrom(1), "`created` and `creatd` are spelled alike")]),
            ("a: a>b c>d d>c: b", &[(EdgeTo(1), "the state `d` cannot be"), (EdgeTo(2), "the state `c` cannot be")]),
            ("a: a>b:", &[(EdgeTo(0), "the state `b` has no way out")]),
            ("a::", &[(Start(0), "the state `a` has no way out")]),
            ("a: a>b b>c: b c", &[(EdgeFrom(1), "the edge `b -> c` leaves an end")]),
            ("a: a>b a>b: b", &[(EdgeTo(1), "the edge `a -> b` is there twice")]),
            ("a a: a>b: b b", &[(Start(1), "`a` is a start twice"), (End(1), "`b` is an end twice")]),
        ];
        for (text, expected) in cases {
            let mut found = check(&graph(text));
            let mut expected = expected.to_vec();
            found.sort_by_key(|mistake| mistake.location);
            expected.sort_by_key(|(location, _)| *location);
            assert_eq!(
                found.iter().map(|mistake| mistake.location).collect::<Vec<_>>(),
                expected.iter().map(|(location, _)| *location).collect::<Vec<_>>(),
                "{text}: {found:?}"
            );
            for (mistake, (_, start)) in found.iter().zip(&expected) {
                assert!(mistake.message.starts_with(start), "{text}: {}", mistake.message);
            }
        }
    }

    #[test]
    fn every_rule_speaks_at_once() {
        let found = check(&graph("a: a>b b>c x>y: c zz zz"));
        assert_eq!(found.len(), 5, "{found:#?}");
    }

    #[test]
    fn a_name_is_suggested_when_it_is_near() {
        let states = ["created", "paid", "refunding", "a"];
        let cases = [
            ("creatd", Some("created")),
            ("piad", Some("paid")),
            ("pad", Some("paid")),
            ("refundnig", Some("refunding")),
            ("refunded", None),
            ("b", None),
            ("shipped", None),
        ];
        for (name, expected) in cases {
            assert_eq!(nearest(name, states), expected, "{name}");
        }
    }
}
