//! Every statement prepares on both databases and uses an index, and the two schemas are equal.

use std::collections::HashMap;

use super::samples::{Fresh, on_each};
use crate::store::open::Store;
use crate::store::sql::{self, Many, Sql};

/// Each statement of the store that reads or changes rows by a key.
const ALL: [(&str, &Sql); 120] = [
    ("CLAIM", &sql::CLAIM),
    ("CLAIM_THESE", &sql::CLAIM_THESE),
    ("CLAIMABLE", &sql::CLAIMABLE),
    ("CLAIM_LIMITED", &sql::CLAIM_LIMITED),
    ("CLAIM_LIMITED_THESE", &sql::CLAIM_LIMITED_THESE),
    ("CLAIMABLE_LIMITED", &sql::CLAIMABLE_LIMITED),
    ("LIMIT_CHANGE", &sql::LIMIT_CHANGE),
    ("LIMITS", &sql::LIMITS),
    ("NEXT_LIMITED", &sql::NEXT_LIMITED),
    ("LIMIT_LOCK", &sql::LIMIT_LOCK),
    ("LIMIT_RUNNING", &sql::LIMIT_RUNNING),
    ("LIMIT_NEXT", &sql::LIMIT_NEXT),
    ("LIMITS_SHOWN", &sql::LIMITS_SHOWN),
    ("UNCLAIM", &sql::UNCLAIM),
    ("NEXT_CALL", &sql::NEXT_CALL),
    ("NEXT_TIMER", &sql::NEXT_TIMER),
    ("TIMERS_DUE", &sql::TIMERS_DUE),
    ("THESE_TIMERS_DUE", &sql::THESE_TIMERS_DUE),
    ("SESSION_JOIN", &sql::SESSION_JOIN),
    ("SESSION_RENEW", &sql::SESSION_RENEW),
    ("SESSION_UNREPORTED", &sql::SESSION_UNREPORTED),
    ("SESSION_LEAVE", &sql::SESSION_LEAVE),
    ("SESSION_END", &sql::SESSION_END),
    ("REACHABLE", &sql::REACHABLE),
    ("OTHER_SESSIONS", &sql::OTHER_SESSIONS),
    ("LOG_ROWS", &sql::LOG_ROWS),
    ("LOG_SESSIONS", &sql::LOG_SESSIONS),
    ("SCAN_END", &sql::SCAN_END),
    ("UNLISTED", &sql::UNLISTED),
    ("SESSIONS_DELETE_EXPIRED", &sql::SESSIONS_DELETE_EXPIRED),
    ("OPEN_CHILDREN", &sql::OPEN_CHILDREN),
    ("CHILDREN_TO_CANCEL", &sql::CHILDREN_TO_CANCEL),
    ("FAMILIES_FROM", &sql::FAMILIES_FROM),
    ("CHILD_EVENT_PARENTS", &sql::CHILD_EVENT_PARENTS),
    ("CHILD_EVENTS", &sql::CHILD_EVENTS),
    ("FAMILY_COUNTS", &sql::FAMILY_COUNTS),
    ("RELATIVE", &sql::RELATIVE),
    ("FIRST_CHILDREN", &sql::FIRST_CHILDREN),
    ("CHILDREN_UP", &sql::CHILDREN_UP),
    ("CHILDREN_DOWN", &sql::CHILDREN_DOWN),
    ("FAIR_VALUES", &sql::FAIR_VALUES),
    ("OUTBOX_LINE", &sql::OUTBOX_LINE),
    ("OUTBOX_AGAIN", &sql::OUTBOX_AGAIN),
    ("OUTBOX_DUE", &sql::OUTBOX_DUE),
    ("OUTBOX_WAITING", &sql::OUTBOX_WAITING),
    ("OUTBOX_WAITING_FOR", &sql::OUTBOX_WAITING_FOR),
    ("EVENTS_IN_OUTBOX", &sql::EVENTS_IN_OUTBOX),
    ("OUTBOX_COUNT", &sql::OUTBOX_COUNT),
    ("OUTBOX_RENAME", &sql::OUTBOX_RENAME),
    ("FIND", &sql::FIND),
    ("CALLS", &sql::CALLS),
    ("NOTES", &sql::NOTES),
    ("EVERY_OLDEST_FIRST", &sql::EVERY_OLDEST_FIRST),
    ("EVERY_NEWEST_FIRST", &sql::EVERY_NEWEST_FIRST),
    ("KEYS_UP", &sql::KEYS_UP),
    ("KEYS_DOWN", &sql::KEYS_DOWN),
    ("KEY_EDGE_UP", &sql::KEY_EDGE_UP),
    ("KEY_EDGE_DOWN", &sql::KEY_EDGE_DOWN),
    ("COUNTS", &sql::COUNTS),
    ("WAITING", &sql::WAITING),
    ("TIMERS_BESIDE", &sql::TIMERS_BESIDE),
    ("TIMERS_SET", &sql::TIMERS_SET),
    ("NOT_ENDED_OLDEST_FIRST", &sql::NOT_ENDED_OLDEST_FIRST),
    ("NOT_ENDED_NEWEST_FIRST", &sql::NOT_ENDED_NEWEST_FIRST),
    ("RETRYING", &sql::RETRYING),
    ("FAILING", &sql::FAILING),
    ("CALLS_TO_COME", &sql::CALLS_TO_COME),
    ("TIMERS_TO_COME", &sql::TIMERS_TO_COME),
    ("SESSIONS", &sql::SESSIONS),
    ("MAY_BEGIN_CALLS", &sql::MAY_BEGIN_CALLS),
    ("COUNT_UP_TO", &sql::COUNT_UP_TO),
    ("COUNT_IN_ERROR", &sql::COUNT_IN_ERROR),
    ("OVERDUE", &sql::OVERDUE),
    ("OVERDUE_TIMERS", &sql::OVERDUE_TIMERS),
    ("NEWEST", &sql::NEWEST),
    ("REJECTED", &sql::REJECTED),
    ("COUNT_REJECTED", &sql::COUNT_REJECTED),
    ("PAYLOAD", &sql::PAYLOAD),
    ("SCHEDULE", &sql::SCHEDULE),
    ("SCHEDULE_ADD", &sql::SCHEDULE_ADD),
    ("SCHEDULE_DEFINE", &sql::SCHEDULE_DEFINE),
    ("SCHEDULE_DECLARED", &sql::SCHEDULE_DECLARED),
    ("SCHEDULE_ADVANCE", &sql::SCHEDULE_ADVANCE),
    ("SCHEDULE_TAKE", &sql::SCHEDULE_TAKE),
    ("SCHEDULE_SENT", &sql::SCHEDULE_SENT),
    ("SCHEDULE_FAILED", &sql::SCHEDULE_FAILED),
    ("SCHEDULE_PAUSE", &sql::SCHEDULE_PAUSE),
    ("SCHEDULE_RESUME", &sql::SCHEDULE_RESUME),
    ("SCHEDULE_REQUEST", &sql::SCHEDULE_REQUEST),
    ("SCHEDULE_FORGET", &sql::SCHEDULE_FORGET),
    ("REMEMBER", &sql::REMEMBER),
    ("DEFINITIONS", &sql::DEFINITIONS),
    ("ONCE_GET", &sql::ONCE_GET),
    ("ONCE_PUT", &sql::ONCE_PUT),
    ("WINDOW", &sql::WINDOW),
    ("STATES_NEEDED", &sql::STATES_NEEDED),
    ("STATES_NEEDED_IN_ERROR", &sql::STATES_NEEDED_IN_ERROR),
    ("VERBS_NEEDED", &sql::VERBS_NEEDED),
    ("VERBS_NEEDED_AGAIN", &sql::VERBS_NEEDED_AGAIN),
    ("EVENTS_WAITING", &sql::EVENTS_WAITING),
    ("EVENTS_WAITING_IN_ERROR", &sql::EVENTS_WAITING_IN_ERROR),
    ("EVENTS_DELAYED", &sql::EVENTS_DELAYED),
    ("BEARERS", &sql::BEARERS),
    ("ENDED", &sql::ENDED),
    ("PRUNE_BETWEEN", &sql::PRUNE_BETWEEN),
    ("PRUNE_SOME_ONCE", &sql::PRUNE_SOME_ONCE),
    ("PRUNE_SOME_HISTORY", &sql::PRUNE_SOME_HISTORY),
    ("PRUNE_SOME_REQUESTS", &sql::PRUNE_SOME_REQUESTS),
    ("PRUNE_SOME_INBOX", &sql::PRUNE_SOME_INBOX),
    ("ONCE_UNTIL", &sql::ONCE_UNTIL),
    ("PRUNE_ONCE_OLD", &sql::PRUNE_ONCE_OLD),
    ("OLD_ATTEMPTS", &sql::OLD_ATTEMPTS),
    ("TIMERLESS", &sql::TIMERLESS),
    ("TIMERS_OVER", &sql::TIMERS_OVER),
    ("NOTES_UNTIL", &sql::NOTES_UNTIL),
    ("PRUNE_NOTES", &sql::PRUNE_NOTES),
    ("REQUESTS_UNTIL", &sql::REQUESTS_UNTIL),
    ("PRUNE_REQUESTS_OLD", &sql::PRUNE_REQUESTS_OLD),
    ("MIGRATIONS", &sql::MIGRATIONS),
    ("MIGRATED", &sql::MIGRATED),
];

/// Each such statement about many rows.
const MANY: [(&str, &Many); 76] = [
    ("LOCK_BY_KEY", &sql::LOCK_BY_KEY),
    ("LOCK_BY_ID", &sql::LOCK_BY_ID),
    ("ATTEMPTS", &sql::ATTEMPTS),
    ("PENDING_TIMERS", &sql::PENDING_TIMERS),
    ("PENDING_EVENTS", &sql::PENDING_EVENTS),
    ("LAST_ATTEMPTS", &sql::LAST_ATTEMPTS),
    ("INBOX", &sql::INBOX),
    ("WAITING_EVENTS", &sql::WAITING_EVENTS),
    ("INBOX_ENDS", &sql::INBOX_ENDS),
    ("OUTLOOK_LOST", &sql::FORECAST_STALE),
    ("REQUESTS", &sql::REQUESTS),
    ("KNOWN", &sql::KNOWN),
    ("OUTBOX_LINES", &sql::OUTBOX_LINES),
    ("FAIR_FIRST", &sql::FAIR_FIRST),
    ("FAIR_PUT", &sql::FAIR_PUT),
    ("OUTBOX_PUT", &sql::OUTBOX_PUT),
    ("OUTBOX_TAKE", &sql::OUTBOX_TAKE),
    ("NOTE_SENDER", &sql::NOTE_SENDER),
    ("NAMES", &sql::NAMES),
    ("UNSEND", &sql::UNSEND),
    ("WAKE_UNBEGUN", &sql::WAKE_UNBEGUN),
    ("CLOSE", &sql::CLOSE),
    ("BUDGET", &sql::RETRY_STATE),
    ("PROGRESS", &sql::PROGRESS),
    ("TIMER_EXISTS", &sql::TIMER_EXISTS),
    ("CREATE", &sql::CREATE),
    ("SAVE", &sql::SAVE),
    ("SAVE_IN_PLACE", &sql::SAVE_IN_PLACE),
    ("SAVE_ENDED", &sql::SAVE_ENDED),
    ("SAVE_ENDED_IN_PLACE", &sql::SAVE_ENDED_IN_PLACE),
    ("SAVE_OPENED", &sql::SAVE_OPENED),
    ("SAVE_OPENED_IN_PLACE", &sql::SAVE_OPENED_IN_PLACE),
    ("SAVE_ADDED", &sql::SAVE_ADDED),
    ("INBOX_PUT", &sql::INBOX_PUT),
    ("INBOX_TAKE", &sql::INBOX_TAKE),
    ("PAYLOADS", &sql::PAYLOADS),
    ("PAYLOADS_ENDED", &sql::PAYLOADS_ENDED),
    ("LOG_PUT", &sql::LOG_PUT),
    ("LOG_DELETE", &sql::LOG_DELETE),
    ("EXECUTING", &sql::EXECUTING),
    ("TIMER_DELETE", &sql::TIMER_DELETE),
    ("TIMER_CLEAR", &sql::TIMER_CLEAR),
    ("TIMER_HOLD", &sql::TIMER_HOLD),
    ("TIMER_RELEASE", &sql::TIMER_RELEASE),
    ("TIMER_SET", &sql::TIMER_SET),
    ("NOTE", &sql::NOTE),
    ("REQUEST", &sql::REQUEST),
    ("CLAIMED", &sql::CLAIMED),
    ("TRACES", &sql::TRACES),
    ("TRACE_PUT", &sql::TRACE_PUT),
    ("PRUNE_TRACES_OF", &sql::PRUNE_TRACES_OF),
    ("PRUNE_TRACES", &sql::PRUNE_TRACES),
    ("PRUNE_INSTANCES", &sql::PRUNE_INSTANCES),
    ("PRUNE_HISTORY", &sql::PRUNE_HISTORY),
    ("PRUNE_REQUESTS", &sql::PRUNE_REQUESTS),
    ("PRUNE_INBOX", &sql::PRUNE_INBOX),
    ("PRUNE_CHILD_EVENTS", &sql::PRUNE_CHILD_EVENTS),
    ("CHILD_EVENT_PUT", &sql::CHILD_EVENT_PUT),
    ("CHILD_UNAWAITED", &sql::CHILD_UNAWAITED),
    ("FAMILIES", &sql::FAMILIES),
    ("CHILD_EVENTS_TAKE", &sql::CHILD_EVENTS_TAKE),
    ("STILL_OVER", &sql::STILL_OVER),
    ("CALLS_BACK", &sql::CALLS_BACK),
    ("CALLS_BESIDE", &sql::CALLS_BESIDE),
    ("TRANSITIONS", &sql::TRANSITIONS),
    ("ONCE_COUNTS", &sql::ONCE_COUNTS),
    ("PRUNE_ATTEMPTS", &sql::PRUNE_ATTEMPTS),
    ("PRUNE_ONCE_OF", &sql::PRUNE_ONCE_OF),
    ("PRUNE_CALLS_OF", &sql::PRUNE_CALLS_OF),
    ("PRUNED", &sql::PRUNED),
    ("RENAME_TIMER", &sql::RENAME_TIMER),
    ("RENAME_WAITING", &sql::RENAME_WAITING),
    ("RENAME_REQUESTS", &sql::RENAME_REQUESTS),
    ("RENAME_CALL", &sql::RENAME_CALL),
    ("RENAME_CAUGHT", &sql::RENAME_CAUGHT),
    ("TIMERS_OF", &sql::TIMERS_OF),
];

/// The statements that exist only for PostgreSQL.
const OF_POSTGRES: [(&str, &Many); 3] =
    [("LOCK_IF_FREE", &sql::LOCK_IF_FREE), ("SEE_BY_KEY", &sql::READ_BY_KEY), ("AS_SEEN", &sql::AT_VERSION)];

/// The kinds of instances that are listed, each with its statements.
const AMONG: [(&str, &sql::Among); 6] = [
    ("RUNNING", &sql::RUNNING),
    ("IN_ERROR", &sql::IN_ERROR),
    ("ENDED_SO_FAR", &sql::ENDED_SO_FAR),
    ("COMPLETED", &sql::COMPLETED),
    ("CANCELLED", &sql::CANCELLED),
    ("PAUSED", &sql::PAUSED),
];

/// The tables with few rows, which may be read whole.
const SMALL: [&str; 4] = ["fsm_migrations", "fsm_workers", "fsm_reachable_time", "fsm_limits"];

async fn texts(store: &Store, sqlite: String, postgres: String, column: usize) -> Vec<String> {
    let sql = Sql { sqlite: sqlite.leak(), postgres: postgres.leak() };
    let mut tx = store.begin().await.unwrap();
    let rows = tx.conn().rows(&sql, &[]).await.unwrap();
    rows.iter().map(|row| row.get::<String>(column).unwrap()).collect()
}

/// The first column of each PostgreSQL index.
async fn first_columns(store: &Store) -> HashMap<String, String> {
    let first = "select i.indexrelid::regclass::text || ' ' || a.attname
        from pg_index i
        join pg_attribute a on a.attrelid = i.indrelid and a.attnum = i.indkey[0]
        where i.indrelid::regclass::text like 'fsm_%'";
    let all = texts(store, String::new(), first.to_owned(), 0).await;
    all.iter().filter_map(|pair| pair.split_once(' ')).map(|(index, column)| (index.to_owned(), column.to_owned())).collect()
}

/// The number of `$n` parameters of a statement.
fn parameters(text: &str) -> usize {
    text.split('$').skip(1).filter_map(|part| part.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok()).max().unwrap_or(0)
}

#[tokio::test(flavor = "multi_thread")]
async fn every_statement_rides_an_index() {
    let mut slow = Vec::new();
    let store = Fresh::Memory.open().await;
    let one = ALL.iter().map(|(name, sql)| (name, sql.sqlite.to_owned(), sql.postgres.to_owned()));
    let many = MANY.iter().map(|(name, sql)| (name, sql.for_sqlite(), sql.for_postgres()));
    let among = AMONG.iter().flat_map(|(name, among)| {
        let all = [&among.oldest_first, &among.newest_first, &among.edge_up, &among.edge_down, &among.states];
        all.into_iter().map(move |sql| (name, sql.sqlite.to_owned(), sql.postgres.to_owned()))
    });
    let tables = sql::TABLES.iter().flat_map(|table| {
        let page = (&table.name, table.page.sqlite.to_owned(), table.page.postgres.to_owned());
        [page, (&table.name, table.insert.for_sqlite(), table.insert.for_postgres())]
    });
    let all: Vec<_> = one.chain(many).chain(among).chain(tables).collect();
    for (name, sqlite, _) in &all {
        for line in texts(&store, format!("explain query plan {sqlite}"), String::new(), 3).await {
            let scans = line.starts_with("SCAN")
                && !line.contains("INDEX")
                && !line.contains("CONSTANT")
                && !line.contains("VALUES CLAUSE")
                && !line.contains("json_each")
                // A part of a `union all`, which has rows of its own.
                && !line.starts_with("SCAN (subquery-");
            let is_small = [
                "m",
                "n",
                "w",
                "walk",
                "counted",
                "fsm_workers",
                "r",
                "e",
                "x",
                "d",
                "s",
                "l",
                "high",
                "normal",
                "low",
                "due",
                "of_priority",
            ]
            .iter()
            .any(|small| line == format!("SCAN {small}"));
            if scans && !is_small {
                slow.push(format!("{name} in SQLite: {line}"));
            }
        }
    }
    let of_postgres = OF_POSTGRES.iter().map(|(name, sql)| (name, sql.for_postgres()));
    let all: Vec<_> = all.iter().map(|(name, _, postgres)| (*name, postgres.clone())).chain(of_postgres).collect();
    let fresh = Fresh::postgres().await;
    let store = fresh.open().await;
    let first_columns = first_columns(&store).await;
    let mut tx = store.begin().await.unwrap();
    let mut conn = tx.conn();
    conn.script("set local plan_cache_mode = force_generic_plan").await.unwrap();
    for (place, (name, postgres)) in all.iter().enumerate() {
        let nulls = vec!["null"; parameters(postgres)].join(", ");
        let arguments = if nulls.is_empty() { String::new() } else { format!("({nulls})") };
        conn.script(format!("prepare p_{place} as {postgres}").leak()).await.unwrap();
        let explain = Sql { sqlite: "", postgres: format!("explain execute p_{place}{arguments}").leak() };
        let plan: Vec<String> = conn.rows(&explain, &[]).await.unwrap().iter().map(|row| row.get(0).unwrap()).collect();
        let goes_by_key = matches!(**name, "CLAIM" | "CLAIM_THESE" | "CLAIM_LIMITED" | "CLAIM_LIMITED_THESE" | "LIMIT_RUNNING")
            || MANY.iter().chain(&OF_POSTGRES).any(|(many, _)| many == *name);
        for (n, line) in plan.iter().enumerate() {
            let is_whole = line.contains("Seq Scan on fsm_") && !SMALL.iter().any(|small| line.contains(small));
            // An index without a condition on its first column is scanned from end to end.
            let is_walk = line.split_once("Scan using ").is_some_and(|(_, rest)| {
                let first = &first_columns[rest.split(' ').next().unwrap()];
                !plan.get(n + 1).is_some_and(|next| next.contains("Index Cond: ") && next.contains(&format!("({first} ")))
            });
            if is_whole || goes_by_key && is_walk {
                slow.push(format!("{name} in PostgreSQL: {}", line.trim()));
            }
        }
    }
    assert!(slow.is_empty(), "{slow:#?}");
}

/// The chain has no index. A planner that estimates few rows would compare each of a hundred thousand with all others.
#[test]
fn no_invariant_joins_the_chain_of_transitions() {
    for invariant in &sql::INVARIANTS {
        for text in [invariant.query.sqlite, invariant.query.postgres] {
            let words: Vec<_> = text.split_whitespace().collect();
            assert!(words.windows(2).all(|pair| pair != ["join", "chain"]), "{}: {text}", invariant.number);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_two_schemas_are_twins() {
    let mut schemas = Vec::new();
    on_each(async |_| {}).await;
    for fresh in [Fresh::Memory, Fresh::postgres().await] {
        let store = fresh.open().await;
        let columns = texts(
            &store,
            "select t.name || '.' || c.cid || ' ' || c.name || case when c.\"notnull\" then ' not null' else '' end
             from pragma_table_list t, pragma_table_info(t.name) c
             where t.name like 'fsm_%'
             order by t.name, c.cid"
                .into(),
            "select c.table_name || '.' || (c.ordinal_position - 1) || ' ' || c.column_name || case c.is_nullable when 'NO' then ' not null' else '' end
             from information_schema.columns c
             where c.table_name like 'fsm_%'
             order by c.table_name collate \"C\", c.ordinal_position"
                .into(),
            0,
        )
        .await;
        let indexes = texts(
            &store,
            "select m.name from sqlite_master m where m.type = 'index' and m.name like 'fsm_%' order by m.name".into(),
            "select i.indexname::text from pg_indexes i where i.indexname like 'fsm_%' and i.indexname !~ '_(pkey|key)$' order by i.indexname collate \"C\"".into(),
            0,
        )
        .await;
        schemas.push((columns, indexes));
    }
    assert_eq!(schemas[0], schemas[1]);
    // All columns are exported, except the numbers that the history generates.
    let mut exported = Vec::new();
    for table in &sql::TABLES {
        let names = table.insert.columns.split(", ").filter_map(|column| column.split(' ').next());
        exported.extend(names.map(|name| format!("fsm_{} {name}", table.name)));
    }
    let own = ["fsm_workers", "fsm_reachable_time", "fsm_session_log", "fsm_migrations", "fsm_attempts"];
    let is_own = |name: &String| {
        own.iter().any(|own| name.starts_with(own))
            || name.ends_with(" history_id")
            || name.ends_with(" outbox_id")
            || name.ends_with(" child_event_id")
    };
    let there = schemas[0]
        .0
        .iter()
        .filter_map(|line| line.split_once('.').map(|(table, rest)| (table, rest.split(' ').nth(1).unwrap_or_default())));
    let mut there: Vec<_> = there.map(|(table, column)| format!("{table} {column}")).filter(|name| !is_own(name)).collect();
    exported.sort();
    there.sort();
    assert_eq!(exported, there);
    // A query that found nothing would make the comparisons above empty.
    assert!(schemas[0].0.len() > 80 && schemas[0].1.len() > 20, "{} columns, {} indexes", schemas[0].0.len(), schemas[0].1.len());
}
