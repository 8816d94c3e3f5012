//! The program on a real pseudo-terminal: its drawings, its prompts, and its behaviour without a terminal.

use std::fs::File as Handle;
use std::io::{Read, Write};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use fsm::testing::{TestBed, scale};
use rustix::fs::{Mode, OFlags};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};

use crate::shop::{Order, Paid, Placed, Shipped, orders, three};
use crate::support::File;

/// The longest time to wait for the program's output or end.
const LIMIT: Duration = Duration::from_secs(60);

/// A program on a pseudo-terminal, with its output so far.
struct Screen {
    child: Child,
    terminal: Handle,
    drawn: String,
}

fn program(database: &str, words: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_fsm"));
    command.args(["--database", database]).args(words).env("TERM", "xterm-256color").env("USER", "ann");
    for variable in ["NO_COLOR", "CLICOLOR", "CLICOLOR_FORCE", "COLORTERM", "CI", "FSM_REDACT"] {
        command.env_remove(variable);
    }
    command
}

impl Screen {
    /// Starts the program on a terminal with this number of columns.
    fn of(mut command: Command, columns: u16) -> Screen {
        let controller = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        grantpt(&controller).unwrap();
        unlockpt(&controller).unwrap();
        let name = ptsname(&controller, Vec::new()).unwrap();
        let user = rustix::fs::open(name.as_c_str(), OFlags::RDWR | OFlags::NOCTTY, Mode::empty()).unwrap();
        tcsetwinsize(&user, Winsize { ws_row: 30, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 }).unwrap();
        let side = || Stdio::from(user.try_clone().unwrap());
        let child = command.stdin(side()).stdout(side()).stderr(side()).spawn().unwrap();
        Screen { child, terminal: Handle::from(controller), drawn: String::new() }
    }

    /// Waits until the output contains `text`, and returns the output.
    fn until(&mut self, text: &str) -> &str {
        let begun = Instant::now();
        while !self.drawn.contains(text) {
            assert!(self.read() && begun.elapsed() < LIMIT, "{text:?} is not in {:?}", self.drawn);
        }
        &self.drawn
    }

    fn types(&mut self, text: &str) {
        self.terminal.write_all(text.as_bytes()).unwrap();
    }

    /// Reads some output. Returns `false` if the program has ended and everything is read.
    fn read(&mut self) -> bool {
        let mut some = [0; 4096];
        match self.terminal.read(&mut some) {
            Ok(0) | Err(_) => false,
            Ok(read) => {
                self.drawn.push_str(&String::from_utf8_lossy(&some[..read]));
                true
            }
        }
    }

    /// Waits for the end of the program. Returns its output and its exit code.
    fn ended(mut self) -> (String, i32) {
        while self.read() {}
        let code = self.child.wait().unwrap().code().unwrap_or(-1);
        (std::mem::take(&mut self.drawn), code)
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        let _ = self.child.kill().and_then(|()| self.child.wait());
    }
}

/// Three orders in a file, with the test bed that created them.
async fn shop() -> (File, TestBed) {
    let file = File::new();
    let bed = orders().on(&file.url()).await;
    three(&bed).await;
    (file, bed)
}

fn plain(text: &str) -> String {
    anstream::adapter::strip_str(text).to_string()
}

#[tokio::test(flavor = "multi_thread")]
async fn colours_and_cuts_are_for_terminals() {
    let (file, _test_bed) = shop().await;
    let (drawn, code) = Screen::of(program(file.path(), &["ls"]), 60).ended();
    assert_eq!(code, 0, "{drawn}");
    assert!(drawn.contains("\u{1b}[31merror"), "what is in error is red: {drawn:?}");
    let lines: Vec<_> = plain(&drawn).lines().map(str::to_owned).collect();
    assert!(lines[0].starts_with("MACHINE  KEY  STATE"), "{lines:?}");
    assert!(lines.iter().all(|line| line.chars().count() <= 60) && lines.iter().any(|line| line.ends_with('…')), "{lines:#?}");

    let mut silent = program(file.path(), &["ls"]);
    silent.env("NO_COLOR", "1");
    let (drawn, _) = Screen::of(silent, 120).ended();
    assert!(!drawn.contains('\u{1b}') && drawn.contains("error"), "{drawn:?}");

    let piped = program(file.path(), &["ls"]).output().unwrap();
    let text = String::from_utf8(piped.stdout).unwrap();
    assert!(!text.contains('\u{1b}') && !text.contains("MACHINE") && text.contains("order\to-2\tplaced\terror"), "{text:?}");
    assert!(piped.stderr.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_person_types_the_number_of_instances() {
    let (file, bed) = shop().await;
    let orders = bed.machine::<Order>();
    for key in ["o-4", "o-5"] {
        orders.send(key, Placed { cents: 1, fails: 0 }).await.unwrap();
    }
    bed.run_until_idle().await;
    let many = ["pause", "order", "--status", "running", "--reason", "stocktaking"];
    for (typed, code) in [("yes\n", 1), ("\n", 1), ("2\n", 1), ("3\n", 0)] {
        let mut screen = Screen::of(program(file.path(), &many), 100);
        screen.until("Type 3 to go on: ");
        assert!(!orders.get("o-1").await.unwrap().unwrap().paused);
        screen.types(typed);
        let (drawn, found) = screen.ended();
        assert_eq!(found, code, "{typed:?}: {drawn}");
    }
    assert!(orders.get("o-1").await.unwrap().unwrap().paused && orders.get("o-5").await.unwrap().unwrap().paused);
    let told: Vec<_> = orders.history("o-4").await.unwrap().iter().map(ToString::to_string).collect();
    assert!(told.iter().any(|line| line.ends_with("paused by ann: stocktaking")), "{told:#?}");
    // Nobody can answer if the input is not a terminal.
    let unasked = program(file.path(), &["resume", "order", "--paused"]).stdin(Stdio::null()).output().unwrap();
    assert_eq!(unasked.status.code(), Some(2), "{unasked:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_instance_that_is_followed_is_drawn_again_in_its_place() {
    let (file, bed) = shop().await;
    let mut screen = Screen::of(program(file.path(), &["show", "order", "o-1", "--follow"]), 100);
    screen.until("attempt 2 of 11");
    bed.advance(Duration::from_secs(20)).await;
    screen.until("begins in `placed`");
    let orders = bed.machine::<Order>();
    orders.send("o-1", Paid { receipt: "r".into() }).await.unwrap();
    orders.send("o-1", Shipped).await.unwrap();
    bed.run_until_idle().await;
    screen.until("from `paid` to `shipped`");
    let (drawn, code) = screen.ended();
    assert_eq!(code, 0, "{drawn}");
    let last = drawn.rsplit("\u{1b}[2J\u{1b}[H").next().unwrap();
    assert!(last.starts_with("order o-1") && plain(last).contains("completed"), "the last drawing is whole: {last}");
    assert!(drawn.matches("\u{1b}[2J\u{1b}[H").count() >= 2, "{drawn:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn numbers_are_looked_at_again_and_again() {
    let (file, _test_bed) = shop().await;
    let mut screen = Screen::of(program(file.path(), &["stats", "--watch=50ms"]), 100);
    for _ in 0..3 {
        screen.until("\u{1b}[2J\u{1b}[H");
        screen.drawn = screen.drawn.split_once("\u{1b}[2J\u{1b}[H").map(|(_, rest)| rest.to_owned()).unwrap();
    }
    screen.until("MACHINE");
}

#[tokio::test(flavor = "multi_thread")]
async fn long_work_says_on_a_terminal_how_far_it_has_come() {
    let (file, export, log) = (File::new(), File::new(), File::new());
    scale::fill(&file.url(), 4000).await.unwrap();
    let (drawn, code) = Screen::of(program(file.path(), &["export", "-o", export.path()]), 100).ended();
    assert_eq!(code, 0, "{drawn}");
    assert!(drawn.contains("to go") && drawn.contains("█"), "{drawn:?}");
    let talk = Handle::create_new(log.path()).unwrap();
    let ended = program(file.path(), &["export"]).stdout(Stdio::null()).stderr(talk).status().unwrap();
    let talk = std::fs::read_to_string(log.path()).unwrap();
    assert!(ended.success() && talk.lines().count() == 1 && !talk.contains('\u{1b}'), "{talk:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_environment_calls_secret_is_hidden() {
    let (file, _test_bed) = shop().await;
    let shown = program(file.path(), &["show", "order", "o-3"]).env("FSM_REDACT", "pin,cents").output().unwrap();
    let text = String::from_utf8(shown.stdout).unwrap();
    assert!(text.contains(r#"{"cents":"***"}"#) && !text.contains(":300"), "{text}");
}
