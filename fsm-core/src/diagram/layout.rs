//! The layout of a diagram: states in layers from left to right. All coordinates are whole numbers, so that the same machine gives the same
//! picture everywhere.
//!
//! An edge leads from a layer to a later one. An edge that closes a cycle is laid out in the opposite direction. A line that passes layers
//! has a node of its own in each of them, so that no line crosses a box.

use crate::machine::{Edge, Machine};

/// The height of a box. Below: the distances between the middles of two boxes, and of two lines that pass a layer.
pub(super) const HEIGHT: i64 = 44;
const ROW: i64 = 78;
const LANE: i64 = 44;
/// The number of passes that improve the order within the layers, and the heights.
const SWEEPS: usize = 8;

/// A box, the dot from which the starts come, or the point where a line passes a layer.
#[derive(Debug)]
pub(super) struct Node<'m> {
    pub state: Option<&'m str>,
    pub layer: usize,
    pub y: i64,
}

impl Node<'_> {
    fn needs(&self) -> i64 {
        if self.state.is_some() { ROW } else { LANE }
    }
}

/// All edges between two states, as one line.
#[derive(Debug)]
pub(super) struct Line<'m> {
    /// The nodes that the line passes, from left to right.
    pub through: Vec<usize>,
    /// True if the arrow points from right to left.
    pub is_back: bool,
    pub edges: Vec<&'m Edge>,
}

/// A laid-out machine. The first node is the dot.
#[derive(Debug)]
pub(super) struct Layout<'m> {
    pub nodes: Vec<Node<'m>>,
    pub lines: Vec<Line<'m>>,
    /// Edges from a state to itself, by state.
    pub loops: Vec<(usize, Vec<&'m Edge>)>,
    /// The nodes of each layer, from top to bottom.
    pub layers: Vec<Vec<usize>>,
}

impl<'m> Layout<'m> {
    pub(super) fn of(machine: &'m Machine) -> Layout<'m> {
        let mut nodes = vec![Node { state: None, layer: 0, y: 0 }];
        nodes.extend(machine.states().map(|state| Node { state: Some(state), layer: 0, y: 0 }));
        let (pairs, loops) = pairs(machine, &nodes);
        let backs = backs(nodes.len(), &pairs);
        let ways: Vec<(usize, usize)> =
            pairs.iter().zip(&backs).map(|((from, to, _), is_back)| if *is_back { (*to, *from) } else { (*from, *to) }).collect();
        layer(&mut nodes, &ways);
        let lines = pairs.into_iter().zip(backs).zip(ways).map(|(((_, _, edges), is_back), (left, right))| {
            let mut through = vec![left];
            for layer in nodes[left].layer + 1..nodes[right].layer {
                nodes.push(Node { state: None, layer, y: 0 });
                through.push(nodes.len() - 1);
            }
            through.push(right);
            Line { through, is_back, edges }
        });
        let lines: Vec<_> = lines.collect();
        let mut layers = vec![Vec::new(); nodes.iter().map(|node| node.layer).max().unwrap_or(0) + 1];
        nodes.iter().enumerate().for_each(|(place, node)| layers[node.layer].push(place));
        let mut layout = Layout { nodes, lines, loops, layers };
        layout.order();
        layout.rise();
        layout
    }

    /// Returns the neighbours of a node in the layer before it, or in the layer behind it.
    fn beside(&self, node: usize, before: bool) -> Vec<usize> {
        let of = |line: &Line<'_>| {
            let at = line.through.iter().position(|place| *place == node)?;
            line.through.get(if before { at.checked_sub(1)? } else { at + 1 }).copied()
        };
        self.lines.iter().filter_map(of).collect()
    }

    /// Sorts each layer by the mean position of the neighbours of each node, and keeps the order with the fewest crossings.
    fn order(&mut self) {
        let mut best = (self.crossings(), self.layers.clone());
        for sweep in 0..SWEEPS {
            let forward = sweep % 2 == 0;
            let count = self.layers.len();
            let places: Vec<usize> = if forward { (1..count).collect() } else { (0..count.saturating_sub(1)).rev().collect() };
            for place in places {
                let there = &self.layers[if forward { place - 1 } else { place + 1 }];
                let here = &self.layers[place];
                let mut keyed: Vec<(usize, usize)> = Vec::with_capacity(here.len());
                for (row, node) in here.iter().enumerate() {
                    let rows: Vec<usize> =
                        self.beside(*node, forward).iter().filter_map(|other| there.iter().position(|one| one == other)).collect();
                    // In thousandths: whole numbers are the same on every machine.
                    keyed.push((if rows.is_empty() { row * 1000 } else { rows.iter().sum::<usize>() * 1000 / rows.len() }, *node));
                }
                keyed.sort_by_key(|(mean, _)| *mean);
                self.layers[place] = keyed.into_iter().map(|(_, node)| node).collect();
            }
            let crossings = self.crossings();
            if crossings < best.0 {
                best = (crossings, self.layers.clone());
            }
        }
        self.layers = best.1;
    }

    fn crossings(&self) -> usize {
        let row = |node: usize| self.layers[self.nodes[node].layer].iter().position(|one| *one == node).unwrap_or(0);
        let steps: Vec<(usize, usize, usize)> = self
            .lines
            .iter()
            .flat_map(|line| line.through.windows(2))
            .map(|step| (self.nodes[step[0]].layer, row(step[0]), row(step[1])))
            .collect();
        let cross = |a: &(usize, usize, usize), b: &(usize, usize, usize)| a.0 == b.0 && (a.1 < b.1 && a.2 > b.2 || a.1 > b.1 && a.2 < b.2);
        steps.iter().enumerate().map(|(n, a)| steps[n + 1..].iter().filter(|b| cross(a, b)).count()).sum()
    }

    /// Gives each node a height near the mean of its neighbours, with a minimum distance within a layer.
    fn rise(&mut self) {
        for layer in self.layers.clone() {
            let mut y = 0;
            for (row, node) in layer.iter().enumerate() {
                y += if row == 0 { 0 } else { self.apart(layer[row - 1], *node) };
                self.nodes[*node].y = y;
            }
            layer.iter().for_each(|node| self.nodes[*node].y -= y / 2);
        }
        for sweep in 0..SWEEPS {
            let forward = sweep % 2 == 0;
            let count = self.layers.len();
            let places: Vec<usize> = if forward { (1..count).collect() } else { (0..count.saturating_sub(1)).rev().collect() };
            places.into_iter().for_each(|place| self.level(place, forward));
        }
        let top = self.nodes.iter().map(|node| node.y).min().unwrap_or(0);
        self.nodes.iter_mut().for_each(|node| node.y -= top);
    }

    fn level(&mut self, place: usize, forward: bool) {
        let layer = self.layers[place].clone();
        let wanted: Vec<i64> = layer
            .iter()
            .map(|node| {
                let beside = self.beside(*node, forward);
                let sum: i64 = beside.iter().map(|other| self.nodes[*other].y).sum();
                if beside.is_empty() { self.nodes[*node].y } else { sum / beside.len() as i64 }
            })
            .collect();
        let mut heights = wanted.clone();
        for row in 1..layer.len() {
            heights[row] = heights[row].max(heights[row - 1] + self.apart(layer[row - 1], layer[row]));
        }
        // The distance by which nodes were pushed down is spread over the layer.
        let down: i64 = heights.iter().zip(&wanted).map(|(is, was)| is - was).sum::<i64>() / layer.len().max(1) as i64;
        layer.iter().zip(heights).for_each(|(node, height)| self.nodes[*node].y = height - down);
    }

    fn apart(&self, one: usize, other: usize) -> i64 {
        (self.nodes[one].needs() + self.nodes[other].needs()) / 2
    }
}

type Pairs<'m> = Vec<(usize, usize, Vec<&'m Edge>)>;

/// Groups the edges by the two states that they join, in the order of their declaration; edges from a state to itself are separate.
fn pairs<'m>(machine: &'m Machine, nodes: &[Node<'m>]) -> (Pairs<'m>, Vec<(usize, Vec<&'m Edge>)>) {
    let place = |state: &str| nodes.iter().position(|node| node.state == Some(state));
    let (mut pairs, mut loops): (Pairs<'m>, Vec<(usize, Vec<&'m Edge>)>) = (Vec::new(), Vec::new());
    for edge in &machine.edges {
        let from = edge.from.as_deref().map_or(Some(0), place);
        let (Some(from), Some(to)) = (from, place(&edge.to)) else { continue };
        if from == to {
            match loops.iter_mut().find(|(state, _)| *state == to) {
                Some((_, edges)) => edges.push(edge),
                None => loops.push((to, vec![edge])),
            }
        } else {
            match pairs.iter_mut().find(|pair| (pair.0, pair.1) == (from, to)) {
                Some(pair) => pair.2.push(edge),
                None => pairs.push((from, to, vec![edge])),
            }
        }
    }
    (pairs, loops)
}

/// Returns for each pair whether it closes a cycle, in a depth-first search from the dot.
fn backs(nodes: usize, pairs: &Pairs<'_>) -> Vec<bool> {
    let mut backs = vec![false; pairs.len()];
    let mut state = vec![0_u8; nodes];
    for root in 0..nodes {
        if state[root] == 0 {
            // The current path, each node with the next pair to look at.
            let mut way = vec![(root, 0)];
            state[root] = 1;
            while let Some((node, next)) = way.pop() {
                let Some(place) = (next..pairs.len()).find(|place| pairs[*place].0 == node) else {
                    state[node] = 2;
                    continue;
                };
                way.push((node, place + 1));
                let to = pairs[place].1;
                match state[to] {
                    0 => {
                        state[to] = 1;
                        way.push((to, 0));
                    }
                    1 => backs[place] = true,
                    _ => {}
                }
            }
        }
    }
    backs
}

/// Puts each node into a layer behind all nodes that lead to it. A state that nothing leads to is in the layer of the starts.
fn layer(nodes: &mut [Node<'_>], ways: &[(usize, usize)]) {
    nodes.iter_mut().skip(1).for_each(|node| node.layer = 1);
    for _ in 0..nodes.len() {
        for (left, right) in ways {
            nodes[*right].layer = nodes[*right].layer.max(nodes[*left].layer + 1);
        }
    }
}
