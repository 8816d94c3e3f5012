//! Every statement of the store, said once where both databases take the same text, twice where they differ.
//!
//! A statement for many rows finds them in `w`: in PostgreSQL made of an array for each column, in SQLite of the values themselves.

/// One statement in both dialects.
pub(super) struct Sql {
    pub sqlite: &'static str,
    pub postgres: &'static str,
}

const fn same(text: &'static str) -> Sql {
    Sql { sqlite: text, postgres: text }
}

/// One statement about many rows, which it finds in `w`.
pub(super) struct Many {
    /// The columns of `w`: name and PostgreSQL type.
    pub columns: &'static str,
    pub sqlite: &'static str,
    pub postgres: &'static str,
}

const fn many(columns: &'static str, text: &'static str) -> Many {
    Many { columns, sqlite: text, postgres: text }
}

impl Many {
    /// The text for PostgreSQL, with an array for each column.
    pub(super) fn for_postgres(&self) -> String {
        let arrays: Vec<_> = self.types().enumerate().map(|(n, kind)| format!("${}::{kind}[]", n + 1)).collect();
        format!("with w ({}) as (select * from unnest({}))\n{}", self.names(), arrays.join(", "), self.postgres)
    }

    /// The text for SQLite about so many rows. Its values have no numbers: SQLite looks names up one by one.
    pub(super) fn for_sqlite(&self, rows: usize) -> String {
        let row = format!("({})", vec!["?"; self.types().count()].join(", "));
        format!("with w ({}) as (values {})\n{}", self.names(), vec![row.as_str(); rows].join(", "), self.sqlite)
    }

    fn names(&self) -> String {
        let names: Vec<_> = self.columns.split(", ").filter_map(|column| column.split(' ').next()).collect();
        names.join(", ")
    }

    fn types(&self) -> impl Iterator<Item = &'static str> {
        self.columns.split(", ").filter_map(|column| column.split(' ').nth(1))
    }
}

/// The columns of an instance, as `Row::instance` reads them.
macro_rules! instance {
    () => {
        "i.instance_id, i.machine, i.key, i.status, i.state, i.paused, i.version, i.record, i.call_id, i.attempt, i.is_open, i.error, \
         i.inbox_head, i.inbox_tail, i.created_at, i.updated_at"
    };
}

/// The columns of an attempt, as `Row::attempt` reads them.
macro_rules! attempt {
    () => {
        "c.call_id, c.attempt, c.instance_id, c.machine, c.verb, c.event, c.from_state, c.to_state, c.state, c.held, c.created_at, \
         c.scheduled_at, c.remaining_attempts, c.backoff, c.retry, c.first_at, c.worker, c.started_at, c.finished_at, c.error, c.previous"
    };
}

/// The columns of a timer, as `Row::timer` reads them.
macro_rules! timer {
    () => {
        "t.timer_id, t.instance_id, t.state, t.event, t.payload, t.due_at"
    };
}

// ---- lock

/// Whether an instance has a timer of its own: of its state, or a wake. Delayed sends are not.
macro_rules! has_timer {
    () => {
        ", exists (
            select 1
            from fsm_timers t
            where t.instance_id = i.instance_id and (t.state is not null or length(t.payload) = 0)
        )"
    };
}

/// The instance of each machine and key, locked in instance order, and whether it has a timer of its own. Rides the unique index on machine
/// and key, and the index of timers by instance.
pub(super) const LOCK_BY_KEY: Many = Many {
    columns: "machine text, key text",
    sqlite: concat!(
        "select ",
        instance!(),
        has_timer!(),
        "
        from w
        cross join fsm_instances i on i.machine = w.machine and i.key = w.key"
    ),
    postgres: concat!(
        "select ",
        instance!(),
        has_timer!(),
        "
        from w
        join fsm_instances i on i.machine = w.machine and i.key = w.key
        order by i.instance_id
        for update of i"
    ),
};

/// Each instance, locked in instance order. Rides the primary key.
pub(super) const LOCK_BY_ID: Many = Many {
    columns: "instance_id uuid",
    sqlite: concat!(
        "select ",
        instance!(),
        "
        from w
        cross join fsm_instances i on i.instance_id = w.instance_id"
    ),
    postgres: concat!(
        "select ",
        instance!(),
        "
        from w
        join fsm_instances i on i.instance_id = w.instance_id
        order by i.instance_id
        for update of i"
    ),
};

/// Each attempt. Rides the primary key.
pub(super) const ATTEMPTS: Many = many(
    "call_id uuid, attempt bigint",
    concat!(
        "select ",
        attempt!(),
        "
        from w
        join fsm_async_calls c on c.call_id = w.call_id and c.attempt = w.attempt"
    ),
);

/// The last attempt of each call. Rides the primary key.
pub(super) const LAST_ATTEMPTS: Many = many(
    "call_id uuid",
    concat!(
        "select ",
        attempt!(),
        "
        from w
        join fsm_async_calls c on c.call_id = w.call_id
            and c.attempt = (select max(l.attempt) from fsm_async_calls l where l.call_id = w.call_id)"
    ),
);

/// What waits for each instance from the position `head` up to `until`, by position. Rides the primary key.
pub(super) const INBOX: Many = many(
    "instance_id uuid, head bigint, until bigint",
    "
    select b.instance_id, b.position, b.call_id, b.event, b.outlook
    from w
    join fsm_inbox b on b.instance_id = w.instance_id and b.position >= w.head and b.position < w.until
    order by b.instance_id, b.position",
);

macro_rules! inbox_ends {
    ($join:literal) => {
        concat!(
            "
            select b.instance_id, b.position, b.call_id, b.event, b.outlook
            from w ",
            $join,
            " fsm_inbox b on b.instance_id = w.instance_id and b.position >= w.head and b.position < w.until
            union all
            select b.instance_id, b.position, b.call_id, b.event, b.outlook
            from w ",
            $join,
            " fsm_inbox b on b.instance_id = w.instance_id and b.position = w.last and w.last >= w.until
            order by 1, 2"
        )
    };
}

/// The same, and what waits at the position `last`, unless it is before `until`. Rides the primary key; SQLite joins crosswise in the order
/// that is written.
pub(super) const INBOX_ENDS: Many = Many {
    columns: "instance_id uuid, head bigint, until bigint, last bigint",
    sqlite: inbox_ends!("cross join"),
    postgres: inbox_ends!("join"),
};

/// The requests that instances know by dedup id. Rides the primary key.
pub(super) const REQUESTS: Many = many(
    "instance_id uuid, dedup text",
    "
    select r.instance_id, r.dedup, r.event, r.digest, r.call_id, r.created_at
    from w
    join fsm_requests r on r.instance_id = w.instance_id and r.dedup = w.dedup",
);

/// Where each call is already. A state's timer bears the name of a call too, and does not count. Rides three primary keys and the inbox's
/// index by call.
pub(super) const KNOWN: Many = many(
    "call_id uuid",
    "
    select c.call_id, c.instance_id, 'call'
    from w
    join fsm_async_calls c on c.call_id = w.call_id and c.attempt = 1
    union all
    select b.call_id, b.instance_id, 'inbox'
    from w
    join fsm_inbox b on b.call_id = w.call_id
    union all
    select t.timer_id, t.instance_id, 'timer'
    from w
    join fsm_timers t on t.timer_id = w.call_id and t.state is null
    union all
    select h.call_id, h.instance_id, 'rejected'
    from w
    join fsm_history h on h.call_id = w.call_id and h.kind = 'rejected'",
);

// ---- write: the guards

/// The attempts that are not, or no longer, in the expected state and held by that session. Rides the primary key.
pub(super) const STALE: Many = many(
    CLOSE.columns,
    "
    select w.call_id, w.attempt
    from w
    where not exists (
        select 1
        from fsm_async_calls c
        where c.call_id = w.call_id and c.attempt = w.attempt and c.state = w.expected and c.worker is not distinct from w.held_by
    )",
);

/// Ends each attempt that is in the expected state and held by that session. Rides the primary key. PostgreSQL answers with those; SQLite,
/// where an answer for each row is dear, is asked for the `STALE` ones before.
pub(super) const CLOSE: Many = Many {
    columns: "call_id uuid, attempt bigint, expected text, held_by uuid, becomes text, finished_at bigint, error text",
    sqlite: "
        update fsm_async_calls as c
        set state = w.becomes, finished_at = w.finished_at, error = w.error
        from w
        where c.call_id = w.call_id and c.attempt = w.attempt and c.state = w.expected and c.worker is not distinct from w.held_by",
    postgres: "
        update fsm_async_calls as c
        set state = w.becomes, finished_at = w.finished_at, error = w.error
        from w
        where c.call_id = w.call_id and c.attempt = w.attempt and c.state = w.expected and c.worker is not distinct from w.held_by
        returning c.call_id, c.attempt",
};

/// Gives each attempt that is still scheduled another retry state. Rides the primary key.
pub(super) const BUDGET: Many = many(
    "call_id uuid, attempt bigint, remaining bigint, backoff bigint, max_backoff bigint, retry text, first_at bigint",
    "
    update fsm_async_calls
    set remaining_attempts = w.remaining, backoff = w.backoff, max_backoff = w.max_backoff, retry = w.retry, first_at = w.first_at
    from w
    where fsm_async_calls.call_id = w.call_id and fsm_async_calls.attempt = w.attempt and fsm_async_calls.state = 'scheduled'
    returning fsm_async_calls.call_id, fsm_async_calls.attempt",
);

/// Which timers are still there. Rides the primary key.
pub(super) const TIMER_EXISTS: Many = many(
    "timer_id uuid",
    "
    select t.timer_id
    from w
    join fsm_timers t on t.timer_id = w.timer_id",
);

/// The columns of a new instance.
const INSTANCE: &str = "instance_id uuid, machine text, key text, status text, state text, paused boolean, version bigint, record bytea, \
    call_id uuid, attempt bigint, is_open boolean, error text, inbox_head bigint, inbox_tail bigint, created_at bigint, updated_at bigint";

/// Those new instances whose key is taken. Rides the unique index on machine and key.
pub(super) const TAKEN: Many = many(
    INSTANCE,
    "
    select w.instance_id
    from w
    where exists (select 1 from fsm_instances i where i.machine = w.machine and i.key = w.key)",
);

macro_rules! create {
    () => {
        "
        insert into fsm_instances (instance_id, machine, key, status, state, paused, version, record, call_id, attempt, is_open, error,
            inbox_head, inbox_tail, created_at, updated_at)
        select *
        from w
        where true
        on conflict (machine, key) do nothing"
    };
}

/// Creates each instance unless another has its key. PostgreSQL answers with those; SQLite is asked for the `TAKEN` ones before.
pub(super) const CREATE: Many = Many { columns: INSTANCE, sqlite: create!(), postgres: concat!(create!(), " returning instance_id") };

// ---- write: what follows them

/// Writes each instance but for what never changes. Rides the primary key.
pub(super) const SAVE: Many = many(
    "instance_id uuid, status text, state text, paused boolean, version bigint, record bytea, call_id uuid, attempt bigint, is_open boolean, \
     error text, inbox_head bigint, inbox_tail bigint, updated_at bigint",
    "
    update fsm_instances as i
    set status = w.status, state = w.state, paused = w.paused, version = w.version, record = w.record, call_id = w.call_id,
        attempt = w.attempt, is_open = w.is_open, error = w.error, inbox_head = w.inbox_head, inbox_tail = w.inbox_tail,
        updated_at = w.updated_at
    from w
    where i.instance_id = w.instance_id",
);

/// Events that begin to wait.
pub(super) const INBOX_PUT: Many = many(
    "instance_id uuid, position bigint, call_id uuid, event text, payload bytea, created_at bigint, outlook text",
    "
    insert into fsm_inbox (instance_id, position, call_id, event, payload, created_at, outlook)
    select *
    from w",
);

/// What was foreseen at these positions does not hold any more. Rides the primary key.
pub(super) const OUTLOOK_LOST: Many = many(
    "instance_id uuid, position bigint",
    "
    update fsm_inbox as b
    set outlook = null
    from w
    where b.instance_id = w.instance_id and b.position = w.position",
);

/// What waited for each instance from the position `head` up to `until` is gone. Rides the primary key.
pub(super) const INBOX_TAKE: Many = Many {
    columns: "instance_id uuid, head bigint, until bigint",
    sqlite: "
        delete from fsm_inbox
        where (instance_id, position) in (
            select b.instance_id, b.position
            from w
            cross join fsm_inbox b on b.instance_id = w.instance_id and b.position >= w.head and b.position < w.until
        )
        returning instance_id, position, payload",
    postgres: "
        delete from fsm_inbox as b
        using w
        where b.instance_id = w.instance_id and b.position >= w.head and b.position < w.until
        returning b.instance_id, b.position, b.payload",
};

/// The payload of each call. Rides the primary key.
pub(super) const PAYLOADS: Many = many(
    "call_id uuid",
    "
    select c.call_id, c.payload
    from w
    join fsm_async_calls c on c.call_id = w.call_id and c.attempt = 1",
);

/// New attempts.
pub(super) const OPEN: Many = many(
    "call_id uuid, attempt bigint, instance_id uuid, machine text, verb text, event text, payload bytea, from_state text, to_state text, \
     state text, held boolean, created_at bigint, scheduled_at bigint, remaining_attempts bigint, backoff bigint, max_backoff bigint, \
     retry text, first_at bigint, worker uuid, started_at bigint, finished_at bigint, error text, previous uuid",
    "
    insert into fsm_async_calls (call_id, attempt, instance_id, machine, verb, event, payload, from_state, to_state, state, held,
        created_at, scheduled_at, remaining_attempts, backoff, max_backoff, retry, first_at, worker, started_at, finished_at, error,
        previous)
    select *
    from w",
);

/// Each live attempt is held, or not. Rides the primary key.
pub(super) const HOLD: Many = many(
    "call_id uuid, attempt bigint, held boolean",
    "
    update fsm_async_calls as c
    set held = w.held
    from w
    where c.call_id = w.call_id and c.attempt = w.attempt and c.state in ('scheduled', 'executing')",
);

/// The timers are gone. Rides the primary key.
pub(super) const TIMER_DELETE: Many = many(
    "timer_id uuid",
    "
    delete from fsm_timers
    where timer_id in (select w.timer_id from w)",
);

/// The timers of the instances' states are gone, and their wakes; their delayed sends stay. Rides the index by instance.
pub(super) const TIMER_CLEAR: Many = many(
    "instance_id uuid",
    "
    delete from fsm_timers
    where instance_id in (select w.instance_id from w) and (state is not null or length(payload) = 0)",
);

/// The timers are not due until they are released. Rides the primary key.
pub(super) const TIMER_HOLD: Many = many(
    "timer_id uuid",
    "
    update fsm_timers
    set held = true
    where timer_id in (select w.timer_id from w)",
);

/// The held timers of the instances are released. Rides the index by instance.
pub(super) const TIMER_RELEASE: Many = many(
    "instance_id uuid",
    "
    update fsm_timers
    set held = false
    where instance_id in (select w.instance_id from w) and held",
);

/// New timers.
pub(super) const TIMER_SET: Many = many(
    "timer_id uuid, instance_id uuid, machine text, state text, event text, payload bytea, due_at bigint",
    "
    insert into fsm_timers (timer_id, instance_id, machine, state, event, payload, due_at, held)
    select w.*, false
    from w",
);

/// Notes in the history.
pub(super) const NOTE: Many = many(
    "instance_id uuid, at bigint, kind text, call_id uuid, detail text, actor text",
    "
    insert into fsm_history (instance_id, at, kind, call_id, detail, actor)
    select *
    from w",
);

/// Requests to be known again.
pub(super) const REQUEST: Many = many(
    "instance_id uuid, dedup text, event text, digest bytea, call_id uuid, created_at bigint",
    "
    insert into fsm_requests (instance_id, dedup, event, digest, call_id, created_at)
    select *
    from w",
);

// ---- claim

/// Gives session `$2` the due attempts of machine `$1` for verbs `$3` at time `$4`, at most `$5`, the oldest first. Rides the due index.
/// PostgreSQL answers with everything; SQLite with the keys for `CLAIMED`.
pub(super) const CLAIM: Sql = Sql {
    sqlite: "
        update fsm_async_calls
        set state = 'executing', worker = $2, started_at = $4
        where (call_id, attempt) in (
            select c.call_id, c.attempt
            from fsm_async_calls c
            where c.machine = $1 and c.state = 'scheduled' and not c.held and c.scheduled_at <= $4
                and c.verb in (select value from json_each($3))
            order by c.scheduled_at
            limit $5
        )
        returning call_id, attempt",
    postgres: concat!(
        "with due as materialized (
            select d.call_id, d.attempt
            from fsm_async_calls d
            where d.machine = $1 and d.state = 'scheduled' and not d.held and d.scheduled_at <= $4 and d.verb = any($3::text[])
            order by d.scheduled_at
            limit $5
            for update skip locked
        ),
        c as (
            update fsm_async_calls u
            set state = 'executing', worker = $2, started_at = $4
            from due
            where u.call_id = due.call_id and u.attempt = due.attempt
            returning u.*
        )
        select ",
        instance!(),
        ", ",
        attempt!(),
        ", f.payload, p.error
        from c
        join fsm_instances i on i.instance_id = c.instance_id
        join fsm_async_calls f on f.call_id = c.call_id and f.attempt = 1
        left join fsm_async_calls p on p.call_id = c.call_id and p.attempt = c.attempt - 1
        order by c.scheduled_at"
    ),
};

/// Each attempt with its instance, its payload, and why the one before it failed. Rides the primary keys.
pub(super) const CLAIMED: Many = many(
    "call_id uuid, attempt bigint",
    concat!(
        "select ",
        instance!(),
        ", ",
        attempt!(),
        ", f.payload, p.error
        from w
        join fsm_async_calls c on c.call_id = w.call_id and c.attempt = w.attempt
        join fsm_instances i on i.instance_id = c.instance_id
        join fsm_async_calls f on f.call_id = c.call_id and f.attempt = 1
        left join fsm_async_calls p on p.call_id = c.call_id and p.attempt = c.attempt - 1"
    ),
);

/// When the first scheduled attempt of machine `$1` for verbs `$2` is due. Rides the due index.
pub(super) const NEXT_CALL: Sql = Sql {
    sqlite: "
        select c.scheduled_at
        from fsm_async_calls c
        where c.machine = $1 and c.state = 'scheduled' and not c.held and c.verb in (select value from json_each($2))
        order by c.scheduled_at
        limit 1",
    postgres: "
        select c.scheduled_at
        from fsm_async_calls c
        where c.machine = $1 and c.state = 'scheduled' and not c.held and c.verb = any($2::text[])
        order by c.scheduled_at
        limit 1",
};

/// When the first timer of machine `$1` is due: of a state of `$2`, a delayed event of `$3`, or a wake for such an event in a state of `$4`.
/// Rides the due index of timers.
pub(super) const NEXT_TIMER: Sql = Sql {
    sqlite: "
        select t.due_at
        from fsm_timers t
        where t.machine = $1 and not t.held
            and (
                t.event = 'Timeout' and t.state in (select value from json_each($2))
                or t.event in (select value from json_each($3)) and (t.state is null or t.event <> 'Timeout' and t.state in (select value from json_each($4)))
            )
        order by t.due_at
        limit 1",
    postgres: "
        select t.due_at
        from fsm_timers t
        where t.machine = $1 and not t.held
            and (
                t.event = 'Timeout' and t.state = any($2::text[])
                or t.event = any($3::text[]) and (t.state is null or t.event <> 'Timeout' and t.state = any($4::text[]))
            )
        order by t.due_at
        limit 1",
};

// ---- timers

/// The timers of machine `$1` that are due at `$2`, at most `$3`, the oldest first: of a state of `$4`, a delayed event of `$5`, or a wake
/// for such an event in a state of `$6`. Rides the due index of timers.
pub(super) const TIMERS_DUE: Sql = Sql {
    sqlite: concat!(
        "select t.machine, i.key, ",
        timer!(),
        "
        from fsm_timers t
        join fsm_instances i on i.instance_id = t.instance_id
        where t.machine = $1 and not t.held and t.due_at <= $2
            and (
                t.event = 'Timeout' and t.state in (select value from json_each($4))
                or t.event in (select value from json_each($5)) and (t.state is null or t.event <> 'Timeout' and t.state in (select value from json_each($6)))
            )
        order by t.due_at
        limit $3"
    ),
    postgres: concat!(
        "select t.machine, i.key, ",
        timer!(),
        "
        from fsm_timers t
        join fsm_instances i on i.instance_id = t.instance_id
        where t.machine = $1 and not t.held and t.due_at <= $2
            and (
                t.event = 'Timeout' and t.state = any($4::text[])
                or t.event = any($5::text[]) and (t.state is null or t.event <> 'Timeout' and t.state = any($6::text[]))
            )
        order by t.due_at
        limit $3"
    ),
};

// ---- sessions

/// Session `$1` of process `$3` on host `$2` works since `$4` and is believed until `$5`.
pub(super) const SESSION_JOIN: Sql = same(
    "
    insert into fsm_workers (session_id, host, pid, started_at, lease_until)
    values ($1, $2, $3, $4, $5)",
);

/// Session `$1` is believed until `$2`, or longer if it was already: a renewal that nobody waits for any more may come after a later one.
/// Rides the primary key.
pub(super) const SESSION_RENEW: Sql = same(
    "
    update fsm_workers
    set lease_until = case when lease_until > $2 then lease_until else $2 end
    where session_id = $1
    returning session_id",
);

/// Session `$1` is over. Rides the primary key.
pub(super) const SESSION_LEAVE: Sql = same(
    "
    delete from fsm_workers
    where session_id = $1",
);

/// Executing attempts of machines `$3` whose session has no row or whose lease has ended at `$1`, at most `$2`. Rides the index of
/// executing attempts. PostgreSQL leaves out whose instance is locked: a process that hangs in a transaction is not waited for.
pub(super) const ORPHANS: Sql = Sql {
    sqlite: concat!(
        "select i.machine, i.key, ",
        attempt!(),
        "
        from fsm_async_calls c
        join fsm_instances i on i.instance_id = c.instance_id
        left join fsm_workers w on w.session_id = c.worker
        where c.state = 'executing' and (w.session_id is null or w.lease_until <= $1) and c.machine in (select value from json_each($3))
        limit $2"
    ),
    postgres: concat!(
        "select i.machine, i.key, ",
        attempt!(),
        "
        from fsm_async_calls c
        join fsm_instances i on i.instance_id = c.instance_id
        left join fsm_workers w on w.session_id = c.worker
        where c.state = 'executing' and (w.session_id is null or w.lease_until <= $1) and c.machine = any($3::text[])
        limit $2
        for update of i skip locked"
    ),
};

/// What session `$1` executes. Rides the index of executing attempts.
pub(super) const SESSION_HOLDS: Sql = same(concat!(
    "select i.machine, i.key, ",
    attempt!(),
    "
    from fsm_async_calls c
    join fsm_instances i on i.instance_id = c.instance_id
    where c.worker = $1 and c.state = 'executing'"
));

/// When the first scheduled attempt is due whose predecessor was lost. For tests: rides the index of due attempts, over all machines.
#[cfg(feature = "testing")]
pub(super) const NEXT_AFTER_LOSS: Sql = same(
    "
    select c.scheduled_at
    from fsm_async_calls c
    join fsm_async_calls l on l.call_id = c.call_id and l.attempt = c.attempt - 1
    where c.state = 'scheduled' and not c.held and l.state = 'lost'
    order by c.scheduled_at
    limit 1",
);

/// Sessions whose lease has ended at `$1` and that execute nothing are gone. Rides the index of executing attempts. Two sweepers may come to
/// the same sessions in different orders: in PostgreSQL neither waits for the other.
pub(super) const SESSION_BURY: Sql = Sql {
    sqlite: "
        delete from fsm_workers
        where lease_until <= $1
            and not exists (select 1 from fsm_async_calls c where c.worker = fsm_workers.session_id and c.state = 'executing')
        returning session_id",
    postgres: "
        with dead as materialized (
            select w.session_id
            from fsm_workers w
            where w.lease_until <= $1
                and not exists (select 1 from fsm_async_calls c where c.worker = w.session_id and c.state = 'executing')
            for update of w skip locked
        )
        delete from fsm_workers
        using dead
        where fsm_workers.session_id = dead.session_id
        returning fsm_workers.session_id",
};

// ---- view

/// The instance of machine `$1` with key `$2`. Rides the unique index on machine and key.
pub(super) const FIND: Sql = same(concat!(
    "select ",
    instance!(),
    "
    from fsm_instances i
    where i.machine = $1 and i.key = $2"
));

/// Every attempt of call `$1` and of the calls before it. Rides the primary key, from each call to the one before; SQLite joins crosswise
/// in the order that is written.
pub(super) const CALLS: Sql = Sql {
    sqlite: concat!(
        "with recursive walk (call_id) as (
            select $1
            union
            select p.previous
            from walk
            cross join fsm_async_calls p on p.call_id = walk.call_id
            where p.previous is not null
        )
        select ",
        attempt!(),
        "
        from walk
        cross join fsm_async_calls c on c.call_id = walk.call_id"
    ),
    postgres: concat!(
        "with recursive walk (call_id) as (
            select $1::uuid
            union
            select p.previous
            from walk
            join fsm_async_calls p on p.call_id = walk.call_id
            where p.previous is not null
        )
        select ",
        attempt!(),
        "
        from walk
        join fsm_async_calls c on c.call_id = walk.call_id"
    ),
};

/// The notes of instance `$1`, oldest first. Rides the index by instance.
pub(super) const NOTES: Sql = same(
    "
    select h.instance_id, h.at, h.kind, h.call_id, h.detail, h.actor
    from fsm_history h
    where h.instance_id = $1
    order by h.history_id",
);

/// The instances that have a status, or are paused, in the order of their creation: each kind has an index of its own.
pub(super) struct Among {
    /// Those of machine `$1` after `$2` and up to `$8`, at most `$3`: only in state `$4`, paused `$5`, with the text `$6` in the error, and
    /// not changed since `$7`, where these are given.
    pub oldest_first: Sql,
    /// The same before `$2` and down to `$8`.
    pub newest_first: Sql,
    /// Of those of machine `$1` after `$2`, the one at place `$3`, from 0, and the next.
    pub edge_up: Sql,
    /// The same before `$2`.
    pub edge_down: Sql,
    /// The states of the newest of machine `$1`, at most `$2` of them, and how many are in each.
    pub states: Sql,
}

macro_rules! page {
    ($status:literal, $has:literal, $beyond:literal, $until:literal, $order:literal) => {
        concat!(
            "select ",
            instance!(),
            "
            from fsm_instances i
            where i.machine = $1 and ",
            $status,
            " and i.instance_id ",
            $beyond,
            " $2 and i.instance_id ",
            $until,
            " $8
                and (cast($4 as text) is null or i.state = $4)
                and (cast($5 as integer) is null or (case when i.paused then 1 else 0 end) = $5)
                and (cast($6 as text) is null or ",
            $has,
            ")
                and (cast($7 as bigint) is null or i.updated_at <= $7)
            order by i.instance_id ",
            $order,
            "
            limit $3"
        )
    };
}

macro_rules! every {
    ($has:literal, $beyond:literal, $until:literal, $order:literal) => {
        concat!(
            "select * from (",
            page!("i.status = 'running'", $has, $beyond, $until, $order),
            ") as r union all select * from (",
            page!("i.status = 'error'", $has, $beyond, $until, $order),
            ") as e union all select * from (",
            page!("i.status in ('completed', 'cancelled')", $has, $beyond, $until, $order),
            ") as x order by 1 ",
            $order,
            " limit $3"
        )
    };
}

macro_rules! edge {
    ($status:literal, $beyond:literal, $order:literal) => {
        same(concat!(
            "select i.instance_id
            from fsm_instances i
            where i.machine = $1 and ",
            $status,
            " and i.instance_id ",
            $beyond,
            " $2
            order by i.instance_id ",
            $order,
            "
            limit 2 offset $3"
        ))
    };
}

macro_rules! among {
    ($status:literal) => {
        Among {
            oldest_first: Sql {
                sqlite: page!($status, "instr(lower(i.error), lower($6)) > 0", ">", "<=", "asc"),
                postgres: page!($status, "strpos(lower(i.error), lower($6)) > 0", ">", "<=", "asc"),
            },
            newest_first: Sql {
                sqlite: page!($status, "instr(lower(i.error), lower($6)) > 0", "<", ">=", "desc"),
                postgres: page!($status, "strpos(lower(i.error), lower($6)) > 0", "<", ">=", "desc"),
            },
            edge_up: edge!($status, ">", "asc"),
            edge_down: edge!($status, "<", "desc"),
            states: same(concat!(
                "select counted.state, count(*)
                from (
                    select i.state
                    from fsm_instances i
                    where i.machine = $1 and ",
                $status,
                "
                    order by i.instance_id desc
                    limit $2
                ) as counted
                group by counted.state"
            )),
        }
    };
}

/// Instances of every status, as `Among::oldest_first`: the first of each, in one look. Rides the three indexes by status.
pub(super) const EVERY_OLDEST_FIRST: Sql = Sql {
    sqlite: every!("instr(lower(i.error), lower($6)) > 0", ">", "<=", "asc"),
    postgres: every!("strpos(lower(i.error), lower($6)) > 0", ">", "<=", "asc"),
};

/// Instances of every status, as `Among::newest_first`: the first of each, in one look. Rides the three indexes by status.
pub(super) const EVERY_NEWEST_FIRST: Sql = Sql {
    sqlite: every!("instr(lower(i.error), lower($6)) > 0", "<", ">=", "desc"),
    postgres: every!("strpos(lower(i.error), lower($6)) > 0", "<", ">=", "desc"),
};

/// Rides the index of running instances.
pub(super) const RUNNING: Among = among!("i.status = 'running'");
/// Rides the index of instances in error.
pub(super) const IN_ERROR: Among = among!("i.status = 'error'");
/// Rides the index of ended instances.
pub(super) const ENDED_SO_FAR: Among = among!("i.status in ('completed', 'cancelled')");
/// Rides the index of ended instances.
pub(super) const COMPLETED: Among = among!("i.status in ('completed', 'cancelled') and i.status = 'completed'");
/// Rides the index of cancelled instances.
pub(super) const CANCELLED: Among = among!("i.status = 'cancelled'");
/// Rides the index of paused instances.
pub(super) const PAUSED: Among = among!("i.paused");

/// How many instances of machine `$1` there are by status and state. Rides the unique index on machine and key.
pub(super) const COUNTS: Sql = same(
    "
    select i.status, i.state, count(*)
    from fsm_instances i
    where i.machine = $1
    group by i.status, i.state
    order by i.status, i.state",
);

/// The payload of call `$1`. Rides the primary key.
pub(super) const PAYLOAD: Sql = same(
    "
    select c.payload
    from fsm_async_calls c
    where c.call_id = $1 and c.attempt = 1",
);

/// The events that wait for instance `$1`, in order, without payloads. Rides the primary key.
pub(super) const WAITING: Sql = same(
    "
    select b.position, b.call_id, b.event, b.created_at
    from fsm_inbox b
    where b.instance_id = $1
    order by b.position",
);

/// The timers of instance `$1`, the first due first, without payloads. Rides the index by instance.
pub(super) const TIMERS_SET: Sql = same(
    "
    select t.timer_id, t.state, t.event, t.due_at, t.held
    from fsm_timers t
    where t.instance_id = $1
    order by t.due_at, t.timer_id",
);

/// The instances of machine `$1` in error before `$2`, at most `$3`, the newest first, with the verb that failed. Rides the index of
/// instances in error.
pub(super) const FAILING: Sql = same(
    "
    select i.instance_id, i.key, i.state, c.verb, i.error, i.updated_at
    from fsm_instances i
    left join fsm_async_calls c on c.call_id = i.call_id and c.attempt = i.attempt
    where i.machine = $1 and i.status = 'error' and i.instance_id < $2
    order by i.instance_id desc
    limit $3",
);

/// The scheduled attempts of machine `$1`, the first due first, at most `$2`. Rides the due index.
pub(super) const CALLS_TO_COME: Sql = same(
    "
    select i.key, d.verb, d.event, d.attempt, d.remaining_attempts, d.scheduled_at
    from (
        select c.instance_id, c.verb, c.event, c.attempt, c.remaining_attempts, c.scheduled_at
        from fsm_async_calls c
        where c.machine = $1 and c.state = 'scheduled' and not c.held
        order by c.scheduled_at
        limit $2
    ) as d
    join fsm_instances i on i.instance_id = d.instance_id
    order by d.scheduled_at",
);

/// The timers of machine `$1`, the first due first, at most `$2`. Rides the due index of timers.
pub(super) const TIMERS_TO_COME: Sql = same(
    "
    select i.key, d.state, d.event, d.due_at
    from (
        select t.instance_id, t.state, t.event, t.due_at
        from fsm_timers t
        where t.machine = $1 and not t.held
        order by t.due_at
        limit $2
    ) as d
    join fsm_instances i on i.instance_id = d.instance_id
    order by d.due_at",
);

/// Every session, the one that began first first, with how many attempts it executes. Few rows, read whole; counts ride the index of
/// executing attempts.
pub(super) const SESSIONS: Sql = same(
    "
    select w.session_id, w.host, w.pid, w.started_at, w.lease_until,
        (select count(*) from fsm_async_calls c where c.worker = w.session_id and c.state = 'executing')
    from fsm_workers w
    order by w.started_at, w.session_id",
);

/// How many instances machine `$1` has, as far as `$2`. Rides the unique index on machine and key.
pub(super) const COUNT_UP_TO: Sql = same(
    "
    select count(*)
    from (select 1 from fsm_instances i where i.machine = $1 limit $2) as counted",
);

/// How many instances of machine `$1` are in error, as far as `$2`. Rides the index of instances in error.
pub(super) const COUNT_IN_ERROR: Sql = same(
    "
    select count(*)
    from (select 1 from fsm_instances i where i.machine = $1 and i.status = 'error' limit $2) as counted",
);

/// How many attempts of machine `$1` are due at `$2`, as far as `$3`, and since when the first. Rides the due index.
pub(super) const OVERDUE: Sql = same(
    "
    select count(*), min(counted.scheduled_at)
    from (
        select c.scheduled_at
        from fsm_async_calls c
        where c.machine = $1 and c.state = 'scheduled' and not c.held and c.scheduled_at <= $2
        order by c.scheduled_at
        limit $3
    ) as counted",
);

/// The attempts of the newest calls, at most `$1`. Rides the primary key, for ids of calls are in the order of their making.
pub(super) const NEWEST: Sql = same(
    "
    select c.machine, c.state, c.created_at, c.scheduled_at, c.started_at, c.finished_at
    from fsm_async_calls c
    order by c.call_id desc, c.attempt desc
    limit $1",
);

// ---- the database's own health

/// What the database says of itself that bears on durability: names and values.
pub(super) const SETTINGS: Sql = Sql {
    sqlite: "
        select 'sqlite_version', sqlite_version()
        union all
        select 'journal_mode', j.journal_mode
        from pragma_journal_mode j",
    postgres: "
        select s.name, s.setting
        from pg_settings s
        where s.name in ('server_version', 'fsync', 'synchronous_commit', 'full_page_writes')
        union all
        select 'in_recovery', pg_is_in_recovery()::text
        order by 1",
};

/// What SQLite finds wrong with its file, or `ok`. Reads the whole file. PostgreSQL has nothing like it.
pub(super) const FILE_CHECK: Sql = Sql {
    sqlite: "
        select q.quick_check
        from pragma_quick_check q",
    postgres: "select 'ok'",
};

/// Since when the oldest snapshot of another session keeps PostgreSQL from clearing away old rows. SQLite does not say.
pub(super) const OLDEST_SNAPSHOT: Sql = Sql {
    sqlite: "select cast(null as integer)",
    postgres: "
        select (min(extract(epoch from a.xact_start)) * 1000000)::bigint
        from pg_stat_activity a
        where a.backend_xmin is not null and a.pid <> pg_backend_pid()",
};

// ---- machines and once

/// Every definition of every machine, the one that was started last last. Few rows, read whole.
pub(super) const MACHINES: Sql = same(
    "
    select m.machine, m.hash, m.definition, m.first_seen_at, m.last_seen_at
    from fsm_machines m
    order by m.machine, m.last_seen_at, m.first_seen_at, m.hash",
);

/// Machine `$1` was started with hash `$2` and definition `$3` at `$4`.
pub(super) const REMEMBER: Sql = same(
    "
    insert into fsm_machines (machine, hash, definition, first_seen_at, last_seen_at)
    values ($1, $2, $3, $4, $4)
    on conflict (machine, hash) do update
    set last_seen_at = excluded.last_seen_at
    where fsm_machines.last_seen_at < excluded.last_seen_at",
);

/// Every definition of machine `$1`, the one that was started last last. Rides the primary key.
pub(super) const DEFINITIONS: Sql = same(
    "
    select m.hash, m.definition, m.first_seen_at, m.last_seen_at
    from fsm_machines m
    where m.machine = $1
    order by m.last_seen_at, m.first_seen_at, m.hash",
);

/// What call `$1` remembers under name `$2`. Rides the primary key.
pub(super) const ONCE_GET: Sql = same(
    "
    select o.value
    from fsm_once o
    where o.call_id = $1 and o.name = $2",
);

/// Call `$1` remembers under name `$2` the value `$3` since `$4`, unless it remembers one already.
pub(super) const ONCE_PUT: Sql = same(
    "
    insert into fsm_once (call_id, name, value, created_at)
    values ($1, $2, $3, $4)
    on conflict (call_id, name) do nothing
    returning name",
);

/// The earliest end of a lease of a session other than `$1`. Few rows, read whole.
pub(super) const NEXT_LAPSE: Sql = same(
    "
    select min(w.lease_until)
    from fsm_workers w
    where w.session_id <> $1",
);

// ---- drift

/// The states that instances of machine `$1` rest in which have not ended. Rides the unique index on machine and key.
pub(super) const STATES_NEEDED: Sql = same(
    "
    select i.state, cast(null as text), count(*), min(i.updated_at)
    from fsm_instances i
    where i.machine = $1 and i.status in ('running', 'error') and i.state is not null
    group by i.state",
);

/// The verbs of the open calls of machine `$1`, by retry policy. Rides the index of live attempts.
pub(super) const VERBS_NEEDED: Sql = same(
    "
    select c.verb, c.retry, count(*), min(c.created_at)
    from fsm_async_calls c
    where c.machine = $1 and c.state in ('scheduled', 'executing')
    group by c.verb, c.retry",
);

/// The verbs of the exhausted calls of machine `$1`, by retry policy, and those that a catch verb caught. Rides the index of instances in error.
pub(super) const VERBS_NEEDED_AGAIN: Sql = same(
    "
    select c.verb, c.retry, count(*), min(i.updated_at)
    from fsm_instances i
    join fsm_async_calls c on c.call_id = i.call_id and c.attempt = i.attempt
    where i.machine = $1 and i.status = 'error'
    group by c.verb, c.retry
    union all
    select c.to_state, cast(null as text), count(*), min(i.updated_at)
    from fsm_instances i
    join fsm_async_calls c on c.call_id = i.call_id and c.attempt = i.attempt
    where i.machine = $1 and i.status = 'error' and c.verb <> c.to_state
    group by c.to_state",
);

/// The events that wait for their turn with instances of machine `$1`. Rides the unique index on machine and key.
pub(super) const EVENTS_WAITING: Sql = same(
    "
    select b.event, cast(null as text), count(*), min(b.created_at)
    from fsm_instances i
    join fsm_inbox b on b.instance_id = i.instance_id
    where i.machine = $1 and i.status in ('running', 'error') and i.inbox_head < i.inbox_tail
    group by b.event",
);

/// The events that wait for their time with instances of machine `$1` which have not ended. Rides the due index of timers.
pub(super) const EVENTS_DELAYED: Sql = same(
    "
    select t.event, cast(null as text), count(*), min(t.due_at)
    from fsm_timers t
    join fsm_instances i on i.instance_id = t.instance_id
    where t.machine = $1 and not t.held and t.state is null and length(t.payload) > 0 and i.status in ('running', 'error')
    group by t.event",
);

/// Instances of machine `$1` after `$2`, at most `$7`, of which something has a state of `$3`, a verb of `$4`, an event of `$5` or a policy
/// of `$6`. Rides the primary keys.
pub(super) const BEARERS: Sql = Sql {
    sqlite: "
        select i.instance_id, i.key
        from fsm_instances i
        where i.machine = $1 and i.instance_id > $2
            and (
                i.state in (select value from json_each($3))
                or exists (
                    select 1
                    from fsm_async_calls c
                    where c.call_id = i.call_id and c.attempt = i.attempt and (i.is_open or i.status = 'error')
                        and (
                            c.from_state in (select value from json_each($3))
                            or c.verb in (select value from json_each($4)) or c.to_state in (select value from json_each($4))
                            or c.event in (select value from json_each($5))
                            or c.retry in (select value from json_each($6))
                        )
                )
                or exists (select 1 from fsm_inbox b where b.instance_id = i.instance_id and b.event in (select value from json_each($5)))
                or exists (select 1 from fsm_requests r where r.instance_id = i.instance_id and r.event in (select value from json_each($5)))
                or exists (
                    select 1
                    from fsm_timers t
                    where t.instance_id = i.instance_id
                        and (t.state in (select value from json_each($3)) or t.event in (select value from json_each($5)))
                )
            )
        order by i.instance_id
        limit $7",
    postgres: "
        select i.instance_id, i.key
        from fsm_instances i
        where i.machine = $1 and i.instance_id > $2
            and (
                i.state = any($3::text[])
                or exists (
                    select 1
                    from fsm_async_calls c
                    where c.call_id = i.call_id and c.attempt = i.attempt and (i.is_open or i.status = 'error')
                        and (
                            c.from_state = any($3::text[])
                            or c.verb = any($4::text[]) or c.to_state = any($4::text[])
                            or c.event = any($5::text[])
                            or c.retry = any($6::text[])
                        )
                )
                or exists (select 1 from fsm_inbox b where b.instance_id = i.instance_id and b.event = any($5::text[]))
                or exists (select 1 from fsm_requests r where r.instance_id = i.instance_id and r.event = any($5::text[]))
                or exists (
                    select 1
                    from fsm_timers t
                    where t.instance_id = i.instance_id and (t.state = any($3::text[]) or t.event = any($5::text[]))
                )
            )
        order by i.instance_id
        limit $7",
};

/// Instances of machine `$1` after `$2`, at most `$4`, that rest in a state of `$3` without a timer of that state. Rides the primary key, and
/// the index of timers by instance.
pub(super) const TIMERLESS: Sql = Sql {
    sqlite: "
        select i.instance_id, i.key
        from fsm_instances i
        where i.machine = $1 and i.instance_id > $2 and i.state in (select value from json_each($3)) and i.status in ('running', 'error')
            and not i.is_open
            and not exists (
                select 1 from fsm_timers t where t.instance_id = i.instance_id and t.state = i.state and t.event = 'Timeout'
            )
        order by i.instance_id
        limit $4",
    postgres: "
        select i.instance_id, i.key
        from fsm_instances i
        where i.machine = $1 and i.instance_id > $2 and i.state = any($3::text[]) and i.status in ('running', 'error') and not i.is_open
            and not exists (
                select 1 from fsm_timers t where t.instance_id = i.instance_id and t.state = i.state and t.event = 'Timeout'
            )
        order by i.instance_id
        limit $4",
};

/// The timers of machine `$1` that are due at `$2`, at most `$4`, of the states `$3`. Rides the due index of timers.
pub(super) const TIMERS_OVER: Sql = Sql {
    sqlite: "
        select t.timer_id
        from fsm_timers t
        where t.machine = $1 and not t.held and t.due_at <= $2 and t.event = 'Timeout' and t.state in (select value from json_each($3))
        order by t.due_at
        limit $4",
    postgres: "
        select t.timer_id
        from fsm_timers t
        where t.machine = $1 and not t.held and t.due_at <= $2 and t.event = 'Timeout' and t.state = any($3::text[])
        order by t.due_at
        limit $4",
};

/// The timers of the instances. Rides the index by instance.
pub(super) const TIMERS_OF: Many = many(
    "instance_id uuid",
    concat!(
        "select ",
        timer!(),
        "
        from w
        join fsm_timers t on t.instance_id = w.instance_id"
    ),
);

/// The attempts run other verbs on other events, between other states, under policies with other names. Rides the primary key.
pub(super) const RENAME_CALL: Many = many(
    "call_id uuid, attempt bigint, verb text, event text, from_state text, to_state text, retry text",
    "
    update fsm_async_calls as c
    set verb = w.verb, event = w.event, from_state = w.from_state, to_state = w.to_state, retry = w.retry
    from w
    where c.call_id = w.call_id and c.attempt = w.attempt",
);

/// What waits at these positions are other events. Rides the primary key.
pub(super) const RENAME_WAITING: Many = many(
    "instance_id uuid, position bigint, event text",
    "
    update fsm_inbox as b
    set event = w.event
    from w
    where b.instance_id = w.instance_id and b.position = w.position",
);

/// The instances' requests to be known again that came with the event `was` came with `becomes`. Rides the primary key.
pub(super) const RENAME_REQUESTS: Many = many(
    "instance_id uuid, was text, becomes text",
    "
    update fsm_requests as r
    set event = w.becomes
    from w
    where r.instance_id = w.instance_id and r.event = w.was",
);

/// The timers belong to other states, if any, and deliver other events. Rides the primary key.
pub(super) const RENAME_TIMER: Many = many(
    "timer_id uuid, state text, event text, payload bytea",
    "
    update fsm_timers as t
    set state = w.state, event = w.event, payload = w.payload
    from w
    where t.timer_id = w.timer_id",
);

// ---- prune

/// Instances of machine `$1` after `$2` and before `$3`, at most `$5`, that ended before `$4` and for which no delayed event waits. Rides the
/// index of ended instances.
pub(super) const ENDED: Sql = Sql {
    sqlite: "
        select i.instance_id
        from fsm_instances i
        where i.machine = $1 and i.instance_id > $2 and i.instance_id < $3 and i.status in ('completed', 'cancelled') and i.updated_at < $4
            and not exists (select 1 from fsm_timers t where t.instance_id = i.instance_id)
        order by i.instance_id
        limit $5",
    postgres: "
        select i.instance_id
        from fsm_instances i
        where i.machine = $1 and i.instance_id > $2 and i.instance_id < $3 and i.status in ('completed', 'cancelled') and i.updated_at < $4
            and not exists (select 1 from fsm_timers t where t.instance_id = i.instance_id)
        order by i.instance_id
        limit $5
        for update of i skip locked",
};

/// The calls of the instances, from each call to the one before. SQLite joins crosswise in the order that is written.
macro_rules! calls_of {
    ($delete:literal) => {
        Many {
            columns: "instance_id uuid",
            sqlite: concat!(
                $delete,
                " where call_id in (
                with recursive walk (call_id) as (
                    select i.call_id
                    from w
                    cross join fsm_instances i on i.instance_id = w.instance_id
                    union
                    select p.previous
                    from walk
                    cross join fsm_async_calls p on p.call_id = walk.call_id
                    where p.previous is not null
                )
                select walk.call_id
                from walk
            )"
            ),
            postgres: concat!(
                $delete,
                " where call_id in (
                with recursive walk (call_id) as (
                    select i.call_id
                    from w
                    join fsm_instances i on i.instance_id = w.instance_id
                    union
                    select p.previous
                    from walk
                    join fsm_async_calls p on p.call_id = walk.call_id
                    where p.previous is not null
                )
                select walk.call_id
                from walk
            )"
            ),
        }
    };
}

/// What the calls of the instances remember is gone. Rides the primary keys.
pub(super) const PRUNE_ONCE: Many = calls_of!("delete from fsm_once");

/// The calls of the instances are gone. Rides the primary keys.
pub(super) const PRUNE_CALLS: Many = calls_of!("delete from fsm_async_calls");

/// What waited for the instances is gone. Rides the primary key.
pub(super) const PRUNE_INBOX: Many = many("instance_id uuid", "delete from fsm_inbox where instance_id in (select w.instance_id from w)");

/// No request to the instances is known. Rides the primary key.
pub(super) const PRUNE_REQUESTS: Many =
    many("instance_id uuid", "delete from fsm_requests where instance_id in (select w.instance_id from w)");

/// The notes of the instances are gone. Rides the index by instance.
pub(super) const PRUNE_HISTORY: Many =
    many("instance_id uuid", "delete from fsm_history where instance_id in (select w.instance_id from w)");

/// The instances are gone. Rides the primary key.
pub(super) const PRUNE_INSTANCES: Many =
    many("instance_id uuid", "delete from fsm_instances where instance_id in (select w.instance_id from w)");

/// Every attempt of calls before `$3`, from call `$1` and attempt `$2` on and without that one, at most `$4`. Rides the primary key.
pub(super) const OLD_ATTEMPTS: Sql = same(concat!(
    "select ",
    attempt!(),
    "
    from fsm_async_calls c
    where (c.call_id, c.attempt) > ($1, $2) and c.call_id < $3
    order by c.call_id, c.attempt
    limit $4"
));

/// The attempts are gone. Rides the primary key.
pub(super) const PRUNE_ATTEMPTS: Many = Many {
    columns: "call_id uuid, attempt bigint",
    sqlite: "delete from fsm_async_calls where (call_id, attempt) in (select w.call_id, w.attempt from w)",
    postgres: "delete from fsm_async_calls as c using w where c.call_id = w.call_id and c.attempt = w.attempt",
};

/// What the calls remember is gone. Rides the primary key.
pub(super) const PRUNE_ONCE_OF: Many = many("call_id uuid", "delete from fsm_once where call_id in (select w.call_id from w)");

/// The calls are gone, with all their attempts. Rides the primary key.
pub(super) const PRUNE_CALLS_OF: Many = many("call_id uuid", "delete from fsm_async_calls where call_id in (select w.call_id from w)");

/// So many more of the instances' transitions have no attempts any more. Rides the primary key.
pub(super) const PRUNED: Many = many(
    "instance_id uuid, transitions bigint",
    "
    update fsm_instances as i
    set pruned = i.pruned + w.transitions
    from w
    where i.instance_id = w.instance_id",
);

/// The last of the next `$2` notes after note `$1`. Rides the primary key.
pub(super) const NOTES_UNTIL: Sql = same(
    "
    select max(n.history_id)
    from (select h.history_id from fsm_history h where h.history_id > $1 order by h.history_id limit $2) as n",
);

/// The notes after `$1` up to `$2` are gone that were made before `$3`, of live instances of machine `$4`, about no call that is still
/// there. Rides the primary keys.
pub(super) const PRUNE_NOTES: Sql = same(
    "
    delete from fsm_history
    where history_id in (
        select h.history_id
        from fsm_history h
        join fsm_instances i on i.instance_id = h.instance_id
        where h.history_id > $1 and h.history_id <= $2 and h.at < $3 and i.machine = $4 and i.status in ('running', 'error')
            and not exists (select 1 from fsm_async_calls c where c.call_id = h.call_id and c.attempt = 1)
    )
    returning history_id",
);

/// The request that is `$3` places after instance `$1` and dedup id `$2`. Rides the primary key.
pub(super) const REQUESTS_UNTIL: Sql = same(
    "
    select r.instance_id, r.dedup
    from fsm_requests r
    where (r.instance_id, r.dedup) > ($1, $2)
    order by r.instance_id, r.dedup
    limit 1
    offset $3",
);

/// The requests after instance `$1` and dedup id `$2`, up to `$3` and `$4`, are forgotten that came before `$5`, to live instances of machine
/// `$6`, whose call neither waits nor is still there. Rides the primary keys and the inbox's index by call.
pub(super) const PRUNE_REQUESTS_OLD: Sql = same(
    "
    delete from fsm_requests
    where (instance_id, dedup) in (
        select r.instance_id, r.dedup
        from fsm_requests r
        join fsm_instances i on i.instance_id = r.instance_id
        where (r.instance_id, r.dedup) > ($1, $2) and (r.instance_id, r.dedup) <= ($3, $4) and r.created_at < $5
            and i.machine = $6 and i.status in ('running', 'error')
            and not exists (select 1 from fsm_async_calls c where c.call_id = r.call_id and c.attempt = 1)
            and not exists (select 1 from fsm_inbox b where b.call_id = r.call_id)
            and not exists (select 1 from fsm_timers t where t.timer_id = r.call_id)
    )
    returning dedup",
);

/// What calls before `$2` of instances of machine `$1` remember since before `$3` is gone, at most `$4` of it, where the instance rests: its
/// calls are closed, and none will be run again. Rides the primary keys.
pub(super) const ONCE_CLOSED: Sql = same(
    "
    delete from fsm_once
    where (call_id, name) in (
        select o.call_id, o.name
        from fsm_once o
        join fsm_async_calls c on c.call_id = o.call_id and c.attempt = 1
        join fsm_instances i on i.instance_id = c.instance_id
        where o.call_id < $2 and o.created_at < $3 and i.machine = $1 and not i.is_open and i.status <> 'error'
        order by o.call_id
        limit $4
    )
    returning call_id",
);

// ---- transfer

/// A table on its way out of a database and into another.
pub(super) struct Table {
    /// Without `fsm_`.
    pub name: &'static str,
    /// The types of its key, in whose order it is read.
    pub key: &'static [&'static str],
    /// The rows of machine `$1`, or of all, after the key `$3`…, at most `$2`, each with its key behind it. Rides the primary key.
    pub page: Sql,
    /// Rows that another database had.
    pub insert: Many,
}

/// Those that others lean on first. `fsm_workers` and `fsm_migrations` are about the one database alone.
pub(super) const TABLES: [Table; 8] = [
    Table {
        name: "machines",
        key: &["text", "text"],
        page: same(
            "
            select x.machine, x.hash, x.definition, x.first_seen_at, x.last_seen_at, x.machine, x.hash
            from fsm_machines x
            where (x.machine, x.hash) > ($3, $4) and (cast($1 as text) is null or x.machine = $1)
            order by x.machine, x.hash
            limit $2",
        ),
        insert: many(
            "machine text, hash text, definition text, first_seen_at bigint, last_seen_at bigint",
            "
            insert into fsm_machines (machine, hash, definition, first_seen_at, last_seen_at)
            select *
            from w
            where true
            on conflict (machine, hash) do nothing",
        ),
    },
    Table {
        name: "instances",
        key: &["uuid"],
        page: same(
            "
            select x.instance_id, x.machine, x.key, x.status, x.state, x.paused, x.version, x.record, x.call_id, x.attempt, \
                x.is_open, x.error, x.inbox_head, x.inbox_tail, x.created_at, x.updated_at, x.pruned, x.instance_id
            from fsm_instances x
            where x.instance_id > $3 and (cast($1 as text) is null or x.machine = $1)
            order by x.instance_id
            limit $2",
        ),
        insert: many(
            "instance_id uuid, machine text, key text, status text, state text, paused boolean, version bigint, record \
             bytea, call_id uuid, attempt bigint, is_open boolean, error text, inbox_head bigint, inbox_tail bigint, \
             created_at bigint, updated_at bigint, pruned bigint",
            "
            insert into fsm_instances (instance_id, machine, key, status, state, paused, version, record, call_id, attempt, is_open, error, \
                inbox_head, inbox_tail, created_at, updated_at, pruned)
            select *
            from w",
        ),
    },
    Table {
        name: "async_calls",
        key: &["uuid", "bigint"],
        page: same(
            "
            select x.call_id, x.attempt, x.instance_id, x.machine, x.verb, x.event, x.payload, x.from_state, x.to_state, x.state, \
                x.held, x.created_at, x.scheduled_at, x.remaining_attempts, x.backoff, x.max_backoff, x.retry, x.first_at, \
                x.worker, x.started_at, x.finished_at, x.error, x.previous, x.call_id, x.attempt
            from fsm_async_calls x
            where (x.call_id, x.attempt) > ($3, $4) and (cast($1 as text) is null or x.machine = $1)
            order by x.call_id, x.attempt
            limit $2",
        ),
        insert: many(
            "call_id uuid, attempt bigint, instance_id uuid, machine text, verb text, event text, payload bytea, from_state \
             text, to_state text, state text, held boolean, created_at bigint, scheduled_at bigint, remaining_attempts \
             bigint, backoff bigint, max_backoff bigint, retry text, first_at bigint, worker uuid, started_at bigint, \
             finished_at bigint, error text, previous uuid",
            "
            insert into fsm_async_calls (call_id, attempt, instance_id, machine, verb, event, payload, from_state, to_state, state, held, created_at, \
                scheduled_at, remaining_attempts, backoff, max_backoff, retry, first_at, worker, started_at, finished_at, \
                error, previous)
            select *
            from w",
        ),
    },
    Table {
        name: "inbox",
        key: &["uuid", "bigint"],
        page: same(
            "
            select x.instance_id, x.position, x.call_id, x.event, x.payload, x.outlook, x.created_at, x.instance_id, x.position
            from fsm_inbox x
            where (x.instance_id, x.position) > ($3, $4) and (cast($1 as text) is null or exists (select 1 from fsm_instances i where i.instance_id = x.instance_id and i.machine = $1))
            order by x.instance_id, x.position
            limit $2",
        ),
        insert: many(
            "instance_id uuid, position bigint, call_id uuid, event text, payload bytea, outlook text, created_at bigint",
            "
            insert into fsm_inbox (instance_id, position, call_id, event, payload, outlook, created_at)
            select *
            from w",
        ),
    },
    Table {
        name: "timers",
        key: &["uuid"],
        page: same(
            "
            select x.timer_id, x.instance_id, x.machine, x.state, x.event, x.payload, x.due_at, x.held, x.timer_id
            from fsm_timers x
            where x.timer_id > $3 and (cast($1 as text) is null or x.machine = $1)
            order by x.timer_id
            limit $2",
        ),
        insert: many(
            "timer_id uuid, instance_id uuid, machine text, state text, event text, payload bytea, due_at bigint, held \
             boolean",
            "
            insert into fsm_timers (timer_id, instance_id, machine, state, event, payload, due_at, held)
            select *
            from w",
        ),
    },
    Table {
        name: "requests",
        key: &["uuid", "text"],
        page: same(
            "
            select x.instance_id, x.dedup, x.event, x.digest, x.call_id, x.created_at, x.instance_id, x.dedup
            from fsm_requests x
            where (x.instance_id, x.dedup) > ($3, $4) and (cast($1 as text) is null or exists (select 1 from fsm_instances i where i.instance_id = x.instance_id and i.machine = $1))
            order by x.instance_id, x.dedup
            limit $2",
        ),
        insert: many(
            "instance_id uuid, dedup text, event text, digest bytea, call_id uuid, created_at bigint",
            "
            insert into fsm_requests (instance_id, dedup, event, digest, call_id, created_at)
            select *
            from w",
        ),
    },
    Table {
        name: "once",
        key: &["uuid", "text"],
        page: same(
            "
            select x.call_id, x.name, x.value, x.created_at, x.call_id, x.name
            from fsm_once x
            where (x.call_id, x.name) > ($3, $4) and (cast($1 as text) is null or exists (select 1 from fsm_async_calls c where c.call_id = x.call_id and c.attempt = 1 and c.machine = $1))
            order by x.call_id, x.name
            limit $2",
        ),
        insert: many(
            "call_id uuid, name text, value bytea, created_at bigint",
            "
            insert into fsm_once (call_id, name, value, created_at)
            select *
            from w",
        ),
    },
    Table {
        name: "history",
        key: &["bigint"],
        page: same(
            "
            select x.instance_id, x.at, x.kind, x.call_id, x.detail, x.actor, x.history_id
            from fsm_history x
            where x.history_id > $3 and (cast($1 as text) is null or exists (select 1 from fsm_instances i where i.instance_id = x.instance_id and i.machine = $1))
            order by x.history_id
            limit $2",
        ),
        insert: many(
            "instance_id uuid, at bigint, kind text, call_id uuid, detail text, actor text",
            "
            insert into fsm_history (instance_id, at, kind, call_id, detail, actor)
            select *
            from w",
        ),
    },
];

/// How many rows there are about.
pub(super) const ROWS_ABOUT: Sql = Sql {
    sqlite: "select (select max(i.rowid) from fsm_instances i) + (select max(c.rowid) from fsm_async_calls c)",
    postgres: "
        select sum(c.reltuples)::bigint
        from pg_class c
        where c.oid in (to_regclass('fsm_instances'), to_regclass('fsm_async_calls')) and c.reltuples >= 0",
};

// ---- databases for tests

/// Serialises those who make the template of test databases, under the number `$1`, until the connection ends.
#[cfg(feature = "testing")]
pub(crate) const LOCK_TEMPLATES: &str = "select pg_advisory_lock($1)";

/// Whether there is a database of the name `$1`.
#[cfg(feature = "testing")]
pub(crate) const DATABASE_EXISTS: &str = "select exists (select from pg_database d where d.datname = $1)";

/// Copies a database.
#[cfg(feature = "testing")]
pub(crate) fn create_database(name: &str, template: &str) -> String {
    format!("create database {name} template {template}")
}

/// Gives a database another name.
#[cfg(feature = "testing")]
pub(crate) fn rename_database(from: &str, to: &str) -> String {
    format!("alter database {from} rename to {to}")
}

/// Drops a database whoever uses it.
#[cfg(feature = "testing")]
pub(crate) fn drop_database(name: &str) -> String {
    format!("drop database if exists {name} with (force)")
}

// ---- transactions

/// Takes SQLite's one place to write at once, instead of at the first statement that writes.
pub(super) const BEGIN_SQLITE: &str = "begin immediate";

/// Begins. A lock that others hold for longer than that is not waited for: a process that hangs in the middle of a transaction keeps its
/// locks until the server finds out, and whoever wants nothing of its instances must not wait with those who do. And every statement of
/// ours finds its rows by a key: a plan made while the tables were empty, or by figures that are out of date, may read whole tables
/// instead, and a prepared statement keeps such a plan.
pub(super) const BEGIN_POSTGRES: &str = "begin; set local lock_timeout = '2s'; \
    set local enable_seqscan = off; set local enable_hashjoin = off; set local enable_mergejoin = off";

/// The rest of the transaction waits for locks as the database's owner likes.
pub(super) const PATIENT: &str = "set local lock_timeout to default";

/// The rest of the transaction waits for locks and is planned as the database's owner likes.
pub(super) const AS_USUAL: &str = "set local lock_timeout to default; \
    set local enable_seqscan to default; set local enable_hashjoin to default; set local enable_mergejoin to default";

/// Begins to read what was there at one moment.
pub(super) const SNAPSHOT_SQLITE: &str = "begin";

/// Begins to read what was there at one moment.
pub(super) const SNAPSHOT_POSTGRES: &str = "begin isolation level repeatable read, read only";

/// Commits.
pub(super) const COMMIT: &str = "commit";

/// Commits what somebody else's statements ran in: the commit of a failed transaction answers with success in PostgreSQL, so a statement
/// that fails in one is sent ahead.
pub(super) const COMMIT_LENT: &str = "select 1; commit";

/// Gives up.
pub(super) const ROLLBACK: &str = "rollback";

// ---- word between processes

/// Gives word on channel `$1`. PostgreSQL only, and never in a transaction with anything else: to commit it takes a lock that all who
/// give word share.
pub(super) const NOTIFY: Sql = same("select pg_notify($1, '')");

/// A number that another connection's commit changes. SQLite only.
pub(super) const DATA_VERSION: Sql = same("pragma data_version");

// ---- open and migrate

/// Which SQLite is linked.
pub(super) const SQLITE_VERSION: Sql = same("select sqlite_version()");

/// PostgreSQL's clock and the start of the server, in microseconds since 1970: the only SQL that asks for time.
pub(super) const SERVER_CLOCK: Sql = same(
    "
    select (extract(epoch from clock_timestamp()) * 1000000)::bigint, (extract(epoch from pg_postmaster_start_time()) * 1000000)::bigint",
);

/// One process migrates at a time: a lock that ends with the transaction. SQLite's transaction is that lock already.
pub(super) const MIGRATION_LOCK: Sql =
    Sql { sqlite: "select 1", postgres: "select 1 from (select pg_advisory_xact_lock(7306084201913251117)) as locked" };

/// The table of the migrations that were applied.
pub(super) const MIGRATION_TABLE: Sql = Sql {
    sqlite: "
        create table if not exists fsm_migrations (
            version integer not null primary key,
            name text not null,
            checksum integer not null,
            applied_at integer not null
        ) strict",
    postgres: "
        create table if not exists fsm_migrations (
            version bigint not null primary key,
            name text not null,
            checksum bigint not null,
            applied_at bigint not null
        )",
};

/// A row if there is a table of the migrations that were applied.
pub(super) const MIGRATION_TABLE_EXISTS: Sql = Sql {
    sqlite: "
        select s.name
        from sqlite_schema s
        where s.type = 'table' and s.name = 'fsm_migrations'",
    postgres: "
        select c.relname::text
        from pg_class c
        where c.oid = to_regclass('fsm_migrations')",
};

/// The migrations that were applied.
pub(super) const MIGRATIONS: Sql = same(
    "
    select m.version, m.checksum, m.name, m.applied_at
    from fsm_migrations m
    order by m.version",
);

/// Migration `$1` of name `$2` with checksum `$3` was applied at `$4`.
pub(super) const MIGRATED: Sql = same(
    "
    insert into fsm_migrations (version, name, checksum, applied_at)
    values ($1, $2, $3, $4)",
);

/// The same as a text, for scripts that people run themselves. The name is one of ours.
pub(super) fn migrated(version: i64, name: &str, checksum: i64, at_us: i64) -> String {
    format!("insert into fsm_migrations (version, name, checksum, applied_at) values ({version}, '{name}', {checksum}, {at_us});")
}

// ---- invariants

/// What must hold, and the query whose rows break it: an id and a sentence about it. These read whole tables.
pub(super) struct Invariant {
    pub number: &'static str,
    pub says: &'static str,
    pub query: Sql,
}

const fn invariant(number: &'static str, says: &'static str, query: Sql) -> Invariant {
    Invariant { number, says, query }
}

/// The successful attempts of each instance, oldest first, by the pointers from each call to the one before: `(instance_id, call_id,
/// from_state, to_state, step)`. A chain that bites its tail ends after as many steps as there are calls.
macro_rules! chain {
    ($($query:expr),* $(,)?) => {
        concat!(
            "with recursive walk (instance_id, call_id, back) as (
                select i.instance_id, i.call_id, 0
                from fsm_instances i
                where i.call_id is not null
                union all
                select w.instance_id, p.previous, w.back + 1
                from walk w
                join fsm_async_calls p on p.call_id = w.call_id and p.attempt = 1
                where p.previous is not null and w.back < (select count(*) from fsm_async_calls)
            ),
            chain as (
                select w.instance_id, w.call_id, c.from_state, c.to_state, row_number() over (partition by w.instance_id order by w.back desc) as step
                from walk w
                join fsm_async_calls c on c.call_id = w.call_id and c.state = 'success' and c.verb = c.to_state
            ) ",
            $($query),*
        )
    };
}

/// The chain of an instance may break where a mapping replaced the name of a state; its history says so.
macro_rules! unless_migrated {
    ($instance:literal) => {
        concat!("not exists (select 1 from fsm_history h where h.kind = 'migrated' and h.instance_id = ", $instance, ")")
    };
}

pub(super) const INVARIANTS: [Invariant; 16] = [
    invariant(
        "I1",
        "an open call has exactly one live attempt",
        same(
            "
            select i.instance_id, 'is open without a live attempt'
            from fsm_instances i
            where i.is_open and not exists (
                select 1
                from fsm_async_calls c
                where c.call_id = i.call_id and c.state in ('scheduled', 'executing')
            )
            union all
            select c.call_id, 'has ' || count(*) || ' live attempts'
            from fsm_async_calls c
            where c.state in ('scheduled', 'executing')
            group by c.call_id
            having count(*) > 1",
        ),
    ),
    invariant(
        "I2",
        "a closed call has no live attempt",
        same(
            "
            select c.call_id, 'attempt ' || c.attempt || ' is ' || c.state || ' beside attempt ' || o.attempt || ', ' || o.state
            from fsm_async_calls c
            join fsm_async_calls o on o.call_id = c.call_id and o.attempt <> c.attempt
            where c.state in ('scheduled', 'executing') and (o.state = 'success' or o.attempt > c.attempt)",
        ),
    ),
    invariant(
        "I3",
        "a call succeeds at most once",
        same(
            "
            select c.call_id, 'succeeded ' || count(*) || ' times'
            from fsm_async_calls c
            where c.state = 'success'
            group by c.call_id
            having count(*) > 1",
        ),
    ),
    invariant(
        "I4",
        "an instance's open call is the one live call it has",
        same(
            "
            select c.call_id, 'attempt ' || c.attempt || ' is ' || c.state || ' and not what its instance has open'
            from fsm_async_calls c
            left join fsm_instances i on i.instance_id = c.instance_id and i.is_open and i.call_id = c.call_id and i.attempt = c.attempt
            where c.state in ('scheduled', 'executing') and i.instance_id is null",
        ),
    ),
    // The newest call of an instance in error may also be a catch verb's, which succeeded and led nowhere.
    invariant(
        "I5",
        "an instance is in error if and only if its newest call is exhausted and was not retried or skipped since",
        same(
            "
            select i.instance_id, 'is ' || i.status || ', and its newest attempt is ' || coalesce(c.state, 'missing')
            from fsm_instances i
            left join fsm_async_calls c on c.call_id = i.call_id and c.attempt = i.attempt
            where (
                    i.status = 'error'
                    and (c.state is null or c.state not in ('error', 'lost') and not (c.state = 'success' and c.verb <> c.to_state))
                )
                or (
                    i.status = 'running'
                    and c.state in ('error', 'lost', 'released', 'cancelled')
                    and not exists (
                        select 1
                        from fsm_history h
                        where h.instance_id = i.instance_id and h.kind = 'skipped' and h.call_id = i.call_id
                    )
                )",
        ),
    ),
    invariant(
        "I6",
        "an instance's version is the number of its transitions, kept and pruned, and its state the target of the last one",
        same(chain!(
            "
            select i.instance_id, 'has version ' || i.version || ' and state ' || coalesce(i.state, 'none') || ' after ' || n.successes
                || ' transitions to ' || coalesce(l.to_state, 'none')
            from fsm_instances i
            join (
                select j.instance_id, count(k.step) as successes
                from fsm_instances j
                left join chain k on k.instance_id = j.instance_id
                group by j.instance_id
            ) n on n.instance_id = i.instance_id
            left join chain l on l.instance_id = i.instance_id and l.step = n.successes
            where i.version <> i.pruned + n.successes or i.version > i.pruned and i.state is distinct from l.to_state and "
            , unless_migrated!("i.instance_id")
        )),
    ),
    invariant(
        "I7",
        "each transition begins where the one before it ended, from the first one that is kept on",
        same(chain!(
            "
            select c.call_id, 'went from ' || coalesce(c.from_state, 'none') || ', and the instance was in ' || coalesce(b.to_state, 'none')
            from chain c
            join fsm_instances i on i.instance_id = c.instance_id
            left join chain b on b.instance_id = c.instance_id and b.step = c.step - 1
            where c.from_state is distinct from b.to_state and (c.step > 1 or i.pruned = 0) and "
            , unless_migrated!("c.instance_id"), "
            union all
            select c.call_id, 'succeeded and is not among the calls of its instance'
            from fsm_async_calls c
            left join chain k on k.call_id = c.call_id and k.instance_id = c.instance_id
            where c.state = 'success' and c.verb = c.to_state and k.call_id is null"
        )),
    ),
    // Catch verbs run beside the graph and move nothing.
    invariant(
        "I8",
        "every transition is an edge of a definition that was started",
        Sql {
            sqlite: "
                select c.call_id, c.machine || ' has no edge from ' || coalesce(c.from_state, 'none') || ' to ' || c.to_state || ' on ' || c.event
                from fsm_async_calls c
                where c.state = 'success' and c.verb = c.to_state
                    and exists (select 1 from fsm_machines m where m.machine = c.machine)
                    and not exists (select 1 from fsm_history h where h.kind = 'migrated' and h.instance_id = c.instance_id)
                    and not exists (
                        select 1
                        from fsm_machines m, json_each(m.definition, '$.edges') e
                        where m.machine = c.machine and json_extract(e.value, '$.from') is not distinct from c.from_state
                            and json_extract(e.value, '$.to') = c.to_state and json_extract(e.value, '$.event') = c.event
                    )",
            postgres: "
                select c.call_id, c.machine || ' has no edge from ' || coalesce(c.from_state, 'none') || ' to ' || c.to_state || ' on ' || c.event
                from fsm_async_calls c
                where c.state = 'success' and c.verb = c.to_state
                    and exists (select 1 from fsm_machines m where m.machine = c.machine)
                    and not exists (select 1 from fsm_history h where h.kind = 'migrated' and h.instance_id = c.instance_id)
                    and not exists (
                        select 1
                        from fsm_machines m, jsonb_array_elements(m.definition::jsonb -> 'edges') e
                        where m.machine = c.machine and e ->> 'from' is not distinct from c.from_state and e ->> 'to' = c.to_state
                            and e ->> 'event' = c.event
                    )",
        },
    ),
    invariant(
        "I9",
        "a call has its first attempt, and from the first one that is kept after it on all others",
        same(
            "
            select c.call_id, 'has ' || count(*) || ' attempts from ' || min(c.attempt) || ' to ' || max(c.attempt)
            from fsm_async_calls c
            group by c.call_id
            having min(c.attempt) <> 1
                or max(c.attempt) <> count(*)
                    and max(c.attempt) - min(case when c.attempt > 1 then c.attempt end) <> count(*) - 2",
        ),
    ),
    invariant(
        "I10",
        "failed and lost attempts are no more than the budget, once for the beginning and once for each retry by hand",
        Sql {
            sqlite: "
                select c.call_id, 'failed ' || count(*) || ' times'
                from fsm_async_calls c
                where c.state in ('error', 'lost')
                group by c.call_id
                having count(*) > max(case when c.retry is null then 1 else coalesce(json_extract(c.retry, '$.max_attempts'), 4294967296) end) * (
                    select 1 + count(*)
                    from fsm_history h
                    where h.kind = 'retried' and h.call_id = c.call_id
                )",
            postgres: "
                select c.call_id, 'failed ' || count(*) || ' times'
                from fsm_async_calls c
                where c.state in ('error', 'lost')
                group by c.call_id
                having count(*) > max(case when c.retry is null then 1 else coalesce((c.retry::jsonb ->> 'max_attempts')::bigint, 4294967296) end) * (
                    select 1 + count(*)
                    from fsm_history h
                    where h.kind = 'retried' and h.call_id = c.call_id
                )",
        },
    ),
    // An error may name its own wait, which leaves the backoff as it is; one that grew, or a lost attempt, waited by the policy.
    invariant(
        "I11",
        "no attempt starts before it is due, and no automatic one is due before the end of the last one and its backoff",
        same(
            "
            select c.call_id, 'attempt ' || c.attempt || ' started before it was due'
            from fsm_async_calls c
            where c.started_at < c.scheduled_at
            union all
            select c.call_id, 'attempt ' || c.attempt || ' was due before the end of the last one and its backoff'
            from fsm_async_calls c
            join fsm_async_calls p on p.call_id = c.call_id and p.attempt = c.attempt - 1
            where c.scheduled_at < p.finished_at
                or (
                    c.scheduled_at < p.finished_at + p.backoff
                    and (p.state = 'lost' or p.state = 'error' and c.backoff > p.backoff)
                    and not exists (select 1 from fsm_history h where h.kind in ('retried', 'rescheduled') and h.call_id = c.call_id)
                )",
        ),
    ),
    invariant(
        "I12",
        "an attempt is created, then started, then finished",
        same(
            "
            select c.call_id, 'attempt ' || c.attempt || ' was created at ' || c.created_at || ', started at ' || coalesce(c.started_at, -1)
                || ', finished at ' || coalesce(c.finished_at, -1)
            from fsm_async_calls c
            where c.started_at < c.created_at or c.finished_at < c.started_at or c.finished_at < c.created_at
                or (c.finished_at is null) <> (c.state in ('scheduled', 'executing'))",
        ),
    ),
    invariant(
        "I13",
        "the events that wait for an instance are dense from its inbox's head to its tail, and none waits for one that has ended",
        same(
            "
            select i.instance_id, 'is ' || i.status || ' with an inbox from ' || i.inbox_head || ' to ' || i.inbox_tail || ' and '
                || count(b.position) || ' events from ' || coalesce(min(b.position), -1)
            from fsm_instances i
            left join fsm_inbox b on b.instance_id = i.instance_id
            group by i.instance_id, i.status, i.inbox_head, i.inbox_tail
            having count(b.position) <> i.inbox_tail - i.inbox_head
                or min(b.position) <> i.inbox_head
                or max(b.position) <> i.inbox_tail - 1
                or (i.status in ('completed', 'cancelled') and count(b.position) > 0)
            union all
            select b.instance_id, 'has events that wait and is no instance'
            from fsm_inbox b
            left join fsm_instances i on i.instance_id = b.instance_id
            where i.instance_id is null",
        ),
    ),
    // The primary key keeps an id from naming two requests of one instance; here each names one that there is.
    invariant(
        "I14",
        "a dedup id names one request",
        same(
            "
            select r.instance_id, 'knows ' || r.dedup || ' and is no instance'
            from fsm_requests r
            left join fsm_instances i on i.instance_id = r.instance_id
            where i.instance_id is null
            union all
            select r.call_id, 'answers to ' || count(*) || ' dedup ids'
            from fsm_requests r
            group by r.call_id
            having count(*) > 1",
        ),
    ),
    // Who reported is not kept apart from who held the attempt; that there was one is.
    invariant(
        "I15",
        "every attempt that started has a session, and every report came from one that held its attempt",
        same(
            "
            select c.call_id, 'attempt ' || c.attempt || ' is ' || c.state || case when c.worker is null then ' without' else ' with' end || ' a session'
            from fsm_async_calls c
            where (c.worker is null) <> (c.started_at is null)
                or (c.state = 'scheduled' and c.worker is not null)
                or (c.state in ('executing', 'success', 'error', 'lost', 'released') and c.worker is null)",
        ),
    ),
    // Delayed sends are timers without a state, and outlive states.
    invariant(
        "I16",
        "a timer belongs to the state in which its instance rests",
        same(
            "
            select t.timer_id, 'belongs to ' || coalesce(t.state, 'none') || ', and its instance is ' || coalesce(i.status, 'missing') || ' in '
                || coalesce(i.state, 'none')
            from fsm_timers t
            left join fsm_instances i on i.instance_id = t.instance_id
            where i.instance_id is null
                or (t.state is not null and (t.state is distinct from i.state or i.status in ('completed', 'cancelled')))",
        ),
    ),
];
