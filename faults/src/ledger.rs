//! What the world saw, outside every database: one append-only file a process, on the disk before anybody acts on it.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};

use serde::{Deserialize, Serialize};
use tokio::sync::oneshot;

/// What one line says. `n` numbers the events of an instance.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Line {
    /// A sender is about to send it.
    Asked { key: String, n: u32 },
    /// A sender was told that it is durable, as this call.
    Told { key: String, n: u32, call: String, dedup: Option<String>, outcome: String },
    /// A verb was given an attempt; this stands before it does anything.
    Granted { key: String, call: String, attempt: u32, verb: String },
    /// A verb has done all that it does, none of it in the transaction of its transition, and returns its success.
    Done { call: String, attempt: u32 },
    /// A sender waited for an answer: since when (microseconds since 1970) and how long, for a send or until all came to rest.
    Took { key: String, began_us: u64, took_us: u64, is_send: bool, is_ok: bool },
    /// A verb moved money in the world outside, under this idempotency key.
    Moved { call: String, attempt: u32, cents: u64 },
    /// What must never be heard: an event refused that fits, another call for the same dedup id.
    Surprise { says: String },
    /// This process sends nothing more.
    Rested,
}

/// The file of this process.
#[derive(Clone)]
pub struct Ledger(Arc<Inner>);

struct Inner {
    file: Mutex<File>,
    syncs: Mutex<Sender<oneshot::Sender<io::Result<()>>>>,
}

impl Ledger {
    /// Opens the file of the process `name`, which nobody else writes.
    pub fn open(folder: &Path, name: &str) -> io::Result<Ledger> {
        let file = OpenOptions::new().create(true).append(true).open(folder.join(format!("{name}.ledger")))?;
        let to_sync = file.try_clone()?;
        let (syncs, asked) = channel();
        std::thread::Builder::new().name("ledger".into()).spawn(move || sync_for_ever(&to_sync, &asked))?;
        Ok(Ledger(Arc::new(Inner { file: Mutex::new(file), syncs: Mutex::new(syncs) })))
    }

    /// Writes a line: it survives this process.
    pub fn note(&self, line: &Line) -> io::Result<()> {
        let mut text = serde_json::to_vec(line).map_err(io::Error::other)?;
        text.push(b'\n');
        // In one piece: a process that is killed leaves whole lines.
        self.0.file.lock().unwrap_or_else(PoisonError::into_inner).write_all(&text)
    }

    /// Writes a line and waits until the disk has it.
    pub async fn sure(&self, line: &Line) -> io::Result<()> {
        self.note(line)?;
        let (done, is_done) = oneshot::channel();
        let asked = self.0.syncs.lock().unwrap_or_else(PoisonError::into_inner).send(done);
        asked.map_err(io::Error::other)?;
        is_done.await.map_err(io::Error::other)?
    }
}

/// One sync for all who wait by then.
fn sync_for_ever(file: &File, asked: &Receiver<oneshot::Sender<io::Result<()>>>) {
    while let Ok(first) = asked.recv() {
        let all: Vec<_> = std::iter::once(first).chain(asked.try_iter()).collect();
        let synced = file.sync_data();
        for one in all {
            let answer = synced.as_ref().copied().map_err(|error| io::Error::new(error.kind(), error.to_string()));
            // Who asked may have been dropped.
            let _ = one.send(answer);
        }
    }
}

/// All lines of one process.
#[derive(Debug, Clone, Default)]
pub struct Told {
    /// Whose they are.
    pub process: String,
    /// In the order in which they were written.
    pub lines: Vec<Line>,
}

/// Every ledger of the folder.
pub fn read_all(folder: &Path) -> io::Result<Vec<Told>> {
    let mut files: Vec<PathBuf> = std::fs::read_dir(folder)?.flatten().map(|entry| entry.path()).collect();
    files.retain(|path| path.extension().is_some_and(|kind| kind == "ledger"));
    files.sort();
    files.iter().map(|path| read(path)).collect()
}

/// Whether the process has written that it sends nothing more.
pub fn has_rested(folder: &Path, name: &str) -> bool {
    read(&folder.join(format!("{name}.ledger"))).is_ok_and(|told| told.lines.contains(&Line::Rested))
}

fn read(path: &Path) -> io::Result<Told> {
    let text = std::fs::read_to_string(path)?;
    // What follows the last line break is a line that was never finished, and nobody acted on it.
    let whole = text.rfind('\n').map_or("", |end| &text[..end]);
    let lines = whole.lines().map(serde_json::from_str).collect::<Result<_, _>>().map_err(io::Error::other)?;
    let process = path.file_stem().map(|stem| stem.to_string_lossy().into_owned()).unwrap_or_default();
    Ok(Told { process, lines })
}
