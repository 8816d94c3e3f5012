//! Child processes, and the signals they get. Each dies with its value at the latest.

use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use serde::Serialize;

use crate::Failure;
use crate::child::REST;

/// A process that is this program once more.
pub struct Process {
    child: Child,
    pub name: String,
}

impl Process {
    /// Starts this program in the part of `role`, which `spec` tells all about. What it prints is kept in the folder.
    pub fn start(role: &str, name: &str, spec: &impl Serialize, folder: &Path, variables: &[(&str, &str)]) -> Result<Process, Failure> {
        Process::start_under(&[], role, name, spec, folder, variables)
    }

    /// The same under another program, which becomes this one.
    pub fn start_under(
        prefix: &[&str],
        role: &str,
        name: &str,
        spec: &impl Serialize,
        folder: &Path,
        variables: &[(&str, &str)],
    ) -> Result<Process, Failure> {
        let output = File::options().create(true).append(true).open(folder.join(format!("{name}.out")))?;
        let program = std::env::current_exe()?;
        let mut command = match prefix {
            [] => Command::new(program),
            [first, rest @ ..] => {
                let mut command = Command::new(first);
                command.args(rest).arg(program);
                command
            }
        };
        command.arg(role).arg(serde_json::to_string(spec)?).envs(variables.iter().copied());
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(output);
        Ok(Process { child: command.spawn()?, name: name.to_owned() })
    }

    /// The first line that it prints.
    pub fn first_line(&mut self) -> Result<String, Failure> {
        let output = self.child.stdout.take().ok_or("it has no output")?;
        let mut line = String::new();
        BufReader::new(output).read_line(&mut line)?;
        Ok(line.trim().to_owned())
    }

    /// It sends nothing more. One that is gone needs not be told.
    pub fn rest(&mut self) {
        if let Some(input) = &mut self.child.stdin {
            let _ = writeln!(input, "{REST}");
        }
    }

    pub fn is_alive(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// The memory that it has, in KiB.
    pub fn resident_kib(&self) -> Result<u64, Failure> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id()))?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).ok_or("its status has no VmRSS")?;
        Ok(line.trim().trim_end_matches(" kB").trim().parse()?)
    }

    /// SIGKILL.
    pub fn kill(&mut self) -> Result<(), Failure> {
        self.child.kill()?;
        self.child.wait()?;
        Ok(())
    }

    /// SIGSTOP: it stands still wherever it is.
    pub fn stop(&self) -> Result<(), Failure> {
        self.signal("STOP")
    }

    /// SIGCONT.
    pub fn go_on(&self) -> Result<(), Failure> {
        self.signal("CONT")
    }

    fn signal(&self, signal: &str) -> Result<(), Failure> {
        let sent = Command::new("kill").arg(format!("-{signal}")).arg(self.child.id().to_string()).status()?;
        if sent.success() { Ok(()) } else { Err(format!("{} did not get {signal}", self.name).into()) }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may be gone already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
