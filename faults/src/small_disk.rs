//! A small filesystem in memory whose size can be changed.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::Failure;

/// A mounted filesystem. It is unmounted, with its files, when this value is dropped.
pub struct SmallDisk {
    path: PathBuf,
}

impl SmallDisk {
    /// Mounts a filesystem. Only root can do that; for other users it needs `sudo`.
    pub fn mount(path: PathBuf, mib: u32, owner: u32) -> Result<SmallDisk, Failure> {
        std::fs::create_dir(&path)?;
        let options = format!("size={mib}m,mode=0700,uid={owner}");
        run_as_root("mount", &["-t", "tmpfs", "-o", &options, "tmpfs"], &path)
            .map_err(|error| format!("a small filesystem needs root, or `sudo` without a password, and the right to mount: {error}"))?;
        Ok(SmallDisk { path })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Changes the size. It cannot become smaller than the files need.
    pub fn resize(&self, mib: u32) -> Result<(), Failure> {
        run_as_root("mount", &["-o", &format!("remount,size={mib}m")], &self.path)
    }

    /// The used space in whole MiB, rounded up.
    pub fn used_mib(&self) -> Result<u32, Failure> {
        let output = Command::new("df").arg("-Pk").arg(&self.path).output()?;
        let output = String::from_utf8_lossy(&output.stdout);
        let used = output.lines().nth(1).and_then(|line| line.split_whitespace().nth(2)).ok_or("`df -Pk` says nothing")?;
        Ok(used.parse::<u32>()?.div_ceil(1024))
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        if let Err(error) = run_as_root("umount", &["--lazy"], &self.path) {
            eprintln!("{error}");
        }
    }
}

/// The user that this process runs as.
pub fn current_user_id() -> Result<u32, Failure> {
    Ok(std::fs::metadata("/proc/self")?.uid())
}

/// Runs a command as root.
pub fn run_as_root(program: &str, words: &[&str], path: &Path) -> Result<(), Failure> {
    let prefix: &[&str] = if current_user_id()? == 0 { &[] } else { &["sudo", "-n"] };
    let all = [prefix, &[program], words].concat();
    let done = Command::new(all[0]).args(&all[1..]).arg(path).output()?;
    if done.status.success() { Ok(()) } else { Err(String::from_utf8_lossy(&done.stderr).trim().to_owned().into()) }
}
