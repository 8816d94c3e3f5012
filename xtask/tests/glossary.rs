//! The glossary is kept: no identifier, column, document or screen uses a word that `docs/glossary.md` rejects.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;

#[path = "glossary/source.rs"]
mod source;
#[path = "glossary/table.rs"]
mod table;

use source::{Piece, Place};
use table::{Glossary, Permission};

const GLOSSARY: &str = "docs/glossary.md";
/// mdBook reads only files of the guide's own folder.
const COPY: &str = "docs/guide/src/glossary.md";
/// Files with the terms of other systems, and the glossary itself, which has to name the words that it rejects.
const NOT_READ: [&str; 5] = [GLOSSARY, COPY, "benches/peers/", "docs/guide/src/coming-from.md", "xtask/tests/"];

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask is a folder of the workspace")
}

/// Returns the files of the repository that have identifiers, columns, documentation or screens.
fn files() -> Vec<String> {
    let listed = Command::new("git")
        .args(["ls-files", "--cached", "--others", "--exclude-standard"])
        .current_dir(root())
        .output()
        .expect("git runs");
    assert!(listed.status.success(), "git cannot list the files: {}", String::from_utf8_lossy(&listed.stderr));
    let listed = String::from_utf8(listed.stdout).expect("paths are UTF-8");
    let is_read = |path: &&str| {
        let is_screen = path.starts_with("fsm-cli/tests/golden/") && path.ends_with(".txt");
        let is_of_a_kind = [".rs", ".md", ".sql"].iter().any(|kind| path.ends_with(kind)) || is_screen;
        is_of_a_kind
            && !NOT_READ.iter().any(|start| path.starts_with(start))
            && root().join(path).symlink_metadata().is_ok_and(|file| file.is_file())
    };
    listed.lines().filter(is_read).map(str::to_owned).collect()
}

#[test]
fn no_name_and_no_text_uses_a_rejected_word() {
    let glossary = Glossary::read(&fs::read_to_string(root().join(GLOSSARY)).expect("the glossary is there"));
    assert!(glossary.rejected.len() > 40, "the table rejects {} words, so it was not read to its end", glossary.rejected.len());
    let (mut found, mut used, files) = (Vec::new(), BTreeSet::new(), files());
    assert!(files.len() > 400, "{} files are not all of them", files.len());
    for path in &files {
        let text = fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"));
        for piece in source::pieces(path, &text) {
            found.extend(rejections(&glossary, path, &piece, &mut used));
        }
    }
    assert!(found.is_empty(), "\n{}\n{} uses of words that {GLOSSARY} rejects", found.join("\n"), found.len());
    let unused: Vec<_> = glossary.permissions.iter().filter(|permission| !used.contains(*permission)).collect();
    assert!(unused.is_empty(), "{GLOSSARY} permits what nothing uses: {unused:#?}");
}

/// Returns the rejected words of one identifier or text that no permission covers, and adds the permissions that cover others to `used`.
fn rejections(glossary: &Glossary, path: &str, piece: &Piece, used: &mut BTreeSet<Permission>) -> Vec<String> {
    let words = piece.words();
    let mut found = Vec::new();
    for rejected in glossary.rejected.iter().filter(|rejected| rejected.occurs_in(&words)) {
        let permissions = glossary.permissions.iter().filter(|permission| permission.word == rejected.word);
        let mut permissions = permissions.filter(|permission| permission.covers(path, piece)).peekable();
        if permissions.peek().is_none() {
            let place = match piece.place {
                Place::Text => "text",
                Place::Name => "name",
                Place::Type => "type",
                Place::Column => "column",
            };
            let shown: String = piece.text.chars().take(120).collect();
            found.push(format!(
                "{path}:{}: `{}` in the {place} `{}`: the word is {}",
                piece.line,
                rejected.word,
                shown.trim(),
                rejected.instead
            ));
        }
        used.extend(permissions.cloned());
    }
    found
}

#[test]
fn the_guide_has_the_same_glossary() {
    let read = |path: &str| fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"));
    assert!(read(GLOSSARY) == read(COPY), "{COPY} is not a copy of {GLOSSARY}");
}

#[test]
fn a_rejected_word_is_found_in_each_kind_of_place_unless_it_is_permitted() {
    let glossary = Glossary::read(
        "| word | meaning | not |\n|---|---|---|\n| timer | a moment | timeout |\n| sweeper | it | reaper, take leave |\n\n\
         | word | other meaning | where |\n|---|---|---|\n| timeout | a limit | text, `Timeout` |\n| reaper | a tool | `tools/`, \"grim reaper\" |\n",
    );
    let found = |path: &str, text: &str| -> usize {
        source::pieces(path, text).iter().map(|piece| rejections(&glossary, path, piece, &mut BTreeSet::new()).len()).sum()
    };
    assert_eq!(found("a.rs", "let reaper_id = 1;"), 1);
    assert_eq!(found("a.rs", "struct OldReapers; // A reaper."), 2);
    assert_eq!(found("a.rs", "print(\"They take leave\"); fn take_leave() {} struct TakeLeave;"), 3);
    assert_eq!(found("a.rs", "let take = leave; let r = 'r'; let x = r#\"a \"reaper\" \"#;"), 1);
    assert_eq!(found("a.rs", "/// A timeout.\nlet timeout = Timeout;"), 0);
    assert_eq!(found("a.rs", "struct TimeoutOfIt;"), 1);
    assert_eq!(found("a.sql", "-- the timeout\ncreate table t (timeout_at bigint);"), 1);
    assert_eq!(found("a.md", "The grim reaper.\nThe reaper.\n"), 1);
    assert_eq!(found("tools/a.md", "The reaper.\n"), 0);
}
