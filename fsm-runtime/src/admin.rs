//! The operator's door: any database that a runtime has used, without its program's code. The machines are those that the database
//! describes, and what is done goes through the same committer as all else.

pub mod checkup;
pub mod look;
pub mod transfer;

use std::sync::Arc;
use std::time::Duration;

use fsm_core::decide::operate::Act;
use fsm_core::machine::Machine;
use fsm_core::time::Timestamp;

use crate::catalog::Catalog;
use crate::clock::Clock;
use crate::committer::request::InstanceKey;
use crate::data_protection::DataProtection;
use crate::doctor::Report;
use crate::encode;
use crate::engine::{ClientGuard, Engine};
use crate::engine_access::EngineAccess;
use crate::error::{Error, ErrorKind};
use crate::handle::operate::OperateRequest;
use crate::handle::send::SendRequest;
use crate::limits::Limits;
use crate::redact::{Redactable, Redaction};
use crate::session;
use crate::store::machines::{self, Definition as Kept};
use crate::store::migrate::{self, Step};
use crate::store::open::{Settings, Store};
use crate::store::overview;

/// How a database is opened for an operator.
#[derive(Clone)]
pub struct Opening {
    from: Source,
    writes: bool,
    held_at: Option<Timestamp>,
    redaction: Redaction,
}

#[derive(Clone)]
enum Source {
    Url(String),
    EngineAccess(EngineAccess),
}

impl Opening {
    /// For reading: nothing of the database changes, no writer waits, and a read-only file will do.
    pub fn to_read(url: impl Into<String>) -> Opening {
        Opening { from: Source::Url(url.into()), writes: false, held_at: None, redaction: Redaction::default() }
    }

    /// For acts and sends. The tables must be there and up to date: they are not migrated.
    pub fn to_act(url: impl Into<String>) -> Opening {
        Opening { writes: true, ..Opening::to_read(url) }
    }

    /// EngineAccess a program, by the connections that it has. What the program's builder says of secrets holds here too.
    pub fn inside(inside: impl Into<EngineAccess>) -> Opening {
        Opening { from: Source::EngineAccess(inside.into()), ..Opening::to_act("") }
    }

    /// The same for acts and sends.
    pub fn acting(self) -> Opening {
        Opening { writes: true, ..self }
    }

    /// With what takes secrets out of payloads, records and errors before they are shown. EngineAccess a program it is the program's own.
    pub fn redact(self, redact: impl Fn(&Redactable<'_>) -> Option<String> + Send + Sync + 'static) -> Opening {
        Opening { redaction: Redaction::by(redact), ..self }
    }

    /// With a clock that shows this moment and does not go on: for tests, and for looking back.
    pub fn at(self, moment: Timestamp) -> Opening {
        Opening { held_at: Some(moment), ..self }
    }

    /// Whether it is PostgreSQL, as far as can be said without opening it.
    pub fn is_postgres(&self) -> bool {
        match &self.from {
            Source::Url(url) => url.starts_with("postgres"),
            Source::EngineAccess(inside) => inside.engine.store.is_postgres(),
        }
    }

    /// For writing, where one statement may take so long.
    async fn patient(&self, deadline: Duration) -> Result<Opened, Error> {
        match &self.from {
            Source::Url(url) => Ok(Opened { store: Store::open(Settings { deadline, ..Settings::new(url) }).await?, is_ours: true }),
            Source::EngineAccess(_) => self.store(false).await,
        }
    }

    async fn store(&self, read_only: bool) -> Result<Opened, Error> {
        match &self.from {
            Source::Url(url) => {
                let store = Store::open(Settings { read_only, connections: 4, ..Settings::new(url) }).await?;
                Ok(Opened { store, is_ours: true })
            }
            Source::EngineAccess(inside) => Ok(Opened { store: inside.engine.store.clone(), is_ours: false }),
        }
    }
}

/// A store that was opened here, or is another's.
struct Opened {
    store: Store,
    is_ours: bool,
}

impl Opened {
    /// Done with it.
    async fn close(&self) {
        if self.is_ours {
            self.store.close().await;
        }
    }
}

/// A machine as the database describes it.
#[derive(Debug, Clone, PartialEq)]
pub struct Definition {
    /// The definition that counts: the one that a process was started with last.
    pub machine: Machine,
    /// Its hash.
    pub hash: String,
    /// When it was first started.
    pub first_seen_at: Timestamp,
    /// When it was started last.
    pub last_seen_at: Timestamp,
    /// How many definitions of this machine were ever started.
    pub definitions: usize,
    /// The states of all of them, those of the one that counts first: an instance may be in a state that only an older one has.
    pub states: Vec<String>,
}

impl Definition {
    /// One that no start has written down.
    fn unseen(machine: Machine) -> Definition {
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
}

/// A database as an operator has it open. Cheap to clone.
#[derive(Clone)]
pub struct Admin {
    engine: Arc<Engine>,
    client_guard: Option<Arc<ClientGuard>>,
    machines: Arc<[Definition]>,
}

impl Admin {
    /// Opens a database and reads which machines it has.
    ///
    /// `is_database` errors: a URL that is none, a database that is out of reach, has no tables of this crate, or has those of
    /// another version.
    pub async fn open(opening: Opening) -> Result<Admin, Error> {
        if let Source::EngineAccess(EngineAccess { engine, client_guard }) = opening.from {
            let mut machines = described(&engine.store).await?;
            // What the program itself has counts here, also before a start has written it down.
            for own in engine.catalog.iter() {
                let machine = (*own.machine).clone();
                match machines.iter_mut().find(|known| known.machine.name == machine.name) {
                    Some(known) => {
                        known.states = states_of(&machine, std::mem::take(&mut known.states));
                        known.machine = machine;
                    }
                    None => machines.push(Definition::unseen(machine)),
                }
            }
            machines.sort_by(|a, b| a.machine.name.cmp(&b.machine.name));
            return Ok(Admin { engine, client_guard, machines: machines.into() });
        }
        // First to read, also for acts: a file that is not there is not made, and tables of another version are left alone.
        let Opened { store: reading, .. } = opening.store(true).await?;
        migrate::check(&mut reading.reader().await?.conn(), reading.place()).await?;
        let machines = described(&reading).await?;
        let store = if opening.writes {
            reading.close().await;
            opening.store(false).await?.store
        } else {
            reading
        };
        let data_protection = DataProtection { redaction: opening.redaction, ..DataProtection::default() };
        let clock = clock_of(&store, opening.held_at).await?;
        let catalog = Catalog::described(machines.iter().map(|known| known.machine.clone()));
        let engine = Engine::new(store, clock, catalog, (Limits::default(), data_protection), None);
        if opening.writes {
            engine.start_lanes();
        }
        let client_guard = Some(Arc::new(ClientGuard(Arc::clone(&engine))));
        Ok(Admin { engine, client_guard, machines: machines.into() })
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
            Error::other(ErrorKind::NotFound, format!("{} has no machine `{}`; {has}", self.place(), name.escape_debug()))
        })
    }

    /// An operator's act on one instance: nothing happens until it is awaited.
    pub fn operate(&self, machine: &str, key: &str, act: Act) -> OperateRequest {
        OperateRequest::new(Arc::clone(&self.engine), self.client_guard.clone(), InstanceKey::new(machine, key), act, None)
    }

    /// Sends an event to an instance, as JSON. The graph decides whether it is taken. EngineAccess the program the payload is checked at
    /// once, `is_input` if it is no such event; elsewhere when the verb reads it, for only the program knows its type. Nothing happens
    /// until it is awaited.
    pub fn send(&self, machine: &str, key: &str, event: &str, json: &str) -> SendRequest {
        let payload = encode::raw_payload(json, event, self.engine.limits.payload);
        let why_not = |bytes: &[u8]| self.engine.catalog.get(machine)?.why_not(event, bytes);
        let payload = payload.and_then(|bytes| match why_not(&bytes) {
            Some(why) => Err(Error::input(format!("the payload does not decode as `{}`: {why}", event.escape_debug()))),
            None => Ok(bytes),
        });
        SendRequest::new(Arc::clone(&self.engine), self.client_guard.clone(), machine, key, event, payload)
    }

    /// The text as an operator may see it, by what the program's builder says of redaction.
    pub fn redacted(&self, shown: Redactable<'_>) -> String {
        self.engine.data_protection.redaction.of(shown).into_owned()
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
    let opened = opening.store(true).await?;
    let steps = migrate::status(&mut opened.store.reader().await?.conn()).await?;
    opened.close().await;
    Ok(steps)
}

/// `is_database` unless the tables are those that this crate reads and writes. Changes nothing.
pub async fn check_migrations(opening: &Opening) -> Result<(), Error> {
    let opened = opening.store(true).await?;
    let checked = migrate::check(&mut opened.store.reader().await?.conn(), opened.store.place()).await;
    opened.close().await;
    Ok(checked?)
}

/// Makes the tables, or brings them up to date. A SQLite file that does not exist is made.
pub async fn migrate(opening: &Opening) -> Result<(), Error> {
    let opened = opening.store(false).await?;
    let store = &opened.store;
    let clock = clock_of(store, opening.held_at).await?;
    let migrated = store.naming(migrate::up(store, clock.now()).await);
    opened.close().await;
    Ok(migrated?)
}

async fn clock_of(store: &Store, held_at: Option<Timestamp>) -> Result<Clock, Error> {
    let clock = match held_at {
        Some(moment) => Clock::Held(Arc::new(moment.as_micros().into())),
        None if store.is_postgres() => Clock::database(),
        None => Clock::System,
    };
    let mut reader = store.reader().await?;
    let number = reader.number();
    session::measure_on(store, &clock, &mut reader.conn(), number).await?;
    Ok(clock)
}

/// The states of a machine, and behind them those that only `older` definitions have.
fn states_of(machine: &Machine, older: Vec<String>) -> Vec<String> {
    let older = older.into_iter().filter(|state| machine.states().all(|known| known != *state));
    machine.states().map(str::to_owned).chain(older).collect()
}

async fn described(store: &Store) -> Result<Vec<Definition>, Error> {
    let mut known: Vec<Definition> = Vec::new();
    for (name, kept) in machines::all(&mut store.reader().await?.conn()).await? {
        let machine: Machine = serde_json::from_str(&kept.definition).map_err(|error| crate::store::error::StoreError::Corrupt {
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
        EngineAccess::new(&admin.engine, admin.client_guard.as_ref())
    }
}
