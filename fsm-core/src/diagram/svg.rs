//! A machine drawn as SVG by a small layered layout of our own: states in columns by their distance from a start. The same machine gives
//! the same bytes. Each state is a group with `data-state`, each edge one with `data-from` and `data-to`, for those who lay colours on it.

use std::collections::BTreeMap;

use super::label;
use crate::machine::{Edge, Machine};

/// The width of a letter, the height of a box, and the distances, in pixels.
const LETTER: i64 = 8;
const HEIGHT: i64 = 36;
const ROW: i64 = 76;
const MARGIN: i64 = 24;
const NARROWEST_GAP: i64 = 64;
const LINE: i64 = 15;
/// How often the order within the columns is made better.
const SWEEPS: usize = 4;

/// A box: the middle of it, and its width.
struct Place {
    x: i64,
    y: i64,
    width: i64,
}

/// The states by column and row, and where each one is.
struct Layout<'m> {
    machine: &'m Machine,
    columns: Vec<Vec<&'m str>>,
    places: BTreeMap<&'m str, Place>,
    start: (i64, i64),
    size: (i64, i64),
}

/// An SVG document. Ends with a line feed.
pub fn svg(machine: &Machine) -> String {
    svg_noted(machine, |_| None)
}

/// The same with a note below the names of those states that `note` has one for.
pub fn svg_noted(machine: &Machine, note: impl Fn(&str) -> Option<String>) -> String {
    let layout = Layout::of(machine, &note);
    let edges: String = layout.edges();
    let boxes: String = machine.states().map(|state| layout.state(state, note(state))).collect();
    let (width, height) = layout.size;
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" width=\"{width}\" height=\"{height}\" role=\"img\" \
         font-family=\"sans-serif\" font-size=\"13\" fill=\"none\" stroke=\"#555\">\n\
         <title>{}</title>\n\
         <defs><marker id=\"arrow\" viewBox=\"0 0 8 8\" refX=\"8\" refY=\"4\" markerWidth=\"8\" markerHeight=\"8\" orient=\"auto\">\
         <path d=\"M0 0L8 4L0 8z\" fill=\"#555\" stroke=\"none\"/></marker></defs>\n{edges}{boxes}</svg>\n",
        escaped(&machine.name)
    )
}

impl<'m> Layout<'m> {
    fn of(machine: &'m Machine, note: &impl Fn(&str) -> Option<String>) -> Layout<'m> {
        let columns = ordered(machine, columns(machine));
        let rows = columns.iter().map(Vec::len).max().unwrap_or(1).max(1) as i64;
        let middle = MARGIN + ROW * rows / 2;
        let mut places = BTreeMap::new();
        let mut left = MARGIN;
        let start = (left + 6, middle);
        let mut gap = gap_before(machine, &[], columns.first());
        left += 12 + gap;
        for (place, column) in columns.iter().enumerate() {
            let letters = |state: &&str| state.chars().count().max(note(state).map_or(0, |note| note.chars().count())) as i64;
            let width = column.iter().map(letters).max().unwrap_or(0) * LETTER + 28;
            for (row, state) in column.iter().enumerate() {
                let y = middle + ROW * (2 * row as i64 + 1 - column.len() as i64) / 2;
                places.insert(*state, Place { x: left + width / 2, y, width });
            }
            gap = gap_before(machine, column, columns.get(place + 1));
            left += width + gap;
        }
        let below = machine.edges.iter().filter(|edge| is_back(&columns, edge)).count() as i64;
        let size = (left - gap + MARGIN, 2 * MARGIN + ROW * rows + below * 2 * LINE);
        Layout { machine, columns, places, start, size }
    }

    fn state(&self, state: &str, note: Option<String>) -> String {
        let Some(Place { x, y, width }) = self.places.get(state) else { return String::new() };
        let (left, top) = (x - width / 2, y - HEIGHT / 2);
        let name = escaped(state);
        let inner = match self.machine.is_end(state) {
            true => format!("<rect x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" rx=\"6\"/>", left + 3, top + 3, width - 6, HEIGHT - 6),
            false => String::new(),
        };
        let note = note.map_or_else(String::new, |note| written(*x, y + HEIGHT / 2 + LINE, &note));
        format!(
            "<g class=\"state\" data-state=\"{name}\"><rect x=\"{left}\" y=\"{top}\" width=\"{width}\" height=\"{HEIGHT}\" rx=\"8\" \
             fill=\"#fff\"/>{inner}{}{note}</g>\n",
            written(*x, y + 5, state)
        )
    }

    /// A line for each pair of states, with the labels of all its edges.
    fn edges(&self) -> String {
        let mut pairs: Vec<(Option<&str>, &str, Vec<&Edge>)> = Vec::new();
        for edge in &self.machine.edges {
            let (from, to) = (edge.from.as_deref(), edge.to.as_str());
            match pairs.iter_mut().find(|pair| (pair.0, pair.1) == (from, to)) {
                Some(pair) => pair.2.push(edge),
                None => pairs.push((from, to, vec![edge])),
            }
        }
        let (x, y) = self.start;
        let has_start = self.machine.starts().next().is_some();
        let dot = if has_start { format!("<circle cx=\"{x}\" cy=\"{y}\" r=\"6\" fill=\"#555\"/>\n") } else { String::new() };
        let mut lanes = 0;
        pairs.iter().fold(dot, |drawn, (from, to, edges)| drawn + &self.edge(*from, to, edges, &mut lanes))
    }

    fn edge(&self, from: Option<&str>, to: &str, edges: &[&Edge], lanes: &mut i64) -> String {
        let Some(there) = self.places.get(to) else { return String::new() };
        let here = from.and_then(|from| self.places.get(from));
        let ((x1, y1), (x2, y2)) =
            (here.map_or((self.start.0 + 6, self.start.1), |here| (here.x + here.width / 2, here.y)), (there.x - there.width / 2, there.y));
        let is_back = edges.iter().any(|edge| is_back(&self.columns, edge));
        let (path, at) = match here {
            Some(here) if from == Some(to) => {
                let top = here.y - HEIGHT / 2;
                let path =
                    format!("M{} {top}C{} {} {} {} {} {top}", here.x + 12, here.x + 30, top - 30, here.x - 30, top - 30, here.x - 12);
                (path, (here.x, top - 26))
            }
            Some(here) if is_back => {
                *lanes += 1;
                let (depth, bottom) = (self.size.1 - MARGIN - 2 * LINE * (*lanes - 1), HEIGHT / 2);
                let path =
                    format!("M{} {}C{} {depth} {} {depth} {} {}", here.x, here.y + bottom, here.x, there.x, there.x, there.y + bottom);
                (path, ((here.x + there.x) / 2, (here.y + there.y + 2 * bottom + 6 * depth) / 8))
            }
            _ => {
                let bend = (x2 - x1) / 2;
                (format!("M{x1} {y1}C{} {y1} {} {y2} {x2} {y2}", x1 + bend, x2 - bend), ((x1 + x2) / 2, (y1 + y2) / 2))
            }
        };
        let dashes = if edges.iter().all(|edge| edge.after.is_some()) { " stroke-dasharray=\"5 3\"" } else { "" };
        let lines = edges.iter().enumerate().map(|(line, edge)| written(at.0, at.1 - 6 - LINE * line as i64, &label(edge)));
        format!(
            "<g class=\"edge\" data-from=\"{}\" data-to=\"{}\"><path d=\"{path}\" marker-end=\"url(#arrow)\"{dashes}/>{}</g>\n",
            escaped(from.unwrap_or_default()),
            escaped(to),
            lines.collect::<String>()
        )
    }
}

/// The states by their distance from a start. One that nothing leads to stands at the beginning.
fn columns(machine: &Machine) -> Vec<Vec<&str>> {
    let mut distance: BTreeMap<&str, usize> = machine.starts().map(|state| (state, 0)).collect();
    for steps in 1..=machine.verbs.len() {
        let is_last = |edge: &&Edge| edge.from.as_deref().and_then(|from| distance.get(from)) == Some(&(steps - 1));
        let found: Vec<&str> = machine.edges.iter().filter(is_last).map(|edge| edge.to.as_str()).collect();
        found.into_iter().for_each(|state| {
            distance.entry(state).or_insert(steps);
        });
    }
    let mut columns = vec![Vec::new(); distance.values().max().map_or(1, |most| most + 1)];
    machine.states().for_each(|state| columns[distance.get(state).copied().unwrap_or(0)].push(state));
    columns
}

/// The columns with each state near the middle of its neighbours, so that fewer lines cross.
fn ordered<'m>(machine: &Machine, mut columns: Vec<Vec<&'m str>>) -> Vec<Vec<&'m str>> {
    for sweep in 0..SWEEPS {
        let places: Vec<usize> =
            if sweep % 2 == 0 { (1..columns.len()).collect() } else { (0..columns.len().saturating_sub(1)).rev().collect() };
        for place in places {
            let beside = columns[if sweep % 2 == 0 { place - 1 } else { place + 1 }].clone();
            let row = |state: &str| beside.iter().position(|there| *there == state);
            let mean = |state: &&'m str| {
                let near = |edge: &Edge| match sweep % 2 {
                    0 if edge.to == *state => edge.from.as_deref().and_then(row),
                    1 if edge.from.as_deref() == Some(*state) => row(&edge.to),
                    _ => None,
                };
                let rows: Vec<usize> = machine.edges.iter().filter_map(near).collect();
                // In thousandths, for whole numbers are the same everywhere.
                rows.iter().sum::<usize>() * 1000 / rows.len().max(1)
            };
            columns[place].sort_by_key(mean);
        }
    }
    columns
}

/// Whether the edge leads to the same column or one before.
fn is_back(columns: &[Vec<&str>], edge: &Edge) -> bool {
    let column = |state: &str| columns.iter().position(|column| column.contains(&state));
    edge.from.as_deref().is_some_and(|from| from != edge.to && column(from) >= column(&edge.to))
}

/// Room for the labels between a column, or the start, and the next.
fn gap_before(machine: &Machine, column: &[&str], next: Option<&Vec<&str>>) -> i64 {
    let leaves = |edge: &&Edge| edge.from.as_deref().map_or(column.is_empty(), |from| column.contains(&from));
    let enters = |edge: &&Edge| next.is_some_and(|next| next.contains(&edge.to.as_str()));
    let letters = machine.edges.iter().filter(leaves).filter(enters).map(|edge| label(edge).chars().count()).max();
    (letters.unwrap_or(0) as i64 * LETTER + 32).max(NARROWEST_GAP)
}

/// A text around a middle.
fn written(x: i64, y: i64, text: &str) -> String {
    format!("<text x=\"{x}\" y=\"{y}\" text-anchor=\"middle\" fill=\"#222\" stroke=\"none\">{}</text>", escaped(text))
}

/// Text that XML takes.
fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            c if c.is_control() || matches!(c, '\u{202a}'..='\u{202e}' | '\u{fffe}' | '\u{ffff}') => escaped.push('\u{fffd}'),
            c => escaped.push(c),
        }
    }
    escaped
}
