//! The roles of `migrations/roles.sql` on PostgreSQL: each can do its work and nothing else.

use std::time::Duration;

use fsm::prelude::*;
use fsm::testing::TestBed;
use fsm_runtime::admin::{Admin, Opening};
use fsm_runtime::store::migrate::ROLES;
use sqlx::{AssertSqlSafe, Connection, PgConnection};

use crate::payment::{Payment, PaymentState, checkout, failing, paid_with};

/// Returns the URL of the test bed's database with this role.
fn as_role(bed: &TestBed, role: &str) -> String {
    let url = bed.url();
    format!("{url}{}options[role]={role}", if url.contains('?') { '&' } else { '?' })
}

/// Returns a test bed whose database has the roles.
async fn with_roles() -> TestBed {
    let bed = failing(0).postgres().await;
    let mut conn = PgConnection::connect(bed.url()).await.unwrap();
    for _ in 0..2 {
        sqlx::raw_sql(ROLES).execute(&mut conn).await.unwrap();
    }
    bed
}

/// Returns PostgreSQL's refusal of a statement by this role; `None` if it ran.
async fn refusal(bed: &TestBed, role: &str, statement: &str) -> Option<String> {
    let mut conn = PgConnection::connect(&as_role(bed, role)).await.unwrap();
    let user: String = sqlx::query_scalar("select current_user::text").fetch_one(&mut conn).await.unwrap();
    assert_eq!(user, role);
    let done = sqlx::query(AssertSqlSafe(statement.to_owned())).execute(&mut conn).await;
    done.err().map(|error| error.to_string())
}

async fn is_denied(bed: &TestBed, role: &str, statement: &str) {
    let refusal = refusal(bed, role, statement).await.unwrap_or_else(|| panic!("{role} can {statement}"));
    assert!(refusal.contains("permission denied") || refusal.contains("must be owner"), "{role}: {statement}: {refusal}");
}

#[tokio::test]
async fn an_owner_changes_tables_and_finds_them_up_to_date() {
    let bed = with_roles().await;
    assert_eq!(refusal(&bed, "fsm_owner", "alter table fsm_history add column anything text").await, None);
    assert_eq!(refusal(&bed, "fsm_owner", "create table fsm_more (id bigint)").await, None);
    Client::connect(as_role(&bed, "fsm_owner")).await.unwrap();
}

#[tokio::test]
async fn a_worker_runs_machines_and_changes_no_table() {
    let bed = with_roles().await;
    let worker = failing(1).with(|builder| builder.retention(Duration::from_secs(3600))).on(&as_role(&bed, "fsm_worker")).await;
    let payments = worker.machine::<Payment>();
    payments.send("o-1", checkout()).dedup("d").await.unwrap();
    payments.send("o-1", paid_with("r")).await.unwrap();
    payments.send("o-2", checkout()).after(Duration::from_secs(60)).await.unwrap();
    worker.advance(Duration::from_secs(120)).await;
    assert_eq!(payments.get("o-1").await.unwrap().unwrap().state, Some(PaymentState::Paid));
    payments.pause("o-1").await.unwrap();
    payments.resume("o-1").await.unwrap();
    payments.cancel("o-1", "no more").await.unwrap();
    worker.restart().await;
    worker.advance(Duration::from_secs(3700)).await;
    assert!(payments.get("o-1").await.unwrap().is_none(), "ended instances are deleted after the retention");
    assert_eq!(payments.get("o-2").await.unwrap().unwrap().state, Some(PaymentState::Expired));

    for statement in [
        "create table mine (id bigint)",
        "alter table fsm_instances add column mine text",
        "drop table fsm_history",
        "truncate fsm_async_calls",
        "update fsm_history set actor = 'nobody'",
        "delete from fsm_machines",
        "insert into fsm_migrations (version) values (99)",
    ] {
        is_denied(&bed, "fsm_worker", statement).await;
    }
}

#[tokio::test]
async fn a_sender_sends_and_looks_and_neither_settles_nor_operates() {
    let bed = with_roles().await;
    let client = Client::connect(as_role(&bed, "fsm_sender")).await.unwrap();
    let payments = client.machine::<Payment>();
    payments.send("o-1", checkout()).dedup("d").await.unwrap();
    assert_eq!(payments.send("o-1", checkout()).dedup("d").await.unwrap().outcome, fsm::SendOutcome::Duplicate);
    payments.send("o-1", paid_with("r")).await.unwrap();
    payments.send("o-2", checkout()).after(Duration::from_secs(60)).await.unwrap();
    let waiting = payments.get("o-1").await.unwrap().unwrap();
    assert_eq!((waiting.inbox_len, waiting.call.map(|call| call.verb)), (1, Some("created".into())));
    assert_eq!(payments.list(Filter::default()).await.unwrap().items.len(), 2);
    assert_eq!(payments.history("o-1").await.unwrap().len(), 1);
    for act in [payments.cancel("o-1", "no"), payments.pause("o-1"), payments.skip("o-1"), payments.cancel("o-2", "no")] {
        let refused = act.await.unwrap_err();
        assert!(refused.is_database() && refused.to_string().contains("permission denied"), "{refused}");
    }
    payments.send("o-3", checkout()).await.unwrap();
    for statement in [
        "update fsm_async_calls set state = 'success'",
        "delete from fsm_async_calls",
        "delete from fsm_instances",
        "delete from fsm_inbox",
        "delete from fsm_timers",
        "update fsm_timers set due_at = 0",
        "delete from fsm_requests",
        "insert into fsm_history (instance_id, at, kind) values (gen_random_uuid(), 0, 'paused')",
        "select * from fsm_once",
        "insert into fsm_workers (session_id, host, pid, started_at, lease_until) values (gen_random_uuid(), '', 0, 0, 0)",
        "insert into fsm_machines (machine, hash, definition, first_seen_at) values ('m', '', '', 0)",
    ] {
        is_denied(&bed, "fsm_sender", statement).await;
    }
}

#[tokio::test]
async fn a_viewer_reads_everything_and_writes_nothing() {
    let bed = with_roles().await;
    bed.machine::<Payment>().send("o-1", checkout()).await.unwrap();
    bed.run_until_idle().await;
    let viewer = as_role(&bed, "fsm_viewer");
    let client = Client::connect(&viewer).await.unwrap();
    let payments = client.machine::<Payment>();
    assert_eq!(payments.get("o-1").await.unwrap().unwrap().state, Some(PaymentState::Created));
    assert_eq!(payments.attempts("o-1").await.unwrap().len(), 1);
    assert!(fsm::doctor(&client).await.unwrap().is_healthy());
    let refused = payments.send("o-2", checkout()).await.unwrap_err();
    assert!(refused.is_database() && refused.to_string().contains("permission denied"), "{refused}");

    let admin = Admin::open(Opening::to_read(&viewer)).await.unwrap();
    assert_eq!(admin.story("payment", "o-1").await.unwrap().attempts.len(), 1);
    assert!(!admin.checkup().await.unwrap().is_empty());
    for table in ["instances", "async_calls", "inbox", "timers", "requests", "once", "history", "workers", "machines", "migrations"] {
        assert_eq!(refusal(&bed, "fsm_viewer", &format!("select * from fsm_{table}")).await, None);
        is_denied(&bed, "fsm_viewer", &format!("delete from fsm_{table}")).await;
        is_denied(&bed, "fsm_viewer", &format!("insert into fsm_{table} default values")).await;
    }
}
