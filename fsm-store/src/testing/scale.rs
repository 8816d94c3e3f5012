//! Large databases for measurements: any number of instances with their histories, written by a few large statements.

use std::time::{Duration, Instant};

use fsm_core::ids::{InstanceId, SessionId};
use fsm_core::time::Timestamp;
use sqlx::{AssertSqlSafe, Connection, PgConnection, SqliteConnection};
use uuid::Uuid;

use crate::error::{Result, StoreError};
use crate::migrate;
use crate::open::Store;
use crate::session_log;
use crate::settings::Settings;
use crate::sql::{self, Many};
use crate::values::values;

/// The machines: name, offset of the ids, maximum number of instances. Of a thousand instances 960 are completed, 25 rest, 9 wait for an
/// attempt, 4 are in error, one is cancelled and one is paused. The last instance is the only one that rests in `paid`. The second machine
/// has ten instances.
const MACHINES: [(&str, u64, u64); 2] = [("order", 0, u64::MAX), ("parcel", 1 << 40, 10)];

/// The start of the first instance, 2030-01-01T00:00:00Z, in milliseconds since 1970. The others start at intervals of 10 ms.
pub const BEGINS_AT_MS: i64 = 1_893_456_000_000;

/// Returns a time in milliseconds since 1970 at which all of `instances` have started and their first minute is over.
pub fn ends_at_ms(instances: u64) -> i64 {
    BEGINS_AT_MS + 10 * i64::try_from(instances).unwrap_or(i64::MAX / 20) + 60_000
}

/// Creates the tables in the empty database at `url` and fills them with `instances` of the machine `order`, with about five attempts each,
/// and ten instances of `parcel`. The search fields of an order are its customer, who has ten, and its tenant, who has half of all. Every invariant holds. On PostgreSQL the tables are vacuumed and analyzed. An error if the database
/// fails.
pub async fn fill(url: &str, instances: u64) -> Result<()> {
    let store = Store::open(Settings::new(url)).await?;
    migrate::up(&store, Timestamp::from_micros(BEGINS_AT_MS * 1000)).await?;
    store.close().await;
    let failed = |error: sqlx::Error| StoreError::Database(error);
    if url.starts_with("postgres") {
        let mut conn = PgConnection::connect(url).await.map_err(failed)?;
        sqlx::raw_sql(AssertSqlSafe(script(&Dialect::POSTGRES, instances))).execute(&mut conn).await.map_err(failed)?;
        sqlx::raw_sql("vacuum analyze").execute(&mut conn).await.map_err(failed)?;
    } else {
        let mut conn = SqliteConnection::connect(url).await.map_err(failed)?;
        sqlx::raw_sql(AssertSqlSafe(script(&Dialect::SQLITE, instances))).execute(&mut conn).await.map_err(failed)?;
        sqlx::raw_sql("pragma wal_checkpoint(truncate)").execute(&mut conn).await.map_err(failed)?;
    }
    Ok(())
}

/// Lets `calls` waiting attempts of the [filled](fill) database execute in a session that has ended, and finds them as a sweeper does. Returns
/// the times of eleven searches, each on a new connection. An error if a search finds another number.
pub async fn find_calls_of_dead_worker(url: &str, instances: u64, calls: usize) -> Result<Vec<Duration>> {
    let store = Store::open(Settings::new(url)).await?;
    let session = SessionId(Uuid::max());
    let step = (instances / 1000 / calls as u64).max(1);
    let begun: Vec<_> = (0..).map(|call| 990 + 1000 * step * call).take_while(|n| *n < instances).take(calls).map(instance).collect();
    let mut tx = store.begin().await?;
    tx.conn().put(&EXECUTES, begun.iter().map(|id| values![id.0, session.0]).collect()).await?;
    let logged: Vec<Vec<u8>> = begun.chunks(16).map(|ids| ids.iter().flat_map(|id| *id.0.as_bytes()).collect()).collect();
    let rows = logged.iter().map(|ids| values![session.0, session_log::next_number(), ids.as_slice()]);
    tx.conn().put(&sql::LOG_PUT, rows.collect()).await?;
    tx.commit().await?;
    store.close().await;
    let mut took = Vec::new();
    for _ in 0..11 {
        let store = Store::open(Settings::new(url)).await?;
        let mut reader = store.reader().await?;
        let begin = Instant::now();
        let mut found = 0;
        for dead in session_log::dead(&mut reader.conn(), Timestamp::from_micros(BEGINS_AT_MS * 1000)).await? {
            found += session_log::read(&mut reader.conn(), dead).await?.1.attempts.len();
        }
        took.push(begin.elapsed());
        drop(reader);
        store.close().await;
        if found != calls {
            return Err(StoreError::Corrupt { what: format!("the log leads to {found} of {calls} open calls") });
        }
    }
    Ok(took)
}

/// The id of instance `n` of the first machine, as [`Dialect::call`] has it.
fn instance(n: u64) -> InstanceId {
    let begins_at_ms = BEGINS_AT_MS.unsigned_abs() + 10 * n;
    InstanceId(Uuid::from_u128((u128::from(begins_at_ms) << 80) | (0x70008 << 60) | u128::from(8 * n)))
}

const EXECUTES: Many = Many { columns: "instance_id uuid, session_id uuid", sqlite: EXECUTES_TEXT, postgres: EXECUTES_TEXT };
const EXECUTES_TEXT: &str = "
    update fsm_instances as i
    set attempt_state = 'executing', worker = w.session_id, started_at = i.scheduled_at, due_at = null
    from w
    where i.instance_id = w.instance_id";

/// The differences between the two databases.
struct Dialect {
    /// A table of `(n)` from 1 to `{n}`.
    series: &'static str,
    /// An id, from milliseconds and a unique number.
    id: fn(&str, &str) -> String,
    /// A text as bytes.
    bytes: fn(&str) -> String,
    yes: &'static str,
    no: &'static str,
}

impl Dialect {
    const SQLITE: Dialect = Dialect {
        series: "with recursive series (n) as (select 1 union all select n + 1 from series where n < {n})",
        id: |ms, once| format!("unhex(printf('%012x70008%015x', {ms}, {once}))"),
        bytes: |text| format!("cast({text} as blob)"),
        yes: "1",
        no: "0",
    };
    const POSTGRES: Dialect = Dialect {
        series: "with series (n) as (select n from generate_series(1, {n}) as s (n))",
        id: |ms, once| format!("(lpad(to_hex({ms}), 12, '0') || '70008' || lpad(to_hex({once}), 15, '0'))::uuid"),
        bytes: |text| format!("convert_to({text}, 'UTF8')"),
        yes: "true",
        no: "false",
    };

    /// Returns the id of call `call` of instance `n`. Call 0 stands for the instance itself.
    fn call(&self, call: &str, offset: u64) -> String {
        (self.id)(&format!("{BEGINS_AT_MS} + s.n * 10 + {call}"), &format!("s.n * 8 + {offset} + {call}"))
    }
}

/// The kind of an instance, by its number.
const KIND: &str = "case
    when n = {n} then 'rare' when n % 1000 < 960 then 'done' when n % 1000 < 985 then 'rest' when n % 1000 < 994 then 'wait'
    when n % 1000 < 998 then 'error' when n % 1000 = 998 then 'cancelled' else 'paused' end";

/// The instance row of each kind: status, state, version, call, attempt, open, paused, number of events in the inbox, milliseconds after
/// its start.
const STANDS: &str =
    "('done', 'completed', 'shipped', 3, 3, 1, {no}, {no}, 0, 20003), ('rest', 'running', 'placed', 1, 1, 2, {no}, {no}, 0, 5005),
    ('wait', 'running', null, 0, 1, 2, {yes}, {no}, 0, 2), ('error', 'error', 'placed', 1, 2, 3, {no}, {no}, 0, 16010),
    ('cancelled', 'cancelled', 'placed', 1, 1, 2, {no}, {no}, 0, 30000), ('paused', 'running', 'placed', 1, 1, 2, {no}, {yes}, 1, 30000),
    ('rare', 'running', 'paid', 2, 2, 2, {no}, {no}, 0, 11005)";

/// The attempts: kinds, call, attempt, verb, event, from, to, state; created, due, started and finished in milliseconds after the start;
/// retries left; backoff in seconds.
const ATTEMPTS: &str =
    "('done rest wait error cancelled paused rare', 1, 1, 'placed', 'Placed', null, 'placed', 'error', 0, 0, 0, 2, 10, 5),
    ('done rest error cancelled paused rare', 1, 2, 'placed', 'Placed', null, 'placed', 'success', 2, 5002, 5002, 5005, 9, 10),
    ('wait', 1, 2, 'placed', 'Placed', null, 'placed', 'scheduled', 2, 86400000, null, null, 9, 10),
    ('done error rare', 2, 1, 'paid', 'Paid', 'placed', 'paid', 'error', 6000, 6000, 6000, 6002, 2, 5),
    ('done rare', 2, 2, 'paid', 'Paid', 'placed', 'paid', 'success', 6002, 11002, 11002, 11005, 1, 5),
    ('error', 2, 2, 'paid', 'Paid', 'placed', 'paid', 'error', 6002, 11002, 11002, 11005, 1, 5),
    ('error', 2, 3, 'paid', 'Paid', 'placed', 'paid', 'error', 11005, 16005, 16005, 16010, 0, 5),
    ('done', 3, 1, 'shipped', 'Shipped', 'paid', 'shipped', 'success', 20000, 20000, 20000, 20003, 0, 0)";

const PLACED_RETRY: &str = r#"{"max_attempts":11,"min_us":5000000,"max_us":3600000000,"backoff":2.0,"jitter":0.0}"#;
const PAID_RETRY: &str = r#"{"max_attempts":3,"min_us":5000000,"max_us":5000000,"backoff":1.0,"jitter":0.0}"#;
const ERROR: &str = "'bank ' || (s.n % 7) || ' answered 503 to request ' || s.n";

fn script(dialect: &Dialect, instances: u64) -> String {
    let all = MACHINES.map(|(machine, offset, most)| {
        let rows = Rows { dialect, machine, offset };
        let statements = [rows.machine(), rows.instances(), rows.attempts(), rows.newest_attempts(), rows.search_fields(), rows.others()];
        statements.concat().replace("{n}", &instances.min(most).to_string())
    });
    format!("begin;{}commit;", all.concat().replace("{yes}", dialect.yes).replace("{no}", dialect.no))
}

/// The statements for the rows of one machine. `{n}` stands for the number of its instances.
struct Rows<'m> {
    dialect: &'m Dialect,
    machine: &'m str,
    /// The offset of its ids.
    offset: u64,
}

impl Rows<'_> {
    /// Returns the id of call `call` of instance `n`. Call 0 stands for the instance itself.
    fn call(&self, call: &str) -> String {
        self.dialect.call(call, self.offset)
    }

    fn machine(&self) -> String {
        let machine = self.machine;
        let search = if machine == "order" { r#","search":["customer","tenant"]"# } else { "" };
        let definition = format!(
            r#"{{"name":"{machine}","docs":"","verbs":[{{"name":"placed","event":"Placed","retry":{PLACED_RETRY}}},{{"name":"paid","event":"Paid","retry":{PAID_RETRY}}},{{"name":"expired","event":"Timeout"}},{{"name":"shipped","event":"Shipped"}}],"edges":[{{"from":null,"event":"Placed","to":"placed"}},{{"from":"placed","event":"Paid","to":"paid"}},{{"from":"placed","event":"Timeout","to":"expired","after_us":172800000000}},{{"from":"paid","event":"Shipped","to":"shipped"}}],"ends":["shipped","expired"]{search}}}"#,
        );
        format!(
            "
            insert into fsm_machines (machine, hash, definition, first_seen_at, last_seen_at)
            values ('{machine}', 'scale', '{definition}', {BEGINS_AT_MS}000, {BEGINS_AT_MS}000);
            "
        )
    }

    fn instances(&self) -> String {
        let start = self.start();
        let Rows { dialect: Dialect { series, .. }, machine, .. } = self;
        let (instance, newest, cents) = (self.call("0"), self.call("k.call"), self.cents());
        format!(
            "
            {series}, k (kind, status, state, version, call, attempt, open, paused, waits, changed) as (values {STANDS})
            insert into fsm_instances (instance_id, machine, key, status, state, paused, version, record, call_id, attempt, is_open, error,
                inbox_head, inbox_tail, created_at, updated_at, entered_at)
            select {instance}, '{machine}', '{machine}-' || s.n, k.status, k.state, k.paused, k.version, {cents}, {newest}, k.attempt, k.open,
                case when k.kind = 'error' then {ERROR} end, 0, k.waits, {start} * 1000, ({start} + k.changed) * 1000,
                case when k.version > 0 then ({start} + k.changed) * 1000 end
            from series s
            join k on k.kind = {KIND};
            "
        )
    }

    fn attempts(&self) -> String {
        let start = self.start();
        let Rows { dialect: Dialect { series, id, .. }, machine, .. } = self;
        let (instance, call, before) = (self.call("0"), self.call("p.call"), self.call("(p.call - 1)"));
        let (cents, worker) = (self.cents(), id("1", "1"));
        format!(
            "
            {series}, p (kinds, call, attempt, verb, event, goes_from, goes_to, state, created, due, started, finished, remaining, backoff) as (values {ATTEMPTS})
            insert into fsm_async_calls (call_id, attempt, instance_id, machine, verb, event, payload, from_state, to_state, state, created_at,
                scheduled_at, remaining_attempts, backoff, max_backoff, retry, first_at, worker, started_at, finished_at, error, previous)
            select {call}, p.attempt, {instance}, '{machine}', p.verb, p.event, case when p.attempt = 1 then {cents} end, p.goes_from, p.goes_to,
                p.state, ({start} + p.created) * 1000, ({start} + p.due) * 1000, p.remaining, p.backoff * 1000000,
                case p.verb when 'placed' then 3600000000 when 'paid' then 5000000 end,
                case p.verb when 'placed' then '{PLACED_RETRY}' when 'paid' then '{PAID_RETRY}' end,
                ({start} + case p.call when 1 then 0 when 2 then 6000 else 20000 end) * 1000,
                case when p.started is not null then {worker} end, ({start} + p.started) * 1000, ({start} + p.finished) * 1000,
                case when p.state = 'error' then {ERROR} end, case when p.call > 1 then {before} end
            from series s
            join p on ' ' || p.kinds || ' ' like '% ' || {KIND} || ' %'
            where p.state <> 'scheduled'
            order by s.n, p.call, p.attempt;
            "
        )
    }

    /// Copies the newest attempt of each instance into its row. One that is scheduled exists only there.
    fn newest_attempts(&self) -> String {
        let machine = self.machine;
        format!(
            "
            update fsm_instances
            set attempt_state = c.state, verb = c.verb, event = c.event, from_state = c.from_state, to_state = c.to_state,
                attempt_created_at = c.created_at, scheduled_at = c.scheduled_at, remaining_attempts = c.remaining_attempts,
                backoff = c.backoff, max_backoff = c.max_backoff, retry = c.retry, first_at = c.first_at, worker = c.worker,
                snoozes = c.snoozes, started_at = c.started_at, finished_at = c.finished_at, attempt_error = c.error, previous = c.previous,
                payload = case when status = 'error' then record end
            from fsm_async_calls c
            where c.call_id = fsm_instances.call_id and c.attempt = fsm_instances.attempt and fsm_instances.machine = '{machine}';

            update fsm_instances
            set attempt_state = 'scheduled', verb = 'placed', event = 'Placed', payload = record, to_state = 'placed',
                attempt_created_at = created_at + 2000, scheduled_at = created_at + 86400000000, due_at = created_at + 86400000000,
                remaining_attempts = 9, backoff = 10000000, max_backoff = 3600000000, retry = '{PLACED_RETRY}', first_at = created_at,
                snoozes = 0
            where machine = '{machine}' and is_open;
            "
        )
    }

    fn search_fields(&self) -> String {
        let Rows { dialect: Dialect { series, .. }, machine, .. } = self;
        let instance = self.call("0");
        format!(
            "
            {series}
            insert into fsm_search (instance_id, name, machine, key, value)
            select {instance}, f.name, '{machine}', '{machine}-' || s.n, case f.name when 'tenant' then 't-' || s.n % 2 else 'c-' || s.n / 10 end
            from series s
            join (select 'customer' as name union all select 'tenant') as f on true
            where '{machine}' = 'order';
            "
        )
    }

    /// The timers, the waiting events and the history.
    fn others(&self) -> String {
        let start = self.start();
        let Rows { dialect: Dialect { series, bytes, no, .. }, machine, .. } = self;
        let (instance, timer, waits) = (self.call("0"), self.call("4"), self.call("5"));
        let (cents, nothing) = (self.cents(), bytes("'null'"));
        format!(
            "
            {series}
            insert into fsm_timers (timer_id, instance_id, machine, state, event, payload, due_at, held)
            select {timer}, {instance}, '{machine}', 'placed', 'Timeout', {nothing}, ({start} + 172800000) * 1000, {no}
            from series s
            where {KIND} = 'rest';

            {series}
            insert into fsm_inbox (instance_id, position, call_id, event, payload, created_at)
            select {instance}, 0, {waits}, 'Paid', {cents}, ({start} + 30000) * 1000
            from series s
            where {KIND} = 'paused';

            {series}
            insert into fsm_history (instance_id, at, kind, call_id, detail, actor)
            select {instance}, ({start} + 30000) * 1000, {KIND}, null, 'as the customer asked', 'ann'
            from series s
            where {KIND} in ('cancelled', 'paused');
            "
        )
    }

    /// Returns the start of instance `n`, in milliseconds since 1970.
    fn start(&self) -> String {
        format!("({BEGINS_AT_MS} + s.n * 10)")
    }

    /// Returns the amount of instance `n` as JSON.
    fn cents(&self) -> String {
        (self.dialect.bytes)(r#"'{"cents":' || s.n || '}'"#)
    }
}
