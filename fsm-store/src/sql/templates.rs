//! Test databases, copied from a template.

/// Takes the lock `$1` for creating the template of test databases. It is held until the connection ends.
pub const LOCK_TEMPLATES: &str = "select pg_advisory_lock($1)";

/// Returns whether a database of the name `$1` exists.
pub const DATABASE_EXISTS: &str = "select exists (select from pg_database d where d.datname = $1)";

/// Creates a database as a copy of another one.
pub fn create_database(name: &str, template: &str) -> String {
    format!("create database {name} template {template}")
}

/// Renames a database.
pub fn rename_database(from: &str, to: &str) -> String {
    format!("alter database {from} rename to {to}")
}

/// Drops a database even if connections use it.
pub fn drop_database(name: &str) -> String {
    format!("drop database if exists {name} with (force)")
}
