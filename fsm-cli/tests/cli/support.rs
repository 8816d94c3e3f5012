//! Runs the command inside a test, on the database of a test bed.

use std::io::{Cursor, Write};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use fsm::Timestamp;
use fsm::testing::TestBed;
use fsm_cli::stage::Stage;
use tokio::sync::Notify;

/// A test that runs once on a SQLite file and once on PostgreSQL.
macro_rules! on_both {
    (async fn $name:ident($bed:ident) $body:block) => {
        mod $name {
            #[allow(unused_imports)]
            use super::*;

            async fn shown($bed: &fsm::testing::TestBed) $body

            #[tokio::test(flavor = "multi_thread")]
            async fn sqlite() {
                let file = crate::support::File::new();
                let bed = crate::shop::orders().on(&file.url()).await;
                shown(&bed).await;
            }

            #[tokio::test(flavor = "multi_thread")]
            async fn postgres() {
                let bed = crate::shop::orders().postgres().await;
                shown(&bed).await;
            }
        }
    };
}
pub(crate) use on_both;

/// The exit code and the outputs of a command.
#[derive(Debug, PartialEq, Eq)]
pub struct Said {
    pub code: u8,
    pub out: String,
    pub talk: String,
}

/// The outputs that a command is run with.
#[derive(Clone, Copy)]
pub enum To {
    /// Output to a file or another program.
    Pipe,
    /// A terminal with this number of columns, on which a person types this text.
    Terminal(usize, &'static str),
}

/// A terminal wide enough that nothing is cut.
pub const WIDE: To = To::Terminal(140, "");

/// Runs the command on the test bed's database, at the time of its clock. Colours are removed, and ids are replaced by `<id>`.
pub async fn fsm(bed: &TestBed, to: To, arguments: &[&str]) -> Said {
    let mut all = vec!["--database", bed.url()];
    all.extend(arguments);
    fsm_at(Some(bed.now()), to, &all).await
}

/// Like `fsm`, on the database that the arguments name.
pub async fn fsm_at(now: Option<Timestamp>, to: To, arguments: &[&str]) -> Said {
    let said = raw(now, to, arguments).await;
    let text = |text: &str| masked(&anstream::adapter::strip_str(text).to_string());
    Said { code: said.code, out: text(&said.out), talk: text(&said.talk) }
}

/// Like `fsm_at`, with the unchanged output.
pub async fn raw(now: Option<Timestamp>, to: To, arguments: &[&str]) -> Said {
    let (mut out, mut talk) = (Vec::new(), Vec::new());
    let (width, typed) = match to {
        To::Pipe => (None, None),
        To::Terminal(width, typed) => (Some(width), Some(typed)),
    };
    let mut stage = Stage {
        out: Box::new(&mut out),
        talk: Box::new(&mut talk),
        input: Box::new(Cursor::new(typed.unwrap_or_default())),
        width,
        answers: typed.is_some(),
        shows_progress: false,
        now,
        actor: Some("ann".into()),
    };
    let arguments = std::iter::once("fsm").chain(arguments.iter().copied()).map(Into::into);
    let code = fsm_cli::run(arguments, &mut stage).await;
    drop(stage);
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("it is text");
    Said { code, out: text(out), talk: text(talk) }
}

/// Runs the command into a pipe and notifies `shown` after each flush.
pub async fn until_shown(bed: &TestBed, shown: &Arc<Notify>, arguments: &[&str]) -> Said {
    let out = Heard { text: Arc::default(), shown: Arc::clone(shown) };
    let text = Arc::clone(&out.text);
    let mut stage = Stage {
        out: Box::new(out),
        talk: Box::new(std::io::sink()),
        input: Box::new(std::io::empty()),
        width: None,
        answers: false,
        shows_progress: false,
        now: Some(bed.now()),
        actor: None,
    };
    let arguments = ["fsm", "--database", bed.url()].into_iter().chain(arguments.iter().copied()).map(Into::into);
    let code = fsm_cli::run(arguments, &mut stage).await;
    let out = String::from_utf8(text.lock().unwrap().clone()).expect("it is text");
    Said { code, out: masked(&anstream::adapter::strip_str(&out).to_string()), talk: String::new() }
}

struct Heard {
    text: Arc<Mutex<Vec<u8>>>,
    shown: Arc<Notify>,
}

impl Write for Heard {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.text.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.shown.notify_one();
        Ok(())
    }
}

/// The command's output as JSON.
pub async fn json(bed: &TestBed, arguments: &[&str]) -> serde_json::Value {
    let mut all = arguments.to_vec();
    all.push("--json");
    all.extend(["--database", bed.url()]);
    let said = raw(Some(bed.now()), To::Pipe, &all).await;
    serde_json::from_str(&said.out).unwrap_or_else(|error| panic!("{error} in {said:?}"))
}

/// Checks every invariant.
pub async fn healthy(bed: &TestBed) {
    let violations = bed.check_invariants().await;
    assert!(violations.is_empty(), "{violations:#?}");
}

/// Replaces every UUID by `<id>`.
fn masked(text: &str) -> String {
    let mut masked = String::new();
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        let is_id = rest.get(..36).is_some_and(|word| uuid::Uuid::parse_str(word).is_ok() && word.contains('-'));
        let end = if is_id { 36 } else { c.len_utf8() };
        masked.push_str(if is_id { "<id>" } else { &rest[..end] });
        rest = &rest[end..];
    }
    masked
}

/// The path of a database that is deleted with this value.
pub struct File(PathBuf);

impl File {
    pub fn new() -> File {
        File(std::env::temp_dir().join(format!("fsm-cli-{}.db", uuid::Uuid::new_v4())))
    }

    pub fn path(&self) -> &str {
        self.0.to_str().expect("the temporary folder has a plain name")
    }
}

impl File {
    pub fn url(&self) -> String {
        format!("sqlite://{}", self.path())
    }
}

impl Drop for File {
    fn drop(&mut self) {
        for end in ["", "-wal", "-shm"] {
            let _ = std::fs::remove_file(format!("{}{end}", self.path()));
        }
    }
}

/// Compares the output on a terminal, into a pipe and as JSON with `tests/golden/NAME.txt`. `FSM_GOLDEN=write` writes the file.
pub async fn golden(bed: &TestBed, name: &str, arguments: &[&str]) {
    let mut told = String::new();
    let with_json: Vec<&str> = arguments.iter().copied().chain(["--json"]).collect();
    let cases = [("on a terminal", WIDE, arguments), ("into a pipe", To::Pipe, arguments), ("as JSON", WIDE, &with_json)];
    for (how, to, arguments) in cases {
        let Said { code, out, talk } = fsm(bed, to, arguments).await;
        told.push_str(&format!("# fsm {} · {how}\n{out}", arguments.join(" ")));
        told.push_str(&talk.lines().map(|line| format!("(talk) {line}\n")).collect::<String>());
        told.push_str(&format!("(code) {code}\n\n"));
    }
    is_golden(name, &told);
}

/// Compares a text with a golden file.
pub fn is_golden(name: &str, told: &str) {
    let path = format!("{}/tests/golden/{name}.txt", env!("CARGO_MANIFEST_DIR"));
    if std::env::var("FSM_GOLDEN").is_ok_and(|what| what == "write") {
        std::fs::write(&path, told).expect("the golden file can be written");
    }
    let expected = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(expected == told, "{path} says otherwise; look whether this is right, then run with FSM_GOLDEN=write:\n{told}");
}
