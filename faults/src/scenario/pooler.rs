//! PgBouncer in transaction mode between the processes and the server: each transaction may run on another connection.

use std::net::TcpListener;
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::Failure;
use crate::report::Report;
use crate::size::Size;
use crate::stage::Stage;
use crate::test_server::{Kind, TestServer};

/// Fewer connections than the processes hold open, so that they are shared.
const CONNECTIONS: u32 = 4;

pub async fn run(test_server: &mut TestServer, kind: Kind, size: Size) -> Result<Report, Failure> {
    let mut stage = Stage::open(test_server, "pooler", kind, size.seed).await?;
    stage.lease = Duration::from_secs(10);
    let bouncer = Bouncer::start(&mut stage)?;
    stage.url = format!("{}?statement-cache-capacity=0", stage.url_at(&format!("127.0.0.1:{}", bouncer.port))?);
    for _ in 0..3 {
        let spec = stage.spec("node");
        stage.start(&spec)?;
    }
    let sender = stage.sender();
    stage.start(&sender)?;
    stage.until_transitions(50).await?;
    tokio::time::sleep(Duration::from_secs(size.seconds(5, 120))).await;
    let held = stage.db().await?.number(crate::sql::SESSIONS).await?;
    stage.require(held <= i64::from(CONNECTIONS), format!("all share {CONNECTIONS} connections of the server, not {held}"));
    stage.note(format!("{held} connections of the server for four processes"));
    let (mut report, rows) = stage.finish().await?;
    report.require(rows.ended("lost") == 0, "nothing is lost");
    Ok(report)
}

struct Bouncer {
    process: Child,
    port: u16,
}

impl Bouncer {
    fn start(stage: &mut Stage<'_>) -> Result<Bouncer, Failure> {
        let socket = stage.test_server.socket()?;
        let server = socket.parent().ok_or("a socket is in a folder")?;
        let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        let settings = format!(
            "[databases]\n* = host={} port=5432 user=postgres application_name=pooled\n[pgbouncer]\nlisten_addr = 127.0.0.1\n\
             listen_port = {port}\nunix_socket_dir =\nauth_type = any\npool_mode = transaction\ndefault_pool_size = {CONNECTIONS}\n\
             max_client_conn = 300\nignore_startup_parameters = extra_float_digits\n",
            server.display()
        );
        let file = stage.folder.path().join("pgbouncer.ini");
        std::fs::write(&file, settings)?;
        let log = std::fs::File::create(stage.folder.path().join("pgbouncer.log"))?;
        let mut command = Command::new(program()?);
        // PgBouncer refuses to run as root, like the server.
        let owner = std::fs::metadata(&socket)?;
        if std::fs::metadata("/proc/self").is_ok_and(|me| me.uid() == 0) {
            command.uid(owner.uid()).gid(owner.gid());
        }
        let process = command.arg(&file).stdin(Stdio::null()).stdout(Stdio::null()).stderr(log).spawn()?;
        let bouncer = Bouncer { process, port };
        let limit = Instant::now() + Duration::from_secs(10);
        while std::net::TcpStream::connect(("127.0.0.1", port)).is_err() {
            if Instant::now() > limit {
                let log = std::fs::read_to_string(stage.folder.path().join("pgbouncer.log"))?;
                return Err(format!("pgbouncer does not listen: {log}").into());
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(bouncer)
    }
}

impl Drop for Bouncer {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Finds PgBouncer on the `PATH` or in the common folders.
fn program() -> Result<PathBuf, Failure> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::env::split_paths(&path).chain(["/usr/sbin".into(), "/usr/local/sbin".into()]);
    let found = folders.map(|folder| folder.join("pgbouncer")).find(|program| program.is_file());
    Ok(found.ok_or("PgBouncer is not installed; `cargo xtask faults pooler` installs it, or `apt-get install pgbouncer`")?)
}
