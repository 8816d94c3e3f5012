//! Temporary PostgreSQL servers for tests: started from the installed binaries, shared by all running test processes, deleted afterwards.
//!
//! Each cluster is a folder with a `guardian`, a shell script that owns the server. Its input is the pipe `users`, which every user process
//! holds open. When the last one has closed it, for whatever reason, the guardian stops the server and deletes the folder. A guardian holds
//! a lock on the file `guardian`. A folder without that lock belongs to nobody and is deleted.
//!
//! The server listens only on a socket inside the folder, and only its owner can enter the folder. Therefore it needs no password.
//! PostgreSQL refuses to run as root; in that case it runs as the user `postgres`, or else `nobody`.

use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::Write;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::thread;
use std::time::{Duration, Instant};

pub use super::site::{ClusterError, SECOND, VARIABLE, find_programs};
use super::site::{Site, Tried};

/// The maximum time for a server to start or to stop.
const PATIENCE: Duration = Duration::from_secs(60);

/// The time for which a shared cluster waits for the next test process, in seconds.
const LINGER: &str = "2";

/// The file name of the server's socket. The port in it has no meaning.
const SOCKET: &str = ".s.PGSQL.5432";

/// Returns the URL of a server on which tests may create databases: the value of `FSM_TEST_POSTGRES`, or else the URL of a temporary
/// cluster that all running test processes of this user share. The user in the URL is a superuser.
///
/// The cluster exists while this process lives. It is deleted a few seconds after the last such process ended, even if that was killed. The
/// first call may take seconds. An error is stored and returned again by every later call.
pub fn url() -> Result<String, ClusterError> {
    static SHARED: OnceLock<Result<Shared, ClusterError>> = OnceLock::new();
    if let Some(url) = given(VARIABLE) {
        return Ok(url);
    }
    SHARED.get_or_init(Shared::join).as_ref().map(|shared| shared.url.clone()).map_err(Clone::clone)
}

/// The URL in an environment variable, unless it is empty.
pub fn given(variable: &str) -> Option<String> {
    std::env::var(variable).ok().filter(|url| !url.is_empty())
}

/// Starts a cluster that only this process uses, even if `FSM_TEST_POSTGRES` is set.
pub fn start_own() -> Result<Cluster, ClusterError> {
    start_own_with(&[])
}

/// Starts a cluster that only this process uses, for measurements: commits are written to the disk (`fsync=on`), and the buffers are
/// larger.
pub fn start_durable() -> Result<Cluster, ClusterError> {
    start_own_with(&DURABLE)
}

fn start_own_with(settings: &[&str]) -> Result<Cluster, ClusterError> {
    let site = Site::of_this_user()?;
    let cluster = {
        let _lock = site.lock()?;
        guarded(&site)?;
        Cluster::create(&site, "0", settings)?
    };
    cluster.wait_until_ready()?;
    Ok(cluster)
}

/// A cluster of this process alone. Dropping it stops the server and deletes the data; the end of the process does the same.
#[derive(Debug)]
pub struct Cluster {
    folder: PathBuf,
    /// The open pipe; the guardian ends when it is closed.
    users: Option<File>,
    guardian: Child,
    starts: u32,
}

impl Cluster {
    /// Returns the URL, with a superuser. It stays the same after [`stop`](Cluster::stop) and [`start`](Cluster::start).
    pub fn url(&self) -> String {
        url_of(&self.folder)
    }

    /// Stops the server as a crash would: connections break, and uncommitted changes are lost. Committed changes stay. An error if the
    /// server does not stop within 60 s.
    pub fn stop(&mut self) -> Result<(), ClusterError> {
        self.order("stop")?;
        self.wait_until("did not stop", |cluster| cluster.has_stopped())
    }

    /// Starts the server again, with the same data and the same URL. A running server is stopped first. An error if it does not start
    /// within 60 s.
    pub fn start(&mut self) -> Result<(), ClusterError> {
        if !self.has_stopped() {
            self.stop()?;
        }
        self.order("start")?;
        self.starts += 1;
        self.wait_until_ready()
    }

    /// Stops all processes of the server (SIGSTOP): connections stay open and nothing is answered, like a machine that hangs. The server
    /// continues when the returned value is dropped.
    pub fn freeze(&self) -> Result<Frozen, ClusterError> {
        let status = self.folder.join("data/postmaster.pid");
        let text = fs::read_to_string(&status).tried("read", &status)?;
        let frozen = Frozen(text.lines().next().unwrap_or_default().to_owned());
        frozen.signal("STOP");
        Ok(frozen)
    }

    /// Returns true if the server has stopped, by order or by itself.
    pub fn has_stopped(&self) -> bool {
        fs::read_to_string(self.folder.join("state")).is_ok_and(|state| state.trim() == format!("stopped {}", self.starts))
    }

    /// Creates a new folder with a guardian, which creates the cluster and starts the server. The caller holds the lock of the site.
    fn create(site: &Site, linger: &str, settings: &[&str]) -> Result<Cluster, ClusterError> {
        let folder = site.new_folder()?;
        let users = folder.join("users");
        let made = site.command("mkfifo").arg(&users).status().tried("run", Path::new("mkfifo"))?;
        if !made.success() {
            return Err(ClusterError::System(format!("could not make the pipe `{}`", users.display())));
        }
        // Opened for reading too, so that opening the pipe does not wait for its other end.
        let pipe = OpenOptions::new().read(true).write(true).open(&users).tried("open", &users)?;
        let input = File::open(&users).tried("open", &users)?;
        let lock = folder.join("guardian");
        let locked = File::create_new(&lock).tried("create", &lock)?;
        locked.lock().tried("lock", &lock)?;
        let guardian = site
            .command("sh")
            .args(["-c", include_str!("guardian.sh"), "fsm-postgres-guardian"])
            .args([folder.as_os_str(), OsStr::new(linger), site.programs.as_os_str()])
            .args(["-D", "data", "-p", "5432", "-k"])
            .arg(&folder)
            .args(SETTINGS.iter().chain(settings).flat_map(|setting| ["-c", setting]))
            .current_dir(&folder)
            .stdin(input)
            .stdout(locked)
            .stderr(Stdio::null())
            .process_group(0)
            .spawn()
            .tried("run", Path::new("sh"))?;
        Ok(Cluster { folder, users: Some(pipe), guardian, starts: 1 })
    }

    fn order(&mut self, order: &str) -> Result<(), ClusterError> {
        let mut users = self.users.as_ref().expect("it is only taken when this value ends");
        users.write_all(format!("{order}\n").as_bytes()).tried("write to", &self.folder.join("users"))
    }

    fn wait_until_ready(&self) -> Result<(), ClusterError> {
        let status = self.folder.join("data/postmaster.pid");
        self.wait_until("did not start", |cluster| {
            // A killed server leaves a status file that says `ready`, but nothing listens on the socket.
            let is_ready = fs::read_to_string(&status).is_ok_and(|status| status.lines().any(|line| line.trim() == "ready"));
            (is_ready && is_reachable(&cluster.folder)) || cluster.has_stopped()
        })?;
        if self.has_stopped() { Err(self.failed("did not start")) } else { Ok(()) }
    }

    fn wait_until(&self, failure: &str, is_so: impl Fn(&Cluster) -> bool) -> Result<(), ClusterError> {
        let begun = Instant::now();
        while !is_so(self) {
            if begun.elapsed() > PATIENCE {
                return Err(self.failed(failure));
            }
            thread::sleep(Duration::from_millis(10));
        }
        Ok(())
    }

    /// Returns the failure with the last lines of the server's log.
    fn failed(&self, failure: &str) -> ClusterError {
        let log = fs::read_to_string(self.folder.join("log")).unwrap_or_default();
        let skipped = log.lines().count().saturating_sub(12);
        let tail = log.lines().skip(skipped).collect::<Vec<_>>().join("\n");
        ClusterError::Server(format!("{failure}; its log ends with\n{tail}"))
    }
}

/// A server that does not respond. It continues when this value is dropped.
#[derive(Debug)]
pub struct Frozen(String);

impl Frozen {
    /// Signals the server before its children, so that it cannot start further ones meanwhile.
    fn signal(&self, signal: &str) {
        kill(signal, std::slice::from_ref(&self.0));
        kill(signal, &children_of(&self.0));
    }
}

fn kill(signal: &str, processes: &[String]) {
    // A process that has ended meanwhile needs no signal.
    let _ = Command::new("kill").arg(format!("-{signal}")).args(processes).stderr(Stdio::null()).status();
}

fn children_of(parent: &str) -> Vec<String> {
    let is_child = |process: &String| {
        let stat = fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
        // The state and the parent follow the name, which is in parentheses.
        stat.rsplit(')').next().and_then(|rest| rest.split_whitespace().nth(1)) == Some(parent)
    };
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten().map(|entry| entry.file_name().to_string_lossy().into_owned());
    processes.filter(is_child).collect()
}

impl Drop for Frozen {
    fn drop(&mut self) {
        self.signal("CONT");
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        drop(self.users.take());
        // An error means that the guardian has ended already.
        let _ = self.guardian.wait();
    }
}

/// The settings of a test server. `fsync` is off, because the data need not survive a crash of the machine.
const SETTINGS: [&str; 9] = [
    "listen_addresses=",
    "fsync=off",
    "synchronous_commit=on",
    "full_page_writes=off",
    "max_connections=300",
    "shared_buffers=32MB",
    "dynamic_shared_memory_type=mmap",
    "logging_collector=off",
    "log_destination=stderr",
];

/// Further settings for measurements. A later setting overrides an earlier one.
const DURABLE: [&str; 5] = ["fsync=on", "full_page_writes=on", "shared_buffers=1GB", "max_wal_size=8GB", "wal_buffers=64MB"];

/// The use of the shared cluster by this process.
struct Shared {
    url: String,
    /// Open for as long as the process lives.
    _users: File,
}

impl Shared {
    /// Joins the running shared cluster, or creates one.
    fn join() -> Result<Shared, ClusterError> {
        let site = Site::of_this_user()?;
        let _lock = site.lock()?;
        if let Some(shared) = guarded(&site)?.iter().find_map(|folder| Shared::join_at(folder)) {
            return Ok(shared);
        }
        let mut cluster = Cluster::create(&site, LINGER, &[])?;
        cluster.wait_until_ready()?;
        let open = cluster.folder.join("shared");
        File::create_new(&open).tried("create", &open)?;
        let (url, users) = (cluster.url(), cluster.users.take().expect("it is only taken when this value ends"));
        // The guardian outlives this process, so nothing waits for it.
        std::mem::forget(cluster);
        Ok(Shared { url, _users: users })
    }

    /// Returns `None` if the cluster is not shared, is about to end, or does not answer.
    fn join_at(folder: &Path) -> Option<Shared> {
        folder.join("shared").exists().then_some(())?;
        let mut users = OpenOptions::new().read(true).write(true).open(folder.join("users")).ok()?;
        users.write_all(b"join\n").ok()?;
        is_reachable(folder).then(|| Shared { url: url_of(folder), _users: users })
    }
}

/// The host is the path of the socket's folder, percent-encoded.
fn url_of(folder: &Path) -> String {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    let as_host = |byte: &u8| if is_plain(*byte) { char::from(*byte).to_string() } else { format!("%{byte:02X}") };
    format!("postgres://postgres@{}/postgres", folder.as_os_str().as_encoded_bytes().iter().map(as_host).collect::<String>())
}

fn is_reachable(folder: &Path) -> bool {
    UnixStream::connect(folder.join(SOCKET)).is_ok()
}

/// Returns the folders of the clusters that have a guardian, and deletes the others.
fn guarded(site: &Site) -> Result<Vec<PathBuf>, ClusterError> {
    let entries = fs::read_dir(&site.folder).tried("read", &site.folder)?.flatten();
    let folders = entries.map(|entry| entry.path()).filter(|path| path.is_dir());
    let (guarded, left) = folders.partition::<Vec<_>, _>(|folder| has_guardian(folder));
    left.iter().for_each(|folder| clear(folder));
    Ok(guarded)
}

fn has_guardian(folder: &Path) -> bool {
    File::open(folder.join("guardian")).is_ok_and(|lock| matches!(lock.try_lock(), Err(TryLockError::WouldBlock)))
}

/// Deletes the remains of a dead guardian. The process id in the status file is trusted only while the server answers on the socket.
fn clear(folder: &Path) {
    let begun = Instant::now();
    while is_reachable(folder) && begun.elapsed() < PATIENCE {
        let status = fs::read_to_string(folder.join("data/postmaster.pid")).unwrap_or_default();
        if let Some(server) = status.lines().next() {
            // If this fails, the loop tries again.
            let _ = Command::new("sh").args(["-c", "kill -QUIT \"$1\"", "sh", server]).stderr(Stdio::null()).status();
        }
        thread::sleep(Duration::from_millis(50));
    }
    // If this fails, the next process deletes the folder.
    let _ = fs::remove_dir_all(folder);
}
