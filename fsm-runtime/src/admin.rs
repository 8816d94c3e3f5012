//! Access for operators to a database that a runtime has used, without the program's code. The machine definitions come from the database,
//! and acts and sends go through the same committer as those of a program.

pub mod checkup;
pub mod groups;
pub mod limits;
pub mod look;
pub mod merged;
mod opening;
#[cfg(feature = "postgres")]
pub mod partition_move;
pub mod partitions;
pub mod schedules;
pub mod transfer;
pub mod whole;

use std::sync::Arc;

use fsm_core::commit::instance_key::InstanceKey;
use fsm_core::decide::operate::Act;
use fsm_core::machine::Machine;
use fsm_core::partition::Partition;
use fsm_core::time::Timestamp;
use fsm_store::machines::{self, Definition as Kept};
use fsm_store::migrate::{self, Step};
use fsm_store::open::Store;
use fsm_store::workers;

use crate::catalog::Catalog;
use crate::data_protection::DataProtection;
use crate::doctor::Report;
use crate::encode;
use crate::engine::{Engine, OpenDatabase};
use crate::engine_access::EngineAccess;
use crate::engines::{ClientGuard, Engines};
use crate::error::{Error, ErrorKind};
use crate::handle::operate::OperateRequest;
use crate::handle::send::SendRequest;
use crate::redact::Redactable;
pub use opening::Opening;
use opening::{Opened, Source, clock_of};

/// A machine as the database describes it.
#[derive(Debug, Clone, PartialEq)]
pub struct Definition {
    /// The current definition: the one that a process was started with last.
    pub machine: Machine,
    /// Its hash.
    pub hash: String,
    /// When it was first started.
    pub first_seen_at: Timestamp,
    /// When it was started last.
    pub last_seen_at: Timestamp,
    /// The number of definitions of this machine that were ever started.
    pub definitions: usize,
    /// The states of all definitions, those of the current one first. An instance may be in a state that only an older definition has.
    pub states: Vec<String>,
}

impl Definition {
    /// A definition that no start has stored yet.
    fn unstored(machine: Machine) -> Definition {
        let states = states_of(&machine, Vec::new());
        Definition {
            machine,
            hash: String::new(),
            first_seen_at: Timestamp::default(),
            last_seen_at: Timestamp::default(),
            definitions: 0,
            states,
        }
    }

    /// The definition of this name among all of the database `place`. The text of an `is_not_found` error lists them.
    fn find<'d>(all: &'d [Definition], name: &str, place: &str) -> Result<&'d Definition, Error> {
        all.iter().find(|known| known.machine.name == name).ok_or_else(|| {
            let names: Vec<_> = all.iter().map(|known| format!("`{}`", known.machine.name.escape_debug())).collect();
            let has =
                if names.is_empty() { "no machine was ever started on it".to_owned() } else { format!("it has {}", names.join(", ")) };
            Error::other(ErrorKind::NotFound, format!("{place} has no machine `{}`; {has}", name.escape_debug()))
        })
    }
}

/// An open database, as operators use it. Cheap to clone.
#[derive(Clone)]
pub struct Admin {
    engine: Arc<Engine>,
    client_guard: Option<Arc<ClientGuard>>,
    machines: Arc<[Definition]>,
    /// The connections were opened for this value.
    is_own: bool,
    /// The database with the directory, if the connections were opened for this value.
    url: Option<Arc<str>>,
}

impl Admin {
    /// Opens a database and reads its machines.
    ///
    /// Returns an `is_database` error if the URL is invalid, or if the database is unreachable, has no tables of this crate, or has those
    /// of another version; and `is_input` if it has partitions and none is selected.
    pub async fn open(opening: Opening) -> Result<Admin, Error> {
        if let Source::EngineAccess(inside) = opening.from {
            let (engine, client_guard) = (Arc::clone(opening.selected.engine(&inside)?), inside.client_guard);
            let mut machines = described(&engine.store).await?;
            // The program's own definitions count even if no start has stored them yet.
            for own in engine.catalog.iter() {
                let machine = (*own.machine).clone();
                match machines.iter_mut().find(|known| known.machine.name == machine.name) {
                    Some(known) => {
                        known.states = states_of(&machine, std::mem::take(&mut known.states));
                        known.machine = machine;
                    }
                    None => machines.push(Definition::unstored(machine)),
                }
            }
            machines.sort_by(|a, b| a.machine.name.cmp(&b.machine.name));
            return Ok(Admin { engine, client_guard, machines: machines.into(), is_own: false, url: None });
        }
        // Opened for reading first, also for acts: a missing file is not created, and tables of another version are left alone.
        let url = match &opening.from {
            Source::Url(url) => Some(Arc::from(url.as_str())),
            Source::EngineAccess(_) => None,
        };
        let Opened { store: reading, partition, .. } = opening.store(true).await?;
        migrate::check(&mut reading.reader().await?.conn(), &reading.place()).await?;
        let machines = described(&reading).await?;
        let store = if opening.writes {
            reading.close().await;
            opening.store(false).await?.store
        } else {
            reading
        };
        let limits = opening.limits();
        let data_protection = DataProtection { redaction: opening.redaction, ..DataProtection::default() };
        let clock = clock_of(&store, opening.held_at).await?;
        let catalog = Catalog::described(machines.iter().map(|known| known.machine.clone()));
        let engine = Engine::new(OpenDatabase { store, clock, partition, is_prepared: true }, catalog, (limits, data_protection), None);
        if opening.writes {
            engine.start_lanes();
        }
        let client_guard = Some(Arc::new(ClientGuard(Engines::only(&engine))));
        Ok(Admin { engine, client_guard, machines: machines.into(), is_own: true, url })
    }

    /// The same database, with its machines read again: a process may have been started with other ones since.
    pub async fn refreshed(&self) -> Result<Admin, Error> {
        if !self.is_own {
            return Admin::open(Opening::inside(EngineAccess::from(self))).await;
        }
        let machines = described(&self.engine.store).await?.into();
        Ok(Admin { machines, ..self.clone() })
    }

    /// The current time of the database's clock.
    pub fn now(&self) -> Timestamp {
        self.engine.clock.now()
    }

    /// The name of the database as it appears in messages, without the password.
    pub fn place(&self) -> String {
        self.engine.store.place()
    }

    /// The partition that was selected; `None` if the database has no partitions.
    pub fn partition(&self) -> Option<Partition> {
        self.engine.partition
    }

    /// Returns true if the database is PostgreSQL.
    pub fn is_postgres(&self) -> bool {
        self.engine.store.is_postgres()
    }

    /// Every machine that was ever started on this database, by name.
    pub fn machines(&self) -> &[Definition] {
        &self.machines
    }

    /// The machine of this name. The text of an `is_not_found` error lists the known machines.
    pub fn machine(&self, name: &str) -> Result<&Definition, Error> {
        Definition::find(&self.machines, name, &self.place())
    }

    /// An operator's act on one instance. It is carried out when the request is awaited.
    pub fn operate(&self, machine: &str, key: &str, act: Act) -> OperateRequest {
        OperateRequest::new(Arc::clone(&self.engine), self.client_guard.clone(), InstanceKey::new(machine, key), act, None)
    }

    /// Sends an event as JSON to an instance. The event is sent when the request is awaited, and the graph decides whether it is accepted.
    ///
    /// Inside a program, a payload that does not decode as the event is an `is_input` error at once. Outside, only the verb can find that
    /// out, because the type is not known here.
    pub fn send(&self, machine: &str, key: &str, event: &str, json: &str) -> SendRequest {
        let payload = encode::raw_payload(json, event, self.engine.limits.payload);
        let why_not = |bytes: &[u8]| self.engine.catalog.get(machine)?.why_not(event, bytes);
        let payload = payload.and_then(|bytes| match why_not(&bytes) {
            Some(why) => Err(Error::input(format!("the payload does not decode as `{}`: {why}", event.escape_debug()))),
            None => Ok(bytes),
        });
        SendRequest::new(Arc::clone(&self.engine), self.client_guard.clone(), machine, key, event, payload)
    }

    /// The text after the redaction that the program's builder set.
    pub fn redacted(&self, shown: Redactable<'_>) -> String {
        self.engine.data_protection.redaction.of(shown).into_owned()
    }

    /// Checks every invariant and returns the rows that violate them. Reads whole tables.
    pub async fn examine(&self) -> Result<Report, Error> {
        self.engine.examine().await
    }

    /// All running worker processes, and dead ones whose sessions have not been removed yet.
    pub async fn workers(&self) -> Result<Vec<workers::Worker>, Error> {
        self.engine.read(|| async { Ok(workers::workers(&mut self.engine.store.reader().await?.conn()).await?) }).await
    }

    /// Closes the connections if they were opened for this value, and leaves those of a program open.
    pub async fn close_if_own(&self) {
        if self.is_own {
            self.close().await;
        }
    }

    /// Closes the connections.
    pub async fn close(&self) {
        self.engine.store.close().await;
    }
}

/// The migrations that this crate knows and those that the database has. The database need not have any of our tables. Changes nothing.
pub async fn migrations(opening: &Opening) -> Result<Vec<Step>, Error> {
    let opened = opening.store(true).await?;
    let steps = migrate::status(&mut opened.store.reader().await?.conn()).await?;
    opened.close().await;
    Ok(steps)
}

/// Returns an `is_database` error unless the tables are of the version that this crate reads and writes. Changes nothing.
pub async fn check_migrations(opening: &Opening) -> Result<(), Error> {
    let opened = opening.store(true).await?;
    let checked = migrate::check(&mut opened.store.reader().await?.conn(), &opened.store.place()).await;
    opened.close().await;
    Ok(checked?)
}

/// Creates the tables or migrates them. Creates a SQLite file that does not exist.
pub async fn migrate(opening: &Opening) -> Result<(), Error> {
    let opened = opening.store(false).await?;
    let store = &opened.store;
    let clock = clock_of(store, opening.held_at).await?;
    let migrated = store.naming(migrate::up(store, clock.now()).await);
    opened.close().await;
    Ok(migrated?)
}

/// The states of a machine, followed by those that only `older` definitions have.
fn states_of(machine: &Machine, older: Vec<String>) -> Vec<String> {
    let older = older.into_iter().filter(|state| machine.states().all(|known| known != *state));
    machine.states().map(str::to_owned).chain(older).collect()
}

async fn described(store: &Store) -> Result<Vec<Definition>, Error> {
    let mut known: Vec<Definition> = Vec::new();
    for (name, kept) in machines::all(&mut store.reader().await?.conn()).await? {
        let machine: Machine = serde_json::from_str(&kept.definition).map_err(|error| fsm_store::error::StoreError::Corrupt {
            what: format!("definition {} of the machine `{name}` cannot be read: {error}", kept.hash),
        })?;
        let (definitions, older) = match known.pop_if(|last| last.machine.name == name) {
            Some(last) => (last.definitions, last.states),
            None => (0, Vec::new()),
        };
        let states = states_of(&machine, older);
        let Kept { hash, first_seen_at, last_seen_at, .. } = kept;
        known.push(Definition { machine, hash, first_seen_at, last_seen_at, definitions: definitions + 1, states });
    }
    Ok(known)
}

impl From<&Admin> for EngineAccess {
    fn from(admin: &Admin) -> EngineAccess {
        EngineAccess::new(&Engines::only(&admin.engine), admin.client_guard.as_ref())
    }
}
