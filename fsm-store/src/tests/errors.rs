//! Every database error has a class, and `docs/database-errors.md` lists them all.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::error::class::{Actor, SQLITE_EXTENDED, SQLITE_PRIMARY, SQLSTATE_CLASSES, SQLSTATE_CODES, of_driver, of_sqlite, of_sqlstate};
use crate::error::{Class, SchemaError, StoreError};

/// The classes of appendix A of PostgreSQL 18's manual.
const APPENDIX_A: &str =
    "00 01 02 03 08 09 0A 0B 0F 0L 0P 0Z 10 20 21 22 23 24 25 26 27 28 2B 2D 2F 34 38 39 3B 3D 3F 40 42 44 53 54 55 57 58 72 F0 HV P0 XX";

/// The cells of the rows of the document's table under this heading, without backquotes.
fn table(heading: &str) -> Vec<Vec<String>> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/database-errors.md");
    let document = std::fs::read_to_string(path).unwrap();
    let part = document.split("\n## ").find(|part| part.starts_with(heading)).unwrap_or_else(|| panic!("no heading `{heading}`"));
    let rows = part.lines().filter(|line| line.starts_with('|')).skip(2);
    rows.map(|row| row.trim_matches('|').split('|').map(|cell| cell.trim().replace('`', "")).collect()).collect()
}

/// The first cell and the class of each row.
fn classes(heading: &str, class: usize) -> BTreeMap<String, String> {
    let rows = table(heading);
    let classes: BTreeMap<_, _> = rows.iter().map(|row| (row[0].clone(), row[class].clone())).collect();
    assert_eq!(classes.len(), rows.len(), "`{heading}` has a row twice");
    classes
}

fn of<K: ToString>(pairs: impl IntoIterator<Item = (K, Class)>) -> BTreeMap<String, String> {
    pairs.into_iter().map(|(key, class)| (key.to_string(), format!("{class:?}"))).collect()
}

fn drivers() -> Vec<sqlx::Error> {
    let text = || Box::<dyn std::error::Error + Send + Sync>::from("x");
    vec![
        sqlx::Error::Io(std::io::ErrorKind::BrokenPipe.into()),
        sqlx::Error::Tls(text()),
        sqlx::Error::Protocol("unexpected response from SSLRequest: 0x00".into()),
        sqlx::Error::PoolTimedOut,
        sqlx::Error::PoolClosed,
        sqlx::Error::WorkerCrashed,
        sqlx::Error::BeginFailed,
        sqlx::Error::Configuration(text()),
        sqlx::Error::Encode(text()),
        sqlx::Error::InvalidArgument("x".into()),
        sqlx::Error::RowNotFound,
        sqlx::Error::TypeNotFound { type_name: "x".into() },
        sqlx::Error::ColumnIndexOutOfBounds { index: 1, len: 1 },
        sqlx::Error::ColumnNotFound("x".into()),
        sqlx::Error::ColumnDecode { index: "1".into(), source: text() },
        sqlx::Error::Decode(text()),
        sqlx::Error::AnyDriverError(text()),
    ]
}

fn stores() -> Vec<StoreError> {
    let place = || "the database".to_owned();
    vec![
        StoreError::NotWritable { place: place() },
        StoreError::Deadline(Duration::from_secs(30)),
        StoreError::Aborted,
        StoreError::ConcurrentChange,
        StoreError::Locked { machine: "x".into(), key: "x".into() },
        StoreError::TooManyTransactions(Duration::from_secs(30)),
        StoreError::SelfDeadlock,
        StoreError::Interrupted,
        StoreError::Corrupt { what: "x".into() },
        StoreError::Url { url: "x".into(), says: "x".into() },
        StoreError::NoDriver { url: "x".into(), feature: "postgres" },
        StoreError::Schema(SchemaError::Other { version: 1 }),
        StoreError::Partition { place: place(), says: "x".into() },
        StoreError::OldSqlite { found: "3.0.0".into() },
        StoreError::ReadOnly { place: place() },
        StoreError::Closed,
    ]
}

#[test]
fn the_document_lists_the_classes_of_all_database_errors() {
    assert_eq!(classes("PostgreSQL, by class", 2), of(SQLSTATE_CLASSES));
    assert_eq!(classes("PostgreSQL, by code", 2), of(SQLSTATE_CODES));
    assert_eq!(classes("SQLite, by primary", 2), of(SQLITE_PRIMARY.map(|(code, _, class)| (code, class))));
    assert_eq!(classes("SQLite, by extended", 2), of(SQLITE_EXTENDED.map(|(code, _, class)| (code, class))));
    assert_eq!(classes("The driver", 1), of(drivers().iter().map(of_driver)));
    assert_eq!(classes("The store", 1), of(stores().iter().map(|error| error.own_class().unwrap())));
}

#[test]
fn the_document_says_what_everybody_does_about_each_class() {
    let expected: Vec<Vec<String>> = Class::ALL
        .iter()
        .map(|class| {
            let responses = [Actor::Caller, Actor::Report, Actor::Loop, Actor::Start].map(|actor| format!("{:?}", class.response(actor)));
            let [caller, report, looping, start] = responses;
            vec![format!("{class:?}"), caller, report, looping, start, format!("{:?}", class.batch())]
        })
        .collect();
    let mut rows = table("Classes");
    rows.iter_mut().for_each(|row| drop(row.remove(1)));
    assert_eq!(rows, expected);
}

#[test]
fn every_class_of_postgres_and_every_code_of_sqlite_is_listed() {
    let listed: BTreeSet<_> = SQLSTATE_CLASSES.iter().map(|(class, _)| *class).collect();
    assert_eq!(listed, APPENDIX_A.split(' ').collect());
    assert_eq!(listed.len(), SQLSTATE_CLASSES.len());
    let codes: Vec<_> = SQLITE_PRIMARY.iter().map(|(code, ..)| *code).collect();
    assert_eq!(codes, (0..=28).chain([100, 101]).collect::<Vec<_>>());
    for (code, name, class) in SQLITE_EXTENDED {
        let primary = SQLITE_PRIMARY.iter().find(|(primary, ..)| *primary == code & 0xff).unwrap();
        assert!(name.starts_with(primary.1) && class != primary.2, "{name}");
    }
    for (code, class) in SQLSTATE_CODES {
        assert_ne!(SQLSTATE_CLASSES.iter().find(|(begin, _)| code.starts_with(begin)).unwrap().1, class, "{code} needs no row");
    }
}

#[test]
fn what_a_fail_over_a_timeout_or_a_disk_answers_with_is_retried() {
    for code in
        ["25006", "57014", "25P03", "25P04", "53200", "53100", "58030", "58P01", "XX000", "28P01", "28000", "3D000", "08P01", "99ABC"]
    {
        assert!(!of_sqlstate(code).is_permanent(), "{code}");
    }
    for code in [3, 5, 6, 7, 8, 10, 13, 14, 15, 261, 517, 3850, 1032, 9_999] {
        assert!(!of_sqlite(code).is_permanent(), "{code}");
    }
    for (code, class) in [("22021", Class::Rejected), ("23514", Class::Rejected), ("P0001", Class::Rejected), ("42501", Class::Misfit)] {
        assert_eq!(of_sqlstate(code), class, "{code}");
    }
    // A trigger that raises an exception, and a check constraint.
    assert_eq!([1811, 275].map(of_sqlite), [Class::Rejected; 2]);
}
