//! A cluster of three PostgreSQL servers under Patroni, with etcd and haproxy. All of them listen on loopback only and end with the
//! harness.
//!
//! The timeouts are short for tests: a leader that does not respond for 5 s is replaced. In production use Patroni's defaults of 30 s, 10 s
//! and 10 s, and a watchdog.

mod rest;
mod settings;

use std::fs::{self, File};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::chown;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::{Duration, Instant};

use crate::small_disk::current_user_id;
use crate::{Failure, Skipped};
pub use settings::NODES;
use settings::Ports;

/// The limit for the cluster to become complete: three servers, of which one is the leader and one a synchronous standby.
const READY: Duration = Duration::from_secs(120);
/// The limit for a killed node to copy the data that it lacks.
const STUCK: Duration = Duration::from_secs(25);
const POLL_INTERVAL: Duration = Duration::from_millis(200);

/// The cluster. Each node is identified by its index.
pub struct Patroni {
    folder: PathBuf,
    ports: Ports,
    daemons: Vec<(String, Child)>,
    /// A shell that ends all processes when its input ends, which happens when the harness ends.
    guardian: Child,
    owner: Option<(u32, u32)>,
    programs: Programs,
}

/// The paths of the programs, which the system's packages install.
struct Programs {
    postgres: PathBuf,
    patroni: PathBuf,
    etcd: PathBuf,
    haproxy: PathBuf,
}

impl Programs {
    fn find() -> Result<Programs, Skipped> {
        let path = std::env::var_os("PATH").unwrap_or_default();
        let folders: Vec<PathBuf> = std::env::split_paths(&path).chain(["/usr/sbin".into(), "/usr/local/sbin".into()]).collect();
        let find = |program: &str| {
            let found = folders.iter().map(|folder| folder.join(program)).find(|program| program.is_file());
            found.ok_or_else(|| {
                Skipped(format!(
                    "`{program}` is not installed; `cargo xtask faults failover` installs it on Debian, or `apt-get install patroni python3-etcd \
                     etcd-server etcd-client haproxy`"
                ))
            })
        };
        let postgres = fsm::testing::cluster::find_programs().map_err(|error| Skipped(error.to_string()))?;
        // Patroni needs more of PostgreSQL's programs than are linked in the common folder.
        let postgres = fs::canonicalize(postgres.join("postgres")).map_err(|error| Skipped(format!("PostgreSQL's programs: {error}")))?;
        let postgres = postgres.parent().map(Path::to_owned).unwrap_or_default();
        Ok(Programs { postgres, patroni: find("patroni")?, etcd: find("etcd")?, haproxy: find("haproxy")? })
    }
}

impl Patroni {
    /// Starts a complete cluster in this folder. Returns a [`Skipped`] error if its programs are not installed.
    pub fn start(folder: &Path) -> Result<Patroni, Failure> {
        let programs = Programs::find()?;
        let folder = folder.join("patroni");
        fs::create_dir(&folder)?;
        // PostgreSQL refuses to run as root, and the other programs do not need root.
        let owner = if current_user_id()? == 0 { Some(user("postgres")?) } else { None };
        if let Some((user, group)) = owner {
            chown(&folder, Some(user), Some(group))?;
        }
        let guardian = Command::new("sh")
            .args(["-c", include_str!("patroni/guardian.sh"), "fsm-patroni-guardian"])
            .arg(&folder)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .process_group(0)
            .spawn()?;
        let mut cluster = Patroni { folder, ports: Ports::free(free_port)?, daemons: Vec::new(), guardian, owner, programs };
        for node in 0..NODES {
            let words = cluster.ports.etcd(node, &cluster.folder);
            cluster.daemon(&format!("etcd{node}"), &cluster.programs.etcd.clone(), &words)?;
        }
        cluster.until("etcd listens", |cluster| cluster.ports.nodes.iter().all(|node| listens(node.etcd)))?;
        for node in 0..NODES {
            cluster.start_node(node)?;
            if node == 0 {
                cluster.until("the first node leads", |cluster| cluster.leader() == Some(0))?;
            }
        }
        cluster.until_complete()?;
        let settings = cluster.folder.join("haproxy.cfg");
        fs::write(&settings, cluster.ports.haproxy())?;
        let words = ["-db".to_owned(), "-f".to_owned(), settings.display().to_string()];
        cluster.daemon("haproxy", &cluster.programs.haproxy.clone(), &words)?;
        let proxy = cluster.ports.proxy;
        cluster.until("haproxy listens", |_| listens(proxy))?;
        Ok(cluster)
    }

    /// The URL of a database through haproxy, which forwards to the leader.
    pub fn through_proxy(&self, database: &str) -> String {
        format!("postgres://postgres@127.0.0.1:{}/{database}", self.ports.proxy)
    }

    /// The URL with all three servers.
    pub fn of_all(&self, database: &str) -> String {
        let hosts: Vec<String> = self.ports.nodes.iter().map(|node| format!("127.0.0.1:{}", node.postgres)).collect();
        format!("postgres://postgres@{}/{database}?target_session_attrs=read-write", hosts.join(","))
    }

    /// The URL of one server.
    pub fn of(&self, node: usize, database: &str) -> String {
        format!("postgres://postgres@127.0.0.1:{}/{database}", self.ports.nodes[node].postgres)
    }

    /// The leader according to the nodes.
    pub fn leader(&self) -> Option<usize> {
        (0..NODES).find(|node| rest::status(self.ports.nodes[*node].rest, "/primary") == Some(200))
    }

    /// Waits until all three servers run, one of them as the leader and one as a synchronous standby.
    pub fn until_complete(&mut self) -> Result<(), Failure> {
        let limit = Instant::now() + READY;
        while !self.is_complete_within(STUCK) {
            if Instant::now() > limit {
                return Err(format!("the cluster is not complete within {READY:?}; logs are in {}", self.folder.display()).into());
            }
            // After a switch, Patroni 3.0 may keep the old leader's entry about the synchronous standby and not recognise it as its own.
            // Without the entry it writes a new one.
            if self.leader().is_some() {
                self.ports.nodes.iter().find_map(|node| rest::forget_synchronous(node.etcd).ok());
            }
        }
        Ok(())
    }

    fn is_complete_within(&self, time: Duration) -> bool {
        let limit = Instant::now() + time;
        loop {
            let nodes = &self.ports.nodes;
            if let Some(leader) = self.leader()
                && nodes.iter().any(|node| rest::is_complete(node.rest))
                && nodes.iter().any(|node| rest::is_synchronous_entry_of(node.etcd, &format!("node{leader}")))
            {
                return true;
            }
            if Instant::now() > limit {
                return false;
            }
            std::thread::sleep(POLL_INTERVAL);
        }
    }

    /// Switches the leader role to another server.
    pub fn switch_over(&mut self) -> Result<(), Failure> {
        let leader = self.leader().ok_or("no node leads")?;
        rest::switch_over(self.ports.nodes[leader].rest, &format!("node{leader}"))
    }

    /// Kills the node, like the loss of its machine.
    pub fn kill(&mut self, node: usize) -> Result<(), Failure> {
        self.signal(node, "KILL")?;
        let name = format!("node{node}");
        if let Some(index) = self.daemons.iter().position(|(daemon, _)| *daemon == name) {
            let (_, mut child) = self.daemons.remove(index);
            child.wait()?;
        }
        Ok(())
    }

    /// Freezes the node's processes: its connections stay open and do not respond.
    pub fn freeze(&self, node: usize) -> Result<(), Failure> {
        self.signal(node, "STOP")
    }

    /// Resumes a frozen node.
    pub fn thaw(&self, node: usize) -> Result<(), Failure> {
        self.signal(node, "CONT")
    }

    /// Starts a node, also one that was killed.
    pub fn start_node(&mut self, node: usize) -> Result<(), Failure> {
        let settings = self.folder.join(format!("node{node}.yml"));
        fs::write(&settings, self.ports.patroni(node, &self.folder, &self.programs.postgres))?;
        self.daemon(&format!("node{node}"), &self.programs.patroni.clone(), &[settings.display().to_string()])
    }

    fn daemon(&mut self, name: &str, program: &Path, words: &[String]) -> Result<(), Failure> {
        let log = File::options().create(true).append(true).open(self.folder.join(format!("{name}.log")))?;
        let mut command = Command::new(program);
        if let Some((user, group)) = self.owner {
            command.uid(user).gid(group);
        }
        command.args(words).current_dir(&self.folder).env("HOME", &self.folder);
        let child = command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log).process_group(0).spawn()?;
        fs::write(self.folder.join(format!("{name}.pid")), child.id().to_string())?;
        self.daemons.push((name.to_owned(), child));
        Ok(())
    }

    /// Sends a signal to all processes of a node: Patroni, the server and its children.
    fn signal(&self, node: usize, signal: &str) -> Result<(), Failure> {
        let name = format!("node{node}");
        let patroni = self.daemons.iter().find(|(daemon, _)| *daemon == name).map(|(_, child)| child.id());
        let server = fs::read_to_string(self.folder.join(format!("data{node}/postmaster.pid"))).unwrap_or_default();
        let server = server.lines().next().and_then(|line| line.trim().parse::<u32>().ok());
        let mut pids: Vec<u32> = patroni.into_iter().chain(server).collect();
        pids.extend(server.map(children).unwrap_or_default());
        for pid in pids {
            // Some of them may have ended meanwhile.
            Command::new("kill").arg(format!("-{signal}")).arg(pid.to_string()).stderr(Stdio::null()).status()?;
        }
        Ok(())
    }

    fn until(&mut self, what: &str, is_so: impl Fn(&Patroni) -> bool) -> Result<(), Failure> {
        let limit = Instant::now() + READY;
        while !is_so(self) {
            if Instant::now() > limit {
                return Err(format!("not so within {READY:?}: {what}; logs are in {}", self.folder.display()).into());
            }
            std::thread::sleep(POLL_INTERVAL);
        }
        Ok(())
    }
}

impl Drop for Patroni {
    fn drop(&mut self) {
        // The guardian ends all processes, also when this process is killed.
        drop(self.guardian.stdin.take());
        let _ = self.guardian.wait();
        for (_, child) in &mut self.daemons {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// The first port, and the number of ports, from which those of a cluster are taken.
const PORTS: (u16, u16) = (18_000, 12_000);

fn listens(port: u16) -> bool {
    TcpStream::connect(("127.0.0.1", port)).is_ok()
}

/// A free port below those that the system gives to outgoing connections: such a connection could take the port before a server of the cluster
/// listens on it. Each call continues after the port of the one before.
fn free_port() -> Result<u16, Failure> {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    // Processes that run at the same time begin at different ports.
    let first = (std::process::id() % u32::from(PORTS.1)) as u16;
    let mut candidates = (0..PORTS.1).map(|_| PORTS.0 + first.wrapping_add(NEXT.fetch_add(1, Ordering::Relaxed)) % PORTS.1);
    candidates.find(|port| TcpListener::bind(("127.0.0.1", *port)).is_ok()).ok_or_else(|| "no port is free".into())
}

/// The child processes of a process.
fn children(parent: u32) -> Vec<u32> {
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = processes.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    // The format is `pid (name) state parent …`, and a name may contain spaces.
    let parent_of = |pid: u32| {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        stat.rsplit_once(") ")?.1.split_whitespace().nth(1)?.parse::<u32>().ok()
    };
    pids.filter(|pid| parent_of(*pid) == Some(parent)).collect()
}

/// The ids of the user and its group.
fn user(name: &str) -> Result<(u32, u32), Failure> {
    let users = fs::read_to_string("/etc/passwd")?;
    let fields: Vec<&str> = users
        .lines()
        .map(|line| line.split(':').collect::<Vec<_>>())
        .find(|line| line[0] == name)
        .ok_or_else(|| Skipped(format!("there is no user `{name}` to run the servers as")))?;
    Ok((fields[2].parse()?, fields[3].parse()?))
}
