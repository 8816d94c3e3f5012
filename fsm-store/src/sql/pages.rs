//! Lists of instances with keyset pagination, and the limits of their pages.

use super::statement::{Sql, same};

/// The statements for the instances of a status, or for paused ones, in the order of their creation. Each kind has its own index.
pub struct Among {
    /// The instances of machine `$1` after `$2` and up to `$8`, at most `$3`. These filters apply where they are given: state `$4`, paused
    /// `$5`, the text `$6` in the error, not changed since `$7`, and with `$9` only instances whose open attempt follows a failed one. The
    /// text of such an instance is the error of the previous attempt.
    pub oldest_first: Sql,
    /// Like `oldest_first`, but before `$2` and down to `$8`.
    pub newest_first: Sql,
    /// Of the instances of machine `$1` after `$2`, the one at position `$3`, from 0, and the next one.
    pub edge_up: Sql,
    /// Like `edge_up`, but before `$2`.
    pub edge_down: Sql,
    /// The number of instances in each state and status, among the newest `$2` of machine `$1`.
    pub states: Sql,
}

/// The condition that the open attempt of the instance follows one that failed or was lost.
macro_rules! retrying {
    () => {
        "i.is_open and i.attempt > 1 and exists (
                    select 1
                    from fsm_async_calls p
                    where p.call_id = i.call_id and p.attempt = i.attempt - 1 and p.state in ('error', 'lost')
                )"
    };
}

/// The error of an instance; for an instance that is being retried, the error of the previous attempt.
macro_rules! failure {
    () => {
        "coalesce(i.error, (
                    select p.error
                    from fsm_async_calls p
                    where i.is_open and p.call_id = i.call_id and p.attempt = i.attempt - 1
                ))"
    };
}

macro_rules! has_text {
    ($position:literal) => {
        concat!($position, "(lower(", failure!(), "), lower($6)) > 0")
    };
}

pub(super) use {failure, has_text, retrying};

macro_rules! page {
    ($status:expr, $has:literal, $beyond:literal, $until:literal, $order:literal) => {
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
            has_text!($has),
            ")
                and (cast($7 as bigint) is null or i.updated_at <= $7)
                and (cast($9 as integer) is null or ",
            retrying!(),
            ")
            order by i.instance_id ",
            $order,
            "
            limit $3"
        )
    };
}

macro_rules! by_key {
    ($has:literal, $order:literal) => {
        concat!(
            "select ",
            instance!(),
            "
            from fsm_instances i
            where i.machine = $1 and i.key >= $2 and i.key < $8
                and (cast($4 as text) is null or i.state = $4)
                and (cast($5 as integer) is null or (case when i.paused then 1 else 0 end) = $5)
                and (cast($6 as text) is null or ",
            has_text!($has),
            ")
                and (cast($7 as bigint) is null or i.updated_at <= $7)
                and (cast($9 as integer) is null or ",
            retrying!(),
            ")
                and (cast($10 as text) is null or i.status = $10)
            order by i.key ",
            $order,
            "
            limit $3"
        )
    };
}

macro_rules! edge_of_keys {
    ($order:literal) => {
        same(concat!(
            "select i.key
            from fsm_instances i
            where i.machine = $1 and i.key >= $2 and i.key < $3
            order by i.key ",
            $order,
            "
            limit 2 offset $4"
        ))
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

macro_rules! not_ended {
    ($has:literal, $beyond:literal, $until:literal, $order:literal) => {
        concat!(
            "select * from (",
            page!("i.status = 'running'", $has, $beyond, $until, $order),
            ") as r union all select * from (",
            page!("i.status = 'error'", $has, $beyond, $until, $order),
            ") as e order by 1 ",
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
            oldest_first: Sql { sqlite: page!($status, "instr", ">", "<=", "asc"), postgres: page!($status, "strpos", ">", "<=", "asc") },
            newest_first: Sql { sqlite: page!($status, "instr", "<", ">=", "desc"), postgres: page!($status, "strpos", "<", ">=", "desc") },
            edge_up: edge!($status, ">", "asc"),
            edge_down: edge!($status, "<", "desc"),
            states: same(concat!(
                "select counted.state, count(*), counted.status
                from (
                    select i.state, i.status
                    from fsm_instances i
                    where i.machine = $1 and ",
                $status,
                "
                    order by i.instance_id desc
                    limit $2
                ) as counted
                group by counted.state, counted.status"
            )),
        }
    };
}

/// Instances of every status, as `Among::oldest_first`, merged in one statement. Uses the three indexes by status.
pub const EVERY_OLDEST_FIRST: Sql = Sql { sqlite: every!("instr", ">", "<=", "asc"), postgres: every!("strpos", ">", "<=", "asc") };

/// Instances of every status, as `Among::newest_first`, merged in one statement. Uses the three indexes by status.
pub const EVERY_NEWEST_FIRST: Sql = Sql { sqlite: every!("instr", "<", ">=", "desc"), postgres: every!("strpos", "<", ">=", "desc") };

/// Instances that are running or in error, as `Among::oldest_first`, merged in one statement. Uses the two indexes by status.
pub const NOT_ENDED_OLDEST_FIRST: Sql =
    Sql { sqlite: not_ended!("instr", ">", "<=", "asc"), postgres: not_ended!("strpos", ">", "<=", "asc") };

/// Instances that are running or in error, as `Among::newest_first`, merged in one statement. Uses the two indexes by status.
pub const NOT_ENDED_NEWEST_FIRST: Sql =
    Sql { sqlite: not_ended!("instr", "<", ">=", "desc"), postgres: not_ended!("strpos", "<", ">=", "desc") };

/// The condition for children: their parent `$11`, and where they are given the status `$10` and the beginning `$12` of the key.
macro_rules! child {
    () => {
        "i.parent = $11 and (cast($10 as text) is null or i.status = $10) and (cast($12 as text) is null or substr(i.key, 1, length($12)) = $12)"
    };
}

/// The children of an instance, as `Among::oldest_first`. Uses the index of children.
pub const CHILDREN_UP: Sql =
    Sql { sqlite: page!(child!(), "instr", ">", "<=", "asc"), postgres: page!(child!(), "strpos", ">", "<=", "asc") };

/// The children of an instance, as `Among::newest_first`. Uses the index of children.
pub const CHILDREN_DOWN: Sql =
    Sql { sqlite: page!(child!(), "instr", "<", ">=", "desc"), postgres: page!(child!(), "strpos", "<", ">=", "desc") };

/// Uses the index of running instances.
pub const RUNNING: Among = among!("i.status = 'running'");

/// Uses the index of instances in error.
pub const IN_ERROR: Among = among!("i.status = 'error'");

/// Uses the index of ended instances.
pub const ENDED_SO_FAR: Among = among!("i.status in ('completed', 'cancelled')");

/// Every instance is of one of these kinds.
pub const ALL_KINDS: [&Among; 3] = [&RUNNING, &IN_ERROR, &ENDED_SO_FAR];

/// Uses the index of ended instances.
pub const COMPLETED: Among = among!("i.status in ('completed', 'cancelled') and i.status = 'completed'");

/// Uses the index of cancelled instances.
pub const CANCELLED: Among = among!("i.status = 'cancelled'");

/// Uses the index of paused instances.
pub const PAUSED: Among = among!("i.paused");

/// The instances of machine `$1` with keys from `$2` to before `$8`, at most `$3`, in the order of their keys. The other filters are those
/// of `Among::oldest_first`, and status `$10` where it is given. Uses the unique index on machine and key.
pub const KEYS_UP: Sql = Sql { sqlite: by_key!("instr", "asc"), postgres: by_key!("strpos", "asc") };

/// The same in descending order.
pub const KEYS_DOWN: Sql = Sql { sqlite: by_key!("instr", "desc"), postgres: by_key!("strpos", "desc") };

/// Of the keys of machine `$1` from `$2` to before `$3`, the one at position `$4`, from 0, and the next one. Uses the unique index on
/// machine and key.
pub const KEY_EDGE_UP: Sql = edge_of_keys!("asc");

/// The same in descending order.
pub const KEY_EDGE_DOWN: Sql = edge_of_keys!("desc");
