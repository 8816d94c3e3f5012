//! Search fields, and the pages of instances that have a value.

use super::pages::{failure, has_text, retrying};
use super::statement::{Many, Sql, many, same};

/// Writes the search fields of new instances. It needs no right to change rows, which a process that may only send does not have.
pub const SEARCH_NEW: Many = many(
    "instance_id uuid, name text, machine text, key text, value text",
    "
    insert into fsm_search (instance_id, name, machine, key, value)
    select *
    from w",
);

/// Writes search fields. One that has the value already is left alone. Uses the primary key.
pub const SEARCH_PUT: Many = many(
    "instance_id uuid, name text, machine text, key text, value text",
    "
    insert into fsm_search (instance_id, name, machine, key, value)
    select *
    from w
    where true
    on conflict (instance_id, name) do update
    set value = excluded.value
    where fsm_search.value <> excluded.value",
);

/// The search fields of the instances. Uses the primary key.
pub const SEARCH_OF: Many = Many {
    columns: "instance_id uuid",
    sqlite: "
        select s.instance_id, s.name, s.value
        from fsm_search s
        where s.instance_id = w.instance_id",
    postgres: "
        select s.instance_id, s.name, s.value
        from w
        join fsm_search s on s.instance_id = w.instance_id",
};

/// The number of instances of machine `$1` whose field `$2` has the value `$3`, counted up to `$4`. Uses the index by value.
pub const SEARCH_COUNT: Sql = same(
    "
    select count(*)
    from (select 1 from fsm_search s where s.machine = $1 and s.name = $2 and s.value = $3 limit $4) as n",
);

/// The instances of machine `$1` after `$2` and up to `$5`, at most `$4`, that have a record and have changed since `$3`. Uses the primary
/// key.
pub const RECORDED: Sql = same(
    "
    select i.instance_id, i.key
    from fsm_instances i
    where i.machine = $1 and i.instance_id > $2 and i.instance_id <= $5 and i.updated_at >= $3 and i.record is not null
    order by i.instance_id
    limit $4",
);

macro_rules! found {
    ($join:literal, $has:literal, $others:literal, $order:literal) => {
        concat!(
            "select ",
            instance!(),
            "
            from fsm_search s
            ",
            $join,
            " fsm_instances i on i.instance_id = s.instance_id
            where s.machine = $1 and s.name = $11 and s.value = $12 and s.key >= $2 and s.key < $8
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
                and not exists (
                    select 1
                    from ",
            $others,
            "
                    where not exists (
                        select 1 from fsm_search o where o.instance_id = s.instance_id and o.name = f.name and o.value = f.value
                    )
                )
            order by s.key ",
            $order,
            "
            limit $3"
        )
    };
}

macro_rules! found_in_sqlite {
    ($order:literal) => {
        found!(
            "cross join",
            "instr",
            "(select n.value as name, v.value as value from json_each($13) n join json_each($14) v on v.key = n.key) f",
            $order
        )
    };
}

macro_rules! found_in_postgres {
    ($order:literal) => {
        found!("join", "strpos", "unnest($13::text[], $14::text[]) as f (name, value)", $order)
    };
}

/// The instances of machine `$1` whose field `$11` has the value `$12`, with keys from `$2` to before `$8`, at most `$3`, in the order of
/// their keys. They also have the values `$14` in the fields `$13`. The other filters are those of `KEYS_UP`. Uses the index by value, and
/// the primary keys. On SQLite, `cross join` keeps the order of the tables.
pub const FOUND_UP: Sql = Sql { sqlite: found_in_sqlite!("asc"), postgres: found_in_postgres!("asc") };

/// The same in descending order.
pub const FOUND_DOWN: Sql = Sql { sqlite: found_in_sqlite!("desc"), postgres: found_in_postgres!("desc") };

macro_rules! edge_of_found {
    ($order:literal) => {
        same(concat!(
            "select s.key
            from fsm_search s
            where s.machine = $1 and s.name = $2 and s.value = $3 and s.key >= $4 and s.key < $5
            order by s.key ",
            $order,
            "
            limit 2 offset $6"
        ))
    };
}

/// Of the instances of machine `$1` whose field `$2` has the value `$3`, with keys from `$4` to before `$5`: the key at position `$6`, from
/// 0, and the next one. Uses the index by value.
pub const FOUND_EDGE_UP: Sql = edge_of_found!("asc");

/// The same in descending order.
pub const FOUND_EDGE_DOWN: Sql = edge_of_found!("desc");

/// Deletes the search fields of the instances. Uses the primary key.
pub const PRUNE_SEARCH: Many = many("instance_id uuid", "delete from fsm_search where instance_id in (select w.instance_id from w)");
