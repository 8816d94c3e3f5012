//! The page of promises names tests that there are.

use std::path::Path;

/// The words in backticks of a line.
fn quoted(line: &str) -> impl Iterator<Item = &str> {
    line.split('`').skip(1).step_by(2)
}

#[test]
fn every_test_that_the_page_of_promises_names_is_there() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let page = std::fs::read_to_string(root.join("docs/promises.md")).unwrap();
    let (mut named, mut missing) = (0, Vec::new());
    for line in page.lines().filter(|line| line.starts_with("- `") || line.starts_with("| ")) {
        let mut words = quoted(line).skip_while(|word| !word.ends_with(".rs"));
        let Some(file) = words.next() else { continue };
        let source = std::fs::read_to_string(root.join(file)).unwrap_or_default();
        for test in words {
            named += 1;
            if !source.contains(&format!("fn {test}(")) && !source.contains(&format!("mod {test} {{")) {
                missing.push(format!("{file}: {test}"));
            }
        }
    }
    assert!(missing.is_empty(), "named in docs/promises.md, and not there: {missing:#?}");
    assert!(named > 50, "the page is read: {named}");
}
