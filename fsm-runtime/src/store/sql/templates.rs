//! Databases for tests, copied from a template.

/// Serialises those who make the template of test databases, under the number `$1`, until the connection ends.
pub const LOCK_TEMPLATES: &str = "select pg_advisory_lock($1)";

/// Whether there is a database of the name `$1`.
pub const DATABASE_EXISTS: &str = "select exists (select from pg_database d where d.datname = $1)";

/// Copies a database.
pub fn create_database(name: &str, template: &str) -> String {
    format!("create database {name} template {template}")
}

/// Gives a database another name.
pub fn rename_database(from: &str, to: &str) -> String {
    format!("alter database {from} rename to {to}")
}

/// Drops a database whoever uses it.
pub fn drop_database(name: &str) -> String {
    format!("drop database if exists {name} with (force)")
}
