//! A throw-away PostgreSQL cluster: made from the installed programs, shared by all tests that run, gone when they are.
//!
//! Each cluster is a folder with a `guardian`, a shell that owns the server. Its input is the pipe `users`, which every user
//! holds open; the end of that input, whatever brought it about, makes the guardian stop the server and delete the folder.
//! A guardian holds the lock of the file `guardian`: a folder where that is free belongs to nobody and is cleared away.
//!
//! The server listens on a socket inside the folder only, and only its owner can enter the folder: therefore it asks for no password.
//! PostgreSQL refuses to run as root; there it runs as the user `postgres`, else `nobody`.

use std::ffi::OsStr;
use std::fmt;
use std::fs::{self, DirBuilder, File, Metadata, OpenOptions, Permissions, TryLockError};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt, chown};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{self, Child, Command, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// The URL of a server to use instead of a throw-away one.
pub const VARIABLE: &str = "FSM_TEST_POSTGRES";

/// How long a server may take to come up or to go.
const PATIENCE: Duration = Duration::from_secs(60);

/// How long a shared cluster waits for the next test process, in seconds.
const LINGER: &str = "2";

/// The name of the server's socket; the port in it is only a name.
const SOCKET: &str = ".s.PGSQL.5432";

/// Why there is no cluster. `Display` says what would help.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum ClusterError {
    /// No folder with both `initdb` and `postgres` was found.
    NotInstalled,
    /// This process is root, and there is no other user to run the server.
    NoUser,
    /// The folder for clusters belongs to another user.
    Foreign(PathBuf),
    /// The server did not come up or go; with the end of its log.
    Server(String),
    /// The system refused something.
    System(String),
}

impl fmt::Display for ClusterError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ClusterError::NotInstalled => write!(
                f,
                "PostgreSQL is not installed: no folder has both `initdb` and `postgres`; install it (`apt-get install postgresql`, \
                 `dnf install postgresql-server`, `apk add postgresql`, `brew install postgresql`) or set {VARIABLE} to the URL of a server"
            ),
            ClusterError::NoUser => {
                write!(
                    f,
                    "PostgreSQL does not run as root, and there is no user `postgres` or `nobody`; set {VARIABLE} to the URL of a server"
                )
            }
            ClusterError::Foreign(folder) => write!(f, "`{}` belongs to another user; delete it or set TMPDIR", folder.display()),
            ClusterError::Server(what) => write!(f, "the throw-away PostgreSQL {what}"),
            ClusterError::System(what) => write!(f, "no throw-away PostgreSQL: {what}"),
        }
    }
}

impl std::error::Error for ClusterError {}

/// Names what was tried in the error of the system.
trait Tried<T> {
    fn tried(self, what: &str, which: &Path) -> Result<T, ClusterError>;
}

impl<T> Tried<T> for io::Result<T> {
    fn tried(self, what: &str, which: &Path) -> Result<T, ClusterError> {
        self.map_err(|error| ClusterError::System(format!("could not {what} `{}`: {error}", which.display())))
    }
}

/// The URL of a server that tests may fill with databases: the one that `FSM_TEST_POSTGRES` names, else a throw-away cluster which all
/// processes of this user share while they run. The user it names is a superuser.
///
/// The cluster stays for the life of this process and is deleted a few seconds after the last such process ended, even if it was
/// killed. The first call may take seconds; an error is remembered.
pub fn url() -> Result<String, ClusterError> {
    static SHARED: OnceLock<Result<Shared, ClusterError>> = OnceLock::new();
    if let Ok(url) = std::env::var(VARIABLE)
        && !url.is_empty()
    {
        return Ok(url);
    }
    SHARED.get_or_init(Shared::join).as_ref().map(|shared| shared.url.clone()).map_err(Clone::clone)
}

/// Starts a cluster that only this process uses, whatever `FSM_TEST_POSTGRES` says.
pub fn start_own() -> Result<Cluster, ClusterError> {
    let site = Site::of_this_user()?;
    let cluster = {
        let _lock = site.lock()?;
        Cluster::create(&site, "0")?
    };
    cluster.wait_until_ready()?;
    Ok(cluster)
}

/// A cluster of its own. Dropping it stops the server and deletes the data; so does the end of this process.
#[derive(Debug)]
pub struct Cluster {
    folder: PathBuf,
    /// Open for as long as the cluster is wanted.
    users: Option<File>,
    guardian: Child,
    starts: u32,
}

impl Cluster {
    /// The superuser's URL. It stays the same over [`stop`](Cluster::stop) and [`start`](Cluster::start).
    pub fn url(&self) -> String {
        url_of(&self.folder)
    }

    /// Stops the server as a crash would: connections break, and what was not committed is lost. What was committed stays.
    pub fn stop(&mut self) -> Result<(), ClusterError> {
        self.order("stop")?;
        self.wait_until("did not stop", |cluster| cluster.has_stopped())
    }

    /// Starts the server again, on the same data and at the same URL; one that still runs is stopped first.
    pub fn start(&mut self) -> Result<(), ClusterError> {
        if !self.has_stopped() {
            self.stop()?;
        }
        self.order("start")?;
        self.starts += 1;
        self.wait_until_ready()
    }

    /// A new folder with a guardian that makes a cluster in it and starts the server. The caller holds the site's lock.
    fn create(site: &Site, linger: &str) -> Result<Cluster, ClusterError> {
        let folder = site.new_folder()?;
        let users = folder.join("users");
        let made = site.command("mkfifo").arg(&users).status().tried("run", Path::new("mkfifo"))?;
        if !made.success() {
            return Err(ClusterError::System(format!("could not make the pipe `{}`", users.display())));
        }
        // For reading too, so that opening it never waits for the other end.
        let pipe = OpenOptions::new().read(true).write(true).open(&users).tried("open", &users)?;
        let input = File::open(&users).tried("open", &users)?;
        let lock = folder.join("guardian");
        let locked = File::create(&lock).tried("create", &lock)?;
        locked.lock().tried("lock", &lock)?;
        let guardian = site
            .command("sh")
            .args(["-c", include_str!("guardian.sh"), "fsm-postgres-guardian"])
            .args([folder.as_os_str(), OsStr::new(linger), site.programs.as_os_str()])
            .args(["-D", "data", "-p", "5432", "-k"])
            .arg(&folder)
            .args(SETTINGS.iter().flat_map(|setting| ["-c", setting]))
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

    fn has_stopped(&self) -> bool {
        fs::read_to_string(self.folder.join("state")).is_ok_and(|state| state.trim() == format!("stopped {}", self.starts))
    }

    fn wait_until_ready(&self) -> Result<(), ClusterError> {
        let status = self.folder.join("data/postmaster.pid");
        self.wait_until("did not start", |cluster| {
            // A killed server leaves a status that says `ready`, but nobody at the socket.
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

    /// The failure with the end of the server's log.
    fn failed(&self, failure: &str) -> ClusterError {
        let log = fs::read_to_string(self.folder.join("log")).unwrap_or_default();
        let skipped = log.lines().count().saturating_sub(12);
        let tail = log.lines().skip(skipped).collect::<Vec<_>>().join("\n");
        ClusterError::Server(format!("{failure}; its log ends with\n{tail}"))
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        drop(self.users.take());
        // An error would mean that the guardian is gone already.
        let _ = self.guardian.wait();
    }
}

/// What a server of tests is told. Nothing reaches the disk for its own sake, and everything stays inside the folder.
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

/// The part that this process has in the shared cluster.
struct Shared {
    url: String,
    /// Open for as long as the process lives.
    _users: File,
}

impl Shared {
    /// Joins the cluster that runs, else makes one. Whatever has no guardian is cleared away on the way.
    fn join() -> Result<Shared, ClusterError> {
        let site = Site::of_this_user()?;
        let _lock = site.lock()?;
        let entries = fs::read_dir(&site.folder).tried("read", &site.folder)?.flatten();
        for folder in entries.map(|entry| entry.path()).filter(|path| path.is_dir()) {
            if !has_guardian(&folder) {
                clear(&folder);
            } else if let Some(shared) = Shared::join_at(&folder) {
                return Ok(shared);
            }
        }
        let mut cluster = Cluster::create(&site, LINGER)?;
        cluster.wait_until_ready()?;
        let open = cluster.folder.join("shared");
        File::create(&open).tried("create", &open)?;
        let (url, users) = (cluster.url(), cluster.users.take().expect("it is only taken when this value ends"));
        // Its guardian outlives this process, so nobody waits for it.
        std::mem::forget(cluster);
        Ok(Shared { url, _users: users })
    }

    /// `None` when that cluster is not shared, is about to go, or answers no more.
    fn join_at(folder: &Path) -> Option<Shared> {
        folder.join("shared").exists().then_some(())?;
        let mut users = OpenOptions::new().read(true).write(true).open(folder.join("users")).ok()?;
        users.write_all(b"join\n").ok()?;
        is_reachable(folder).then(|| Shared { url: url_of(folder), _users: users })
    }
}

/// Where the clusters of one user are, and who runs their servers.
struct Site {
    folder: PathBuf,
    programs: PathBuf,
    me: u32,
    /// The user and group to run servers as, where this process must not.
    step_down: Option<(u32, u32)>,
}

impl Site {
    fn of_this_user() -> Result<Site, ClusterError> {
        let programs = find_programs()?;
        let me = id(&["-u"]).ok_or_else(|| ClusterError::System("`id -u` does not work".into()))?;
        let other = || ["postgres", "nobody"].iter().find_map(|name| Some((id(&["-u", name])?, id(&["-g", name])?)));
        let step_down = if me == 0 { Some(other().ok_or(ClusterError::NoUser)?) } else { None };
        let mut parent = std::env::temp_dir();
        // The path of a socket has about 100 bytes at most, and a server that runs as another user must reach it.
        let is_open = |dir: &Path| fs::metadata(dir).is_ok_and(|dir| dir.mode() & 0o001 != 0);
        if parent.as_os_str().len() > 50 || (step_down.is_some() && !parent.ancestors().all(is_open)) {
            parent = "/tmp".into();
        }
        Ok(Site { folder: parent.join(format!("fsm-postgres-{me}")), programs, me, step_down })
    }

    /// Waits until no other process looks for or makes clusters here. The folder exists while the lock is held.
    fn lock(&self) -> Result<Lock, ClusterError> {
        loop {
            self.make(&self.folder)?;
            let folder = match File::open(&self.folder) {
                Err(error) if error.kind() == ErrorKind::NotFound => continue,
                opened => opened.tried("open", &self.folder)?,
            };
            folder.lock().tried("lock", &self.folder)?;
            // The last guardian removes the folder if it is empty, perhaps while we waited, and another may be there by now.
            let in_use = self.folder.join("in-use");
            let is_kept = File::create(&in_use).is_ok();
            let place = |found: Metadata| (found.dev(), found.ino());
            let is_there = folder.metadata().ok().map(place) == fs::symlink_metadata(&self.folder).ok().map(place);
            if is_kept && is_there {
                return Ok(Lock { in_use, _folder: folder });
            }
        }
    }

    /// A folder that did not exist.
    fn new_folder(&self) -> Result<PathBuf, ClusterError> {
        static MADE: AtomicU32 = AtomicU32::new(0);
        loop {
            let folder = self.folder.join(format!("{}-{}", process::id(), MADE.fetch_add(1, Ordering::Relaxed)));
            if self.make(&folder)? {
                return Ok(folder);
            }
        }
    }

    /// Makes a folder that only the server's user may enter; whether it was not there before.
    fn make(&self, folder: &Path) -> Result<bool, ClusterError> {
        let is_new = match DirBuilder::new().mode(0o700).create(folder) {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => false,
            made => made.tried("create", folder).map(|()| true)?,
        };
        let owner = self.step_down.map_or(self.me, |(user, _)| user);
        match fs::symlink_metadata(folder) {
            Ok(found) if found.is_dir() && found.uid() == owner && found.mode() & 0o077 == 0 => Ok(is_new),
            Ok(found) if found.is_dir() && found.uid() == self.me => {
                let (user, group) = self.step_down.unzip();
                chown(folder, user, group).tried("give away", folder)?;
                fs::set_permissions(folder, Permissions::from_mode(0o700)).tried("close", folder)?;
                Ok(is_new)
            }
            Err(error) if error.kind() == ErrorKind::NotFound => self.make(folder),
            Err(error) => Err(error).tried("look at", folder),
            Ok(_) => Err(ClusterError::Foreign(folder.to_owned())),
        }
    }

    /// A command that runs as the server's user.
    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        command.env("LC_ALL", "C");
        if let Some((user, group)) = self.step_down {
            command.uid(user).gid(group);
        }
        command
    }
}

/// The right to look for and make clusters.
struct Lock {
    /// A file that keeps the folder from being removed.
    in_use: PathBuf,
    _folder: File,
}

impl Drop for Lock {
    fn drop(&mut self) {
        // Whatever fails here is tidied up by the next process that takes the lock.
        let _ = fs::remove_file(&self.in_use);
        let _ = self.in_use.parent().map(fs::remove_dir);
    }
}

/// The folder of `initdb` and `postgres`: on the PATH, else the newest where systems put them.
pub fn find_programs() -> Result<PathBuf, ClusterError> {
    let is_it = |folder: &PathBuf| folder.join("initdb").is_file() && folder.join("postgres").is_file();
    let on_the_path = std::env::var_os("PATH").map(|path| std::env::split_paths(&path).collect::<Vec<_>>()).unwrap_or_default();
    if let Some(folder) = on_the_path.into_iter().find(is_it) {
        return Ok(folder);
    }
    let places = [
        ("/usr/lib/postgresql", "", "bin"),
        ("/usr", "pgsql-", "bin"),
        ("/usr/lib", "postgresql", "bin"),
        ("/usr/libexec", "postgresql", ""),
        ("/usr/local", "pgsql", "bin"),
        ("/opt/homebrew/opt", "postgresql", "bin"),
        ("/usr/local/opt", "postgresql", "bin"),
        ("/home/linuxbrew/.linuxbrew/opt", "postgresql", "bin"),
        ("/Applications/Postgres.app/Contents/Versions", "", "bin"),
    ];
    let found = places.iter().flat_map(|(parent, prefix, programs)| {
        let entries = fs::read_dir(parent).into_iter().flatten().flatten();
        entries.filter_map(move |entry| {
            let name = entry.file_name().into_string().ok()?;
            let version = name.strip_prefix(prefix)?.trim_matches(|c: char| !c.is_ascii_digit());
            let version = version.split('.').map(|part| part.parse().unwrap_or(0)).collect::<Vec<u32>>();
            Some((version, entry.path().join(programs)))
        })
    });
    found.filter(|(_, folder)| is_it(folder)).max().map(|(_, folder)| folder).ok_or(ClusterError::NotInstalled)
}

/// The number that `id` prints.
fn id(args: &[&str]) -> Option<u32> {
    let printed = Command::new("id").args(args).stderr(Stdio::null()).output().ok()?;
    String::from_utf8(printed.stdout).ok()?.trim().parse().ok()
}

fn url_of(folder: &Path) -> String {
    format!("postgres://postgres@{}/postgres", folder.display().to_string().replace('%', "%25").replace('/', "%2F"))
}

fn is_reachable(folder: &Path) -> bool {
    UnixStream::connect(folder.join(SOCKET)).is_ok()
}

fn has_guardian(folder: &Path) -> bool {
    File::open(folder.join("guardian")).is_ok_and(|lock| matches!(lock.try_lock(), Err(TryLockError::WouldBlock)))
}

/// Deletes what a dead guardian left. Only a server that answers at its socket is the one that the status names.
fn clear(folder: &Path) {
    let begun = Instant::now();
    while is_reachable(folder) && begun.elapsed() < PATIENCE {
        let status = fs::read_to_string(folder.join("data/postmaster.pid")).unwrap_or_default();
        if let Some(server) = status.lines().next() {
            // If it fails, the loop tries again.
            let _ = Command::new("sh").args(["-c", "kill -QUIT \"$1\"", "sh", server]).stderr(Stdio::null()).status();
        }
        thread::sleep(Duration::from_millis(50));
    }
    // What cannot be deleted now is found again by the next process.
    let _ = fs::remove_dir_all(folder);
}
