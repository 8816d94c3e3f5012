//! Checks of the documents: their links, anchors, chapters, and the files and tests that they name must exist.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

#[path = "docs/markdown.rs"]
mod markdown;

use markdown::Document;

const GUIDE: &str = "docs/guide/src";

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Returns every document for users or contributors, by its path from the root.
fn documents() -> Vec<Document> {
    let mut paths: Vec<PathBuf> = ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md"].map(PathBuf::from).into();
    paths.extend(markdown_below(Path::new("docs")));
    paths.sort();
    paths.into_iter().map(|path| Document::read(root(), path)).collect()
}

fn markdown_below(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(root().join(folder)).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let paths = entries.map(|entry| folder.join(entry.expect("the folder can be read").file_name()));
    paths
        .flat_map(|path| if root().join(&path).is_dir() { markdown_below(&path) } else { vec![path] })
        .filter(|path| path.extension().is_some_and(|kind| kind == "md"))
        .collect()
}

fn fail_on(mistakes: Vec<String>) {
    assert!(mistakes.is_empty(), "\n{}", mistakes.join("\n"));
}

#[test]
fn every_relative_link_leads_to_a_file_and_a_heading() {
    let mut mistakes = Vec::new();
    for document in documents() {
        for link in document.links() {
            if let Some(why) = why_broken(&document, &link.target) {
                mistakes.push(format!("{}:{}: `{}` {why}", document.path.display(), link.line, link.target));
            }
        }
    }
    fail_on(mistakes);
}

/// Returns the reason why a link is broken; `None` if it is not, or if it leads to another site.
fn why_broken(document: &Document, target: &str) -> Option<String> {
    if target.contains("://") || target.starts_with("mailto:") {
        return None;
    }
    let (file, anchor) = target.split_once('#').map_or((target, None), |(file, anchor)| (file, Some(anchor)));
    let folder = document.path.parent().expect("a document is in a folder");
    let path = if file.is_empty() { document.path.clone() } else { folder.join(file) };
    if !root().join(&path).exists() {
        return Some("leads to no file".to_owned());
    }
    let anchor = anchor?;
    let anchors = Document::read(root(), path).anchors();
    (!anchors.contains(anchor)).then(|| format!("leads to no heading; there are {anchors:?}"))
}

#[test]
fn the_summary_of_the_guide_lists_every_chapter_once() {
    let summary = Document::read(root(), Path::new(GUIDE).join("SUMMARY.md"));
    let listed: Vec<String> = summary.links().into_iter().map(|link| link.target).collect();
    let distinct: BTreeSet<String> = listed.iter().cloned().collect();
    assert_eq!(listed.len(), distinct.len(), "a chapter is listed twice");
    let chapters = markdown_below(Path::new(GUIDE)).into_iter().map(|path| path.file_name().unwrap().to_string_lossy().into_owned());
    assert_eq!(distinct, chapters.filter(|name| name != "SUMMARY.md").collect());
}

#[test]
fn every_chapter_with_rust_code_is_compiled() {
    let compiled = fs::read_to_string(root().join("src/guide.rs")).unwrap();
    let with_code = documents().into_iter().filter(|document| document.path.starts_with(GUIDE) && document.has_rust());
    let missing = with_code.filter(|document| {
        let name = document.path.file_name().unwrap().to_string_lossy().into_owned();
        !compiled.contains(&format!("\"{name}\""))
    });
    fail_on(missing.map(|document| format!("{}: not named in src/guide.rs", document.path.display())).collect());
}

#[test]
fn every_file_that_the_guide_names_exists() {
    let is_path = |text: &str| {
        let folders = ["docs/", "examples/", "fsm-cli/", "migrations/", "tests/"];
        folders.iter().any(|folder| text.starts_with(folder)) && text.chars().all(|c| c.is_ascii_alphanumeric() || "/._-".contains(c))
    };
    let mut mistakes = Vec::new();
    for document in documents().into_iter().filter(of_the_guide) {
        let named = document.code_spans().into_iter().filter(|span| is_path(&span.target) && !root().join(&span.target).exists());
        mistakes.extend(named.map(|span| format!("{}:{}: there is no `{}`", document.path.display(), span.line, span.target)));
    }
    fail_on(mistakes);
}

fn of_the_guide(document: &Document) -> bool {
    document.path.starts_with(GUIDE) || document.path == Path::new("README.md")
}

#[test]
fn every_guarantee_names_a_test_that_exists() {
    let chapter = Document::read(root(), Path::new(GUIDE).join("guarantees.md"));
    let (mut file, mut tests, mut mistakes) = (None, 0, Vec::new());
    for span in chapter.code_spans() {
        if span.target.starts_with("tests/") {
            file = Some(span.target);
        } else if let Some(file) = file.as_ref().filter(|_| is_a_sentence(&span.target)) {
            tests += 1;
            let source = fs::read_to_string(root().join(file)).unwrap_or_default();
            if ![format!("fn {}(", span.target), format!("mod {} ", span.target)].iter().any(|item| source.contains(item)) {
                mistakes.push(format!("{}:{}: `{file}` has no test `{}`", chapter.path.display(), span.line, span.target));
            }
        }
    }
    assert!(tests >= 12, "the table has a test for each guarantee, and {tests} were found");
    fail_on(mistakes);
}

/// True if the text has the form of a test name: several words with underscores.
fn is_a_sentence(text: &str) -> bool {
    text.matches('_').count() >= 3 && text.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_')
}
