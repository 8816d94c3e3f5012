//! Runs a peer's program for one kind of figure, and reads its output.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::Result;
use crate::arguments::Arguments;
use crate::databases::PeerDatabase;
use crate::install::Installed;
use crate::peers::Peer;

/// The kinds of figures. Each has a process and a database of its own.
pub const FIGURES: [&str; 3] = ["enqueue", "both", "idle"];

/// The time limit of a process, in addition to the durations of its measurements.
const LIMIT: Duration = Duration::from_secs(40);

/// The results of a peer.
pub struct Measured {
    pub peer: &'static Peer,
    pub version: String,
    pub values: Vec<Figure>,
    /// Notes such as settings: the figure, the name of the note and its text.
    pub notes: Vec<(String, String, String)>,
    /// The figures that failed, with the reasons.
    pub failures: Vec<String>,
    pub commands: Vec<String>,
}

pub struct Figure {
    pub what: String,
    pub value: f64,
    pub unit: String,
    pub beside: String,
}

impl Measured {
    pub fn new(peer: &'static Peer, version: &str) -> Measured {
        let version = version.to_owned();
        Measured { peer, version, values: Vec::new(), notes: Vec::new(), failures: Vec::new(), commands: Vec::new() }
    }

    pub fn value(&self, what: &str) -> Option<f64> {
        self.values.iter().find(|figure| figure.what == what).map(|figure| figure.value)
    }

    /// Reads one line of the output of a peer's program.
    fn read_line(&mut self, figure: &str, line: &str) {
        let Ok(output) = serde_json::from_str::<Value>(line) else {
            // Some libraries print lines of their own.
            return;
        };
        let text = |name: &str| output[name].as_str().unwrap_or_default().to_owned();
        if let Some(value) = output["value"].as_f64() {
            let figure = Figure { what: text("what"), value, unit: text("unit"), beside: text("beside") };
            eprintln!("    {:<24} {:>10} {:<9} {}", figure.what, number(value), figure.unit, figure.beside);
            self.values.push(figure);
        } else if output["note"].is_string() {
            self.notes.push((figure.to_owned(), text("note"), text("text")));
        }
    }

    fn fail(&mut self, figure: &str, why: &str) {
        eprintln!("    {}: {figure}: {why}", self.peer.name);
        self.failures.push(format!("{figure}: {why}"));
    }
}

/// Formats a figure. Its precision is less than three digits, but large figures are easier to compare with all digits.
pub fn number(value: f64) -> String {
    if value >= 100.0 { format!("{value:.0}") } else { format!("{value:.2}") }
}

/// Measures one figure. A failure is recorded and does not end the run, so that earlier figures count.
pub fn figure(measured: &mut Measured, figure: &str, installed: &Installed, peer_database: &PeerDatabase, arguments: &Arguments) -> Result {
    let mut command = Command::new(&installed.program);
    command.args(&installed.arguments).arg(figure).args(["--database", &peer_database.url]);
    command.args(["--seconds", &arguments.seconds.to_string(), "--callers", &arguments.callers()]);
    if let Some(synchronous) = peer_database.synchronous {
        command.args(["--synchronous", synchronous]);
    }
    measured.commands.push(text_of(&command));
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
    let lines = lines_of(child.stdout.take().expect("it is piped"));
    // Read in a thread of its own, because a program that prints much would block otherwise.
    let mut errors = child.stderr.take().expect("it is piped");
    let errors = thread::spawn(move || {
        let mut text = Vec::new();
        errors.read_to_end(&mut text).map(|_| String::from_utf8_lossy(&text).into_owned())
    });
    let limit = LIMIT + Duration::from_secs_f64(arguments.seconds) * (arguments.callers.len() as u32 + 1);
    let status = until_it_ends(&mut child, &lines, Instant::now() + limit, |line| measured.read_line(figure, line))?;
    let output = errors.join().expect("reading does not panic")?;
    match status {
        Some(status) if status.success() => {}
        Some(status) => measured.fail(figure, &format!("{status}: {}", error_line(&output))),
        None => measured.fail(figure, &format!("ended after {} s", limit.as_secs())),
    }
    Ok(())
}

fn lines_of(output: impl Read + Send + 'static) -> Receiver<String> {
    let (sender, receiver) = mpsc::channel();
    thread::spawn(move || BufReader::new(output).lines().map_while(std::io::Result::ok).try_for_each(|line| sender.send(line)));
    receiver
}

/// Reads lines until the process ends. Returns `None` if the time limit was over before.
fn until_it_ends(child: &mut Child, lines: &Receiver<String>, end: Instant, mut take: impl FnMut(&str)) -> Result<Option<ExitStatus>> {
    loop {
        match lines.recv_timeout(end.saturating_duration_since(Instant::now())) {
            Ok(line) => take(&line),
            // The process closed its output.
            Err(RecvTimeoutError::Disconnected) => return Ok(Some(child.wait()?)),
            Err(RecvTimeoutError::Timeout) => {
                child.kill()?;
                child.wait()?;
                return Ok(None);
            }
        }
    }
}

/// Finds the line with the error in the output.
fn error_line(output: &str) -> String {
    let lines: Vec<&str> = output.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    let line = lines.iter().find(|line| line.contains("rror")).or(lines.last()).copied().unwrap_or("it said nothing");
    line.chars().take(300).collect()
}

fn text_of(command: &Command) -> String {
    let name = |path: &std::ffi::OsStr| std::path::Path::new(path).file_name().unwrap_or(path).display().to_string();
    let mut words = vec![name(command.get_program())];
    let mut previous = "";
    for word in command.get_args().map(|word| word.to_str().unwrap_or_default()) {
        // A URL is long, is not needed later, and may contain a password.
        words.push(match (previous, word.ends_with(".mjs")) {
            ("--database", _) => "URL".to_owned(),
            (_, true) => name(word.as_ref()),
            _ => word.to_owned(),
        });
        previous = word;
    }
    words.join(" ")
}
