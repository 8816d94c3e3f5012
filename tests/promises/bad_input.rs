//! Bad input gives a clear error, and nothing is lost: URLs and databases, keys, ids, payloads, machines, data.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use fsm::prelude::*;
use serde::{Deserialize, Serialize};
use sqlx::Connection;

use crate::clumsy::{Clumsy, Deed, clumsy};
use crate::payment::{Gateway, OnlinePaymentFailed, OnlinePaymentPaid, Payment, checkout, failing, paid_with};
use crate::support::{Folder, promise};

async fn refused(url: &str) -> fsm::Error {
    let patience = std::time::Duration::from_millis(200);
    let by_client = Client::builder().patience(patience).connect(url).await.map(drop).unwrap_err();
    let by_runtime = Runtime::builder().database(url).only::<Clumsy>().patience(patience).start().await.map(drop).unwrap_err();
    assert!(by_client.is_database() && by_runtime.is_database(), "{url}");
    assert_eq!(by_client.to_string(), by_runtime.to_string());
    assert!(!by_client.is_refused() && !by_client.is_busy() && !by_client.is_not_found() && !by_client.is_conflict());
    by_client
}

#[cfg(all(feature = "sqlite", feature = "postgres"))]
#[tokio::test]
async fn a_malformed_url_is_an_error_that_says_what_a_database_is() {
    let says = [
        ("", "is of no known kind"),
        ("payments", "is of no known kind"),
        ("mysql://me@host/payments", "is of no known kind"),
        ("sqlite://", "names no file"),
        ("postgres://host:port/payments", "has a port that is no number"),
    ];
    let ends = "; a database is `sqlite://payments.db`, `payments.db`, `sqlite::memory:` or `postgres://user@host/name`";
    for (url, says) in says {
        assert_eq!(refused(url).await.to_string(), format!("`{url}` {says}{ends}"));
    }
    let secret = refused("mysql://me:s3cret@host/payments").await.to_string();
    assert!(secret.starts_with("`mysql://me:***@host/payments` is of no known kind"), "{secret}");
}

#[cfg(all(feature = "sqlite", feature = "postgres"))]
#[tokio::test]
async fn a_database_out_of_reach_is_named_and_its_password_is_not() {
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let error = refused(&format!("postgres://me:s3cret@127.0.0.1:{port}/payments")).await.to_string();
    assert!(error.starts_with(&format!("the PostgreSQL database `payments` at `127.0.0.1:{port}` cannot be opened: ")), "{error}");
    assert!(error.ends_with("; check that it exists, runs and lets this user in") && !error.contains("s3cret"), "{error}");

    let folder = Folder::new("out-of-reach");
    let file = folder.path().join("no-such-folder/payments.db");
    let error = refused(&format!("sqlite://{}", file.display())).await.to_string();
    assert!(error.starts_with(&format!("the SQLite database `{}` cannot be opened: ", file.display())), "{error}");
}

#[cfg(feature = "sqlite")]
#[tokio::test]
async fn a_file_that_is_no_database_is_an_error_and_stays_as_it_is() {
    let folder = Folder::new("no-database");
    let file = folder.path().join("letter.db");
    let letter = "Dear Sir or Madam, ".repeat(100);
    std::fs::write(&file, &letter).unwrap();
    let error = refused(&format!("sqlite://{}", file.display())).await.to_string();
    assert!(error.contains("file is not a database"), "{error}");
    assert_eq!(std::fs::read_to_string(&file).unwrap(), letter);
}

#[cfg(feature = "sqlite")]
#[tokio::test]
async fn a_read_only_database_can_be_read_and_every_write_is_an_error_that_says_so() {
    let folder = Folder::new("read-only");
    let url = folder.url("payments.db");
    let runtime = Runtime::builder().database(&url).only::<Clumsy>().start().await.unwrap();
    runtime.machine::<Clumsy>().send("c", Deed::Nothing).await.unwrap();
    runtime.machine::<Clumsy>().settled("c").await.unwrap();
    runtime.shutdown().await.unwrap();

    let read_only = format!("{url}?mode=ro");
    let says = format!(
        "the SQLite database `{}` is open for reading only; open it with write access, or connect to the primary server",
        folder.path().join("payments.db").display()
    );
    let error = Runtime::builder().database(&read_only).only::<Clumsy>().start().await.map(drop).unwrap_err();
    assert!(error.is_database());
    assert_eq!(error.to_string(), says);
    let client = Client::connect(&read_only).await.unwrap();
    let clumsies = client.machine::<Clumsy>();
    assert_eq!(clumsies.get("c").await.unwrap().unwrap().version, 1);
    for error in [clumsies.send("c", Deed::Nothing).await.unwrap_err(), clumsies.pause("c").await.unwrap_err()] {
        assert!(error.is_database());
        assert_eq!(error.to_string(), says);
    }
    // An empty database has no tables, and a read-only connection cannot create them.
    std::fs::write(folder.path().join("empty.db"), "").unwrap();
    let error = refused(&format!("{}?mode=ro", folder.url("empty.db"))).await.to_string();
    assert!(error.ends_with("is open for reading only; open it with write access, or connect to the primary server"), "{error}");
}

mod a_database_of_a_newer_version_is_left_as_it_is {
    use super::*;

    const RAISE: &str = "insert into fsm_migrations (version, name, checksum, applied_at) values (99, 'later', 1, 1)";

    async fn check(url: &str) {
        let error = refused(url).await;
        let newest = error.to_string().rsplit_once("up to ").unwrap().1.split_once(';').unwrap().0.to_owned();
        assert_eq!(
            error.to_string(),
            format!(
                "the database has schema 99, and this program knows schemas up to {newest}; start a program built with a newer durable-fsm"
            )
        );
    }

    #[cfg(feature = "sqlite")]
    #[tokio::test]
    async fn sqlite() {
        let folder = Folder::new("newer");
        let url = folder.url("payments.db");
        drop(Client::connect(&url).await.unwrap());
        let mut connection = sqlx::SqliteConnection::connect(&url).await.unwrap();
        sqlx::raw_sql(RAISE).execute(&mut connection).await.unwrap();
        check(&url).await;
        let versions: i64 = sqlx::query_scalar("select max(version) from fsm_migrations").fetch_one(&mut connection).await.unwrap();
        assert_eq!(versions, 99);
    }

    #[cfg(feature = "postgres")]
    #[tokio::test]
    async fn postgres() {
        let bed = clumsy().postgres().await;
        let mut connection = sqlx::PgConnection::connect(bed.url()).await.unwrap();
        sqlx::raw_sql(RAISE).execute(&mut connection).await.unwrap();
        check(bed.url()).await;
        connection.close().await.unwrap();
    }
}

promise! {
    async fn a_key_has_1_to_255_bytes_and_no_nul(bed in failing(0)) {
        let payments = bed.machine::<Payment>();
        let wrong = [
            (String::new(), "`` is not a key: it is empty; a key has 1 to 255 bytes and no NUL".to_owned()),
            ("ä".repeat(128), format!("`{}` is not a key: it has 256 bytes; a key has 1 to 255 bytes and no NUL", "ä".repeat(40))),
            ("o\0-1".to_owned(), "`o\\0-1` is not a key: it contains NUL; a key has 1 to 255 bytes and no NUL".to_owned()),
        ];
        for (key, says) in wrong {
            let errors = [
                payments.send(&key, checkout()).await.unwrap_err(),
                payments.get(&key).await.unwrap_err(),
                payments.attempts(&key).await.unwrap_err(),
                payments.history(&key).await.unwrap_err(),
                payments.settled(&key).await.unwrap_err(),
                payments.retry(&key).await.unwrap_err(),
            ];
            for error in errors {
                assert_eq!(error.to_string(), says);
                assert!(!error.is_database() && !error.is_refused() && !error.is_not_found());
            }
        }
        let longest = "k".repeat(255);
        payments.send(&longest, checkout()).await.unwrap();
        bed.run_until_idle().await;
        assert_eq!(payments.get(&longest).await.unwrap().unwrap().version, 1);
    }
}

promise! {
    async fn a_dedup_id_has_1_to_255_bytes_and_no_nul(bed in failing(0)) {
        let payments = bed.machine::<Payment>();
        for (id, shown) in [(String::new(), String::new()), ("d".repeat(256), "d".repeat(40)), ("a\0b".to_owned(), "a\\0b".to_owned())] {
            let error = payments.send("o-1", checkout()).dedup(id).await.unwrap_err();
            assert_eq!(error.to_string(), format!("`{shown}` is not a dedup id: it has 1 to 255 bytes and no NUL"));
        }
        assert!(payments.get("o-1").await.unwrap().is_none(), "no instance was created");
        payments.send("o-1", checkout()).dedup("d".repeat(255)).await.unwrap();
        bed.run_until_idle().await;
    }
}

/// An effect under a name of the sender's choice.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Remember {
    name: String,
}
#[verb]
#[retry(1, "5s")]
async fn remembered(ctx: &mut Ctx<'_>, effects: Data<Arc<AtomicU32>>, event: Remember) -> Result {
    let effect = async {
        effects.fetch_add(1, Ordering::SeqCst);
        Ok::<_, Failure>(())
    };
    ctx.once(&event.name, effect).await
}
fsm! {
    machine Rememberer = "rememberer" {
        start remembered;
        end remembered;
    }
}

mod the_name_of_an_effect_has_1_to_255_bytes_and_no_nul_and_is_checked_before_the_effect {
    use super::*;

    async fn check(bed: &fsm::testing::TestBed, effects: &AtomicU32) {
        let rememberers = bed.machine::<Rememberer>();
        for (n, (name, shown)) in [
            (String::new(), String::new()),
            ("n".repeat(256), "n".repeat(40)),
            ("n".repeat(3000), "n".repeat(40)),
            ("a\0b".into(), "a\\0b".into()),
        ]
        .into_iter()
        .enumerate()
        {
            let key = format!("r-{n}");
            rememberers.send(&key, Remember { name }).await.unwrap();
            bed.advance(Duration::from_secs(5)).await;
            let error = rememberers.get(&key).await.unwrap().unwrap().error.unwrap();
            assert_eq!(error, format!("`{shown}` is no name for `ctx.once`: it has 1 to 255 bytes and no NUL"));
        }
        assert_eq!(effects.load(Ordering::SeqCst), 0, "no effect was done");
        rememberers.send("r", Remember { name: "n".repeat(255) }).await.unwrap();
        bed.run_until_idle().await;
        assert_eq!((rememberers.get("r").await.unwrap().unwrap().version, effects.load(Ordering::SeqCst)), (1, 1));
        crate::support::assert_invariants_hold(bed).await;
    }

    fn rememberers(effects: &Arc<AtomicU32>) -> fsm::testing::TestBedBuilder {
        fsm::testing::TestBed::builder().only::<Rememberer>().data(Arc::clone(effects))
    }

    #[cfg(feature = "sqlite")]
    #[tokio::test]
    async fn sqlite() {
        let effects = Arc::new(AtomicU32::new(0));
        check(&rememberers(&effects).sqlite().await, &effects).await;
    }

    #[cfg(feature = "postgres")]
    #[tokio::test]
    async fn postgres() {
        let effects = Arc::new(AtomicU32::new(0));
        check(&rememberers(&effects).postgres().await, &effects).await;
    }
}

promise! {
    async fn the_actor_and_the_reason_of_an_act_are_checked_before_it(bed in failing(0)) {
        let payments = bed.machine::<Payment>();
        payments.send("o-1", checkout()).await.unwrap();
        bed.run_until_idle().await;
        for error in [
            payments.cancel("o-1", "a\0b").await.unwrap_err(),
            payments.cancel("o-1", "r".repeat(8 * 1024 + 1)).await.unwrap_err(),
        ] {
            assert_eq!(error.to_string(), "the reason of an act has at most 8192 bytes and no NUL");
        }
        for actor in ["a\0b".to_owned(), "a".repeat(256)] {
            let error = payments.cancel("o-1", "why").actor(actor).await.unwrap_err();
            assert_eq!(error.to_string(), "the actor of an act has at most 255 bytes and no NUL");
        }
        assert!(payments.cancel("o-1", "why").request_id("i".repeat(256)).await.unwrap_err().is_input());
        assert_eq!(payments.get("o-1").await.unwrap().unwrap().status, Status::Running);
        payments.cancel("o-1", "r".repeat(8 * 1024)).actor("a".repeat(255)).request_id("i".repeat(255)).await.unwrap();
    }
}

fn receipt_of_bytes(bytes: usize) -> OnlinePaymentPaid {
    let around = serde_json::to_vec(&paid_with("")).unwrap().len();
    paid_with(&"r".repeat(bytes - around))
}

promise! {
    async fn a_payload_over_the_limit_is_refused_and_one_at_the_limit_is_taken(bed in failing(0)) {
        let payments = bed.machine::<Payment>();
        payments.send("o-1", checkout()).await.unwrap();
        let error = payments.send("o-1", receipt_of_bytes(256 * 1024 + 1)).await.unwrap_err();
        assert_eq!(
            error.to_string(),
            "the event `OnlinePaymentPaid` has 262145 bytes, over the limit of 262144: keep large content elsewhere and send where it is, or raise the builder's `payload_limit`"
        );
        payments.send("o-1", receipt_of_bytes(256 * 1024)).await.unwrap();
        bed.run_until_idle().await;
        assert_eq!(payments.get("o-1").await.unwrap().unwrap().version, 2);
    }
}

promise! {
    async fn the_payload_limit_is_the_builders(bed in failing(0).with(|builder| builder.payload_limit(100))) {
        let payments = bed.machine::<Payment>();
        payments.send("o-1", checkout()).await.unwrap();
        assert!(payments.send("o-1", receipt_of_bytes(101)).await.unwrap_err().to_string().contains("has 101 bytes, over the limit of 100"));
        payments.send("o-1", receipt_of_bytes(100)).await.unwrap();
        bed.run_until_idle().await;
        assert_eq!(payments.get("o-1").await.unwrap().unwrap().version, 2);
    }
}

promise! {
    async fn a_machine_that_is_not_served_is_named_beside_those_that_are(bed in clumsy()) {
        let error = bed.machine::<Payment>().send("o-1", OnlinePaymentFailed { reason: "none".into() }).await.unwrap_err();
        assert_eq!(error.to_string(), "this process serves no machine \"payment\"; it has clumsy");

        let clumsies = bed.machine::<Clumsy>();
        clumsies.send("c", Deed::SendToPayment).await.unwrap();
        bed.advance(Duration::from_secs(5)).await;
        let instance = clumsies.get("c").await.unwrap().unwrap();
        assert_eq!((instance.status, instance.record.done), (Status::Error, 0));
        assert_eq!(instance.error.as_deref(), Some("this process serves no machine \"payment\"; it has clumsy"));
        assert!(bed.machine::<Payment>().get("o-1").await.unwrap().is_none());
    }
}

promise! {
    async fn waiting_has_an_end_where_one_is_given(bed in failing(1)) {
        let payments = bed.machine::<Payment>();
        let unknown = payments.settled("o-1").await.unwrap_err();
        assert!(unknown.is_not_found());
        assert_eq!(unknown.to_string(), "there is no `payment` `o-1`");
        assert!(payments.history("o-1").await.unwrap_err().is_not_found() && payments.attempts("o-1").await.unwrap_err().is_not_found());
        assert!(payments.cancel("o-1", "why").await.unwrap_err().is_not_found());

        payments.send("o-1", checkout()).await.unwrap();
        bed.run_until_idle().await;
        let error = payments.settled("o-1").within(Duration::from_millis(30)).await.unwrap_err();
        assert!(error.is_timed_out() && !error.is_database());
        let says = "`payment` `o-1` was not settled within 30ms: attempt 2 of `created` is scheduled, for 2030-01-01T00:00:05Z";
        assert_eq!(error.to_string(), says);
        bed.advance(Duration::from_secs(5)).await;
        assert_eq!(payments.settled("o-1").within(Duration::from_secs(60)).await.unwrap().version, 1);
    }
}

struct Missing;
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Ask;

#[verb]
async fn asking(_missing: Data<Missing>, _gateway: Data<Arc<Gateway>>, _event: Ask) -> Result {
    Ok(())
}

fsm! {
    machine Asker = "asker" {
        start asking;
        end asking;
    }
}

#[cfg(feature = "sqlite")]
#[tokio::test]
async fn a_verb_without_its_data_makes_the_start_fail_and_names_both() {
    let builder = || Runtime::builder().database("sqlite::memory:").only::<Asker>();
    let missing = |error: fsm::Error| {
        assert!(!error.is_database());
        error.to_string()
    };
    let one = missing(builder().data(Arc::new(Gateway::failing(0))).start().await.map(drop).unwrap_err());
    assert!(one.starts_with("the verb `asking` of \"asker\" takes `Data<") && one.contains("bad_input::Missing>`"), "{one}");
    assert!(one.ends_with("; give each value to the builder with `.data(…)`"), "{one}");
    let both = missing(builder().start().await.map(drop).unwrap_err());
    assert!(both.contains("Missing>`") && both.contains("Gateway>>`"), "all missing values are named together: {both}");
    builder().data(Missing).data(Arc::new(Gateway::failing(0))).start().await.unwrap().shutdown().await.unwrap();
}
