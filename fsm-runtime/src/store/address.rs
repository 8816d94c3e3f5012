//! What a database's URL says, and how it is shown.

use std::str::FromStr;

use sqlx::postgres::PgConnectOptions;
use sqlx::sqlite::SqliteConnectOptions;

use super::error::{Result, StoreError};

pub(super) enum Address {
    Memory,
    File(Box<SqliteConnectOptions>),
    Server(Box<PgConnectOptions>),
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
                Ok(options) => Ok(Address::File(Box::new(options))),
                Err(error) => Err(wrong(format!("is no SQLite URL ({error})"))),
            }
        } else if url.starts_with("postgres:") || url.starts_with("postgresql:") {
            match PgConnectOptions::from_str(url) {
                Ok(options) => Ok(Address::Server(Box::new(options))),
                Err(_) => Err(wrong("is no PostgreSQL URL".into())),
            }
        } else if !url.contains("://") && url.ends_with(".db") {
            Ok(Address::File(Box::new(SqliteConnectOptions::new().filename(url))))
        } else {
            Err(wrong("is of no known kind".into()))
        }
    }
}

/// The URL as it can be shown: what stands between the user's name and the last `@` before the path is hidden.
fn without_password(url: &str) -> String {
    let Some((scheme, rest)) = url.split_once("://") else { return url.to_owned() };
    let Some((login, host)) = rest.rsplit_once('@') else { return hide_parameter(url) };
    match login.split_once(':') {
        Some((user, _)) => hide_parameter(&format!("{scheme}://{user}:***@{host}")),
        None => hide_parameter(url),
    }
}

/// The same for `?password=`.
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
    use super::without_password;

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
