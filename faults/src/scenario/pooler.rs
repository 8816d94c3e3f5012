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
use crate::test_run::TestRun;
use crate::test_server::{Kind, TestServer};

/// Fewer connections than the processes hold open, so that they are shared.
const CONNECTIONS: u32 = 4;

pub async fn run(test_server: &mut TestServer, kind: Kind, size: Size) -> Result<Report, Failure> {
    let mut test_run = TestRun::open(test_server, "pooler", kind, size.seed).await?;
    test_run.lease = Duration::from_secs(10);
    let pgbouncer = PgBouncer::start(&mut test_run)?;
    test_run.url = format!("{}?statement-cache-capacity=0", test_run.url_at(&format!("127.0.0.1:{}", pgbouncer.port))?);
    for _ in 0..3 {
        let spec = test_run.spec("node");
        test_run.start(&spec)?;
    }
    let sender = test_run.sender();
    test_run.start(&sender)?;
    test_run.until_transitions(50).await?;
    tokio::time::sleep(Duration::from_secs(size.seconds(5, 120))).await;
    let held = test_run.db().await?.number(crate::sql::SESSIONS).await?;
    test_run.require(held <= i64::from(CONNECTIONS), format!("all share {CONNECTIONS} connections of the server, not {held}"));
    test_run.note(format!("{held} connections of the server for four processes"));
    let (mut report, rows) = test_run.finish().await?;
    report.require(rows.ended("lost") == 0, "nothing is lost");
    Ok(report)
}

struct PgBouncer {
    process: Child,
    port: u16,
}

impl PgBouncer {
    fn start(test_run: &mut TestRun<'_>) -> Result<PgBouncer, Failure> {
        let socket = test_run.test_server.socket()?;
        let server = socket.parent().ok_or("a socket is in a folder")?;
        let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        let settings = format!(
            "[databases]\n* = host={} port=5432 user=postgres application_name=pooled\n[pgbouncer]\nlisten_addr = 127.0.0.1\n\
             listen_port = {port}\nunix_socket_dir =\nauth_type = any\npool_mode = transaction\ndefault_pool_size = {CONNECTIONS}\n\
             max_client_conn = 300\nignore_startup_parameters = extra_float_digits\n",
            server.display()
        );
        let file = test_run.folder.path().join("pgbouncer.ini");
        std::fs::write(&file, settings)?;
        let log = std::fs::File::create(test_run.folder.path().join("pgbouncer.log"))?;
        let mut command = Command::new(program()?);
        // PgBouncer refuses to run as root, like the server.
        let owner = std::fs::metadata(&socket)?;
        if std::fs::metadata("/proc/self").is_ok_and(|metadata| metadata.uid() == 0) {
            command.uid(owner.uid()).gid(owner.gid());
        }
        let process = command.arg(&file).stdin(Stdio::null()).stdout(Stdio::null()).stderr(log).spawn()?;
        let pgbouncer = PgBouncer { process, port };
        let limit = Instant::now() + Duration::from_secs(10);
        while std::net::TcpStream::connect(("127.0.0.1", port)).is_err() {
            if Instant::now() > limit {
                let log = std::fs::read_to_string(test_run.folder.path().join("pgbouncer.log"))?;
                return Err(format!("pgbouncer does not listen: {log}").into());
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(pgbouncer)
    }
}

impl Drop for PgBouncer {
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
