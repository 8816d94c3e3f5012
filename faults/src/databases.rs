//! Connections to all partitions of a database, so that they are read as one.

use crate::rows::{Db, Rows};
use crate::{Failure, sql};

/// A connection to each partition of a database, by number, or one to a database without partitions.
pub struct Databases(Vec<Db>);

impl Databases {
    /// Connects to all partitions that the directory in the database of `url` lists.
    pub async fn connect(url: &str) -> Result<Databases, Failure> {
        let mut directory = Db::connect(url).await?;
        if !directory.has_partitions().await? {
            return Ok(Databases(vec![directory]));
        }
        let mut all = Vec::new();
        for (schema, place) in directory.partitions().await? {
            all.push(Db::connect_to_partition(place.as_deref().unwrap_or(url), &schema).await?);
        }
        Ok(Databases(all))
    }

    /// Executes a statement without a result in each of them.
    pub async fn run(&mut self, statement: &'static str) -> Result<(), Failure> {
        for db in &mut self.0 {
            db.run(statement).await?;
        }
        Ok(())
    }

    /// The number that a statement returns in each of them.
    pub async fn numbers(&mut self, statement: &'static str) -> Result<Vec<i64>, Failure> {
        let mut numbers = Vec::new();
        for db in &mut self.0 {
            numbers.push(db.number(statement).await?);
        }
        Ok(numbers)
    }

    /// The sum of the numbers that a statement returns.
    pub async fn sum(&mut self, statement: &'static str) -> Result<i64, Failure> {
        Ok(self.numbers(statement).await?.into_iter().sum())
    }

    /// The texts that a statement returns in all of them.
    pub async fn texts(&mut self, statement: &'static str) -> Result<Vec<String>, Failure> {
        let mut texts = Vec::new();
        for db in &mut self.0 {
            texts.extend(db.texts(statement).await?);
        }
        Ok(texts)
    }

    /// Reads all rows of all of them.
    pub async fn read_all(&mut self) -> Result<Rows, Failure> {
        let mut all = Rows::default();
        for db in &mut self.0 {
            let rows = db.read_all().await?;
            all.instances.extend(rows.instances);
            all.attempts.extend(rows.attempts);
            all.rejected.extend(rows.rejected);
            all.books.extend(rows.books);
            all.held.extend(rows.held);
        }
        Ok(all)
    }
}

impl Db {
    /// Connects to the partition with this schema. The verbs' own table is not in the schema, because a partition with tables that are not the
    /// engine's cannot be moved.
    pub async fn connect_to_partition(url: &str, schema: &str) -> Result<Db, Failure> {
        let mut db = Db::connect(url).await?;
        db.texts_with(sql::USE_SCHEMA, schema).await?;
        Ok(db)
    }

    /// Returns true if the database has a directory of partitions.
    async fn has_partitions(&mut self) -> Result<bool, Failure> {
        Ok(matches!(self, Db::Postgres(_)) && self.number(sql::DIRECTORIES).await? > 0)
    }
}
