//! Schedules: declarations of a program that events are sent at given moments.

pub(crate) mod calendar;
pub(crate) mod declaring;
mod firing;

pub use fsm_core::decide::schedule::Missed;

use std::collections::HashSet;
use std::marker::PhantomData;
use std::sync::Arc;

use fsm_core::time::Timestamp;
use jiff::Zoned;
use jiff::civil::Date;

use crate::encode;
use crate::error::Error;
use crate::guard;
use crate::registry::{EventFor, Machine, MachineEntry};
use calendar::{Calendar, Timetable};

/// The maximum length of a name, in bytes. A dedup id has room for the name and the moment.
const LONGEST_NAME: usize = 200;

/// The moments at which an event is sent. [`send`](Schedule::send) says which event; the result is given to the builder's
/// [`schedule`](crate::runtime::Builder::schedule).
///
/// ```
/// # use fsm_runtime::{registry::{EventFor, Machine}, runtime::{Builder, Runtime}, schedule::{Missed, Schedule}};
/// # fn build<Report: Machine, StartReport: EventFor<Report> + From<jiff::civil::Date>>() -> Builder {
/// Runtime::builder().schedule(
///     Schedule::cron("nightly-report", "0 2 * * *").time_zone("Europe/Berlin")
///         .send::<Report>(|due| (format!("report-{}", due.date()), StartReport::from(due.date())))
///         .missed(Missed::Latest))
/// # }
/// ```
///
/// `K` and `E` are the key and the event; the compiler finds them.
#[must_use = "a schedule does nothing until it says what it sends and is given to the builder"]
pub struct Schedule<K, E> {
    name: Option<String>,
    timetable: Timetable,
    zone: String,
    missed: Missed,
    sends: PhantomData<fn() -> (K, E)>,
}

/// A schedule with its event, for the builder's [`schedule`](crate::runtime::Builder::schedule).
#[derive(Clone)]
#[must_use = "a schedule does nothing until it is given to the builder"]
pub struct DeclaredSchedule {
    name: String,
    timetable: Timetable,
    zone: String,
    missed: Missed,
    machine: &'static MachineEntry,
    event_of: EventOf,
}

/// The event of a moment, with the limit of a payload in bytes.
type EventOf = Arc<dyn Fn(&Due, usize) -> Result<EventToSend, Error> + Send + Sync>;

/// The event that a schedule sends at a moment.
pub(crate) struct EventToSend {
    pub(crate) key: String,
    pub(crate) event: &'static str,
    pub(crate) payload: Vec<u8>,
}

/// The moment for which a schedule sends an event.
#[derive(Debug, Clone)]
pub struct Due {
    schedule: Arc<str>,
    at: Timestamp,
    zoned: Zoned,
    is_triggered: bool,
}

/// A declared schedule that was checked.
pub(crate) struct Planned {
    pub(crate) name: Arc<str>,
    pub(crate) machine: &'static str,
    pub(crate) timetable: Timetable,
    pub(crate) zone: String,
    pub(crate) missed: Missed,
    pub(crate) calendar: Calendar,
    event_of: EventOf,
}

impl<K, E> Schedule<K, E> {
    /// The moments of a cron expression, in UTC unless a [time zone](Schedule::time_zone) is set. `name` identifies the schedule in the
    /// database; it has 1 to 200 bytes.
    ///
    /// The expression has five fields (minute, hour, day of the month, month, day of the week), or six with the seconds first, and at most
    /// 128 bytes. `L`, `W` and `#` and the names `@hourly`, `@daily`, `@weekly`, `@monthly` and `@yearly` are accepted. If both days are
    /// restricted, one of them has to match.
    ///
    /// # Daylight saving time
    ///
    /// An expression *names times of day* if neither its minute nor its hour begins with `*`. A time that the clock skips is then sent at the end
    /// of the gap, and a time that it shows twice is sent the first time only. Any other expression is a *rhythm*, such as `*/10 * * * *`: it
    /// is sent whenever the clock shows a time that matches. Times that the clock skips are then left out, and times that it shows twice are sent
    /// twice.
    pub fn cron(name: impl Into<String>, expression: impl Into<String>) -> Schedule<K, E> {
        Schedule::of(Some(name.into()), Timetable::Cron(expression.into()))
    }

    /// The multiples of an interval since 1970-01-01T00:00:00Z, so that all processes agree: `every("5m")` is sent at minutes 0, 5, 10 and so on.
    /// An interval is a duration such as `30s`, `5m` or `1h30m`, from 1 s to 366 days.
    ///
    /// The name of the schedule is that of the machine and the interval, like `report-every-5m`, unless [`name`](Schedule::name) sets another.
    pub fn every(interval: impl Into<String>) -> Schedule<K, E> {
        Schedule::of(None, Timetable::Every(interval.into()))
    }

    fn of(name: Option<String>, timetable: Timetable) -> Schedule<K, E> {
        Schedule { name, timetable, zone: "UTC".to_owned(), missed: Missed::default(), sends: PhantomData }
    }

    /// The name, which identifies the schedule in the database. A schedule with another name is another schedule.
    pub fn name(self, name: impl Into<String>) -> Self {
        Schedule { name: Some(name.into()), ..self }
    }

    /// The time zone of the cron expression and of [`Due::date`], by its name in the IANA database, such as `Europe/Berlin`; `UTC` by default.
    /// The system's copy of that database is used, and a built-in one if the system has none.
    pub fn time_zone(self, zone: impl Into<String>) -> Self {
        Schedule { zone: zone.into(), ..self }
    }

    /// The moments that are sent after a time in which no worker was running; [`Missed::Latest`] by default.
    pub fn missed(self, missed: Missed) -> Self {
        Schedule { missed, ..self }
    }

    /// The event for each moment: the key of the instance of `M` that gets it, and the event.
    ///
    /// The function is called for each moment, on the engine's own task, so it should be short. If it panics, or if the event is refused, the
    /// moment is not sent: the schedule's row, `fsm schedules`, `fsm doctor` and the log say why, and the next moment comes as usual.
    pub fn send<M: Machine>(self, event_of: impl Fn(&Due) -> (K, E) + Send + Sync + 'static) -> DeclaredSchedule
    where
        K: AsRef<str>,
        E: EventFor<M>,
    {
        let Schedule { name, timetable, zone, missed, .. } = self;
        let event_of = move |due: &Due, limit: usize| {
            let (key, event) = guard::guarded("the function of the schedule", || {
                let (key, event) = event_of(due);
                (key.as_ref().to_owned(), event)
            })
            .map_err(Error::input)?;
            encode::check_key(&key)?;
            let payload = encode::payload(&event, E::EVENT, limit);
            guard::dropped("the event's `Drop`", event).map_err(Error::input)?;
            Ok(EventToSend { key, event: E::EVENT, payload: payload? })
        };
        let name = name.unwrap_or_else(|| format!("{}-{timetable}", M::NAME).replace(' ', "-"));
        DeclaredSchedule { name, timetable, zone, missed, machine: M::ENTRY, event_of: Arc::new(event_of) }
    }
}

impl DeclaredSchedule {
    /// The moments that are sent after a time in which no worker was running; [`Missed::Latest`] by default.
    pub fn missed(self, missed: Missed) -> Self {
        DeclaredSchedule { missed, ..self }
    }

    /// The machine that gets the events.
    pub(crate) fn machine(&self) -> &'static MachineEntry {
        self.machine
    }

    fn plan(&self) -> Result<Planned, Error> {
        let name = &self.name;
        let reject = |why: &str| Error::input(format!("the schedule `{}` cannot run: {why}", name.escape_debug()));
        if name.is_empty() || name.len() > LONGEST_NAME || name.contains('\0') {
            return Err(reject(&format!("its name has 1 to {LONGEST_NAME} bytes and no NUL")));
        }
        let calendar = Calendar::new(&self.timetable, &self.zone).map_err(|why| reject(&why))?;
        Ok(Planned {
            name: name.as_str().into(),
            machine: self.machine.name,
            timetable: self.timetable.clone(),
            zone: self.zone.clone(),
            missed: self.missed,
            calendar,
            event_of: Arc::clone(&self.event_of),
        })
    }
}

/// Checks all schedules of a program. The error names the schedule and says what is wrong with it.
pub(crate) fn plan(declared: &[DeclaredSchedule]) -> Result<Vec<Planned>, Error> {
    let mut names = HashSet::new();
    declared
        .iter()
        .map(|one| {
            if !names.insert(&one.name) {
                return Err(Error::input(format!("two schedules are named `{}`; give one another name", one.name.escape_debug())));
            }
            one.plan()
        })
        .collect()
}

impl Planned {
    /// The event for the moment `at`, with the limit of a payload in bytes.
    pub(crate) fn event(&self, at: Timestamp, is_triggered: bool, limit: usize) -> Result<EventToSend, Error> {
        let moment = jiff::Timestamp::from_microsecond(at.as_micros())
            .map_err(|_| Error::input(format!("the moment {at} is outside of the years that a schedule has")))?;
        let zoned = moment.to_zoned(self.calendar.zone().clone());
        let due = Due { schedule: Arc::clone(&self.name), at, zoned, is_triggered };
        (self.event_of)(&due, limit)
    }
}

impl Due {
    /// The name of the schedule.
    pub fn schedule(&self) -> &str {
        &self.schedule
    }

    /// The moment. It is when the event should be sent; if no worker was running then, the event is sent later.
    pub fn at(&self) -> Timestamp {
        self.at
    }

    /// The date of the moment in the time zone of the schedule. `Display` is `2026-11-22`.
    pub fn date(&self) -> Date {
        self.zoned.date()
    }

    /// The moment with the date, the time of day and the time zone of the schedule.
    pub fn zoned(&self) -> &Zoned {
        &self.zoned
    }

    /// True if an operator triggered the schedule, by `fsm schedules trigger` or in the console. The moment is then that of the request.
    pub fn is_triggered(&self) -> bool {
        self.is_triggered
    }
}
