//! No source file is longer than 400 lines: a reader can take in what one file does.

use std::fs;
use std::path::{Path, PathBuf};

const LONGEST: usize = 400;

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
    for package in ["", "fsm-core", "fsm-macros", "fsm-store", "fsm-runtime", "fsm-cli", "fsm-console", "faults", "xtask"] {
        rust_files(&root.join(package).join("src"), &mut files);
    }
    assert!(files.len() > 200, "{} files are not all of them", files.len());
    for path in files {
        let name = path.strip_prefix(root).expect("it is below the root").to_string_lossy().replace('\\', "/");
        let lines = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{name}: {error}")).lines().count();
        assert!(lines <= LONGEST, "{name} has {lines} lines, more than {LONGEST}: split it by what its parts do");
    }
}
