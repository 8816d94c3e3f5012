//! Fuzz tests of stored rows, keys and errors: damaged data is a clear failure of its one instance, and all others continue.
//!
//! Each test has a fixed seed, which it prints. `FSM_FUZZ_SEED=…` sets another seed, `FSM_FRESH_SEEDS=1` a new one for each run.

use std::time::Duration;

use fsm::prelude::*;
use fsm::testing::TestBed;
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::{Config, RngSeed, TestRunner};

use crate::clumsy::{Clumsy, Deed, clumsy};
use crate::sql_runner::{SqlRunner, is_postgres, run};
use crate::support::promise;

const FIVE_SECONDS: Duration = Duration::from_secs(5);
/// The seed of all tests, unless the environment sets another one.
const SEED: u64 = 17;
/// The maximum length of a stored error text.
const LONGEST_ERROR: usize = 8 * 1024;

/// Draws `many` values from the seed.
fn drawn<S: Strategy>(many: usize, values: &S) -> Vec<S::Value> {
    let fresh = || std::time::UNIX_EPOCH.elapsed().map_or(SEED, |since| since.as_nanos() as u64);
    let unset = || if std::env::var_os("FSM_FRESH_SEEDS").is_some() { fresh() } else { SEED };
    let seed = std::env::var("FSM_FUZZ_SEED").map_or_else(|_| unset(), |seed| seed.parse().expect("FSM_FUZZ_SEED is a number"));
    println!("FSM_FUZZ_SEED={seed}");
    let mut runner = TestRunner::new(Config { rng_seed: RngSeed::Fixed(seed), failure_persistence: None, ..Config::default() });
    (0..many).map(|_| values.new_tree(&mut runner).expect("it can be drawn").current()).collect()
}

/// Bytes that are random, nearly JSON, or JSON of another type.
fn garbage() -> impl Strategy<Value = Vec<u8>> {
    let nearly = "[\\[\\]{}:,\"a-z0-9.eE+-]{0,40}".prop_map(String::into_bytes);
    let marked = prop::collection::vec(any::<u8>(), 0..60)
        .prop_flat_map(|bytes| (1..3_u8).prop_map(move |mark| [&[mark], bytes.as_slice()].concat()));
    let other = prop::sample::select(vec![
        "",
        "null",
        "{}",
        "[]",
        "\"\"",
        "-1",
        "1e999",
        "{\"done\":-1}",
        "{\"done\":{}}",
        "\u{0}",
        "\u{1}encrypted:zz",
    ]);
    prop_oneof![prop::collection::vec(any::<u8>(), 0..60), nearly, marked, other.prop_map(|text| text.as_bytes().to_vec())]
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Returns the bytes as an SQL literal.
fn literal(bed: &TestBed, bytes: &[u8]) -> String {
    if is_postgres(bed) { format!("decode('{}', 'hex')", hex(bytes)) } else { format!("x'{}'", hex(bytes)) }
}

/// Returns the bytes as an SQL literal for a text column. PostgreSQL accepts only UTF-8 without NUL there.
fn text_literal(bed: &TestBed, bytes: &[u8]) -> String {
    if is_postgres(bed) {
        let text = String::from_utf8_lossy(bytes).replace('\0', "?");
        format!("convert_from(decode('{}', 'hex'), 'UTF8')", hex(text.as_bytes()))
    } else {
        format!("cast(x'{}' as text)", hex(bytes))
    }
}

fn of_key(key: &str) -> String {
    format!("instance_id = (select instance_id from fsm_instances where machine = 'clumsy' and key = '{key}')")
}

/// A key in the partition of `whole`, from whose rows the broken ones are restored.
fn keyed(n: usize) -> String {
    format!("{{whole}}/{n}")
}

promise! {
    async fn a_row_with_any_bytes_fails_its_own_attempt_and_no_other(bed in clumsy().only::<SqlRunner>()) {
        let clumsies = bed.machine::<Clumsy>();
        let rows = drawn(60, &garbage());
        for n in 0..rows.len() {
            clumsies.send(keyed(n), Deed::Nothing).await.unwrap();
            clumsies.send(keyed(n), Deed::Fail("as it was told".into())).await.unwrap();
        }
        clumsies.send("whole", Deed::Nothing).await.unwrap();
        clumsies.send("whole", Deed::Fail("as it was told".into())).await.unwrap();
        bed.run_until_idle().await;
        for (n, bytes) in rows.iter().enumerate() {
            let row = of_key(&keyed(n));
            let text = match n % 3 {
                0 => format!("update fsm_instances set payload = {} where {row} and payload is not null", literal(bed, bytes)),
                1 => format!("update fsm_instances set record = {}, row_version = row_version + 1 where {row}", literal(bed, bytes)),
                _ => format!("update fsm_instances set retry = {} where {row} and attempt_state = 'scheduled'", text_literal(bed, bytes)),
            };
            run(bed, text).await;
        }
        bed.advance(FIVE_SECONDS).await;

        let whole = clumsies.get("whole").await.unwrap().unwrap();
        assert_eq!((whole.status, whole.error.as_deref()), (Status::Error, Some("as it was told")), "other instances are not delayed");
        for (n, bytes) in rows.iter().enumerate() {
            let key = keyed(n);
            let last = clumsies.attempts(&key).await.unwrap().pop().unwrap();
            let error = last.error.unwrap_or_default();
            let is_clear = ["the payload does not decode", "the payload cannot be read", "the record does not decode", "the record cannot be read",
                "the retry policy cannot be read", "as it was told"].iter().any(|why| error.starts_with(why));
            let succeeded = last.state == AttemptState::Success;
            assert!(succeeded || (last.state == AttemptState::Error && is_clear), "{n}: {bytes:?}: {} {error:?}", last.state);
            // An unreadable record is an error of its own instance only.
            if let Err(unreadable) = clumsies.get(&key).await {
                assert!(n % 3 == 1 && unreadable.is_unreadable(), "{n}: {bytes:?}: {unreadable}");
            }
        }
        let page = clumsies.list(Filter::default().limit(1000)).await.unwrap();
        assert_eq!(page.items.len() + page.unreadable.len(), rows.len() + 1);

        // The invariants check policies, so the original ones are restored.
        for table in ["fsm_async_calls", "fsm_instances"] {
            run(bed, format!(
                "update {table} set retry = (select w.retry from fsm_async_calls w where w.{} and w.attempt = 1 limit 1) where machine = 'clumsy'",
                of_key("whole")
            )).await;
        }
        clumsies.send("{whole}/new", Deed::Nothing).await.unwrap();
        bed.run_until_idle().await;
        assert_eq!(clumsies.get("{whole}/new").await.unwrap().unwrap().version, 1);
    }
}

promise! {
    async fn a_definition_with_any_bytes_stops_no_worker(bed in clumsy().only::<SqlRunner>()) {
        run(bed, "update fsm_machines set first_seen_at = first_seen_at").await;
        for bytes in drawn(10, &garbage()) {
            let text = text_literal(bed, &bytes);
            run(bed, format!(
                "insert into fsm_machines (machine, hash, definition, first_seen_at) values ('clumsy', 'h-{}', {text}, 1)
                 on conflict (machine, hash) do nothing", hex(&bytes)
            )).await;
        }
        bed.restart().await;
        let other = clumsy().beside(bed).await.unwrap();
        let clumsies = other.machine::<Clumsy>();
        clumsies.send("c", Deed::Nothing).await.unwrap();
        other.run_until_idle().await;
        assert_eq!(clumsies.get("c").await.unwrap().unwrap().version, 1);
        // The invariants check definitions, so the damaged ones are removed.
        run(bed, "delete from fsm_machines where hash like 'h-%'").await;
    }
}

/// Any text, and texts that have caused bugs elsewhere.
fn texts() -> impl Strategy<Value = String> {
    let known = [
        "",
        "\0",
        "a\0b",
        "'; drop table fsm_instances; --",
        "\\",
        "\\'",
        "%_",
        "\u{1}encrypted:00",
        "e\u{301}",
        "\u{e9}",
        "\u{202e}abc",
        "\u{feff}",
        " ",
        "\n",
        "$1",
        "?1",
        "\"",
        "🦀",
        "A",
        "a",
    ];
    let long = (any::<char>(), 0..300_usize).prop_map(|(c, times)| c.to_string().repeat(times));
    prop_oneof![any::<String>(), long, prop::sample::select(known.to_vec()).prop_map(str::to_owned)]
}

promise! {
    async fn any_text_is_a_key_of_its_own_or_refused(bed in clumsy()) {
        let clumsies = bed.machine::<Clumsy>();
        let mut taken = std::collections::BTreeSet::new();
        for key in drawn(120, &texts()) {
            let sent = clumsies.send(&key, Deed::Nothing).dedup(if key.is_empty() { "empty" } else { &key }).await;
            if key.is_empty() || key.len() > 255 || key.contains('\0') {
                assert!(sent.unwrap_err().is_input(), "{key:?}");
                assert!(clumsies.get(&key).await.unwrap_err().is_input());
                continue;
            }
            assert_eq!(sent.unwrap().outcome == fsm::SendOutcome::Duplicate, !taken.insert(key.clone()), "{key:?}");
        }
        bed.run_until_idle().await;
        let found: std::collections::BTreeSet<_> =
            clumsies.list(Filter::default().limit(1000)).await.unwrap().items.into_iter().map(|clumsy| clumsy.key).collect();
        assert_eq!(found, taken, "every key is stored unchanged");
        for key in &taken {
            assert_eq!(clumsies.get(key).await.unwrap().unwrap().version, 1, "{key:?}");
        }
    }
}

promise! {
    async fn any_error_text_is_kept_as_it_was_as_far_as_it_fits(bed in clumsy()) {
        let clumsies = bed.machine::<Clumsy>();
        let long = (any::<char>(), 2_000..12_000_usize).prop_map(|(c, times)| c.to_string().repeat(times));
        let errors = drawn(60, &prop_oneof![4 => texts(), 1 => long]);
        for (n, error) in errors.iter().enumerate() {
            clumsies.send(format!("c-{n}"), Deed::Fail(error.clone())).await.unwrap();
        }
        bed.advance(FIVE_SECONDS).await;
        for (n, error) in errors.iter().enumerate() {
            let kept = clumsies.get(format!("c-{n}")).await.unwrap().unwrap().error.unwrap();
            if error.starts_with("\u{1}encrypted:") {
                assert!(kept.starts_with("(the error cannot be read: "), "{kept:?}");
                continue;
            }
            assert!(kept.len() <= LONGEST_ERROR, "{} bytes", kept.len());
            let whole = error.replace('\0', "\u{fffd}");
            assert!(if error.len() <= LONGEST_ERROR && whole.len() <= LONGEST_ERROR { kept == whole } else { whole.starts_with(&kept) }, "{error:?}");
            assert!(!clumsies.history(format!("c-{n}")).await.unwrap().is_empty());
        }
    }
}
