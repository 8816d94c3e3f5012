//! Parsing the URL of a database, and showing it without its password.

use std::path::PathBuf;
use std::str::FromStr;

use sqlx::sqlite::SqliteConnectOptions;

use super::error::{Result, StoreError};
use super::servers::Servers;

pub(super) enum Address {
    Memory,
    File(SqliteFile),
    Servers(Box<Servers>),
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

impl Address {
    pub(super) fn parse(url: &str) -> Result<Address> {
        let wrong = |says: String| StoreError::Url { url: without_password(url), says };
        let is_sqlite = url.starts_with("sqlite:");
        if is_sqlite && (url.contains(":memory:") || url.contains("mode=memory")) {
            Ok(Address::Memory)
        } else if is_sqlite {
            match SqliteConnectOptions::from_str(url) {
                Ok(options) if options.get_filename().as_os_str().is_empty() => Err(wrong("names no file".into())),
                Ok(options) => Ok(Address::File(SqliteFile::new(url, options))),
                Err(error) => Err(wrong(format!("is no SQLite URL ({error})"))),
            }
        } else if url.starts_with("postgres:") || url.starts_with("postgresql:") {
            Servers::parse(url).map(|servers| Address::Servers(Box::new(servers))).map_err(wrong)
        } else if !url.contains("://") && url.ends_with(".db") {
            Ok(Address::File(SqliteFile::new("", SqliteConnectOptions::new().filename(url))))
        } else {
            Err(wrong("is of no known kind".into()))
        }
    }
}

/// True if prepared statements are cached. False if the URL has `statement-cache-capacity=0`, as it must for a pooler in transaction mode.
pub(super) fn keeps_statements(url: &str) -> bool {
    !parameters(url).any(|parameter| parameter == "statement-cache-capacity=0")
}

/// The parameters after the question mark of a URL.
fn parameters(url: &str) -> impl Iterator<Item = &str> {
    url.split_once('?').map_or("", |(_, parameters)| parameters).split('&')
}

/// The URL with the password hidden: the text between the user's name and the last `@`.
fn without_password(url: &str) -> String {
    let Some((scheme, rest)) = url.split_once("://") else { return url.to_owned() };
    let Some((login, host)) = rest.rsplit_once('@') else { return hide_parameter(url) };
    match login.split_once(':') {
        Some((user, _)) => hide_parameter(&format!("{scheme}://{user}:***@{host}")),
        None => hide_parameter(url),
    }
}

/// Hides the password in `password=`.
fn hide_parameter(url: &str) -> String {
    match url.split_once("password=") {
        Some((before, after)) => {
            let rest = after.find('&').map_or("", |end| &after[end..]);
            format!("{before}password=***{rest}")
        }
        None => url.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::{keeps_statements, without_password};

    #[test]
    fn a_url_can_say_that_no_statement_is_kept() {
        let cases = [
            ("postgres://host/db", true),
            ("postgres://host/db?statement-cache-capacity=100", true),
            ("postgres://host/db?statement-cache-capacity=0", false),
            ("postgres://host/db?sslmode=prefer&statement-cache-capacity=0", false),
        ];
        for (url, keeps) in cases {
            assert_eq!(keeps_statements(url), keeps, "{url}");
        }
    }

    #[test]
    fn a_password_is_never_shown() {
        let cases = [
            ("postgres://me:s3cret@host/db", "postgres://me:***@host/db"),
            ("postgres://me:s3@cr:et@host/db", "postgres://me:***@host/db"),
            ("postgres://me@host/db?password=s3cret&x=1", "postgres://me@host/db?password=***&x=1"),
            ("postgres://host/db", "postgres://host/db"),
            ("sqlite://a.db", "sqlite://a.db"),
        ];
        for (url, shown) in cases {
            assert_eq!(without_password(url), shown);
        }
    }
}
