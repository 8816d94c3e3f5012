//! Checks that the tests exist that the pages of promises and of known bugs name.

use std::path::Path;

/// The file of the tests that a page calls simulated.
const SIMULATION: &str = "fsm-core/tests/simulation/main.rs";

/// Returns the words of a line that are in backticks.
fn quoted(line: &str) -> impl Iterator<Item = &str> {
    line.split('`').skip(1).step_by(2)
}

/// True if the word has the form of a test name.
fn is_test(word: &str) -> bool {
    word.len() > 12 && word.contains('_') && word.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_')
}

/// Returns the number of tests that the lists and tables of a page name, and those that do not exist.
fn read(page: &str) -> (usize, Vec<String>) {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let source = |file: &str| std::fs::read_to_string(root.join(file)).unwrap_or_default();
    let (text, simulation) = (source(page), source(SIMULATION));
    let (mut named, mut missing) = (0, Vec::new());
    for line in text.lines().filter(|line| line.starts_with("- `") || line.starts_with("| ")) {
        let mut file = SIMULATION;
        for word in quoted(line) {
            if word.ends_with(".rs") {
                file = word;
            } else if is_test(word) && (file != SIMULATION || line.contains("simulated: `") || line.starts_with("- `")) {
                named += 1;
                let is_in = |source: &str| ["fn X(", "mod X {", " X:"].iter().any(|form| source.contains(&form.replace('X', word)));
                if !is_in(&source(file)) && !is_in(&simulation) {
                    missing.push(format!("{file}: {word}"));
                }
            }
        }
    }
    (named, missing)
}

#[test]
fn every_test_that_the_page_of_promises_names_is_there() {
    let (named, missing) = read("docs/promises.md");
    assert!(missing.is_empty(), "named in docs/promises.md, but missing: {missing:#?}");
    assert!(named > 50, "only {named} tests were found on the page");
}

#[test]
fn every_test_that_the_page_of_bugs_names_is_there() {
    let (named, missing) = read("docs/known-bugs.md");
    assert!(missing.is_empty(), "named in docs/known-bugs.md, but missing: {missing:#?}");
    assert!(named > 40, "only {named} tests were found on the page");
}
