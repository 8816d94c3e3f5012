//! Export of the rows of one or all machines as lines of JSON.

use std::collections::VecDeque;

use fsm_core::time::Timestamp;
use fsm_store::migrate;
use fsm_store::transfer::{self, Field, Page, Place, TABLES, Unreadable};
use fsm_store::tx::Tx;
use serde_json::{Map, Value, json};

use super::lines::{SHAPE, TOGETHER, is_executing, json_value};
use crate::admin::whole::WholeDatabase;
use crate::error::Error;

/// An export in progress. It reads one snapshot of the database, or of each partition, one partition after the other.
pub struct Export {
    snapshots: VecDeque<Snapshot>,
    machine: Option<String>,
    head: Option<Value>,
    is_ended: bool,
    rows: u64,
    executing: u64,
    unreadable: u64,
}

/// What is left to read of a database without partitions, or of one partition.
struct Snapshot {
    tx: Tx,
    table: usize,
    place: Place,
}

impl WholeDatabase {
    /// Exports all rows of one machine, or of all, from one snapshot of each partition. Processes may continue meanwhile; their later changes are
    /// not exported. The snapshots of several partitions are not of the same moment.
    ///
    /// Returns an error if a partition cannot be reached.
    pub async fn export(&self, machine: Option<&str>) -> Result<Export, Error> {
        self.check_complete()?;
        let names: Vec<_> = self.selected(machine)?.iter().map(|known| known.machine.name.as_str()).collect();
        let head = json!({
            "fsm_export": SHAPE,
            "schema": migrate::newest(),
            "exported_at": self.now().to_string(),
            "machines": names,
        });
        let snapshots = self.read(async |admin| Ok(admin.engine.store.snapshot().await?)).await?;
        self.check_complete()?;
        let of = |tx| Snapshot { tx, table: 0, place: Place::beginning(0) };
        let snapshots = snapshots.into_iter().map(|located| of(located.row)).collect();
        let machine = machine.map(str::to_owned);
        Ok(Export { snapshots, machine, head: Some(head), is_ended: false, rows: 0, executing: 0, unreadable: 0 })
    }

    /// An estimate of the number of rows in an export of all machines, or `None` if the database has no statistics.
    pub async fn rows_about(&self) -> Result<Option<u64>, Error> {
        let each = self.read(async |admin| Ok(transfer::about(&mut admin.engine.store.reader().await?.conn()).await?)).await?;
        Ok(each.into_iter().map(|located| located.row).sum())
    }

    /// The number of processes whose lease has not expired, and the end of the latest lease. `None` if there are none. A process has a session in
    /// each partition, so that the partition with most of them counts.
    pub async fn alive(&self) -> Result<Option<(usize, Timestamp)>, Error> {
        let now = self.now();
        let sessions = self.read(async |admin| admin.workers().await).await?;
        let alive = sessions.iter().map(|located| located.row.iter().map(|worker| worker.lease_until).filter(|until| *until > now));
        let count = alive.clone().map(Iterator::count).max().unwrap_or_default();
        Ok(alive.flatten().max().map(|until| (count, until)))
    }
}

impl Export {
    /// The next lines, without line feeds, or `None` after the last one. The last line holds the number of rows.
    pub async fn next(&mut self) -> Result<Option<Vec<String>>, Error> {
        if let Some(head) = self.head.take() {
            return Ok(Some(vec![head.to_string()]));
        }
        while let Some(snapshot) = self.snapshots.front_mut() {
            let table = snapshot.table;
            let page = transfer::read(&mut snapshot.tx.conn(), table, self.machine.as_deref(), &mut snapshot.place, TOGETHER).await?;
            if page.is_last && table + 1 < TABLES {
                (snapshot.table, snapshot.place) = (table + 1, Place::beginning(table + 1));
            } else if page.is_last {
                self.snapshots.pop_front();
            }
            let lines = self.lines(table, &page);
            if !lines.is_empty() {
                return Ok(Some(lines));
            }
        }
        if std::mem::replace(&mut self.is_ended, true) {
            return Ok(None);
        }
        Ok(Some(vec![json!({ "end": { "rows": self.rows, "unreadable": self.unreadable } }).to_string()]))
    }

    /// The lines of a page, which are counted.
    fn lines(&mut self, table: usize, Page { rows, unreadable, .. }: &Page) -> Vec<String> {
        self.rows += rows.len() as u64;
        self.unreadable += unreadable.len() as u64;
        self.executing += rows.iter().filter(|row| is_executing(table, row)).count() as u64;
        let (name, columns) = (transfer::name(table), transfer::columns(table));
        let line = |row: &Vec<Field>| {
            let row: Map<String, Value> =
                columns.iter().zip(row).map(|((name, _), field)| ((*name).to_owned(), json_value(field))).collect();
            json!({ "table": name, "row": row }).to_string()
        };
        let unreadable_line = |row: &Unreadable| {
            let key: Vec<Value> = row.key.iter().map(json_value).collect();
            json!({ "table": name, "unreadable": { "key": key, "why": row.why } }).to_string()
        };
        rows.iter().map(line).chain(unreadable.iter().map(unreadable_line)).collect()
    }

    /// The number of rows read so far.
    pub fn rows(&self) -> u64 {
        self.rows
    }

    /// The number of rows read so far that are executing attempts.
    pub fn executing(&self) -> u64 {
        self.executing
    }

    /// The number of other rows, which could not be read.
    pub fn unreadable(&self) -> u64 {
        self.unreadable
    }
}
