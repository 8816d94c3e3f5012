//! A row that this program cannot read, or that cannot be written, does not prevent other rows from being shown, exported, checked or
//! dropped.

use std::time::Duration;

use fsm::prelude::*;
use fsm::testing::TestBed;
use fsm::{Error, ErrorKind, Handle};
use fsm_runtime::admin::checkup::Finding;
use fsm_runtime::admin::transfer::import::import;
use fsm_runtime::admin::whole::WholeDatabase;
use fsm_runtime::admin::{Admin, Opening};
use fsm_store::pages::PageFilter;

use crate::durable::{Load, Ship, stalling};
use crate::payment::{Payment, checkout, failing};
use crate::sql_runner::{SqlRunner, is_postgres, run};
use crate::support::{Folder, assert_invariants_hold, promise};

const TEN_MINUTES: Duration = Duration::from_secs(600);

/// The database, or the partition of the key.
async fn admin(bed: &TestBed, key: &str) -> Admin {
    Admin::open(Opening::inside(bed).of_key(key)).await.unwrap()
}

/// Returns the findings about this topic, each as a sentence.
async fn findings(bed: &TestBed, (key, about): (&str, &str)) -> Vec<String> {
    let all = admin(bed, key).await.checkup().await.unwrap();
    all.into_iter().filter(|finding| finding.about == about).map(|Finding { says, .. }| says).collect()
}

promise! {
    async fn a_list_shows_a_row_that_cannot_be_read_as_unreadable_and_all_others(bed in failing(1).only::<SqlRunner>()) {
        let payments = bed.machine::<Payment>();
        for n in 0..5 {
            payments.send(format!("p-{n}"), checkout()).await.unwrap();
        }
        bed.run_until_idle().await;
        // The call of the first payment failed once and waits for its retry; the other payments rest.
        let retried = payments.list(Filter::default()).await.unwrap().items.into_iter().find(|payment| payment.call.is_some()).unwrap().key;
        let rests = if retried == "p-3" { "p-2" } else { "p-3" };
        run(bed, format!("update fsm_instances set attempt = attempt + 5000000000 where key = '{rests}'")).await;
        run(bed, format!("update fsm_instances set remaining_attempts = -5 where key = '{retried}'")).await;

        let mut expected = vec![rests.to_owned(), retried.clone()];
        expected.sort();
        let (mut shown, mut unreadable, mut after) = (Vec::new(), Vec::new(), None);
        loop {
            let filter = after.map_or(Filter::default(), |cursor| Filter::default().after(cursor));
            let page = payments.list(filter.limit(2)).await.unwrap();
            assert_eq!(page.items.len() + page.unreadable.len(), if page.next.is_some() { 2 } else { 1 }, "no row is shown twice or left out");
            shown.extend(page.items.into_iter().map(|payment| payment.key));
            unreadable.extend(page.unreadable.into_iter().map(|one| one.key));
            after = page.next;
            if after.is_none() {
                break;
            }
        }
        unreadable.sort();
        assert_eq!((shown.len(), unreadable), (3, expected.clone()));
        assert_eq!(payments.get(&retried).await.unwrap_err().kind(), ErrorKind::Unreadable);

        let whole = WholeDatabase::open(Opening::inside(bed)).await.unwrap();
        let listed = whole.page("payment", &PageFilter { limit: 100, ..PageFilter::default() }).await.unwrap();
        assert_eq!(listed.instances.len(), 3);
        assert!(listed.unreadable.iter().all(|one| expected.contains(&one.row.key) && one.row.why.contains("a count is ")), "{:?}", listed.unreadable);

        run(bed, format!("update fsm_instances set attempt = attempt - 5000000000 where key = '{rests}'")).await;
        run(bed, format!("update fsm_instances set remaining_attempts = 10 where key = '{retried}'")).await;
    }
}

/// SQLite only: PostgreSQL stores neither invalid text nor an id of another length.
#[cfg(feature = "sqlite")]
#[tokio::test]
async fn an_export_names_a_row_that_cannot_be_read_and_has_all_others() {
    let (folder, other) = (Folder::new("bad-row-export"), Folder::new("bad-row-import"));
    let bed = failing(0).only::<SqlRunner>().on(&folder.url("fsm.db")).await;
    for n in 0..3 {
        bed.machine::<Payment>().send(format!("p-{n}"), checkout()).await.unwrap();
    }
    bed.run_until_idle().await;
    run(&bed, "update fsm_instances set error = cast(x'ff' as text) where key = 'p-1'").await;
    let database = WholeDatabase::open(Opening::inside(&bed)).await.unwrap();
    let mut export = database.export(Some("payment")).await.unwrap();
    let mut lines = Vec::new();
    while let Some(some) = export.next().await.unwrap() {
        lines.extend(some);
    }
    assert_eq!(export.unreadable(), 1);
    let unreadable: Vec<_> = lines.iter().filter(|line| line.contains("\"unreadable\":{")).collect();
    assert!(unreadable.len() == 1 && unreadable[0].contains("\"table\":\"instances\""), "{unreadable:?}");
    assert_eq!(lines.iter().filter(|line| line.contains("\"key\":\"p-")).count(), 2, "the other instances are there");
    drop(export);

    let mut import = import(&Opening::to_act(other.url("fsm.db"))).await.unwrap();
    for line in &lines {
        import.line(line).await.unwrap();
    }
    let imported = import.finish().await.unwrap();
    assert_eq!(imported.unreadable, 1);
    run(&bed, "update fsm_instances set error = null where key = 'p-1'").await;
    assert_invariants_hold(&bed).await;
}

/// SQLite only: PostgreSQL stores no invalid text.
#[cfg(feature = "sqlite")]
#[tokio::test]
async fn a_start_goes_on_where_a_name_that_a_row_needs_cannot_be_read() {
    let folder = Folder::new("bad-row-start");
    let bed = failing(1).only::<SqlRunner>().on(&folder.url("fsm.db")).await;
    bed.machine::<Payment>().send("p-1", checkout()).await.unwrap();
    bed.run_until_idle().await;
    run(&bed, "update fsm_instances set verb = cast(x'ff' as text) where key = 'p-1'").await;
    let next = failing(0).beside(&bed).await.unwrap();
    next.machine::<Payment>().send("p-2", checkout()).await.unwrap();
    next.run_until_idle().await;
    assert_eq!(next.machine::<Payment>().get("p-2").await.unwrap().unwrap().version, 1);
    run(&bed, "update fsm_instances set verb = 'created' where key = 'p-1'").await;
    assert_invariants_hold(&bed).await;
}

promise! {
    async fn doctor_names_a_timer_that_is_due_and_has_not_fired(bed in failing(0)) {
        let payments = bed.machine::<Payment>();
        payments.send("p-1", checkout()).await.unwrap();
        bed.run_until_idle().await;
        assert_eq!(findings(bed, ("p-1", "timers")).await, Vec::<String>::new(), "its timer is set and not due");
        // Time passes, and no process fires the timer.
        bed.outage(TEN_MINUTES * 6).await;
        let found = findings(bed, ("p-1", "timers")).await;
        assert!(found.len() == 1 && found[0].starts_with("1 timers of `payment` are due") && found[0].contains("of the state `created` of `p-1`"), "{found:?}");
        bed.run_until_idle().await;
        assert_eq!(findings(bed, ("p-1", "timers")).await, Vec::<String>::new(), "it fired");
    }
}

/// The methods that only read.
const READS: [&str; 8] = ["get", "list", "history", "attempts", "counts", "page", "details", "examine"];

async fn read(name: &str, ships: &Handle<Ship>, admin: &Admin) -> Result<(), Error> {
    match name {
        "get" => ships.get("s-1").await.map(drop),
        "list" => ships.list(Filter::default()).await.map(drop),
        "history" => ships.history("s-1").await.map(drop),
        "attempts" => ships.attempts("s-1").await.map(drop),
        "counts" => ships.counts().await.map(drop),
        "page" => admin.page("ship", &PageFilter { limit: 9, ..PageFilter::default() }).await.map(drop),
        "details" => admin.details("ship", "s-1").await.map(drop),
        _ => admin.examine().await.map(drop),
    }
}

/// The error codes that mean that the database cannot be used now.
fn transient(bed: &TestBed) -> &'static [&'static str] {
    if is_postgres(bed) { &["57P01", "08006", "53300", "57014", "25006"] } else { &["5", "10", "14"] }
}

promise! {
    async fn a_read_is_repeated_while_the_database_cannot_be_used(bed in stalling(&std::sync::Arc::default())) {
        let (ships, admin) = (bed.machine::<Ship>(), admin(bed, "s-1").await);
        ships.send("s-1", Load).await.unwrap();
        bed.run_until_idle().await;
        for code in transient(bed) {
            for name in READS {
                bed.fail_statements(2, code);
                read(name, &ships, &admin).await.unwrap_or_else(|error| panic!("{name} after {code}: {error}"));
                assert_eq!(bed.failures_left(), 0, "{name} met both errors");
            }
        }
    }
}

promise! {
    async fn a_read_ends_with_the_error_when_the_patience_ends(
        bed in stalling(&std::sync::Arc::default()).with(|builder| builder.patience(Duration::from_millis(100)))
    ) {
        let (ships, admin) = (bed.machine::<Ship>(), admin(bed, "s-1").await);
        // On a busy machine a commit may take longer than this patience.
        while ships.send("s-1", Load).dedup("load").await.is_err() {}
        bed.run_until_idle().await;
        bed.fail_statements(100_000, transient(bed)[0]);
        for name in READS {
            let told = read(name, &ships, &admin).await;
            assert!(told.as_ref().is_err_and(Error::is_database), "{name}: {told:?}");
        }
        bed.fail_statements(0, "");
        for name in READS {
            let told = read(name, &ships, &admin).await;
            assert!(told.is_ok(), "{name}: {told:?}");
        }
    }
}
