//! A small filesystem in memory whose size can be changed.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::Failure;

/// A mounted filesystem. It is unmounted, with its files, when this value is dropped.
pub struct Small {
    path: PathBuf,
}

impl Small {
    /// Mounts a filesystem. Only root can do that; for other users it needs `sudo`.
    pub fn mount(path: PathBuf, mib: u32, owner: u32) -> Result<Small, Failure> {
        std::fs::create_dir(&path)?;
        let options = format!("size={mib}m,mode=0700,uid={owner}");
        command("mount", &["-t", "tmpfs", "-o", &options, "tmpfs"], &path)
            .map_err(|error| format!("a small filesystem needs root, or `sudo` without a password, and the right to mount: {error}"))?;
        Ok(Small { path })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Changes the size. It cannot become smaller than the files need.
    pub fn resize(&self, mib: u32) -> Result<(), Failure> {
        command("mount", &["-o", &format!("remount,size={mib}m")], &self.path)
    }

    /// The used space in whole MiB, rounded up.
    pub fn used_mib(&self) -> Result<u32, Failure> {
        let told = Command::new("df").arg("-Pk").arg(&self.path).output()?;
        let told = String::from_utf8_lossy(&told.stdout);
        let used = told.lines().nth(1).and_then(|line| line.split_whitespace().nth(2)).ok_or("`df -Pk` says nothing")?;
        Ok(used.parse::<u32>()?.div_ceil(1024))
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        if let Err(error) = command("umount", &["--lazy"], &self.path) {
            eprintln!("{error}");
        }
    }
}

/// The user that this process runs as.
pub fn me() -> Result<u32, Failure> {
    Ok(std::fs::metadata("/proc/self")?.uid())
}

/// Runs a command as root.
pub fn command(program: &str, words: &[&str], path: &Path) -> Result<(), Failure> {
    let prefix: &[&str] = if me()? == 0 { &[] } else { &["sudo", "-n"] };
    let all = [prefix, &[program], words].concat();
    let done = Command::new(all[0]).args(&all[1..]).arg(path).output()?;
    if done.status.success() { Ok(()) } else { Err(String::from_utf8_lossy(&done.stderr).trim().to_owned().into()) }
}
