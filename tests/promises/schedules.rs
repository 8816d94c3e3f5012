//! Schedules: each moment is sent exactly once, also across processes, crashes, pauses and times without a worker.

use fsm::prelude::*;
use fsm::testing::{TestBed, TestBedBuilder};
use fsm::{DeclaredSchedule, Due};
use fsm_runtime::admin::schedules::{ScheduleAct, ScheduleState};
use fsm_runtime::admin::{Admin, Opening};
use fsm_store::schedules::ScheduleRow;
use serde::{Deserialize, Serialize};

use crate::support::{promise, stride};

const HOUR: Duration = Duration::from_secs(3600);
const DAY: Duration = Duration::from_secs(24 * 3600);

#[derive(Debug, Clone, Serialize, Deserialize)]
struct StartReport {
    day: fsm::jiff::civil::Date,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
struct Tick {
    at: String,
}

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
struct Ticks {
    seen: Vec<String>,
}

#[verb]
async fn reported(_event: StartReport) -> Result {
    Ok(())
}

#[verb]
#[retry("1s")]
async fn ticked(ticks: &mut Ticks, event: Tick) -> Result {
    ticks.seen.push(event.at);
    Ok(())
}

fsm! {
    machine Report = "schedule-report" {
        start reported;
        end reported;
    }
}

fsm! {
    machine Clock = "schedule-clock" {
        keeps Ticks;
        on Tick {
            start ticked;
            ticked -> ticked;
        }
    }
}

fn nightly() -> DeclaredSchedule {
    Schedule::cron("nightly-report", "0 2 * * *")
        .time_zone("Europe/Berlin")
        .send::<Report>(|due| (format!("report-{}", due.date()), StartReport { day: due.date() }))
        .missed(Missed::Latest)
}

/// The moment as the clock of UTC shows it, without the year.
fn tick(due: &Due) -> (&'static str, Tick) {
    ("clock", Tick { at: due.at().to_string()["1970-".len()..].to_owned() })
}

fn every_hour(missed: Missed) -> DeclaredSchedule {
    Schedule::every("1h").name("hourly").send::<Clock>(tick).missed(missed)
}

fn builder() -> TestBedBuilder {
    TestBed::builder().only::<Report>().only::<Clock>()
}

async fn seen(bed: &TestBed) -> Vec<String> {
    bed.machine::<Clock>().get("clock").await.unwrap().map(|clock| clock.record.seen).unwrap_or_default()
}

async fn reports(bed: &TestBed) -> Vec<String> {
    let page = bed.machine::<Report>().list(Filter::default().limit(100)).await.unwrap();
    let mut keys: Vec<_> = page.items.into_iter().map(|report| report.key).collect();
    keys.sort();
    keys
}

/// The database, or the partition of the schedule.
fn admin(bed: &TestBed, schedule: &str) -> impl Future<Output = Admin> {
    let opening = Opening::inside(bed).of_key(schedule);
    async { Admin::open(opening).await.unwrap() }
}

async fn row(bed: &TestBed, name: &str) -> ScheduleRow {
    admin(bed, name).await.schedules().await.unwrap().into_iter().find(|row| row.name == name).unwrap()
}

/// Returns the findings of `fsm doctor` about schedules, in the partition of this one.
async fn findings(bed: &TestBed, schedule: &str) -> Vec<String> {
    let findings = admin(bed, schedule).await.checkup().await.unwrap();
    findings.into_iter().filter(|finding| finding.about == "schedules").map(|finding| finding.says).collect()
}

promise! {
    /// The clock of a test bed begins at 1970-01-01T00:00:00Z or later; each advance stops at each moment.
    async fn a_schedule_sends_its_event_at_each_moment_in_its_time_zone(bed in builder().schedule(nightly())) {
        let begin = bed.now();
        bed.advance(DAY * 3).await;
        let keys = reports(bed).await;
        assert_eq!(keys.len(), 3, "{keys:?} since {begin}");
        let last = bed.machine::<Report>().get(&keys[2]).await.unwrap().unwrap();
        let in_berlin = fsm::jiff::Timestamp::from_microsecond(last.created_at.as_micros()).unwrap().in_tz("Europe/Berlin").unwrap();
        assert_eq!(in_berlin.time(), fsm::jiff::civil::time(2, 0, 0, 0));
        assert_eq!(keys[2], format!("report-{}", in_berlin.date()));
    }
}

promise! {
    async fn of_missed_moments_only_the_latest_is_sent_by_default(bed in builder().schedule(every_hour(Missed::default()))) {
        bed.outage(HOUR * 10 + HOUR / 2).await;
        bed.run_until_idle().await;
        assert_eq!(seen(bed).await.len(), 1, "{:?}", seen(bed).await);
        bed.advance(HOUR * 2).await;
        assert_eq!(seen(bed).await.len(), 3, "{:?}", seen(bed).await);
    }
}

promise! {
    async fn all_missed_moments_are_sent_in_order_if_the_schedule_says_so(bed in builder().schedule(every_hour(Missed::All))) {
        bed.outage(HOUR * 300).await;
        bed.run_until_idle().await;
        let seen = seen(bed).await;
        assert_eq!(seen.len(), 300);
        assert!(seen.is_sorted(), "{seen:?}");
    }
}

promise! {
    async fn no_missed_moment_is_sent_if_the_schedule_says_so(bed in builder().schedule(every_hour(Missed::Skip))) {
        bed.outage(HOUR * 10 + HOUR / 2).await;
        bed.run_until_idle().await;
        assert_eq!(seen(bed).await, [""; 0]);
        bed.advance(HOUR).await;
        assert_eq!(seen(bed).await.len(), 1);
    }
}

promise! {
    async fn two_processes_send_each_moment_once(bed in builder().schedule(every_hour(Missed::All))) {
        let other = builder().schedule(every_hour(Missed::All)).beside(bed).await.unwrap();
        for _ in 0..5 {
            bed.advance(HOUR).await;
            other.run_until_idle().await;
        }
        bed.outage(HOUR * 5).await;
        tokio::join!(bed.run_until_idle(), other.run_until_idle());
        bed.run_until_idle().await;
        let mut seen = seen(bed).await;
        assert_eq!(seen.len(), 10, "{seen:?}");
        seen.dedup();
        assert_eq!(seen.len(), 10, "{seen:?}");
    }
}

promise! {
    async fn a_process_that_dies_anywhere_sends_each_moment_once(bed in builder().schedule(every_hour(Missed::All))) {
        let begin = bed.now();
        // The process dies before each statement, and after each commit before it learns of it.
        let mut deaths = 0;
        for statements in (0..).step_by(stride(bed)) {
            if !bed.crash_after_statements(statements, bed.advance(HOUR)).await {
                break;
            }
            deaths += 1;
        }
        assert!(deaths > 10, "{deaths}");
        bed.advance(HOUR).await;
        let seen = seen(bed).await;
        let hours = bed.now().since(begin).as_secs() / 3600;
        assert_eq!(seen.len() as u64, hours, "{seen:?}");
        assert!(seen.windows(2).all(|pair| pair[0] < pair[1]), "{seen:?}");
    }
}

fn panics_in_odd_hours(due: &Due) -> (&'static str, Tick) {
    assert!(due.zoned().hour() % 2 == 0, "no report at this hour");
    tick(due)
}

promise! {
    async fn a_moment_whose_function_panics_is_recorded_and_the_next_one_is_sent(
        bed in builder().schedule(Schedule::every("1h").name("panicking").send::<Clock>(panics_in_odd_hours))
    ) {
        bed.advance(HOUR).await;
        let row = row(bed, "panicking").await;
        assert_eq!((seen(bed).await.len(), ScheduleState::of(&row, bed.now())), (0, ScheduleState::Failing));
        assert_eq!(row.error.as_deref(), Some("the function of the schedule panicked: no report at this hour"));
        assert!(findings(bed, "panicking").await.iter().any(|says| says.contains("`panicking` did not send its moment")), "{:?}", findings(bed, "panicking").await);
        bed.advance(HOUR).await;
        assert_eq!((seen(bed).await.len(), ScheduleState::of(&self::row(bed, "panicking").await, bed.now())), (1, ScheduleState::Active));
    }
}

promise! {
    /// With partitions, the receiver is in another partition than the schedule. The moment is sent, and its refusal is recorded for the schedule.
    async fn an_event_that_is_refused_does_not_stop_its_schedule(
        bed in builder().schedule(Schedule::every("1h").name("same-key").send::<Report>(|due| ("always-the-same", StartReport { day: due.date() })))
    ) {
        bed.advance(HOUR * 4).await;
        assert_eq!(reports(bed).await, ["always-the-same"]);
        let row = row(bed, "same-key").await;
        assert_eq!(ScheduleState::of(&row, bed.now()), ScheduleState::Failing);
        assert!(row.error.unwrap().contains("`schedule-report` `always-the-same`"));
        assert!(row.failed_at >= row.last_at && row.next_at > row.failed_at);
        let found = findings(bed, "same-key").await;
        assert!(found.iter().any(|says| says.contains("`same-key` did not send its moment")), "{found:?}");
    }
}

promise! {
    async fn a_paused_schedule_sends_nothing_and_what_passed_meanwhile_is_not_sent_later(bed in builder().schedule(every_hour(Missed::All))) {
        let admin = admin(bed, "hourly").await;
        admin.operate_schedule("hourly", ScheduleAct::Pause, Some("ada")).await.unwrap();
        bed.advance(HOUR * 3).await;
        assert_eq!((seen(bed).await.len(), ScheduleState::of(&row(bed, "hourly").await, bed.now())), (0, ScheduleState::Paused));
        assert!(admin.operate_schedule("hourly", ScheduleAct::Pause, None).await.unwrap_err().is_not_allowed());
        admin.operate_schedule("hourly", ScheduleAct::Resume, Some("ada")).await.unwrap();
        bed.run_until_idle().await;
        assert_eq!(seen(bed).await.len(), 0);
        bed.advance(HOUR).await;
        assert_eq!(seen(bed).await.len(), 1);
        assert_eq!(row(bed, "hourly").await.actor.as_deref(), Some("ada"));
    }
}

promise! {
    async fn a_triggered_schedule_sends_one_event_now_also_while_it_is_paused(bed in builder().schedule(every_hour(Missed::All))) {
        bed.advance(Duration::from_secs(90)).await;
        let admin = admin(bed, "hourly").await;
        admin.operate_schedule("hourly", ScheduleAct::Trigger, None).await.unwrap();
        assert!(admin.operate_schedule("hourly", ScheduleAct::Trigger, None).await.unwrap_err().is_not_allowed());
        bed.run_until_idle().await;
        assert_eq!(seen(bed).await.len(), 1);
        admin.operate_schedule("hourly", ScheduleAct::Pause, None).await.unwrap();
        admin.operate_schedule("hourly", ScheduleAct::Trigger, None).await.unwrap();
        bed.run_until_idle().await;
        bed.run_until_idle().await;
        assert_eq!(seen(bed).await.len(), 1, "the same moment as before");
        bed.advance(Duration::from_secs(1)).await;
        admin.operate_schedule("hourly", ScheduleAct::Trigger, None).await.unwrap();
        bed.run_until_idle().await;
        assert_eq!(seen(bed).await.len(), 2);
        let missing = admin.operate_schedule("nightly", ScheduleAct::Trigger, None).await.unwrap_err();
        assert_eq!((missing.is_not_found(), missing.to_string()), (true, "there is no schedule `nightly`; there are `hourly`".to_owned()));
    }
}

promise! {
    /// The first test bed is a process that declared the schedule and is gone.
    async fn a_schedule_that_the_code_no_longer_declares_stops_and_is_reported(bed in builder()) {
        let old = builder().schedule(every_hour(Missed::All)).beside(bed).await.unwrap();
        old.advance(HOUR).await;
        assert_eq!((seen(bed).await.len(), findings(bed, "hourly").await), (1, vec!["1 declared, and none is late".to_owned()]));
        let admin = admin(bed, "hourly").await;
        assert!(admin.operate_schedule("hourly", ScheduleAct::Forget, None).await.unwrap_err().is_not_allowed());
        old.outage(Duration::ZERO).await;
        bed.advance(HOUR * 3).await;
        assert_eq!((seen(bed).await.len(), ScheduleState::of(&row(bed, "hourly").await, bed.now())), (1, ScheduleState::Undeclared));
        assert!(findings(bed, "hourly").await[0].starts_with("no worker has declared the schedule `hourly` since"), "{:?}", findings(bed, "hourly").await);
        admin.operate_schedule("hourly", ScheduleAct::Forget, None).await.unwrap();
        assert!(admin.schedules().await.unwrap().is_empty());
    }
}

fn at_minute(minute: u32) -> DeclaredSchedule {
    Schedule::cron("hourly", format!("{minute} * * * *")).send::<Clock>(tick)
}

promise! {
    /// During a deploy, the definition that was started last counts. Old code goes on with its own when no new code is left.
    async fn old_and_new_code_side_by_side_send_by_one_definition(bed in builder().schedule(at_minute(15))) {
        let new = builder().schedule(at_minute(45)).beside(bed).await.unwrap();
        for _ in 0..120 {
            bed.advance(Duration::from_secs(60)).await;
            new.run_until_idle().await;
        }
        assert_eq!(seen(bed).await, ["01-01T00:45:00Z", "01-01T01:45:00Z"]);
        new.outage(Duration::ZERO).await;
        drop(new);
        bed.advance(HOUR * 2).await;
        assert_eq!(seen(bed).await[2..], ["01-01T02:15:00Z", "01-01T03:15:00Z"]);
        assert_eq!(row(bed, "hourly").await.definition.timetable, "15 * * * *");
    }
}

promise! {
    async fn a_moment_without_room_in_the_inbox_is_sent_when_there_is_room(
        bed in builder().schedule(every_hour(Missed::All)).with(|builder| builder.inbox_limit(1))
    ) {
        bed.advance(HOUR).await;
        bed.machine::<Clock>().pause("clock").await.unwrap();
        bed.advance(HOUR * 4).await;
        assert_eq!(seen(bed).await.len(), 1);
        bed.machine::<Clock>().resume("clock").await.unwrap();
        bed.advance(Duration::from_secs(600)).await;
        assert_eq!(seen(bed).await.len(), 5, "{:?}", seen(bed).await);
    }
}

#[cfg(feature = "sqlite")]
#[tokio::test]
async fn a_start_fails_if_a_schedule_cannot_run_and_says_why() {
    let start = async |schedules: Vec<DeclaredSchedule>| {
        let builder = Runtime::builder().database("sqlite::memory:").only::<Report>();
        let started = schedules.into_iter().fold(builder, fsm::Builder::schedule).start().await;
        let error = started.err().unwrap();
        assert!(error.is_input(), "{error}");
        error.to_string()
    };
    let send = |schedule: Schedule<_, _>| schedule.send::<Report>(|due| ("one", StartReport { day: due.date() }));
    let said = start(vec![send(Schedule::cron("nightly", "0 25 * * *"))]).await;
    assert!(said.starts_with("the schedule `nightly` cannot run: `0 25 * * *` is not a cron expression: "), "{said}");
    let said = start(vec![send(Schedule::cron("nightly", "0 2 * * *").time_zone("Europe/Berln"))]).await;
    assert!(said.starts_with("the schedule `nightly` cannot run: there is no time zone `Europe/Berln`"), "{said}");
    let said = start(vec![send(Schedule::every("10 years"))]).await;
    assert!(said.contains("is not a duration"), "{said}");
    let said = start(vec![send(Schedule::cron("never", "0 0 30 2 *"))]).await;
    assert_eq!(said, "the schedule `never` cannot run: `0 0 30 2 *` has no moment");
    let said = start(vec![send(Schedule::every("5m").name("a")), send(Schedule::every("6m").name("a"))]).await;
    assert_eq!(said, "two schedules are named `a`; give one another name");
    let said = start(vec![send(Schedule::every("5m").name("a".repeat(201)))]).await;
    assert!(said.ends_with("its name has 1 to 200 bytes and no NUL"), "{said}");
}

/// A runtime with a real clock sends an event every second. Two processes share the schedule, and one of them is killed.
async fn runs_by_itself(url: &str) {
    let start = || {
        let every_second = Schedule::every("1s").send::<Clock>(|due| ("clock", Tick { at: due.at().to_string() })).missed(Missed::All);
        Runtime::builder().database(url).only::<Clock>().schedule(every_second).start()
    };
    let (one, other) = (start().await.unwrap(), start().await.unwrap());
    let begun = std::time::Instant::now();
    let seen = async |at_least: usize| {
        loop {
            let clock = other.machine::<Clock>().get("clock").await.unwrap();
            if let Some(seen) = clock.map(|clock| clock.record.seen).filter(|seen| seen.len() >= at_least) {
                return seen;
            }
            assert!(begun.elapsed() < Duration::from_secs(60), "the moments are not sent");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    seen(2).await;
    drop(one);
    let seen = seen(4).await;
    let moments: Vec<_> = seen.iter().map(|at| at.parse::<fsm::jiff::Timestamp>().unwrap().as_second()).collect();
    assert!(moments.windows(2).all(|pair| pair[0] + 1 == pair[1]), "{seen:?}");
    let admin = Admin::open(Opening::inside(&other)).await.unwrap();
    assert_eq!(admin.schedules().await.unwrap()[0].name, "schedule-clock-every-1s");
    other.shutdown().await.unwrap();
}

mod a_runtime_sends_each_moment_by_itself {
    use super::*;

    #[cfg(feature = "sqlite")]
    #[tokio::test(flavor = "multi_thread")]
    async fn sqlite() {
        let folder = crate::support::Folder::new("schedules");
        runs_by_itself(&folder.url("fsm.db")).await;
    }

    #[cfg(feature = "postgres")]
    #[tokio::test(flavor = "multi_thread")]
    async fn postgres() {
        let bed = crate::clumsy::clumsy().postgres().await;
        runs_by_itself(bed.url()).await;
    }
}
