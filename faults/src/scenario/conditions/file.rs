//! Conditions of a SQLite file. Each is imposed for a while and then reverted.

use std::fs::{Permissions, set_permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::Failure;
use crate::small_disk::{SmallDisk, current_user_id};
use crate::sql;
use crate::test_run::TestRun;

pub const NAMES: [&str; 4] = ["unwritable", "full", "full and unwritable", "locked"];
/// The size of the filesystem of the SQLite database, except while it is full.
pub const DISK_MIB: u32 = 4096;
/// Root can write regardless of file modes, but not without this capability.
const BOUND_BY_MODES: [&str; 3] = ["setpriv", "--bounding-set=-dac_override,-dac_read_search", "--inh-caps=-dac_override,-dac_read_search"];

/// The prefix for processes that must respect file modes.
pub fn prefix() -> Result<&'static [&'static str], Failure> {
    Ok(if current_user_id()? == 0 { &BOUND_BY_MODES } else { &[] })
}

/// Imposes the condition of this name for a while, and reverts it.
pub async fn impose(test_run: &TestRun<'_>, disk: &SmallDisk, name: &str, each: Duration) -> Result<(), Failure> {
    match name {
        // Open connections continue to write. Each verb with statements of its own gets a new connection.
        "unwritable" => {
            set_writable(disk.path(), false)?;
            tokio::time::sleep(each).await;
            set_writable(disk.path(), true)?;
        }
        "full" => {
            fill(disk)?;
            tokio::time::sleep(each).await;
            make_room(disk)?;
        }
        // A connection that failed is closed, and the next one cannot be opened.
        "full and unwritable" => {
            fill(disk)?;
            tokio::time::sleep(each / 2).await;
            set_writable(disk.path(), false)?;
            make_room(disk)?;
            tokio::time::sleep(each / 2).await;
            set_writable(disk.path(), true)?;
        }
        _ => {
            let mut db = test_run.db().await?;
            db.run(sql::LOCK_FILE).await?;
            tokio::time::sleep(each).await;
            db.run(sql::LOCK_END).await?;
        }
    }
    Ok(())
}

/// The number of tries to shrink the filesystem to its contents, which grow meanwhile.
const TRIES: u32 = 20;

/// Fills the filesystem.
fn fill(disk: &SmallDisk) -> Result<(), Failure> {
    let mut resized = disk.resize(disk.used_mib()?.max(1));
    for more in 1..TRIES {
        if resized.is_ok() {
            break;
        }
        resized = disk.resize(disk.used_mib()? + more);
    }
    resized?;
    // This fails when the rest of the last MiB is used.
    let _ = std::fs::write(ballast(disk), vec![0; 2 << 20]);
    Ok(())
}

fn make_room(disk: &SmallDisk) -> Result<(), Failure> {
    disk.resize(DISK_MIB)?;
    Ok(std::fs::remove_file(ballast(disk))?)
}

fn ballast(disk: &SmallDisk) -> PathBuf {
    disk.path().join("ballast")
}

/// Makes the files of the database and their folder writable or read-only.
fn set_writable(folder: &Path, is_writable: bool) -> Result<(), Failure> {
    let (file, own) = if is_writable { (0o600, 0o700) } else { (0o400, 0o500) };
    for entry in std::fs::read_dir(folder)? {
        set_permissions(entry?.path(), Permissions::from_mode(file))?;
    }
    set_permissions(folder, Permissions::from_mode(own))?;
    Ok(())
}
