//! The database drivers that this program is built with: the features `sqlite` and `postgres`.

/// Evaluates `$body` on the value that a variant of an enum contains. The enum has a variant for each kind of connection, as
/// [`Conn`](super::conn::Conn) has.
macro_rules! for_driver {
    ($enum:ident, $value:expr, $inner:ident => $body:expr) => {
        match $value {
            #[cfg(feature = "sqlite")]
            $enum::Sqlite($inner) => $body,
            #[cfg(feature = "sqlite")]
            $enum::UserSqlite($inner) => $body,
            #[cfg(feature = "postgres")]
            $enum::Postgres($inner) => $body,
        }
    };
}
pub(super) use for_driver;

/// A database for which this program has a driver.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Driver {
    /// SQLite.
    #[cfg(feature = "sqlite")]
    Sqlite,
    /// PostgreSQL.
    #[cfg(feature = "postgres")]
    Postgres,
}

impl Driver {
    /// True for PostgreSQL.
    pub fn is_postgres(self) -> bool {
        match self {
            #[cfg(feature = "sqlite")]
            Driver::Sqlite => false,
            #[cfg(feature = "postgres")]
            Driver::Postgres => true,
        }
    }
}
