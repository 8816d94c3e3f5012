//! Runs every example without arguments, set-up or a server, in an empty folder.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use crate::step::{Failed, cargo, root, run as run_step};

/// The time limit of an example.
const LIMIT: Duration = Duration::from_secs(120);

/// Builds the examples in the profile of the tests and runs each. `Failed` names all that did not exit with 0.
pub fn run() -> Result<(), Failed> {
    let names = names();
    if names.is_empty() {
        println!("    there are no examples");
        return Ok(());
    }
    run_step(&mut cargo(&["build", "--workspace", "--examples"]))?;
    let programs = std::env::current_exe().map_err(Failed::because)?.with_file_name("examples");
    let failed = names.into_iter().filter(|name| !succeeds(&programs, name)).collect::<Vec<_>>();
    if failed.is_empty() { Ok(()) } else { Err(Failed::because(format!("examples failed: {}", failed.join(", ")))) }
}

/// `examples/*.rs` and `examples/*/main.rs`.
fn names() -> Vec<String> {
    let entries = fs::read_dir(root().join("examples")).into_iter().flatten().flatten().map(|entry| entry.path());
    let is_example = |path: &PathBuf| path.extension().is_some_and(|kind| kind == "rs") || path.join("main.rs").is_file();
    let mut names: Vec<_> = entries.filter(is_example).filter_map(|path| Some(path.file_stem()?.to_str()?.to_owned())).collect();
    names.sort();
    names
}

fn succeeds(programs: &Path, name: &str) -> bool {
    println!("==> example {name}");
    let begun = Instant::now();
    let folder = std::env::temp_dir().join(format!("fsm-example-{name}-{}", std::process::id()));
    let ended = run_in(&folder, &programs.join(name));
    let took = begun.elapsed();
    match &ended {
        Ok(()) => println!("    {took:.1?}"),
        Err(why) => {
            let output = fs::read_to_string(folder.join("output.txt")).unwrap_or_default();
            println!("{output}    failed after {took:.1?}: {why}");
        }
    }
    // A folder for temporary files that could not be deleted does no harm.
    let _ = fs::remove_dir_all(&folder);
    ended.is_ok()
}

fn run_in(folder: &Path, program: &Path) -> Result<(), Failed> {
    fs::create_dir(folder).map_err(Failed::because)?;
    let output = File::create(folder.join("output.txt")).map_err(Failed::because)?;
    let errors = output.try_clone().map_err(Failed::because)?;
    let mut process = Command::new(program)
        .current_dir(folder)
        .env_remove("DATABASE_URL")
        .stdin(Stdio::null())
        .stdout(output)
        .stderr(errors)
        .spawn()
        .map_err(Failed::because)?;
    let begun = Instant::now();
    loop {
        match process.try_wait().map_err(Failed::because)? {
            Some(status) if status.success() => return Ok(()),
            Some(status) => return Err(Failed::because(status)),
            None if begun.elapsed() > LIMIT => {
                process.kill().and_then(|()| process.wait()).map_err(Failed::because)?;
                return Err(Failed::because(format!("it did not end within {LIMIT:?}")));
            }
            None => thread::sleep(Duration::from_millis(20)),
        }
    }
}
