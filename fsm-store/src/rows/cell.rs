//! The types that a column can be decoded to, by each driver of this program.

/// A type that a column can be decoded to.
#[cfg(all(feature = "sqlite", feature = "postgres"))]
pub(crate) trait Cell: sqlite::Cell + postgres::Cell {}
#[cfg(all(feature = "sqlite", feature = "postgres"))]
impl<T: sqlite::Cell + postgres::Cell> Cell for T {}

#[cfg(all(feature = "postgres", not(feature = "sqlite")))]
pub(crate) use postgres::Cell;
#[cfg(all(feature = "sqlite", not(feature = "postgres")))]
pub(crate) use sqlite::Cell;

#[cfg(feature = "sqlite")]
mod sqlite {
    use rusqlite::types::FromSql;
    use sqlx::{Decode, Sqlite, Type};

    /// A type that a column of SQLite can be decoded to, on the engine's connections and on those of the driver.
    pub(crate) trait Cell: FromSql + for<'r> Decode<'r, Sqlite> + Type<Sqlite> {}
    impl<T: FromSql + for<'r> Decode<'r, Sqlite> + Type<Sqlite>> Cell for T {}
}

#[cfg(feature = "postgres")]
mod postgres {
    use sqlx::{Decode, Postgres, Type};

    /// A type that a column of PostgreSQL can be decoded to.
    pub(crate) trait Cell: for<'r> Decode<'r, Postgres> + Type<Postgres> {}
    impl<T: for<'r> Decode<'r, Postgres> + Type<Postgres>> Cell for T {}
}
