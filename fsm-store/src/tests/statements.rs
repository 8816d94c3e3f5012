//! Every statement prepares on both databases and uses an index, and the two schemas are equal.

use std::collections::HashMap;

use super::all_statements::{ALL, MANY, OF_POSTGRES};
use crate::open::Store;
use crate::sql::{self, Sql};
use crate::testing::{EmptyDatabase, on_each};

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
    let store = EmptyDatabase::Memory.open().await;
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
                "p",
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
    let fresh = EmptyDatabase::postgres().await;
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
            let step = words.windows(3).position(|three| three == ["from", "walk", "w"]).map(|at| words[at + 3]);
            assert!(step.is_none_or(|next| next == "where"), "{}: each step of the walk is a look-up: {text}", invariant.number);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_two_schemas_are_twins() {
    let mut schemas = Vec::new();
    on_each(async |_| {}).await;
    for fresh in [EmptyDatabase::Memory, EmptyDatabase::postgres().await] {
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
    let own = ["fsm_limit_permits", "fsm_workers", "fsm_reachable_time", "fsm_session_log", "fsm_migrations", "fsm_attempts"];
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
