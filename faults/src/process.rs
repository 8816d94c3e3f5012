//! Child processes and their signals. Each child is killed when its value is dropped.

use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use serde::Serialize;

use crate::Failure;
use crate::child::STOP_SENDING;

/// A child process that runs this same program.
pub struct Process {
    child: Child,
    pub name: String,
}

impl Process {
    /// Starts this program in the role `role`, with `spec` as its settings. Its output is written to the folder.
    pub fn start(role: &str, name: &str, spec: &impl Serialize, folder: &Path, variables: &[(&str, &str)]) -> Result<Process, Failure> {
        Process::start_under(&[], role, name, spec, folder, variables)
    }

    /// Like `start`, through another program that executes this one.
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

    /// Reads the first line of its output.
    pub fn first_line(&mut self) -> Result<String, Failure> {
        let output = self.child.stdout.take().ok_or("it has no output")?;
        let mut line = String::new();
        BufReader::new(output).read_line(&mut line)?;
        Ok(line.trim().to_owned())
    }

    /// Tells it to send nothing more. A process that has ended needs no message.
    pub fn stop_sending(&mut self) {
        if let Some(input) = &mut self.child.stdin {
            let _ = writeln!(input, "{STOP_SENDING}");
        }
    }

    pub fn is_alive(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// Its resident memory in KiB.
    pub fn resident_kib(&self) -> Result<u64, Failure> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id()))?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).ok_or("its status has no VmRSS")?;
        Ok(line.trim().trim_end_matches(" kB").trim().parse()?)
    }

    /// Sends SIGKILL and waits for its end.
    pub fn kill(&mut self) -> Result<(), Failure> {
        self.child.kill()?;
        self.child.wait()?;
        Ok(())
    }

    /// Sends SIGSTOP, which freezes it at any point.
    pub fn stop(&self) -> Result<(), Failure> {
        self.signal("STOP")
    }

    /// Sends SIGCONT.
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
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
