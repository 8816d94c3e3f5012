//! The operator's door: any database that a runtime has used, without its program's code. The machines are those that the database
//! describes, and what is done goes through the same committer as all else.

pub mod checkup;
pub mod look;

use std::sync::Arc;

use fsm_core::decide::operate::Act;
use fsm_core::machine::Machine;
use fsm_core::time::Timestamp;

use crate::catalog::Catalog;
use crate::clock::Clock;
use crate::committer::queue::Whose;
use crate::discretion::Discretion;
use crate::doctor::Report;
use crate::encode;
use crate::engine::{Engine, Life};
use crate::error::{Error, Kind};
use crate::handle::operate::Operating;
use crate::handle::send::Sending;
use crate::limits::Limits;
use crate::redact::Shown;
use crate::session;
use crate::store::migrate::{self, Step};
use crate::store::open::{Settings, Store};
use crate::store::{machines, overview};

/// How a database is opened for an operator.
#[derive(Debug, Clone)]
pub struct Opening {
    url: String,
    writes: bool,
    held_at: Option<Timestamp>,
}

impl Opening {
    /// For reading: nothing of the database changes, no writer waits, and a read-only file will do.
    pub fn to_read(url: impl Into<String>) -> Opening {
        Opening { url: url.into(), writes: false, held_at: None }
    }

    /// For acts and sends. The tables must be there and up to date: they are not migrated.
    pub fn to_act(url: impl Into<String>) -> Opening {
        Opening { writes: true, ..Opening::to_read(url) }
    }

    /// With a clock that shows this moment and does not go on: for tests, and for looking back.
    pub fn at(self, moment: Timestamp) -> Opening {
        Opening { held_at: Some(moment), ..self }
    }

    fn settings(&self, read_only: bool) -> Settings {
        Settings { read_only, connections: 4, ..Settings::new(&self.url) }
    }
}

/// A machine as the database describes it.
#[derive(Debug, Clone, PartialEq)]
pub struct Definition {
    /// The newest definition: the one that was first started last.
    pub machine: Machine,
    /// Its hash.
    pub hash: String,
    /// When it was first started.
    pub first_seen_at: Timestamp,
    /// How many definitions of this machine were ever started.
    pub definitions: usize,
}

/// A database as an operator has it open. Cheap to clone.
#[derive(Clone)]
pub struct Admin {
    pub(crate) engine: Arc<Engine>,
    life: Arc<Life>,
    machines: Arc<[Definition]>,
}

impl Admin {
    /// Opens a database and reads which machines it has.
    ///
    /// `is_database` errors: a URL that is none, a database that is out of reach, has no tables of this crate, or has those of
    /// another version.
    pub async fn open(opening: Opening) -> Result<Admin, Error> {
        // First to read, also for acts: a file that is not there is not made, and tables of another version are left alone.
        let reading = Store::open(opening.settings(true)).await?;
        migrate::check(&mut reading.reader().await?.conn(), reading.place()).await?;
        let machines = described(&reading).await?;
        let store = if opening.writes {
            reading.close().await;
            Store::open(opening.settings(false)).await?
        } else {
            reading
        };
        let clock = clock_of(&store, opening.held_at).await?;
        let catalog = Catalog::described(machines.iter().map(|known| known.machine.clone()));
        let engine = Engine::new(store, clock, catalog, (Limits::default(), Discretion::default()), None);
        if opening.writes {
            engine.start_lanes();
        }
        let life = Arc::new(Life(Arc::clone(&engine)));
        Ok(Admin { engine, life, machines: machines.into() })
    }

    /// What the clock of the database shows.
    pub fn now(&self) -> Timestamp {
        self.engine.clock.now()
    }

    /// Which database, as messages name it. No password is in it.
    pub fn place(&self) -> &str {
        self.engine.store.place()
    }

    /// Whether the database is PostgreSQL.
    pub fn is_postgres(&self) -> bool {
        self.engine.store.is_postgres()
    }

    /// Every machine that was ever started on this database, by name.
    pub fn machines(&self) -> &[Definition] {
        &self.machines
    }

    /// The machine of this name. `is_not_found` names those there are.
    pub fn machine(&self, name: &str) -> Result<&Definition, Error> {
        self.machines.iter().find(|known| known.machine.name == name).ok_or_else(|| {
            let names: Vec<_> = self.machines.iter().map(|known| format!("`{}`", known.machine.name.escape_debug())).collect();
            let has =
                if names.is_empty() { "no machine was ever started on it".to_owned() } else { format!("it has {}", names.join(", ")) };
            Kind::NotFound(format!("{} has no machine `{}`; {has}", self.place(), name.escape_debug())).into()
        })
    }

    /// An operator's act on one instance: nothing happens until it is awaited.
    pub fn operate(&self, machine: &str, key: &str, act: Act) -> Operating {
        Operating::new(Arc::clone(&self.engine), Some(Arc::clone(&self.life)), Whose::new(machine, key), act, None)
    }

    /// Sends an event to an instance, as JSON. The graph decides whether it is taken; the payload is checked when the verb reads
    /// it, for only the program knows its type. Nothing happens until it is awaited.
    pub fn send(&self, machine: &str, key: &str, event: &str, json: &str) -> Sending {
        let payload = encode::raw_payload(json, event, self.engine.limits.payload);
        Sending::new(Arc::clone(&self.engine), Some(Arc::clone(&self.life)), machine, key, event, payload)
    }

    /// The text as an operator may see it, by what the program's builder says of redaction.
    pub fn redacted(&self, shown: Shown<'_>) -> String {
        self.engine.discretion.redaction.of(shown).into_owned()
    }

    /// Every invariant with the rows that break it. Reads whole tables.
    pub async fn examine(&self) -> Result<Report, Error> {
        self.engine.examine().await
    }

    /// Every process that works, and those that did and have not been buried.
    pub async fn workers(&self) -> Result<Vec<overview::Worker>, Error> {
        let mut reader = self.engine.store.reader().await?;
        Ok(overview::workers(&mut reader.conn()).await?)
    }

    /// Closes the connections.
    pub async fn close(&self) {
        self.engine.store.close().await;
    }
}

/// The migrations that this crate knows and those that the database has, which may have none of our tables. Changes nothing.
pub async fn migrations(opening: &Opening) -> Result<Vec<Step>, Error> {
    let store = Store::open(opening.settings(true)).await?;
    let steps = migrate::status(&mut store.reader().await?.conn()).await?;
    store.close().await;
    Ok(steps)
}

/// `is_database` unless the tables are those that this crate reads and writes. Changes nothing.
pub async fn check_migrations(opening: &Opening) -> Result<(), Error> {
    let store = Store::open(opening.settings(true)).await?;
    let checked = migrate::check(&mut store.reader().await?.conn(), store.place()).await;
    store.close().await;
    Ok(checked?)
}

/// Makes the tables, or brings them up to date. A SQLite file that does not exist is made.
pub async fn migrate(opening: &Opening) -> Result<(), Error> {
    let store = Store::open(opening.settings(false)).await?;
    let clock = clock_of(&store, opening.held_at).await?;
    let migrated = store.naming(migrate::up(&store, clock.now()).await);
    store.close().await;
    Ok(migrated?)
}

async fn clock_of(store: &Store, held_at: Option<Timestamp>) -> Result<Clock, Error> {
    let clock = match held_at {
        Some(moment) => Clock::Held(Arc::new(moment.as_micros().into())),
        None if store.is_postgres() => Clock::Database(Arc::default()),
        None => Clock::System,
    };
    session::measure(store, &clock, &mut store.apart().await?).await?;
    Ok(clock)
}

async fn described(store: &Store) -> Result<Vec<Definition>, Error> {
    let mut known: Vec<Definition> = Vec::new();
    for (name, kept) in machines::all(&mut store.reader().await?.conn()).await? {
        let machine: Machine = serde_json::from_str(&kept.definition).map_err(|error| crate::store::error::StoreError::Corrupt {
            what: format!("definition {} of the machine `{name}` cannot be read: {error}", kept.hash),
        })?;
        let definitions = match known.last() {
            Some(last) if last.machine.name == name => known.pop().map_or(0, |last| last.definitions),
            _ => 0,
        };
        known.push(Definition { machine, hash: kept.hash, first_seen_at: kept.first_seen_at, definitions: definitions + 1 });
    }
    Ok(known)
}
