//! A machine drawn as SVG. Each state is a group with `data-state`, and each line is a group with `data-from` and `data-to`, so that a page
//! can add colours.

use super::label;
use super::layout::{HEIGHT, Layout, Line};
use crate::machine::{Edge, Machine};

/// The width of a letter, the margin, the minimum distance between two layers and the height of a row of text, in pixels.
const LETTER: i64 = 8;
const MARGIN: i64 = 24;
const NARROWEST_GAP: i64 = 72;
const ROW_OF_TEXT: i64 = 15;
/// The radius of the dot that the starts come from.
const RADIUS: i64 = 6;
/// The distance between lines that meet at one side of a box, if there is room.
const BETWEEN: i64 = 12;

/// A picture under construction.
struct Picture<'m> {
    machine: &'m Machine,
    layout: Layout<'m>,
    /// The left and the right edge of each layer.
    sides: Vec<(i64, i64)>,
    top: i64,
    /// The areas of boxes and labels: left, top, right, bottom.
    taken: Vec<[i64; 4]>,
}

/// Returns an SVG document. It ends with a line feed.
pub fn svg(machine: &Machine) -> String {
    svg_noted(machine, |_| None)
}

/// Returns the same document with a note below the name of each state for which `note` returns a text.
pub fn svg_noted(machine: &Machine, note: impl Fn(&str) -> Option<String>) -> String {
    let layout = Layout::of(machine);
    let letters = |state: &str| state.chars().count().max(note(state).map_or(0, |note| note.chars().count())) as i64;
    let sides = sides(&layout, letters);
    let loops = layout.loops.iter().map(|(_, edges)| edges.len() as i64).max().map_or(0, |most| 22 + most * ROW_OF_TEXT);
    let top = MARGIN + HEIGHT / 2 + loops;
    let bottom = layout.nodes.iter().map(|node| node.y).max().unwrap_or(0) + top + HEIGHT / 2 + MARGIN;
    let width = sides.last().map_or(0, |(_, right)| *right) + MARGIN;
    let mut picture = Picture { machine, layout, sides, top, taken: Vec::new() };
    picture.taken = (0..picture.layout.nodes.len()).map(|node| picture.area(node)).collect();
    let has_start = machine.starts().next().is_some();
    let (x, y) = (picture.sides[0].1 - RADIUS, picture.y(0));
    let dot = if has_start { format!("<circle cx=\"{x}\" cy=\"{y}\" r=\"{RADIUS}\" fill=\"#555\"/>\n") } else { String::new() };
    let (lines, labels) = picture.lines();
    let loops = picture.loops();
    let boxes: String = (1..picture.layout.nodes.len()).map(|node| picture.state(node, &note)).collect();
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {bottom}\" width=\"{width}\" height=\"{bottom}\" role=\"img\" \
         font-family=\"sans-serif\" font-size=\"13\" fill=\"none\" stroke=\"#555\">\n\
         <title>{}</title>\n\
         <defs><marker id=\"arrow\" viewBox=\"0 0 8 8\" refX=\"8\" refY=\"4\" markerUnits=\"userSpaceOnUse\" markerWidth=\"8\" markerHeight=\"8\" orient=\"auto\">\
         <path d=\"M0 0L8 4L0 8z\" fill=\"#555\" stroke=\"none\"/></marker></defs>\n{dot}{lines}{loops}{boxes}{labels}</svg>\n",
        escaped(&machine.name)
    )
}

/// Returns the left and the right edge of each layer: wide enough for its names, with room for the labels before the next layer.
fn sides(layout: &Layout<'_>, letters: impl Fn(&str) -> i64) -> Vec<(i64, i64)> {
    let mut sides = Vec::new();
    let mut left = MARGIN;
    for (place, layer) in layout.layers.iter().enumerate() {
        let longest = |is_wanted: &dyn Fn(&Line<'_>) -> bool| {
            let wanted = layout.lines.iter().filter(|line| is_wanted(line));
            wanted.flat_map(|line| &line.edges).map(|edge| label(edge).chars().count() as i64).max()
        };
        let names = layer.iter().filter_map(|node| layout.nodes[*node].state).map(&letters).max();
        let passing = longest(&|line| passed(line).is_some_and(|node| layer.contains(&node)));
        let width = names.max(passing).map_or(2 * RADIUS, |widest| widest * LETTER + 28);
        sides.push((left, left + width));
        let longest = longest(&|line| passed(line).is_none() && layout.nodes[line.through[0]].layer == place);
        left += width + longest.map_or(NARROWEST_GAP, |longest| (longest * LETTER + 40).max(NARROWEST_GAP));
    }
    sides
}

/// Returns the node where a line that passes layers has its labels: the middle one. Other lines have their labels between the two layers.
fn passed(line: &Line<'_>) -> Option<usize> {
    (line.through.len() > 2).then(|| line.through[line.through.len() / 2])
}

impl Picture<'_> {
    fn y(&self, node: usize) -> i64 {
        self.layout.nodes[node].y + self.top
    }

    /// Returns the area of a box; its height is zero where a line passes.
    fn area(&self, node: usize) -> [i64; 4] {
        let ((left, right), y) = (self.sides[self.layout.nodes[node].layer], self.y(node));
        if self.layout.nodes[node].state.is_some() { [left, y - HEIGHT / 2, right, y + HEIGHT / 2] } else { [left, y, right, y] }
    }

    fn state(&self, node: usize, note: &impl Fn(&str) -> Option<String>) -> String {
        let Some(state) = self.layout.nodes[node].state else { return String::new() };
        let [left, top, right, _] = self.area(node);
        let (middle, width, name) = ((left + right) / 2, right - left, escaped(state));
        let inner = match self.machine.is_end(state) {
            true => {
                let (width, height) = (width - 6, HEIGHT - 6);
                format!("<rect x=\"{}\" y=\"{}\" width=\"{width}\" height=\"{height}\" rx=\"6\"/>", left + 3, top + 3)
            }
            false => String::new(),
        };
        let texts = match note(state) {
            None => written(middle, top + HEIGHT / 2 + 5, state),
            Some(note) => {
                written(middle, top + HEIGHT / 2 - 3, state)
                    + &format!("<g font-size=\"11\">{}</g>", written(middle, top + HEIGHT / 2 + 13, &note))
            }
        };
        format!(
            "<g class=\"state\" data-state=\"{name}\"><rect x=\"{left}\" y=\"{top}\" width=\"{width}\" height=\"{HEIGHT}\" rx=\"8\" \
             fill=\"#fff\"/>{inner}{texts}</g>\n"
        )
    }

    /// Returns the height at which a line leaves or enters a node. The lines of one side are spread over it, in the order of their other
    /// ends.
    fn port(&self, line: usize, at: usize, leaves: bool) -> i64 {
        let node = self.layout.lines[line].through[at];
        if self.layout.nodes[node].state.is_none() {
            return self.y(node);
        }
        let mut others: Vec<(i64, usize)> = Vec::new();
        for (place, other) in self.layout.lines.iter().enumerate() {
            let Some(found) = other.through.iter().position(|one| *one == node) else { continue };
            let next = if leaves { other.through.get(found + 1) } else { found.checked_sub(1).map(|before| &other.through[before]) };
            others.extend(next.map(|next| (self.y(*next), place)));
        }
        others.sort_unstable();
        let (count, row) = (others.len() as i64, others.iter().position(|(_, place)| *place == line).unwrap_or(0) as i64);
        let step = BETWEEN.min((HEIGHT - 12) / count.max(1));
        self.y(node) + (2 * row + 1 - count) * step / 2
    }

    /// Returns all lines and their labels. The labels are drawn last, so that no line crosses them.
    fn lines(&mut self) -> (String, String) {
        let (mut drawn, mut labels) = (String::new(), String::new());
        for place in 0..self.layout.lines.len() {
            let points = self.points(place);
            labels.push_str(&self.labels(place, &points));
            let line = &self.layout.lines[place];
            let (left, right) = (line.through[0], line.through[line.through.len() - 1]);
            let (from, to) = if line.is_back { (right, left) } else { (left, right) };
            let style = style(&line.edges);
            let name = |node: usize| escaped(self.layout.nodes[node].state.unwrap_or_default());
            drawn.push_str(&format!(
                "<g class=\"edge\" data-from=\"{}\" data-to=\"{}\"><path d=\"{}\" marker-end=\"url(#arrow)\"{style}/></g>\n",
                name(from),
                name(to),
                path(&points, line.is_back)
            ));
        }
        (drawn, labels)
    }

    /// Returns the end points of the bends of a line, two for each bend, from left to right.
    fn points(&self, line: usize) -> Vec<(i64, i64)> {
        let through = &self.layout.lines[line].through;
        let side = |at: usize| self.sides[self.layout.nodes[through[at]].layer];
        let bend = |at: usize| [(side(at).1, self.port(line, at, true)), (side(at + 1).0, self.port(line, at + 1, false))];
        (0..through.len() - 1).flat_map(bend).collect()
    }

    /// Returns the labels of a line at a free place, if there is one: above the node where the line passes a layer, or on its bend.
    fn labels(&mut self, place: usize, points: &[(i64, i64)]) -> String {
        let line = &self.layout.lines[place];
        let texts: Vec<String> = line.edges.iter().map(|edge| label(edge)).collect();
        let (width, height) = size(&texts);
        let (start, end) = match passed(line) {
            Some(node) => {
                let ((left, right), y) = (self.sides[self.layout.nodes[node].layer], self.y(node));
                ((left, y), (right, y))
            }
            None => (points[0], points[1]),
        };
        // The labels are above a straight line, and on a bend.
        let is_flat = (start.1 - end.1).abs() < 2 * ROW_OF_TEXT;
        let area = |eighths: i64| {
            let (x, y) = on(start, end, eighths);
            let y = if is_flat { y.min(start.1).min(end.1) - height / 2 - 4 } else { y };
            [x - width / 2, y - height / 2, x + width / 2, y + height / 2]
        };
        let is_free = |area: &[i64; 4]| self.taken.iter().all(|other| !overlap(area, other));
        let found = [4, 5, 3, 6, 2].map(area).into_iter().find(is_free).unwrap_or_else(|| area(4));
        self.taken.push(found);
        let x = (found[0] + found[2]) / 2;
        let lines = texts.iter().enumerate().map(|(row, text)| written(x, found[1] + ROW_OF_TEXT * (row as i64 + 1) - 3, text));
        format!(
            "<g class=\"label\" paint-order=\"stroke\" stroke=\"#fff\" stroke-width=\"4\">{}</g>\n",
            lines.collect::<String>().replace(" stroke=\"none\"", "")
        )
    }

    /// Returns the edges from a state to itself, drawn above the state.
    fn loops(&self) -> String {
        let one = |(node, edges): &(usize, Vec<&Edge>)| {
            let [left, top, right, _] = self.area(*node);
            let (x, state) = ((left + right) / 2, escaped(self.layout.nodes[*node].state.unwrap_or_default()));
            let path = format!("M{} {top}C{} {} {} {} {} {top}", x + 12, x + 28, top - 26, x - 28, top - 26, x - 12);
            let lines = edges.iter().enumerate().map(|(row, edge)| written(x, top - 24 - ROW_OF_TEXT * row as i64, &label(edge)));
            let texts: String = lines.collect();
            format!(
                "<g class=\"edge\" data-from=\"{state}\" data-to=\"{state}\"><path d=\"{path}\" marker-end=\"url(#arrow)\"{}/>{texts}</g>\n",
                style(edges)
            )
        };
        self.layout.loops.iter().map(one).collect()
    }
}

/// Returns the style of a line: dashed if all its edges are timers, dotted if all are internal transitions, thick if one interrupts.
fn style(edges: &[&Edge]) -> &'static str {
    if edges.iter().all(|edge| edge.after.is_some()) {
        " stroke-dasharray=\"5 3\""
    } else if edges.iter().all(|edge| edge.stays_on.is_some()) {
        " stroke-dasharray=\"1 3\""
    } else if edges.iter().any(|edge| edge.interrupts) {
        " stroke-width=\"2\""
    } else {
        ""
    }
}

/// Returns a path of bends. Each bend is horizontal at both ends.
fn path(points: &[(i64, i64)], is_back: bool) -> String {
    let points: Vec<(i64, i64)> = if is_back { points.iter().rev().copied().collect() } else { points.to_vec() };
    let mut path = format!("M{} {}", points[0].0, points[0].1);
    for (place, pair) in points.chunks_exact(2).enumerate() {
        let ((x1, y1), (x2, y2)) = (pair[0], pair[1]);
        if place > 0 {
            path.push_str(&format!("L{x1} {y1}"));
        }
        let middle = (x1 + x2) / 2;
        path.push_str(&format!("C{middle} {y1} {middle} {y2} {x2} {y2}"));
    }
    path
}

/// Returns the point on a bend after this number of eighths of the way.
fn on((x1, y1): (i64, i64), (x2, y2): (i64, i64), eighths: i64) -> (i64, i64) {
    let (t, u, middle) = (eighths, 8 - eighths, (x1 + x2) / 2);
    let x = (x1 * u * u * u + 3 * middle * t * u * u + 3 * middle * t * t * u + x2 * t * t * t) / 512;
    let y = (y1 * (u * u * u + 3 * t * u * u) + y2 * (3 * t * t * u + t * t * t)) / 512;
    (x, y)
}

/// Returns the width and the height of texts below one another.
fn size(texts: &[String]) -> (i64, i64) {
    let longest = texts.iter().map(|text| text.chars().count()).max().unwrap_or(0) as i64;
    (longest * LETTER + 4, texts.len() as i64 * ROW_OF_TEXT)
}

fn overlap(one: &[i64; 4], other: &[i64; 4]) -> bool {
    one[0] < other[2] && other[0] < one[2] && one[1] < other[3] && other[1] < one[3]
}

/// Returns a text that is centred at `x`.
fn written(x: i64, y: i64, text: &str) -> String {
    format!("<text x=\"{x}\" y=\"{y}\" text-anchor=\"middle\" fill=\"#222\" stroke=\"none\">{}</text>", escaped(text))
}

/// Escapes text for XML.
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
