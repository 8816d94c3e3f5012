//! No source file is longer than 400 lines: a reader can take in what one file does.

use std::fs;
use std::path::{Path, PathBuf};

const LONGEST: usize = 400;
/// Files that are still longer, with their own limit. New files do not belong here.
const STILL_LONGER: [(&str, usize); 1] = [("fsm-runtime/src/committer.rs", 450)];

fn rust_files(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display())) {
        let path = entry.expect("the folder can be read").path();
        if path.is_dir() {
            rust_files(&path, found);
        } else if path.extension().is_some_and(|kind| kind == "rs") {
            found.push(path);
        }
    }
}

#[test]
fn no_source_file_has_more_than_400_lines() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask is a folder of the workspace");
    let mut files = Vec::new();
    for package in ["", "fsm-core", "fsm-macros", "fsm-runtime", "fsm-cli", "fsm-console", "faults", "xtask"] {
        rust_files(&root.join(package).join("src"), &mut files);
    }
    assert!(files.len() > 200, "{} files are not all of them", files.len());
    for path in files {
        let name = path.strip_prefix(root).expect("it is below the root").to_string_lossy().replace('\\', "/");
        let lines = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{name}: {error}")).lines().count();
        let longest = STILL_LONGER.iter().find(|(longer, _)| *longer == name).map_or(LONGEST, |(_, length)| *length);
        assert!(lines <= longest, "{name} has {lines} lines, more than {longest}: split it by what its parts do");
    }
}
