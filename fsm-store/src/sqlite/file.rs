//! The URL of a SQLite database.

use std::path::PathBuf;
use std::str::FromStr;

use sqlx::sqlite::SqliteConnectOptions;

use crate::address::{parameters, wrong};
use crate::error::Result;

/// The place of a SQLite database.
pub(super) enum Place {
    Memory,
    File(SqliteFile),
}

/// A SQLite file and the parameters of its URL.
pub(super) struct SqliteFile {
    pub path: PathBuf,
    /// The VFS that SQLite uses.
    pub vfs: Option<String>,
    pub is_read_only: bool,
    pub is_immutable: bool,
    /// The whole URL in the form of the driver that runs users' own statements.
    pub options: Box<SqliteConnectOptions>,
}

impl Place {
    pub(super) fn parse(url: &str) -> Result<Place> {
        if !url.starts_with("sqlite:") {
            return Ok(Place::File(SqliteFile::new("", SqliteConnectOptions::new().filename(url))));
        }
        if url.contains(":memory:") || url.contains("mode=memory") {
            return Ok(Place::Memory);
        }
        match SqliteConnectOptions::from_str(url) {
            Ok(options) if options.get_filename().as_os_str().is_empty() => Err(wrong(url, "names no file".into())),
            Ok(options) => Ok(Place::File(SqliteFile::new(url, options))),
            Err(error) => Err(wrong(url, format!("is no SQLite URL ({error})"))),
        }
    }
}

impl SqliteFile {
    fn new(url: &str, options: SqliteConnectOptions) -> SqliteFile {
        SqliteFile {
            path: options.get_filename().to_owned(),
            vfs: parameters(url).find_map(|parameter| parameter.strip_prefix("vfs=")).map(str::to_owned),
            is_read_only: parameters(url).any(|parameter| parameter == "mode=ro"),
            is_immutable: parameters(url).any(|parameter| matches!(parameter, "immutable=1" | "immutable=true")),
            options: Box::new(options),
        }
    }
}
