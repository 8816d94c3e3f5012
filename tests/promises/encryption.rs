//! With a codec, no payload, record or error text can be read in the database, no value can be moved to another place, and keys can be
//! rotated.

use std::time::Duration;

use fsm::prelude::*;
use fsm::testing::{TestBed, TestBedBuilder};
use fsm::{Aead, SendOutcome};
use serde::{Deserialize, Serialize};
use sqlx::{AssertSqlSafe, Connection, PgConnection};

use crate::sql_runner::{SqlRunner, is_postgres, run};
use crate::support::{Folder, promise};

const SECRET: &str = "4242-4242-4242";
const FIVE_SECONDS: Duration = Duration::from_secs(5);

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
struct Cards {
    charged: Vec<String>,
    rescued: u32,
}
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Charge {
    card: String,
    fails: bool,
}
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Print {
    card: String,
}

#[derive(Debug)]
struct Declined(String);
impl std::fmt::Display for Declined {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "no money on {}", self.0)
    }
}
impl std::error::Error for Declined {}

/// Leaves its card number in every place where a verb can leave a value.
#[verb]
#[retry(1, "5s", catch = rescued)]
async fn charged(ctx: &mut Ctx<'_>, record: &mut Cards, event: Charge) -> Result {
    let token: String = ctx.once("token", async { Ok::<_, Failure>(format!("token of {}", event.card)) }).await?;
    assert_eq!(token, format!("token of {}", event.card));
    if let Some(error) = ctx.last_error() {
        assert_eq!(error, format!("no money on {}", event.card));
    }
    if event.fails {
        return Err(Declined(event.card).into());
    }
    record.charged.push(event.card.clone());
    ctx.send::<Printer>("printer", Print { card: event.card.clone() })?;
    ctx.next(Print { card: event.card })?;
    Ok(())
}

#[verb]
async fn printed(event: Print) -> Result {
    assert_eq!(event.card, SECRET);
    Ok(())
}

#[verb]
async fn rescued(record: &mut Cards, event: Caught<Charge>) -> Result {
    assert_eq!((event.event.card.as_str(), event.error), (SECRET, format!("no money on {SECRET}")));
    record.rescued += 1;
    Ok(())
}

#[verb]
#[retry("5s")]
async fn printing(event: Print) -> Result {
    assert_eq!(event.card, SECRET);
    Ok(())
}

fsm! {
    machine Vault = "vault" {
        keeps Cards;
        start charged;
        charged -> printed;
        printed -> charged;
    }
}

fsm! {
    machine Printer = "printer" {
        start printing;
        printing -> printing;
    }
}

fn vaults() -> TestBedBuilder {
    TestBed::builder().only::<Vault>().only::<Printer>().only::<SqlRunner>()
}

fn encrypting(id: &'static str) -> TestBedBuilder {
    vaults().with(move |builder| builder.codec(key(id)))
}

/// Returns a codec with the key of this name.
fn key(id: &str) -> Aead {
    Aead::new(id, [id.len() as u8; 32])
}

fn charge(fails: bool) -> Charge {
    Charge { card: SECRET.into(), fails }
}

/// Leaves the secret in every column that can contain it: payloads of calls, of the inbox and of timers, records, errors, memoised effects.
async fn leave_secrets(bed: &TestBed) {
    let (vaults, printers) = (bed.machine::<Vault>(), bed.machine::<Printer>());
    vaults.send("good", charge(false)).dedup("first").await.unwrap();
    vaults.send("bad", charge(true)).await.unwrap();
    bed.run_until_idle().await;
    vaults.send("bad", Print { card: SECRET.into() }).await.unwrap();
    printers.send("printer", Print { card: SECRET.into() }).after(Duration::from_secs(3600)).await.unwrap();
    let waiting = vaults.get("bad").await.unwrap().unwrap();
    assert_eq!((waiting.inbox_len, waiting.call.unwrap().last_error), (1, Some(format!("no money on {SECRET}"))));
    bed.advance(FIVE_SECONDS).await;
}

/// Checks that a process with the key can read the secrets.
async fn find_secrets(bed: &TestBed) {
    let vaults = bed.machine::<Vault>();
    assert_eq!(vaults.get("good").await.unwrap().unwrap().record.charged, [SECRET]);
    let bad = vaults.get("bad").await.unwrap().unwrap();
    assert_eq!((bad.record.rescued, bad.status, bad.inbox_len), (1, Status::Error, 1));
    assert_eq!(bad.error.unwrap(), format!("no money on {SECRET}"));
    let attempts = vaults.attempts("bad").await.unwrap();
    assert_eq!(attempts.iter().filter(|attempt| attempt.error.as_ref().is_some_and(|error| error.contains(SECRET))).count(), 2);
    let history: Vec<_> = vaults.history("bad").await.unwrap().iter().map(ToString::to_string).collect();
    assert!(history.join("\n").contains(SECRET), "{history:?}");
}

fn has_secret(bytes: &[u8]) -> bool {
    bytes.windows(SECRET.len()).any(|window| window == SECRET.as_bytes())
}

mod nothing_secret_is_in_the_database {
    use super::*;

    /// Reads all files of the database: the tables and the write-ahead log.
    fn files(folder: &Folder) -> Vec<u8> {
        let files = std::fs::read_dir(folder.path()).unwrap().map(|file| std::fs::read(file.unwrap().path()).unwrap());
        files.flatten().collect()
    }

    async fn sqlite_holds(builder: TestBedBuilder, name: &str) -> Vec<u8> {
        let folder = Folder::new(name);
        let bed = builder.on(&folder.url("vault.db")).await;
        leave_secrets(&bed).await;
        find_secrets(&bed).await;
        crate::support::assert_invariants_hold(&bed).await;
        files(&folder)
    }

    #[tokio::test]
    async fn sqlite() {
        assert!(has_secret(&sqlite_holds(vaults(), "encrypted-plain").await), "without a codec the secret is readable");
        assert!(!has_secret(&sqlite_holds(encrypting("a"), "encrypted").await));
    }

    /// Returns every column of every row of every table as text. Bytes are in hexadecimal.
    async fn columns(bed: &TestBed) -> String {
        let mut conn = PgConnection::connect(bed.url()).await.unwrap();
        let tables = "select table_name::text from information_schema.tables where table_schema = current_schema()";
        let tables: Vec<String> = sqlx::query_scalar(tables).fetch_all(&mut conn).await.unwrap();
        assert!(tables.len() >= 10, "{tables:?}");
        let mut all = String::new();
        for table in tables {
            let text = AssertSqlSafe(format!("select coalesce(string_agg(t::text, ' '), '') from {table} t"));
            all += &sqlx::query_scalar::<_, String>(text).fetch_one(&mut conn).await.unwrap();
        }
        all
    }

    fn is_in(columns: &str) -> bool {
        let hexadecimal: String = SECRET.bytes().map(|byte| format!("{byte:02x}")).collect();
        columns.contains(SECRET) || columns.contains(&hexadecimal)
    }

    #[tokio::test]
    async fn postgres() {
        for (builder, is_there) in [(vaults(), true), (encrypting("a"), false)] {
            let bed = builder.postgres().await;
            leave_secrets(&bed).await;
            find_secrets(&bed).await;
            assert_eq!(is_in(&columns(&bed).await), is_there);
            crate::support::assert_invariants_hold(&bed).await;
        }
    }
}

promise! {
    async fn a_process_without_the_key_fails_the_attempt_and_says_which_key(bed in encrypting("first")) {
        bed.machine::<Vault>().send("o-1", charge(true)).await.unwrap();
        bed.run_until_idle().await;

        let other = encrypting("second").beside(bed).await.unwrap();
        let vaults = other.machine::<Vault>();
        other.advance(FIVE_SECONDS).await;
        let vault = vaults.get("o-1").await.unwrap().unwrap();
        let why = "the payload cannot be read: it was encrypted with the key `first`, and this process has `second`";
        assert_eq!((vault.status, vault.error.as_deref()), (Status::Error, Some(why)));
        let first = vaults.attempts("o-1").await.unwrap().remove(0).error.unwrap();
        assert_eq!(first, "(the error cannot be read: it was encrypted with the key `first`, and this process has `second`)");

        let without = vaults_without_codec(bed).await;
        without.machine::<Vault>().retry("o-1").await.unwrap();
        without.run_until_idle().await;
        let call = without.machine::<Vault>().get("o-1").await.unwrap().unwrap().call.unwrap();
        let why = "the payload cannot be read: it is encrypted, and this process has no codec: give it to the builder with `.codec(…)`";
        assert_eq!(call.last_error.unwrap(), why);
    }
}

async fn vaults_without_codec(bed: &TestBed) -> TestBed {
    vaults().beside(bed).await.unwrap()
}

promise! {
    async fn keys_can_be_changed_and_what_they_encrypted_stays_readable(bed in encrypting("old")) {
        bed.machine::<Vault>().send("o-1", charge(false)).dedup("first").await.unwrap();
        bed.machine::<Vault>().send("o-2", charge(true)).await.unwrap();
        bed.run_until_idle().await;

        let both = || vaults().with(|builder| builder.codec(Aead::new("newer", [5; 32]).also_reads("old", [3; 32])));
        let newer = both().beside(bed).await.unwrap();
        let vaults = newer.machine::<Vault>();
        let again = vaults.send("o-1", charge(false)).dedup("first").await.unwrap();
        assert_eq!(again.outcome, SendOutcome::Duplicate, "a digest of the old key is recognised");
        assert!(vaults.send("o-1", charge(true)).dedup("first").await.unwrap_err().is_conflict());
        vaults.send("o-1", charge(false)).dedup("second").await.unwrap();
        newer.advance(FIVE_SECONDS).await;
        assert_eq!(vaults.get("o-1").await.unwrap().unwrap().record.charged, [SECRET, SECRET]);
        assert_eq!(vaults.get("o-2").await.unwrap().unwrap().error.unwrap(), format!("no money on {SECRET}"));

        let newest = vaults_with(bed, Aead::new("newer", [5; 32])).await;
        assert_eq!(newest.machine::<Vault>().get("o-1").await.unwrap().unwrap().record.charged.len(), 2, "it was written under the new key");
        assert_eq!(newest.machine::<Vault>().send("o-1", charge(false)).dedup("second").await.unwrap().outcome, SendOutcome::Duplicate);
    }
}

async fn vaults_with(bed: &TestBed, codec: Aead) -> TestBed {
    vaults().with(|builder| builder.codec(codec)).beside(bed).await.unwrap()
}

promise! {
    async fn what_was_written_before_the_codec_stays_readable(bed in vaults()) {
        leave_secrets(bed).await;
        let encrypted = encrypting("a").beside(bed).await.unwrap();
        find_secrets(&encrypted).await;
        let vaults = encrypted.machine::<Vault>();
        assert_eq!(vaults.send("good", charge(false)).dedup("first").await.unwrap().outcome, SendOutcome::Duplicate);
        assert!(vaults.send("good", charge(true)).dedup("first").await.unwrap_err().is_conflict());
        vaults.skip("bad").await.unwrap();
        vaults.send("good", charge(false)).await.unwrap();
        encrypted.advance(Duration::from_secs(3600)).await;
        assert_eq!(vaults.get("good").await.unwrap().unwrap().record.charged.len(), 2);
        let printer = encrypted.machine::<Printer>().get("printer").await.unwrap().unwrap();
        assert_eq!((printer.version, printer.error), (3, None), "the delayed event is delivered");
    }
}

promise! {
    /// The tag of the second key is the first key, so that both are in one partition.
    async fn a_value_that_is_copied_to_another_row_is_refused(bed in encrypting("a")) {
        const YOURS: &str = "{mine}/yours";
        let vaults = bed.machine::<Vault>();
        for key in ["mine", YOURS] {
            vaults.send(key, charge(false)).await.unwrap();
            bed.run_until_idle().await;
            vaults.send(key, charge(true)).await.unwrap();
            vaults.send(key, charge(true)).await.unwrap_err();
        }
        bed.run_until_idle().await;
        let of = |key: &str| format!("select instance_id from fsm_instances where machine = 'vault' and key = '{key}'");
        // The live call of one instance gets the payload of another instance's call.
        run(bed, format!(
            "update fsm_instances set payload = (select payload from fsm_instances where instance_id = ({})) where instance_id = ({})",
            of(YOURS), of("mine")
        )).await;
        // The live call of the other instance gets the payload of its own first call.
        run(bed, format!(
            "update fsm_instances set payload = (
                select payload from fsm_async_calls where instance_id = ({0}) and attempt = 1 and from_state is null
             )
             where instance_id = ({0})",
            of(YOURS)
        )).await;
        bed.advance(FIVE_SECONDS).await;
        for key in ["mine", YOURS] {
            let error = vaults.get(key).await.unwrap().unwrap().error.unwrap();
            assert!(error.starts_with("the payload cannot be read: it does not decrypt with the key `a`"), "{key}: {error}");
        }

        run(bed, format!("update fsm_instances set row_version = row_version + 1, record = (select record from fsm_instances where instance_id = ({0})) where instance_id = ({1})", of(YOURS), of("mine"))).await;
        let error = vaults.get("mine").await.unwrap_err().to_string();
        assert!(error.starts_with("the record of `vault` `mine` cannot be read: it does not decrypt"), "{error}");
        assert_eq!(vaults.list(Filter::default()).await.unwrap().unreadable.len(), 1, "the others are listed");
    }
}

promise! {
    async fn a_stored_digest_does_not_reveal_the_payload(bed in encrypting("a")) {
        let (vaults, other) = (bed.machine::<Vault>(), bed.machine::<Printer>());
        vaults.send("o-1", charge(false)).dedup("first").await.unwrap();
        vaults.send("{o-1}/2", charge(false)).dedup("first").await.unwrap();
        other.send("{o-1}/p", Print { card: SECRET.into() }).dedup("first").await.unwrap();
        bed.run_until_idle().await;
        let of_requests = |what: &str| format!("select {what} from fsm_requests where dedup = 'first'");
        assert_eq!(run(bed, of_requests("count(distinct digest)")).await, Some(3), "the same content elsewhere has another digest");
        let length = if is_postgres(bed) { "min(octet_length(digest))::bigint" } else { "min(length(digest))" };
        assert_eq!(run(bed, of_requests(length)).await, Some(32), "the length of HMAC-SHA-256");
    }
}

mod with_require_encryption {
    use super::*;

    #[derive(Debug, Clone, Serialize, Deserialize)]
    struct Turn;

    #[verb]
    async fn turned(_event: Turn) -> Result {
        Ok(())
    }
    #[verb]
    #[retry(max_attempts = 1, catch = noticed)]
    async fn ran_out(_event: Timeout) -> Result {
        Err(Failure::new("the sand is wet"))
    }
    #[verb]
    async fn noticed(event: Caught<Timeout>) -> Result {
        assert_eq!(event.error, "the sand is wet");
        Ok(())
    }

    fsm! {
        machine Hourglass = "hourglass" {
            start turned;
            turned after "5s" -> ran_out;
            end ran_out;
        }
    }

    fn strict() -> TestBedBuilder {
        encrypting("a").only::<Hourglass>().with(|builder| builder.require_encryption())
    }

    promise! {
        /// A client that writes a value into the database has no key.
        async fn what_was_stored_unencrypted_is_a_failed_attempt_and_no_verb_runs(bed in vaults()) {
            let worker = strict().beside(bed).await.unwrap();
            let vaults = bed.machine::<Vault>();
            vaults.send("later", charge(false)).after(FIVE_SECONDS).await.unwrap();
            vaults.send("kept", charge(false)).await.unwrap();
            bed.run_until_idle().await;
            worker.machine::<Vault>().send("kept", charge(false)).await.unwrap();
            worker.advance(Duration::from_secs(20)).await;
            for (key, unread, verbs) in [
                ("later", "the payload cannot be read: it is stored unencrypted", vec!["charged", "charged", "rescued"]),
                ("kept", "the record cannot be read: it is stored unencrypted", vec!["charged", "printed", "charged", "charged", "rescued"]),
            ] {
                let attempts = worker.machine::<Vault>().attempts(key).await.unwrap();
                assert_eq!(attempts.iter().map(|attempt| attempt.verb.as_str()).collect::<Vec<_>>(), verbs);
                for attempt in attempts.iter().rev().take(3) {
                    assert!(attempt.error.as_ref().is_some_and(|error| error.contains(unread)), "{attempt:?}");
                }
            }
            assert_eq!(run(bed, "select count(*) from fsm_once").await, Some(1), "no verb ran again");
            let kept = vaults.get("kept").await.unwrap().unwrap();
            assert_eq!((kept.status, kept.record.charged.as_slice(), kept.record.rescued), (Status::Error, [SECRET.to_owned()].as_slice(), 0));
        }
    }

    promise! {
        async fn what_was_encrypted_runs_and_so_does_a_timer(bed in strict()) {
            leave_secrets(bed).await;
            find_secrets(bed).await;
            let hourglass = bed.machine::<Hourglass>();
            hourglass.send("h", Turn).await.unwrap();
            bed.advance(FIVE_SECONDS).await;
            let h = hourglass.get("h").await.unwrap().unwrap();
            assert_eq!((h.status, h.error.as_deref()), (Status::Error, Some("the sand is wet")), "its catch verb ran");
            let verbs: Vec<_> = hourglass.attempts("h").await.unwrap().into_iter().map(|attempt| (attempt.verb, attempt.state)).collect();
            assert_eq!(verbs.last().unwrap(), &("noticed".to_owned(), fsm::AttemptState::Success));
        }
    }

    #[tokio::test]
    async fn a_runtime_without_a_codec_does_not_start() {
        let bed = vaults().sqlite().await;
        let refused = vaults().with(|builder| builder.require_encryption()).beside(&bed).await.err().unwrap();
        assert!(refused.to_string().contains("`require_encryption` needs a codec"), "{refused}");
    }
}
