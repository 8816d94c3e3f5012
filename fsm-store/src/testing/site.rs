//! The folder of one user's temporary clusters, the PostgreSQL binaries, and the user that runs the servers.

use std::fmt;
use std::fs::{self, DirBuilder, File, Metadata, Permissions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{self, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

/// The environment variable with the URL of a server to use instead of a temporary one.
pub const VARIABLE: &str = "FSM_TEST_POSTGRES";

/// The environment variable with the URL of another server, for half of the partitions of a test. Without it, all are on one server.
pub const SECOND: &str = "FSM_TEST_POSTGRES_SECOND";

/// The reason why there is no cluster. `Display` says what to do about it.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum ClusterError {
    /// No folder that contains both `initdb` and `postgres` was found.
    NotInstalled,
    /// This process is root, and there is no other user that could run the server.
    NoUser,
    /// The folder for clusters belongs to another user.
    Foreign(PathBuf),
    /// The server did not start or stop. The text includes the end of its log.
    Server(String),
    /// An operating system call or a program failed.
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

/// Adds the failed operation to an error of the operating system.
pub(super) trait Tried<T> {
    fn tried(self, what: &str, which: &Path) -> Result<T, ClusterError>;
}

impl<T> Tried<T> for io::Result<T> {
    fn tried(self, what: &str, which: &Path) -> Result<T, ClusterError> {
        self.map_err(|error| ClusterError::System(format!("could not {what} `{}`: {error}", which.display())))
    }
}

/// The location of one user's clusters, and the user that runs their servers.
pub(super) struct Site {
    /// The folder that contains a folder for each cluster.
    pub(super) folder: PathBuf,
    /// The folder that contains `initdb` and `postgres`.
    pub(super) programs: PathBuf,
    me: u32,
    /// The user and the group that run the servers, if this process must not run them itself.
    step_down: Option<(u32, u32)>,
}

impl Site {
    /// Returns the site of the current user. An error if PostgreSQL cannot run here.
    pub(super) fn of_this_user() -> Result<Site, ClusterError> {
        let programs = find_programs()?;
        let me = id(&["-u"]).ok_or_else(|| ClusterError::System("`id -u` does not work".into()))?;
        let other = || ["postgres", "nobody"].iter().find_map(|name| Some((id(&["-u", name])?, id(&["-g", name])?)));
        let step_down = if me == 0 { Some(other().ok_or(ClusterError::NoUser)?) } else { None };
        let mut parent = std::env::temp_dir();
        // The path of a socket must not exceed about 100 bytes, and a server that runs as another user must be able to reach it.
        let is_open = |dir: &Path| fs::metadata(dir).is_ok_and(|dir| dir.mode() & 0o001 != 0);
        if !parent.is_absolute() || parent.as_os_str().len() > 50 || (step_down.is_some() && !parent.ancestors().all(is_open)) {
            parent = "/tmp".into();
        }
        Ok(Site { folder: parent.join(format!("fsm-postgres-{me}")), programs, me, step_down })
    }

    /// Waits until no other process looks for clusters or creates one here. The folder exists while the lock is held.
    pub(super) fn lock(&self) -> Result<Lock, ClusterError> {
        loop {
            self.make(&self.folder)?;
            let folder = match File::open(&self.folder) {
                Err(error) if error.kind() == ErrorKind::NotFound => continue,
                opened => opened.tried("open", &self.folder)?,
            };
            folder.lock().tried("lock", &self.folder)?;
            // The last guardian removes the empty folder, possibly while this process waited. By now there may be another folder with the
            // same name.
            let in_use = self.folder.join("in-use");
            match File::create_new(&in_use) {
                Err(error) if error.kind() == ErrorKind::NotFound => continue,
                Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
                made => drop(made.tried("create", &in_use)?),
            }
            let place = |found: Metadata| (found.dev(), found.ino());
            if folder.metadata().ok().map(place) == fs::symlink_metadata(&self.folder).ok().map(place) {
                return Ok(Lock { in_use, _folder: folder });
            }
        }
    }

    /// Creates a folder that did not exist before.
    pub(super) fn new_folder(&self) -> Result<PathBuf, ClusterError> {
        static MADE: AtomicU32 = AtomicU32::new(0);
        loop {
            let folder = self.folder.join(format!("{}-{}", process::id(), MADE.fetch_add(1, Ordering::Relaxed)));
            if self.make(&folder)? {
                return Ok(folder);
            }
        }
    }

    /// Creates a folder that only the server's user may enter. Returns true if it did not exist before.
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

    /// Returns a command that runs as the server's user.
    pub(super) fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        command.env("LC_ALL", "C");
        if let Some((user, group)) = self.step_down {
            command.uid(user).gid(group);
        }
        command
    }
}

/// The right to look for clusters and to create one.
pub(super) struct Lock {
    /// A file that keeps the folder from being removed.
    in_use: PathBuf,
    _folder: File,
}

impl Drop for Lock {
    fn drop(&mut self) {
        // If this fails, the next process that takes the lock cleans up.
        let _ = fs::remove_file(&self.in_use);
        let _ = self.in_use.parent().map(fs::remove_dir);
    }
}

/// Returns the folder of `initdb` and `postgres`: one on the `PATH`, or else the newest version in the usual places. An error if there is
/// none.
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

/// Returns the number that the program `id` prints.
pub(super) fn id(args: &[&str]) -> Option<u32> {
    let printed = Command::new("id").args(args).stderr(Stdio::null()).output().ok()?;
    String::from_utf8(printed.stdout).ok()?.trim().parse().ok()
}
