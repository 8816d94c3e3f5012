//! Conditions of a SQLite file, each imposed for a while and taken back.

use std::fs::{Permissions, set_permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::Failure;
use crate::small::{Small, me};
use crate::sql;
use crate::stage::Stage;

pub const NAMES: [&str; 4] = ["unwritable", "full", "full and unwritable", "locked"];
/// Root may write whatever the modes say. Without this capability it may not.
const BOUND_BY_MODES: [&str; 3] = ["setpriv", "--bounding-set=-dac_override,-dac_read_search", "--inh-caps=-dac_override,-dac_read_search"];

/// What processes run under that must respect the modes of files.
pub fn prefix() -> Result<&'static [&'static str], Failure> {
    Ok(if me()? == 0 { &BOUND_BY_MODES } else { &[] })
}

/// Imposes the condition of this name, and takes it back.
pub async fn impose(stage: &Stage<'_>, disk: &Small, name: &str, each: Duration) -> Result<(), Failure> {
    match name {
        // Connections that are open go on writing; each verb with statements of its own gets a new one.
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
            let mut db = stage.db().await?;
            db.run(sql::LOCK_FILE).await?;
            tokio::time::sleep(each).await;
            db.run(sql::LOCK_END).await?;
        }
    }
    Ok(())
}

/// No room is left.
fn fill(disk: &Small) -> Result<(), Failure> {
    disk.resize(disk.used_mib()?.max(1))?;
    // It takes what is left of the last MiB, and fails for want of more.
    let _ = std::fs::write(ballast(disk), vec![0; 2 << 20]);
    Ok(())
}

fn make_room(disk: &Small) -> Result<(), Failure> {
    disk.resize(super::ENOUGH_MIB)?;
    Ok(std::fs::remove_file(ballast(disk))?)
}

fn ballast(disk: &Small) -> PathBuf {
    disk.path().join("ballast")
}

/// The files of the database and their folder can be written to, or only read.
fn set_writable(folder: &Path, is_writable: bool) -> Result<(), Failure> {
    let (file, own) = if is_writable { (0o600, 0o700) } else { (0o400, 0o500) };
    for entry in std::fs::read_dir(folder)? {
        set_permissions(entry?.path(), Permissions::from_mode(file))?;
    }
    set_permissions(folder, Permissions::from_mode(own))?;
    Ok(())
}
