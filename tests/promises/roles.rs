//! The roles of `migrations/roles.sql` on PostgreSQL: each can do its work and nothing else.

use std::time::Duration;

use fsm::prelude::*;
use fsm::testing::TestBed;
use fsm_runtime::admin::{Admin, Opening};
use fsm_store::migrate::ROLES;
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
        "delete from fsm_limits",
        "insert into fsm_migrations (version) values (99)",
    ] {
        is_denied(&bed, "fsm_worker", statement).await;
    }
}

#[tokio::test]
async fn a_sender_sends_and_looks_and_neither_completes_nor_operates() {
    let bed = with_roles().await;
    let client = Client::connect(as_role(&bed, "fsm_sender")).await.unwrap();
    let payments = client.machine::<Payment>();
    let first = payments.send("o-1", checkout()).dedup("d").await.unwrap();
    assert_eq!(first.outcome, fsm::SendOutcome::Queued, "a worker begins its call");
    assert_eq!(payments.send("o-1", checkout()).dedup("d").await.unwrap().outcome, fsm::SendOutcome::Duplicate);
    payments.send("o-1", paid_with("r")).await.unwrap();
    payments.send("o-2", checkout()).after(Duration::from_secs(60)).await.unwrap();
    let waiting = payments.get("o-1").await.unwrap().unwrap();
    assert_eq!((waiting.inbox_len, waiting.call.map(|call| call.verb)), (2, None));
    assert_eq!(payments.list(Filter::default()).await.unwrap().items.len(), 2);
    assert_eq!(payments.history("o-1").await.unwrap().len(), 0);
    let mut conn = PgConnection::connect(&as_role(&bed, "fsm_sender")).await.unwrap();
    for ends in [true, false] {
        let mut tx = conn.begin().await.unwrap();
        payments.send_in(&mut tx, "o-3", checkout()).await.unwrap();
        payments.send_in(&mut tx, "o-3", paid_with("r")).dedup("d").await.unwrap();
        if ends { tx.rollback().await.unwrap() } else { tx.commit().await.unwrap() }
    }
    crate::support::assert_invariants_hold(&bed).await;

    bed.run_until_idle().await;
    let workers = bed.machine::<Payment>();
    for (key, state, version) in [("o-1", PaymentState::Paid, 2), ("o-2", PaymentState::Created, 1), ("o-3", PaymentState::Paid, 2)] {
        let instance = workers.get(key).await.unwrap().unwrap();
        assert_eq!((instance.state, instance.version, instance.call, instance.inbox_len), (Some(state), version, None, 0), "{key}");
        assert!(workers.attempts(key).await.unwrap().iter().all(|attempt| attempt.worker.is_some()));
    }
    let attempt = workers.attempts("o-1").await.unwrap().remove(0);
    assert_eq!(Some(attempt.call), first.call, "the call that the sender was told");
    // To an instance that rests, and to one that an operator stopped.
    workers.pause("o-2").await.unwrap();
    payments.send("o-2", paid_with("r")).await.unwrap();
    bed.run_until_idle().await;
    assert_eq!(workers.get("o-2").await.unwrap().unwrap().version, 1);
    workers.resume("o-2").await.unwrap();
    bed.run_until_idle().await;
    assert_eq!(workers.get("o-2").await.unwrap().unwrap().state, Some(PaymentState::Paid));

    workers.send("o-4", checkout()).after(Duration::from_secs(60)).await.unwrap();
    for act in [payments.cancel("o-1", "no"), payments.pause("o-1"), payments.cancel("o-4", "no")] {
        let refused = act.await.unwrap_err();
        assert!(refused.is_database() && refused.to_string().contains("permission denied"), "{refused}");
    }
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
        "update fsm_limits set concurrency = 1000",
        "alter table fsm_inbox disable trigger fsm_sent",
        "drop function fsm_check_sent_event() cascade",
        "set session_replication_role = replica",
    ] {
        is_denied(&bed, "fsm_sender", statement).await;
    }
}

/// Returns every row of every table.
async fn contents(bed: &TestBed) -> Vec<String> {
    let mut conn = PgConnection::connect(bed.url()).await.unwrap();
    let mut contents = Vec::new();
    for table in ["instances", "async_calls", "session_log", "inbox", "timers", "requests", "once", "history", "workers", "machines"] {
        let text = format!("select coalesce(string_agg(t::text, chr(10) order by t::text), '') from fsm_{table} t");
        contents.push(sqlx::query_scalar(AssertSqlSafe(text)).fetch_one(&mut conn).await.unwrap());
    }
    contents
}

/// With a sender's password one can run no verbs beyond those that the graph permits, and change nothing in the past.
#[tokio::test]
async fn a_sender_who_writes_rows_by_hand_runs_no_verb_and_changes_nothing() {
    let bed = with_roles().await;
    let payments = bed.machine::<Payment>();
    payments.send("rests", checkout()).dedup("d").await.unwrap();
    payments.send("ended", checkout()).await.unwrap();
    bed.run_until_idle().await;
    payments.cancel("ended", "no more").await.unwrap();
    payments.pause("rests").await.unwrap();
    payments.send("rests", paid_with("r")).await.unwrap();
    let before = contents(&bed).await;
    let rests = "(select instance_id from fsm_instances where key = 'rests')";
    let ended = "(select instance_id from fsm_instances where key = 'ended')";
    let open = "(select call_id from fsm_instances where key = 'rests')";
    let attempt = |verb: &str, event: &str, state: &str, worker: &str| {
        format!(
            "insert into fsm_async_calls (call_id, attempt, instance_id, machine, verb, event, payload, from_state, to_state, state, created_at, \
                scheduled_at, backoff, first_at, worker, started_at, finished_at) \
             values (gen_random_uuid(), 1, {ended}, 'payment', '{verb}', '{event}', '{{}}', 'created', '{verb}', '{state}', 0, 0, 0, 0, {worker}, 0, 0)"
        )
    };
    let instance = |columns: &str, values: &str| {
        format!(
            "insert into fsm_instances (instance_id, machine, key, created_at, updated_at, version, status, paused, is_open, inbox_head, inbox_tail{columns}) \
             values (gen_random_uuid(), 'payment', 'forged', 0, 0, {values})"
        )
    };
    let event = |instance: &str, position: &str, call: &str, name: &str| {
        format!(
            "insert into fsm_inbox (instance_id, position, call_id, event, payload, created_at) \
             values ({instance}, {position}, {call}, '{name}', '{{}}', 0)"
        )
    };
    let tail = "(select inbox_tail from fsm_instances where key = 'rests')";
    let moved = |event: String| format!("{event}; update fsm_instances set inbox_tail = inbox_tail + 1 where key = 'rests'");
    let timer = |instance: &str, machine: &str, state: &str, event: &str, payload: &str, held: bool| {
        format!(
            "insert into fsm_timers (timer_id, instance_id, machine, state, event, payload, due_at, held) \
             values (gen_random_uuid(), {instance}, '{machine}', {state}, '{event}', '{payload}', 0, {held})"
        )
    };
    let request = |dedup: &str, event: &str, call: &str| {
        format!(
            "insert into fsm_requests (instance_id, dedup, event, digest, call_id, created_at) values ({rests}, {dedup}, {event}, '', {call}, 0)"
        )
    };
    let shadowed = "create temp table fsm_instances (like public.fsm_instances); create temp table fsm_inbox (like public.fsm_inbox);
        create temp table fsm_timers (like public.fsm_timers); create temp table fsm_async_calls (like public.fsm_async_calls);
        insert into pg_temp.fsm_instances select * from public.fsm_instances; update pg_temp.fsm_instances set inbox_tail = 100, state = 'paid';";
    let new = "gen_random_uuid()";
    let attacks = vec![
        // Attempts: one that executes, one that is due, one of a verb that its event does not lead to, and changes to an existing one.
        attempt("refunding", "Cancel", "executing", "gen_random_uuid()"),
        attempt("completed", "OnlinePaymentCompleted", "scheduled", "null"),
        attempt("paid", "OnlinePaymentPaid", "scheduled", "null"),
        format!("update fsm_async_calls set payload = '{{}}' where call_id = {open}"),
        format!("update fsm_async_calls set verb = 'paid' where call_id = {open}"),
        "update fsm_async_calls set scheduled_at = 0, worker = gen_random_uuid()".to_owned(),
        // Instances.
        "update fsm_instances set state = 'paid'".to_owned(),
        "update fsm_instances set record = '{\"authorised_cents\": 1000000}'".to_owned(),
        "update fsm_instances set status = 'running'".to_owned(),
        "update fsm_instances set version = version + 1".to_owned(),
        "update fsm_instances set paused = false".to_owned(),
        "update fsm_instances set call_id = gen_random_uuid(), is_open = true".to_owned(),
        "update fsm_instances set inbox_head = 1".to_owned(),
        "update fsm_instances set pruned = 1".to_owned(),
        "update fsm_instances set row_version = 7".to_owned(),
        "update fsm_instances set due_at = 0, attempt_state = 'scheduled', verb = 'paid'".to_owned(),
        "insert into fsm_session_log (session_id, number, instances) values (gen_random_uuid(), 1, '')".to_owned(),
        "delete from fsm_session_log".to_owned(),
        "update fsm_instances set updated_at = 0 where key = 'ended'".to_owned(),
        "update fsm_instances set inbox_tail = inbox_tail + 1 where key = 'rests'".to_owned(),
        "update fsm_instances set inbox_tail = inbox_tail - 1 where key = 'rests'".to_owned(),
        "update fsm_instances set inbox_tail = 1 where key = 'ended'".to_owned(),
        instance(", state", "1, 'running', false, false, 0, 0, 'paid'"),
        instance(", record", "0, 'running', false, false, 0, 0, '{}'"),
        instance(", call_id, attempt", &format!("0, 'running', false, true, 0, 0, {open}, 1")),
        instance("", "0, 'completed', false, false, 0, 0"),
        instance("", "0, 'running', true, false, 0, 0"),
        instance("", "0, 'running', false, false, 0, 1"),
        instance("", "0, 'running', false, false, 5, 5"),
        // Events: at a position where none belongs, of another call's id, and of a type that cannot be sent.
        event(rests, tail, new, "OnlinePaymentPaid"),
        event(rests, "-1", new, "OnlinePaymentPaid"),
        event(new, "0", new, "OnlinePaymentPaid"),
        moved(event(rests, &format!("{tail} + 1"), new, "OnlinePaymentPaid")),
        moved(event(rests, tail, open, "OnlinePaymentPaid")),
        moved(event(rests, tail, new, "Timeout")),
        format!("{shadowed} {}", moved(event(rests, tail, new, "Timeout")).replace("fsm_", "public.fsm_")),
        format!("{shadowed} update public.fsm_instances set inbox_tail = 100 where key = 'rests'"),
        event(ended, "0", new, "OnlinePaymentPaid"),
        // Timers: of a state, of another machine, for an ended instance, or held.
        timer(rests, "payment", "'created'", "Timeout", "{}", false),
        timer(rests, "payment", "null", "Timeout", "{}", false),
        timer(rests, "payment", "'created'", "OnlinePaymentPaid", "{}", false),
        timer(rests, "payment", "'paid'", "OnlinePaymentPaid", "", false),
        timer(rests, "another", "null", "OnlinePaymentPaid", "{}", false),
        timer(rests, "payment", "null", "OnlinePaymentPaid", "{}", true),
        timer(ended, "payment", "null", "OnlinePaymentPaid", "{}", false),
        timer(new, "payment", "null", "OnlinePaymentPaid", "{}", false),
        // Requests: an operator's, and one for an event that another caller sent.
        request("chr(1) || 'deploy-7'", "null", new),
        request("chr(1) || 'deploy-7'", "'OnlinePaymentPaid'", new),
        request("'mine'", "'OnlinePaymentCreated'", open),
        // The history.
        "delete from fsm_history".to_owned(),
        "update fsm_history set actor = 'somebody else'".to_owned(),
    ];
    for attack in attacks {
        let mut conn = PgConnection::connect(&as_role(&bed, "fsm_sender")).await.unwrap();
        let done = sqlx::raw_sql(AssertSqlSafe(attack.clone())).execute(&mut conn).await;
        let refusal = done.err().unwrap_or_else(|| panic!("a sender can {attack}")).to_string();
        assert!(refusal.contains("permission denied"), "{attack}: {refusal}");
    }
    assert_eq!(contents(&bed).await, before);

    // A regular send of the client is still accepted.
    let client = Client::connect(as_role(&bed, "fsm_sender")).await.unwrap();
    client.machine::<Payment>().send("new", checkout()).await.unwrap();
    payments.resume("rests").await.unwrap();
    bed.run_until_idle().await;
    for (key, state) in [("rests", PaymentState::Paid), ("new", PaymentState::Created)] {
        assert_eq!(payments.get(key).await.unwrap().unwrap().state, Some(state));
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
    assert_eq!(admin.details("payment", "o-1").await.unwrap().attempts.len(), 1);
    assert!(!admin.checkup().await.unwrap().is_empty());
    let tables =
        ["instances", "async_calls", "session_log", "inbox", "timers", "requests", "once", "history", "workers", "machines", "migrations"];
    assert_eq!(refusal(&bed, "fsm_viewer", "select * from fsm_attempts").await, None);
    for table in tables {
        assert_eq!(refusal(&bed, "fsm_viewer", &format!("select * from fsm_{table}")).await, None);
        is_denied(&bed, "fsm_viewer", &format!("delete from fsm_{table}")).await;
        is_denied(&bed, "fsm_viewer", &format!("insert into fsm_{table} default values")).await;
    }
}
