//! Export of the rows of one or all machines as lines of JSON, and import: to move from SQLite to PostgreSQL, or to work with a copy.

use std::time::Duration;

use fsm_core::partition::partition_of;
use fsm_core::time::Timestamp;
use fsm_store::migrate;
use fsm_store::transfer::{self, Field, Kind, Page, Place, TABLES, Unreadable};
use fsm_store::tx::Tx;
use serde_json::{Map, Value, json};
use uuid::Uuid;

use super::Admin;
use super::opening::{Opened, Opening};
use crate::error::{Error, ErrorKind};

/// The version of the line format.
const SHAPE: i64 = 1;
/// The number of rows that one statement reads or writes.
const TOGETHER: u32 = 256;
/// The limit on one statement of an import. The commit takes longest, because all rows then reach the disk.
const PATIENCE: Duration = Duration::from_secs(3600);

/// An export in progress. It reads one snapshot of the database.
pub struct Export {
    tx: Tx,
    machine: Option<String>,
    table: usize,
    place: Place,
    head: Option<Value>,
    rows: u64,
    executing: u64,
    unreadable: u64,
}

/// An import in progress. Its rows become visible with [`finish`](Import::finish).
pub struct Import {
    opened: Opened,
    tx: Tx,
    machines: Option<Vec<String>>,
    waiting: (usize, Vec<Vec<Field>>),
    imported: Imported,
    is_whole: bool,
}

/// The result of an import.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Imported {
    /// The names of the imported machines.
    pub machines: Vec<String>,
    /// The number of rows in all tables.
    pub rows: u64,
    /// The number of imported attempts that were executing. Their sessions are not imported, so a worker on this database treats them as
    /// lost.
    pub executing: u64,
    /// The number of rows that the export could not read, and that were not imported.
    pub unreadable: u64,
}

impl Admin {
    /// Exports all rows of one machine, or of all, from one snapshot. Processes may continue meanwhile; their later changes are not
    /// exported.
    pub async fn export(&self, machine: Option<&str>) -> Result<Export, Error> {
        let names: Vec<_> = match machine {
            Some(name) => vec![self.machine(name)?.machine.name.as_str()],
            None => self.machines().iter().map(|known| known.machine.name.as_str()).collect(),
        };
        let head = json!({
            "fsm_export": SHAPE,
            "schema": migrate::newest(),
            "exported_at": self.now().to_string(),
            "machines": names,
        });
        let tx = self.engine.store.snapshot().await?;
        let machine = machine.map(str::to_owned);
        Ok(Export { tx, machine, table: 0, place: Place::beginning(0), head: Some(head), rows: 0, executing: 0, unreadable: 0 })
    }

    /// An estimate of the number of rows in an export of all machines, or `None` if the database has no statistics.
    pub async fn rows_about(&self) -> Result<Option<u64>, Error> {
        Ok(transfer::about(&mut self.engine.store.reader().await?.conn()).await?)
    }
}

impl Export {
    /// The next lines, without line feeds, or `None` after the last one. The last line holds the number of rows.
    pub async fn next(&mut self) -> Result<Option<Vec<String>>, Error> {
        if let Some(head) = self.head.take() {
            return Ok(Some(vec![head.to_string()]));
        }
        while self.table < TABLES {
            let Page { rows, unreadable, is_last } =
                transfer::read(&mut self.tx.conn(), self.table, self.machine.as_deref(), &mut self.place, TOGETHER).await?;
            self.rows += rows.len() as u64;
            self.unreadable += unreadable.len() as u64;
            let (table, columns) = (transfer::name(self.table), transfer::columns(self.table));
            self.executing += rows.iter().filter(|row| is_executing(self.table, row)).count() as u64;
            let line = |row: &Vec<Field>| {
                let row: Map<String, Value> =
                    columns.iter().zip(row).map(|((name, _), field)| ((*name).to_owned(), json_value(field))).collect();
                json!({ "table": table, "row": row }).to_string()
            };
            let unreadable_line = |row: &Unreadable| {
                let key: Vec<Value> = row.key.iter().map(json_value).collect();
                json!({ "table": table, "unreadable": { "key": key, "why": row.why } }).to_string()
            };
            let lines: Vec<String> = rows.iter().map(line).chain(unreadable.iter().map(unreadable_line)).collect();
            if is_last {
                self.table += 1;
                if self.table < TABLES {
                    self.place = Place::beginning(self.table);
                }
            }
            if !lines.is_empty() {
                return Ok(Some(lines));
            }
        }
        if self.table == TABLES {
            self.table += 1;
            return Ok(Some(vec![json!({ "end": { "rows": self.rows, "unreadable": self.unreadable } }).to_string()]));
        }
        Ok(None)
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

/// Creates missing tables and begins an import. Its rows are visible to nobody before [`Import::finish`].
pub async fn import(opening: &Opening) -> Result<Import, Error> {
    super::migrate(opening).await?;
    let opened = opening.with_deadline(PATIENCE).await?;
    let mut tx = opened.store.begin().await?;
    transfer::lock(&mut tx.conn()).await?;
    Ok(Import { opened, tx, machines: None, waiting: (0, Vec::new()), imported: Imported::default(), is_whole: false })
}

impl Import {
    /// Reads the next line of an export.
    ///
    /// Returns an `is_input` error for a line that is not part of an export, for an instance of another partition, and `is_conflict` if the
    /// database already has instances of one of the machines. After an error the import cannot be finished.
    pub async fn line(&mut self, line: &str) -> Result<(), Error> {
        let value: Value = serde_json::from_str(line).map_err(|error| Error::input(format!("the line is not JSON: {error}")))?;
        if self.is_whole {
            return Err(Error::input("there is more after the end of the export"));
        }
        let Some(machines) = &self.machines else { return self.begin(&value).await };
        if let Some(rows) = value["end"]["rows"].as_u64() {
            self.is_whole = true;
            self.flush().await?;
            let (is, wanted) = (self.imported.rows, rows);
            return if is == wanted { Ok(()) } else { Err(Error::input(format!("{is} rows were read, and the export had {wanted}"))) };
        }
        let name = value["table"].as_str().unwrap_or_default();
        let table = (0..TABLES).find(|table| transfer::name(*table) == name);
        let table = table.ok_or_else(|| Error::input(format!("there is no table `{}`", name.escape_debug())))?;
        if value["unreadable"].is_object() {
            self.imported.unreadable += 1;
            return Ok(());
        }
        let row = parsed(table, &value["row"])?;
        if let Some(stranger) = machine_of(table, &row).filter(|machine| !machines.iter().any(|known| known == machine)) {
            return Err(Error::input(format!("a row is of the machine `{}`, which the first line does not name", stranger.escape_debug())));
        }
        self.check_key(table, &row)?;
        if self.waiting.0 != table || self.waiting.1.len() >= TOGETHER as usize {
            self.flush().await?;
            self.waiting.0 = table;
        }
        self.imported.rows += 1;
        self.imported.executing += u64::from(is_executing(table, &row));
        self.waiting.1.push(row);
        Ok(())
    }

    /// Checks that an instance belongs to the partition that it is imported into.
    fn check_key(&self, table: usize, row: &[Field]) -> Result<(), Error> {
        let key = if transfer::name(table) == "instances" { text_of(table, row, "key") } else { None };
        match (self.opened.partition, key) {
            (Some(partition), Some(key)) if !partition.has(key) => {
                let (belongs_to, number) = (partition_of(key, partition.of()), partition.number());
                Err(Error::input(format!("the instance `{}` belongs to partition {belongs_to}, not {number}", key.escape_debug())))
            }
            _ => Ok(()),
        }
    }

    /// Checks the first line, which describes the export.
    async fn begin(&mut self, head: &Value) -> Result<(), Error> {
        if head["fsm_export"].as_i64() != Some(SHAPE) {
            let says = format!("the first line is not that of an export: it has `fsm_export`, {SHAPE}");
            return Err(Error::input(says));
        }
        let (schema, ours) = (head["schema"].as_i64().unwrap_or_default(), migrate::newest());
        if schema != ours {
            let wake_up = "export and import with one release of `fsm`, after `fsm migrate up`";
            return Err(Error::input(format!("the export is of schema {schema}, and this program has schema {ours}: {wake_up}")));
        }
        let machines: Vec<String> = serde_json::from_value(head["machines"].clone())
            .map_err(|error| Error::input(format!("the first line does not name the machines: {error}")))?;
        for machine in &machines {
            if transfer::has_instances(&mut self.tx.conn(), machine).await? {
                let place = self.opened.store.place();
                let says = format!("{place} has instances of `{}` already; nothing is ever overwritten", machine.escape_debug());
                return Err(Error::other(ErrorKind::Conflict, says));
            }
        }
        self.imported.machines = machines.clone();
        self.machines = Some(machines);
        Ok(())
    }

    async fn flush(&mut self) -> Result<(), Error> {
        let (table, rows) = &mut self.waiting;
        transfer::write(&mut self.tx.conn(), *table, rows).await?;
        transfer::log(&mut self.tx.conn(), *table, rows).await?;
        rows.clear();
        Ok(())
    }

    /// Commits all rows. Returns an `is_input` error if the last line of the export was not read; then nothing is imported.
    pub async fn finish(self) -> Result<Imported, Error> {
        if !self.is_whole {
            return Err(Error::input(format!("the export is cut off after {} rows; nothing was kept", self.imported.rows)));
        }
        self.tx.commit().await?;
        self.opened.close().await;
        Ok(self.imported)
    }
}

fn is_executing(table: usize, row: &[Field]) -> bool {
    let state = transfer::columns(table).iter().position(|(name, _)| *name == "attempt_state");
    transfer::name(table) == "instances" && state.is_some_and(|at| row[at] == Field::Text(Some("executing".into())))
}

fn machine_of(table: usize, row: &[Field]) -> Option<&str> {
    text_of(table, row, "machine")
}

fn text_of<'r>(table: usize, row: &'r [Field], column: &str) -> Option<&'r str> {
    let at = transfer::columns(table).iter().position(|(name, _)| *name == column)?;
    match &row[at] {
        Field::Text(text) => text.as_deref(),
        _ => None,
    }
}

/// Bytes are exported as text if they are UTF-8, which most are.
fn json_value(field: &Field) -> Value {
    match field {
        Field::Id(id) => json!(id),
        Field::Number(number) => json!(number),
        Field::Text(text) => json!(text),
        Field::Flag(flag) => json!(flag),
        Field::Bytes(None) => Value::Null,
        Field::Bytes(Some(bytes)) => match std::str::from_utf8(bytes) {
            Ok(text) => json!(text),
            Err(_) => json!({ "hex": bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>() }),
        },
    }
}

fn parsed(table: usize, row: &Value) -> Result<Vec<Field>, Error> {
    let columns = transfer::columns(table);
    let names = row.as_object().map(Map::len).unwrap_or_default();
    if names != columns.len() {
        return Err(Error::input(format!("a row of `{}` has {} fields, not {names}", transfer::name(table), columns.len())));
    }
    let field = |(name, kind): &(&str, Kind)| {
        let value = row.get(*name);
        let read = value.and_then(|value| read(value, *kind));
        read.ok_or_else(|| Error::input(format!("`{name}` of `{}` cannot be {}", transfer::name(table), value.unwrap_or(&Value::Null))))
    };
    columns.iter().map(field).collect()
}

fn read(value: &Value, kind: Kind) -> Option<Field> {
    let is_null = value.is_null();
    match kind {
        Kind::Id if is_null => Some(Field::Id(None)),
        Kind::Number if is_null => Some(Field::Number(None)),
        Kind::Text if is_null => Some(Field::Text(None)),
        Kind::Bytes if is_null => Some(Field::Bytes(None)),
        Kind::Id => Some(Field::Id(Some(Uuid::parse_str(value.as_str()?).ok()?))),
        Kind::Number => Some(Field::Number(Some(value.as_i64()?))),
        Kind::Text => Some(Field::Text(Some(value.as_str()?.to_owned()))),
        Kind::Flag => Some(Field::Flag(value.as_bool()?)),
        Kind::Bytes => {
            let bytes = match (value.as_str(), value["hex"].as_str()) {
                (Some(text), _) => text.as_bytes().to_vec(),
                (None, Some(hex)) => unhexed(hex)?,
                (None, None) => return None,
            };
            Some(Field::Bytes(Some(bytes)))
        }
    }
}

fn unhexed(hex: &str) -> Option<Vec<u8>> {
    let digits: Option<Vec<u8>> = hex.chars().map(|c| c.to_digit(16).and_then(|digit| u8::try_from(digit).ok())).collect();
    let digits = digits.filter(|digits| digits.len() % 2 == 0)?;
    Some(digits.chunks(2).map(|pair| pair[0] << 4 | pair[1]).collect())
}

impl Admin {
    /// The number of sessions whose lease has not expired, and the end of the latest lease. `None` if there are none.
    pub async fn alive(&self) -> Result<Option<(usize, Timestamp)>, Error> {
        let now = self.now();
        let alive: Vec<_> = self.workers().await?.into_iter().map(|worker| worker.lease_until).filter(|until| *until > now).collect();
        Ok(alive.iter().max().map(|until| (alive.len(), *until)))
    }
}
