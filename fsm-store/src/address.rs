//! Parsing the URL of a database, and showing it without its password.

use super::error::{Result, StoreError};

/// The kind of database that a URL names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Scheme {
    Sqlite,
    Postgres,
}

/// The kind of database that this URL names.
pub(super) fn scheme(url: &str) -> Result<Scheme> {
    if url.starts_with("sqlite:") || !url.contains("://") && url.ends_with(".db") {
        Ok(Scheme::Sqlite)
    } else if url.starts_with("postgres:") || url.starts_with("postgresql:") {
        Ok(Scheme::Postgres)
    } else {
        Err(wrong(url, "is of no known kind".into()))
    }
}

/// The error about a URL that does not name a usable database.
pub(super) fn wrong(url: &str, says: String) -> StoreError {
    StoreError::Url { url: without_password(url), says }
}

/// The error about a URL of a database without a driver.
#[cfg(not(all(feature = "sqlite", feature = "postgres")))]
pub(super) fn no_driver(url: &str, feature: &'static str) -> StoreError {
    StoreError::NoDriver { url: without_password(url), feature }
}

/// True if prepared statements are cached. False if the URL has `statement-cache-capacity=0`, as it must for a pooler in transaction mode.
pub(super) fn keeps_statements(url: &str) -> bool {
    !parameters(url).any(|parameter| parameter == "statement-cache-capacity=0")
}

/// The parameters after the question mark of a URL.
pub(super) fn parameters(url: &str) -> impl Iterator<Item = &str> {
    url.split_once('?').map_or("", |(_, parameters)| parameters).split('&')
}

/// The name of a schema in messages.
pub(super) fn schema_of(schema: &str, database: &str) -> String {
    format!("the schema `{schema}` of {database}")
}

/// The URL with the password hidden: the text between the user's name and the last `@`.
pub(super) fn without_password(url: &str) -> String {
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
