//! Opening a database for an operator: the whole database, or one of its partitions.

use std::sync::Arc;
use std::time::Duration;

use fsm_core::partition::{Partition, partition_of};
use fsm_core::time::Timestamp;
use fsm_store::open::Store;
use fsm_store::partition_place::PartitionPlace;
use fsm_store::partitions;
use fsm_store::settings::Settings;

use crate::clock::Clock;
use crate::engine::Engine;
use crate::engine_access::EngineAccess;
use crate::error::Error;
use crate::limits::Limits;
use crate::redact::{Redactable, Redaction};
use crate::session;

/// The time for which a read of one of all partitions is repeated.
const PATIENCE_OF_ONE: Duration = Duration::from_secs(2);

/// The way to open a database for an operator.
#[derive(Clone)]
pub struct Opening {
    pub(super) from: Source,
    pub(super) selected: Selected,
    pub(super) writes: bool,
    pub(super) held_at: Option<Timestamp>,
    pub(super) redaction: Redaction,
}

#[derive(Clone)]
pub(super) enum Source {
    Url(String),
    EngineAccess(EngineAccess),
}

impl Opening {
    /// Opens the database for reading. Nothing in it changes, no writer waits, and a read-only file is enough.
    pub fn to_read(url: impl Into<String>) -> Opening {
        let (from, selected) = (Source::Url(url.into()), Selected::default());
        Opening { from, selected, writes: false, held_at: None, redaction: Redaction::default() }
    }

    /// Opens the database for acts and sends. The tables must exist and be up to date; they are not migrated.
    pub fn to_act(url: impl Into<String>) -> Opening {
        Opening { writes: true, ..Opening::to_read(url) }
    }

    /// Uses the connections of a running program, inside that program. The redaction of the program's builder applies.
    pub fn inside(inside: impl Into<EngineAccess>) -> Opening {
        Opening { from: Source::EngineAccess(inside.into()), ..Opening::to_act("") }
    }

    /// The same database, for acts and sends.
    pub fn acting(self) -> Opening {
        Opening { writes: true, ..self }
    }

    /// Selects the partition with this number of a database with partitions.
    pub fn partition(self, number: u32) -> Opening {
        Opening { selected: Selected::Number(number), ..self }
    }

    /// Selects the partition of the instance with this key, if the database has partitions. A partition that was selected by its number stays
    /// selected.
    pub fn of_key(self, key: &str) -> Opening {
        match self.selected {
            Selected::Number(_) | Selected::Place(_) => self,
            Selected::Nothing | Selected::OfKey(_) => Opening { selected: Selected::OfKey(key.to_owned()), ..self },
        }
    }

    /// Selects the partition at this place. Nothing reads the directory again.
    pub(super) fn at_place(self, place: PartitionPlace) -> Opening {
        Opening { selected: Selected::Place(place), ..self }
    }

    /// The limits of the requests. A read of one of all partitions leaves that one out soon, because the lists of the others wait for it. An act
    /// waits for a partition that may be on its way to another server.
    pub(super) fn limits(&self) -> Limits {
        match self.selected {
            Selected::Place(_) if !self.writes => Limits { patience: PATIENCE_OF_ONE, ..Limits::default() },
            _ => Limits::default(),
        }
    }

    /// Returns true if a partition is selected.
    pub(super) fn has_selected(&self) -> bool {
        !matches!(self.selected, Selected::Nothing)
    }

    /// Sets the redaction of payloads, records and errors that are shown. Inside a program, the program's own redaction applies instead.
    pub fn redact(self, redact: impl Fn(&Redactable<'_>) -> Option<String> + Send + Sync + 'static) -> Opening {
        Opening { redaction: Redaction::by(redact), ..self }
    }

    /// Uses a clock that always shows `moment`: for tests, and to look at a past moment.
    pub fn at(self, moment: Timestamp) -> Opening {
        Opening { held_at: Some(moment), ..self }
    }

    /// Returns true if the database is PostgreSQL. The answer does not need a connection.
    pub fn is_postgres(&self) -> bool {
        match &self.from {
            Source::Url(url) => url.starts_with("postgres"),
            Source::EngineAccess(inside) => inside.engines.first().store.is_postgres(),
        }
    }

    /// Opens the store for writing, with `deadline` as the limit on one statement.
    pub(super) async fn with_deadline(&self, deadline: Duration) -> Result<Opened, Error> {
        match &self.from {
            Source::Url(url) => open(Settings { deadline, ..Settings::new(url) }, &self.selected).await,
            Source::EngineAccess(_) => self.store(false).await,
        }
    }

    pub(super) async fn store(&self, read_only: bool) -> Result<Opened, Error> {
        match &self.from {
            Source::Url(url) => open(Settings { read_only, connections: 4, ..Settings::new(url) }, &self.selected).await,
            Source::EngineAccess(inside) => {
                let engine = self.selected.engine(inside)?;
                Ok(Opened { store: engine.store.clone(), is_ours: false, partition: engine.partition })
            }
        }
    }
}

/// A store, whether it was opened here and must be closed here, and the partition that was selected.
pub(super) struct Opened {
    pub(super) store: Store,
    is_ours: bool,
    pub(super) partition: Option<Partition>,
}

impl Opened {
    /// Closes the store if it was opened here.
    pub(super) async fn close(&self) {
        if self.is_ours {
            self.store.close().await;
        }
    }
}

/// The partition of a database that is opened.
#[derive(Debug, Clone, Default)]
pub(super) enum Selected {
    /// None: the database must have no partitions.
    #[default]
    Nothing,
    /// The partition with this number.
    Number(u32),
    /// The partition at this place.
    Place(PartitionPlace),
    /// The partition of this key, if the database has partitions.
    OfKey(String),
}

/// Opens the database, or the selected partition of a database with partitions.
///
/// Returns an `is_input` error if the selection does not fit, and `is_database` if the schema is not the partition that the directory says.
async fn open(settings: Settings, selected: &Selected) -> Result<Opened, Error> {
    if let Selected::Place(place) = selected {
        return open_partition(&settings, place).await;
    }
    let store = Store::open(settings.clone()).await?;
    let places = partitions::directory(&store).await?;
    let Some(place) = selected.chosen(&store.place(), places.len())?.map(|chosen| &places[chosen]) else {
        return Ok(Opened { store, is_ours: true, partition: None });
    };
    store.close().await;
    open_partition(&settings, place).await
}

async fn open_partition(directory: &Settings, place: &PartitionPlace) -> Result<Opened, Error> {
    let store = Store::open(place.settings(directory)).await?;
    partitions::check(&store, place).await?;
    Ok(Opened { store, is_ours: true, partition: Some(place.partition) })
}

impl Selected {
    /// The engine of the selected partition, inside a program.
    pub(super) fn engine<'e>(&self, inside: &'e EngineAccess) -> Result<&'e Arc<Engine>, Error> {
        let all = inside.engines.all();
        let first = &all[0];
        let of = if first.partition.is_some() { all.len() } else { 0 };
        Ok(&all[self.chosen(&first.store.place(), of)?.unwrap_or_default()])
    }

    /// The place of the selected partition among the `of` partitions of the database `name`. `None` for a database without partitions.
    fn chosen(&self, name: &str, of: usize) -> Result<Option<usize>, Error> {
        let last = of.saturating_sub(1);
        match self {
            Selected::Place(place) => Ok(Some(place.partition.number() as usize)),
            Selected::Number(_) if of == 0 => Err(Error::input(format!("{name} has no partitions; leave out `--partition`"))),
            Selected::Nothing | Selected::OfKey(_) if of == 0 => Ok(None),
            Selected::Nothing if of == 1 => Ok(Some(0)),
            Selected::Nothing => {
                Err(Error::input(format!("{name} has {of} partitions; select one with `--partition N`, where N is from 0 to {last}")))
            }
            Selected::OfKey(key) => Ok(Some(partition_of(key, u32::try_from(of).unwrap_or(u32::MAX)) as usize)),
            Selected::Number(number) if (*number as usize) < of => Ok(Some(*number as usize)),
            Selected::Number(number) => {
                Err(Error::input(format!("{name} has {of} partitions, from 0 to {last}, and no partition {number}")))
            }
        }
    }
}

pub(super) async fn clock_of(store: &Store, held_at: Option<Timestamp>) -> Result<Clock, Error> {
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
