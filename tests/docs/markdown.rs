//! The part of Markdown that the tests of documents need: headings, links and code, outside of fenced blocks.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

pub struct Document {
    /// The path from the root of the repository.
    pub path: PathBuf,
    text: String,
}

/// A link or a code span, with its line number from 1.
pub struct Span {
    pub target: String,
    pub line: usize,
}

impl Document {
    pub fn read(root: &Path, path: PathBuf) -> Document {
        let text = fs::read_to_string(root.join(&path)).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        Document { path, text }
    }

    /// Returns the targets of `[text](target)` and `![text](target)`.
    pub fn links(&self) -> Vec<Span> {
        let mut links = Vec::new();
        for (line, text) in self.prose() {
            let text = without_code(text);
            let ends = text.match_indices("](").map(|(at, _)| at + 2);
            links.extend(ends.filter_map(|at| {
                let target = text[at..].split_once(')')?.0.split_whitespace().next()?.to_owned();
                Some(Span { target, line })
            }));
        }
        links
    }

    /// Returns the code spans of the prose.
    pub fn code_spans(&self) -> Vec<Span> {
        let spans = |(line, text): (usize, &str)| {
            let odd = text.split('`').enumerate().filter(|(n, _)| n % 2 == 1);
            odd.map(|(_, code)| Span { target: code.to_owned(), line }).collect::<Vec<_>>()
        };
        self.prose().flat_map(spans).collect()
    }

    /// Returns the anchors of the headings, as GitHub and mdBook create them.
    pub fn anchors(&self) -> BTreeSet<String> {
        let mut seen = BTreeMap::<String, u32>::new();
        let headings = self.prose().filter(|(_, text)| text.starts_with('#'));
        headings
            .map(|(_, text)| {
                let anchor = anchor(text.trim_start_matches('#').trim());
                let before = seen.entry(anchor.clone()).or_default();
                *before += 1;
                if *before == 1 { anchor } else { format!("{anchor}-{}", *before - 1) }
            })
            .collect()
    }

    /// True if a fenced block contains Rust that the documentation tests compile.
    pub fn has_rust(&self) -> bool {
        self.text.lines().any(|line| line.trim_start().starts_with("```rust"))
    }

    /// Returns the lines outside of fenced blocks, each with its number from 1.
    fn prose(&self) -> impl Iterator<Item = (usize, &str)> {
        let mut is_fenced = false;
        self.text.lines().enumerate().filter_map(move |(n, line)| {
            let is_fence = line.trim_start().starts_with("```");
            is_fenced ^= is_fence;
            (!is_fence && !is_fenced).then_some((n + 1, line))
        })
    }
}

/// Returns the line without its code spans, because a link inside of code is not a link.
fn without_code(line: &str) -> String {
    line.split('`').step_by(2).collect::<Vec<_>>().join("`")
}

fn anchor(heading: &str) -> String {
    let kept = heading.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
    kept.map(|c| if c == ' ' { '-' } else { c.to_ascii_lowercase() }).collect()
}

#[test]
fn links_anchors_and_code_are_found_outside_of_fenced_blocks() {
    let text = "# A `b`: c?\n\n[x](y.md#z) and `[no](no.md)` ![p](p.svg)\n```text\n# no\n[no](no.md)\n```\n## Twice\n## Twice\n";
    let document = Document { path: "t.md".into(), text: text.to_owned() };
    let links: Vec<_> = document.links().into_iter().map(|link| (link.target, link.line)).collect();
    assert_eq!(links, [("y.md#z".to_owned(), 3), ("p.svg".to_owned(), 3)]);
    assert_eq!(document.anchors(), ["a-b-c", "twice", "twice-1"].map(str::to_owned).into());
    assert_eq!(document.code_spans().into_iter().map(|span| span.target).collect::<Vec<_>>(), ["b", "[no](no.md)"]);
}
