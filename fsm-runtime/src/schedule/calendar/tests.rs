//! The moments of a schedule, compared with those of another implementation, and the cost of a hostile text.

use std::panic::catch_unwind;
use std::time::{Duration, Instant};

use fsm_core::hash::fnv1a_128;

use super::*;

/// An expression, a zone, the beginning and the length in hours of a period, and the moments in it, as the clock of UTC shows them.
type Row = (&'static str, &'static str, &'static str, u32, &'static [&'static str]);

/// Around both changes of the clock in Europe/Berlin (an hour), America/New_York (an hour) and Australia/Lord_Howe (half an hour).
///
/// `reference.py` printed the table with Python 3.11.7 and its `zoneinfo`: it walks through the minutes and shares no code with this crate.
/// `systemd-analyze calendar` 252 has the same moments of `30 2 * * *` in October; in March it leaves the day out.
const ROWS: [Row; 34] = [
    ("30 2 * * *", "Europe/Berlin", "2026-03-28T20:00:00Z", 7, &["01:00"]),
    ("0 3 * * *", "Europe/Berlin", "2026-03-28T20:00:00Z", 7, &["01:00"]),
    ("15,45 2 * * *", "Europe/Berlin", "2026-03-28T20:00:00Z", 7, &["01:00"]),
    ("0 * * * *", "Europe/Berlin", "2026-03-28T20:00:00Z", 7, &["21:00", "22:00", "23:00", "00:00", "01:00", "02:00", "03:00"]),
    ("30 */2 * * *", "Europe/Berlin", "2026-03-28T20:00:00Z", 7, &["21:30", "23:30", "02:30"]),
    ("*/30 2 * * *", "Europe/Berlin", "2026-03-28T20:00:00Z", 7, &[]),
    ("30 2 * * *", "Europe/Berlin", "2026-10-24T20:00:00Z", 7, &["00:30"]),
    ("0 3 * * *", "Europe/Berlin", "2026-10-24T20:00:00Z", 7, &["02:00"]),
    ("15,45 2 * * *", "Europe/Berlin", "2026-10-24T20:00:00Z", 7, &["00:15", "00:45"]),
    ("0 * * * *", "Europe/Berlin", "2026-10-24T20:00:00Z", 7, &["21:00", "22:00", "23:00", "00:00", "01:00", "02:00", "03:00"]),
    ("30 */2 * * *", "Europe/Berlin", "2026-10-24T20:00:00Z", 7, &["20:30", "22:30", "00:30", "01:30"]),
    ("*/30 2 * * *", "Europe/Berlin", "2026-10-24T20:00:00Z", 7, &["00:00", "00:30", "01:00", "01:30"]),
    ("30 2 * * *", "America/New_York", "2026-03-08T04:00:00Z", 5, &["07:00"]),
    ("30 1 * * *", "America/New_York", "2026-03-08T04:00:00Z", 5, &["06:30"]),
    ("0 1-3 * * *", "America/New_York", "2026-03-08T04:00:00Z", 5, &["06:00", "07:00"]),
    ("0 * * * *", "America/New_York", "2026-03-08T04:00:00Z", 5, &["05:00", "06:00", "07:00", "08:00", "09:00"]),
    ("*/20 1 * * *", "America/New_York", "2026-03-08T04:00:00Z", 5, &["06:00", "06:20", "06:40"]),
    ("30 2 * * *", "America/New_York", "2026-11-01T03:00:00Z", 5, &["07:30"]),
    ("30 1 * * *", "America/New_York", "2026-11-01T03:00:00Z", 5, &["05:30"]),
    ("0 1-3 * * *", "America/New_York", "2026-11-01T03:00:00Z", 5, &["05:00", "07:00", "08:00"]),
    ("0 * * * *", "America/New_York", "2026-11-01T03:00:00Z", 5, &["04:00", "05:00", "06:00", "07:00", "08:00"]),
    ("*/20 1 * * *", "America/New_York", "2026-11-01T03:00:00Z", 5, &["05:00", "05:20", "05:40", "06:00", "06:20", "06:40"]),
    ("15 2 * * *", "Australia/Lord_Howe", "2026-10-03T12:00:00Z", 6, &["15:30"]),
    ("45 1 * * *", "Australia/Lord_Howe", "2026-10-03T12:00:00Z", 6, &["15:15"]),
    ("0 2 * * *", "Australia/Lord_Howe", "2026-10-03T12:00:00Z", 6, &["15:30"]),
    ("30 2 * * *", "Australia/Lord_Howe", "2026-10-03T12:00:00Z", 6, &["15:30"]),
    ("*/15 1-2 * * *", "Australia/Lord_Howe", "2026-10-03T12:00:00Z", 6, &["14:30", "14:45", "15:00", "15:15", "15:30", "15:45"]),
    ("45 * * * *", "Australia/Lord_Howe", "2026-10-03T12:00:00Z", 6, &["12:15", "13:15", "14:15", "15:15", "15:45", "16:45", "17:45"]),
    ("15 2 * * *", "Australia/Lord_Howe", "2026-04-04T12:00:00Z", 6, &["15:45"]),
    ("45 1 * * *", "Australia/Lord_Howe", "2026-04-04T12:00:00Z", 6, &["14:45"]),
    ("0 2 * * *", "Australia/Lord_Howe", "2026-04-04T12:00:00Z", 6, &["15:30"]),
    ("30 2 * * *", "Australia/Lord_Howe", "2026-04-04T12:00:00Z", 6, &["16:00"]),
    (
        "*/15 1-2 * * *",
        "Australia/Lord_Howe",
        "2026-04-04T12:00:00Z",
        6,
        &["14:00", "14:15", "14:30", "14:45", "15:00", "15:15", "15:30", "15:45", "16:00", "16:15"],
    ),
    ("45 * * * *", "Australia/Lord_Howe", "2026-04-04T12:00:00Z", 6, &["12:45", "13:45", "14:45", "15:15", "16:15", "17:15"]),
];

fn cron(expression: &str, zone: &str) -> Calendar {
    Calendar::new(&Timetable::Cron(expression.to_owned()), zone).unwrap()
}

fn at(text: &str) -> Timestamp {
    Timestamp::from_micros(text.parse::<jiff::Timestamp>().unwrap().as_microsecond())
}

#[test]
fn a_schedule_keeps_its_rule_when_the_clock_changes() {
    for (expression, zone, begin, hours, expected) in ROWS {
        let calendar = cron(expression, zone);
        let (begin, mut moments) = (at(begin), Vec::new());
        let end = begin + Duration::from_secs(3600 * u64::from(hours));
        let mut next = calendar.after(begin);
        while let Some(moment) = next.filter(|moment| *moment <= end) {
            moments.push(moment.to_string()[11..16].to_owned());
            next = calendar.after(moment);
        }
        assert_eq!(moments, expected, "`{expression}` in {zone} since {begin}");
        // The first moment after any time is the same, however the search began.
        for minute in 0..hours * 60 {
            let from = begin + Duration::from_secs(60 * u64::from(minute));
            let next = calendar.after(from).unwrap();
            assert!(next > from);
            assert_eq!(calendar.after(next - Duration::from_micros(1)), Some(next), "`{expression}` in {zone} after {from}");
        }
    }
}

#[test]
fn an_interval_has_the_same_moments_in_every_process() {
    let calendar = Calendar::new(&Timetable::Every("5m".to_owned()), "UTC").unwrap();
    assert_eq!(calendar.after(at("2026-11-22T10:04:59.5Z")), Some(at("2026-11-22T10:05:00Z")));
    assert_eq!(calendar.after(at("2026-11-22T10:05:00Z")), Some(at("2026-11-22T10:10:00Z")));
    assert_eq!(Timetable::of("every 5m").to_string(), "every 5m");
    assert_eq!(Timetable::of("0 2 * * *"), Timetable::Cron("0 2 * * *".to_owned()));
}

#[test]
fn seconds_and_names_of_rhythms_are_accepted() {
    let from = at("2026-11-22T10:04:59Z");
    for (expression, next) in [
        ("*/15 * * * * *", "2026-11-22T10:05:00Z"),
        ("@hourly", "2026-11-22T11:00:00Z"),
        ("@daily", "2026-11-23T00:00:00Z"),
        ("0 12 L * *", "2026-11-30T12:00:00Z"),
        ("0 9 * * MON#1", "2026-12-07T09:00:00Z"),
        ("0 0 29 2 *", "2028-02-29T00:00:00Z"),
    ] {
        assert_eq!(cron(expression, "UTC").after(from), Some(at(next)), "{expression}");
    }
    assert!(!names_times_of_day("@hourly") && names_times_of_day("@daily"));
    assert_eq!(cron("0 0 30 2 *", "UTC").after(from), None, "the 30th of February");
    assert_eq!(cron("* * 30 2 *", "Europe/Berlin").after(from), None);
}

#[test]
fn the_text_of_an_error_says_what_is_wrong() {
    let why = |timetable: Timetable, zone: &str| Calendar::new(&timetable, zone).err().unwrap();
    let cron = |text: &str| why(Timetable::Cron(text.to_owned()), "UTC");
    let all = [
        cron("0 25 * * *"),
        cron("0 2 * *"),
        cron(""),
        cron("0 2 * * * * 2030"),
        cron("tomorrow"),
        cron(&"0,".repeat(80)),
        why(Timetable::Cron("0 2 * * *".to_owned()), "Europe/Berln"),
        why(Timetable::Every("5 minutes".to_owned()), "UTC"),
        why(Timetable::Every("500ms".to_owned()), "UTC"),
        why(Timetable::Every("400d".to_owned()), "UTC"),
    ];
    for text in &all {
        println!("{text}");
    }
    assert!(all[0].starts_with("`0 25 * * *` is not a cron expression: ") && all[0].contains("`0 2 * * *`"), "{}", all[0]);
    assert!(all[5].contains("it has 160 bytes, and at most 128 are allowed"), "{}", all[5]);
    assert!(all[6].starts_with("there is no time zone `Europe/Berln`"), "{}", all[6]);
    assert!(all[7].contains("is not a duration"), "{}", all[7]);
    assert!(all[8].contains("at least 1s"), "{}", all[8]);
}

/// A parse is bounded by the length of its text. The fastest of several runs is compared, because other processes use the machine too.
#[test]
fn a_hostile_text_costs_a_millisecond_at_most_and_no_panic() {
    let pieces = ["*", "/", "1", "59", ",", "-", " ", "?", "L", "W", "#", "+", "@", "MON", "JAN", "\u{130}", "9999"];
    let random = |seed: u128, n: u8| fnv1a_128([n, seed as u8, (seed >> 8) as u8]) >> 16;
    let drawn = (0..500_u128).map(|seed| {
        let mut text = String::new();
        for n in 0..=255 {
            let piece = pieces[(random(seed, n) % pieces.len() as u128) as usize];
            if text.len() + piece.len() > LONGEST {
                break;
            }
            text.push_str(piece);
        }
        text
    });
    let full =
        ["0-59,".repeat(25) + "*", "*,".repeat(60) + " * * * *", "* * * * ".to_owned() + &"*/1,".repeat(29) + "1", "x".repeat(10_000_000)];
    for text in drawn.chain(full) {
        let once = || {
            let begun = Instant::now();
            let parsed = catch_unwind(|| parse(&text).is_ok());
            assert!(parsed.is_ok(), "{text}");
            begun.elapsed()
        };
        let fastest = (0..3).map(|_| once()).min().unwrap();
        assert!(fastest < Duration::from_millis(1), "{fastest:?} for {text}");
    }
}
