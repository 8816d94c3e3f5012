//! Export of the rows of one or all machines as lines of JSON, and import: to move from SQLite to PostgreSQL, to divide a database into
//! partitions, or to work with a copy.

mod elsewhere;
pub mod export;
pub mod import;
mod lines;
mod routes;
