//! The ledger: the fault tests' own record outside the database. Each process appends to its own file, and syncs a line before anything
//! depends on it.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};

use serde::{Deserialize, Serialize};
use tokio::sync::oneshot;

/// The content of a line. `n` is the number of the event within its instance.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Line {
    /// A sender is about to send the event.
    SendBegun { key: String, n: u32 },
    /// A sender received the answer that the event is durable, as this call.
    Acknowledged { key: String, n: u32, call: String, dedup: Option<String>, outcome: String },
    /// A verb received an attempt. The line is written before the verb does anything.
    AttemptStarted { key: String, call: String, attempt: u32, verb: String },
    /// A verb has done all its work, except statements in the transaction of its transition, and returns success.
    Succeeded { call: String, attempt: u32 },
    /// A sender waited for an answer to a send, or until an instance settled: the start (microseconds since 1970) and the duration.
    Latency { key: String, began_us: u64, took_us: u64, is_send: bool, is_ok: bool },
    /// A verb moved money outside the database, with this idempotency key.
    MoneyMoved { call: String, attempt: u32, cents: u64 },
    /// A verb under a limit began its work, at this moment (microseconds since 1970). `under` has the value of a limit by value.
    LimitedWorkBegan { call: String, attempt: u32, under: String, at_us: u64 },
    /// It ended it.
    LimitedWorkEnded { call: String, attempt: u32, at_us: u64 },
    /// An answer that must never occur: an event refused that fits, or another call for the same dedup id.
    Unexpected { says: String },
    /// The process sends nothing more.
    StoppedSending,
}

/// The ledger of this process.
#[derive(Clone)]
pub struct Ledger(Arc<Inner>);

struct Inner {
    file: Mutex<File>,
    syncs: Mutex<Sender<oneshot::Sender<io::Result<()>>>>,
}

impl Ledger {
    /// Opens the file of the process `name`. Only that process writes it.
    pub fn open(folder: &Path, name: &str) -> io::Result<Ledger> {
        let file = OpenOptions::new().create(true).append(true).open(folder.join(format!("{name}.ledger")))?;
        let to_sync = file.try_clone()?;
        let (syncs, asked) = channel();
        std::thread::Builder::new().name("ledger".into()).spawn(move || sync_for_ever(&to_sync, &asked))?;
        Ok(Ledger(Arc::new(Inner { file: Mutex::new(file), syncs: Mutex::new(syncs) })))
    }

    /// Writes a line. It survives the end of this process, but not of the machine.
    pub fn note(&self, line: &Line) -> io::Result<()> {
        let mut text = serde_json::to_vec(line).map_err(io::Error::other)?;
        text.push(b'\n');
        // Written with one call, so that a killed process leaves only whole lines.
        self.0.file.lock().unwrap_or_else(PoisonError::into_inner).write_all(&text)
    }

    /// Writes a line and waits until it is on the disk.
    pub async fn sure(&self, line: &Line) -> io::Result<()> {
        self.note(line)?;
        let (done, is_done) = oneshot::channel();
        let asked = self.0.syncs.lock().unwrap_or_else(PoisonError::into_inner).send(done);
        asked.map_err(io::Error::other)?;
        is_done.await.map_err(io::Error::other)?
    }
}

/// Syncs the file once for all requests that have arrived.
fn sync_for_ever(file: &File, asked: &Receiver<oneshot::Sender<io::Result<()>>>) {
    while let Ok(first) = asked.recv() {
        let all: Vec<_> = std::iter::once(first).chain(asked.try_iter()).collect();
        let synced = file.sync_data();
        for one in all {
            let answer = synced.as_ref().copied().map_err(|error| io::Error::new(error.kind(), error.to_string()));
            // The requesting future may have been dropped.
            let _ = one.send(answer);
        }
    }
}

/// The lines of one process.
#[derive(Debug, Clone, Default)]
pub struct ProcessLedger {
    /// The name of the process.
    pub process: String,
    /// The lines in the order in which they were written.
    pub lines: Vec<Line>,
}

/// Reads all ledgers of the folder.
pub fn read_all(folder: &Path) -> io::Result<Vec<ProcessLedger>> {
    let mut files: Vec<PathBuf> = std::fs::read_dir(folder)?.flatten().map(|entry| entry.path()).collect();
    files.retain(|path| path.extension().is_some_and(|kind| kind == "ledger"));
    files.sort();
    files.iter().map(|path| read(path)).collect()
}

/// Returns true if the process has written that it sends nothing more.
pub fn has_stopped_sending(folder: &Path, name: &str) -> bool {
    read(&folder.join(format!("{name}.ledger"))).is_ok_and(|ledger| ledger.lines.contains(&Line::StoppedSending))
}

fn read(path: &Path) -> io::Result<ProcessLedger> {
    let text = std::fs::read_to_string(path)?;
    // Text after the last line break is an unfinished line, and nothing depended on it.
    let whole = text.rfind('\n').map_or("", |end| &text[..end]);
    let lines = whole.lines().map(serde_json::from_str).collect::<Result<_, _>>().map_err(io::Error::other)?;
    let process = path.file_stem().map(|stem| stem.to_string_lossy().into_owned()).unwrap_or_default();
    Ok(ProcessLedger { process, lines })
}
