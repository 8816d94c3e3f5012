//! Moving a partition. PostgreSQL only. The names of schemas and tables in these statements are quoted by their users.

/// The schema, the URL, the place number and the target of partition `$1`.
pub const PARTITION_LISTED: &str = "select p.schema, p.url, p.place_number, p.moving_to from fsm_partitions p where p.partition = $1";

/// Begins the transaction that has the lock of [`PARTITION_LOCK`] for as long as a move lasts.
pub const BEGIN_LOCK: &str = "begin; set local idle_in_transaction_session_timeout = 0";

/// Tries to lock the move of partition `$1` until the transaction ends.
pub const PARTITION_LOCK: &str = "select pg_try_advisory_xact_lock(1718840173, $1::integer)";

/// Says that partition `$1`, with place number `$3`, is being moved to URL `$2`.
pub const PARTITION_ANNOUNCE: &str = "
    update fsm_partitions
    set moving_to = $2
    where partition = $1 and place_number = $3 and coalesce(moving_to, $2) = $2";

/// Says that partition `$1`, with place number `$3` before, was moved to URL `$2`.
pub const PARTITION_SWITCH: &str = "
    update fsm_partitions
    set url = $2, place_number = place_number + 1, moving_to = null
    where partition = $1 and place_number = $3 and moving_to = $2";

/// Says that partition `$1`, with place number `$2`, is no longer being moved.
pub const PARTITION_CANCEL: &str = "
    update fsm_partitions
    set moving_to = null
    where partition = $1 and place_number = $2";

/// Returns whether schema `$1` exists.
pub const SCHEMA_EXISTS: &str = "select exists (select 1 from pg_namespace n where n.nspname = $1)";

/// The tables of schema `$1`.
pub const TABLES_OF_SCHEMA: &str = "
    select c.relname::text
    from pg_class c
    join pg_namespace n on n.oid = c.relnamespace
    where n.nspname = $1 and c.relkind in ('r', 'p')
    order by c.relname";

/// The tables and views of schema `$1`.
pub const RELATIONS_OF_SCHEMA: &str = "
    select c.relname::text
    from pg_class c
    join pg_namespace n on n.oid = c.relnamespace
    where n.nspname = $1 and c.relkind in ('r', 'p', 'v', 'm', 'f')
    order by c.relname";

/// The roles other than the owners that have rights on tables of schema `$1`.
pub const ROLES_OF_SCHEMA: &str = "
    select distinct r.rolname::text
    from pg_class c
    join pg_namespace n on n.oid = c.relnamespace
    cross join aclexplode(c.relacl) a
    join pg_roles r on r.oid = a.grantee
    where n.nspname = $1 and a.grantee <> c.relowner
    order by 1";

/// The functions of schema `$1` that set the `search_path`.
pub const FUNCTIONS_OF_SCHEMA: &str = "
    select p.oid::regprocedure::text
    from pg_proc p
    join pg_namespace n on n.oid = p.pronamespace
    where n.nspname = $1 and p.proconfig::text like '%search_path=%'";

/// The columns of the tables of schema `$1`, with their types, in the order of the tables and of their columns.
pub const COLUMNS_OF_SCHEMA: &str = "
    select format('%s.%s %s', c.relname, a.attname, format_type(a.atttypid, a.atttypmod))
    from pg_class c
    join pg_namespace n on n.oid = c.relnamespace
    join pg_attribute a on a.attrelid = c.oid
    where n.nspname = $1 and c.relkind in ('r', 'p') and a.attnum > 0 and not a.attisdropped
    order by c.relname, a.attnum";

/// The columns of schema `$1` that number rows: table, column, sequence.
pub const IDENTITIES_OF_SCHEMA: &str = "
    select c.relname::text, a.attname::text, s.relname::text
    from pg_class c
    join pg_namespace n on n.oid = c.relnamespace
    join pg_attribute a on a.attrelid = c.oid and a.attidentity <> ''
    join pg_depend d on d.refobjid = c.oid and d.refobjsubid = a.attnum and d.deptype = 'i'
    join pg_class s on s.oid = d.objid and s.relkind = 'S'
    where n.nspname = $1";

/// Sets the sequence of column `$2` of table `$1` to `$3`. The next value is greater if `$4`.
pub const SET_IDENTITY: &str = "select setval(pg_get_serial_sequence($1, $2), $3, $4)";

/// Begins a transaction in which a statement may last as long as it needs.
pub const BEGIN_COPY: &str = "begin; set local statement_timeout = 0; set local idle_in_transaction_session_timeout = 0";

/// Renames a schema when no transaction writes in its tables any more. The locks of all tables together wait for less than the usual
/// `deadlock_timeout` of a second, so that a transaction of a program which has one table and waits for another one goes on before the server ends
/// it. It is one message: a process that ends keeps no lock.
pub fn freeze(schema: &str, frozen: &str, tables: impl Iterator<Item = String>) -> String {
    let tables = tables.map(|table| format!("{schema}.{table}")).collect::<Vec<_>>().join(", ");
    format!(
        "begin; set local lock_timeout = '800ms'; set local statement_timeout = '800ms'; lock table {tables} in access exclusive mode; \
         set local statement_timeout to default; alter schema {schema} rename to {frozen}; commit"
    )
}

/// Returns whether a table has rows.
pub fn has_rows(schema: &str, table: &str) -> String {
    format!("select exists (select 1 from {schema}.{table})")
}

/// Reads all rows of a table.
pub fn copy_out(schema: &str, table: &str) -> String {
    format!("copy {schema}.{table} to stdout (format binary)")
}

/// Writes rows into a table.
pub fn copy_in(schema: &str, table: &str) -> String {
    format!("copy {schema}.{table} from stdin (format binary)")
}

/// Returns the shortest lease duration of the workers, in microseconds.
pub fn shortest_lease(schema: &str) -> String {
    format!("select min(w.lease_us) from {schema}.fsm_workers w")
}

/// Returns the last value of a sequence, and whether the next one is greater.
pub fn sequence_state(schema: &str, sequence: &str) -> String {
    format!("select last_value, is_called from {schema}.{sequence}")
}

/// Deletes all rows of a table.
pub fn truncate(schema: &str, table: &str) -> String {
    format!("truncate {schema}.{table}")
}

/// Updates the statistics that plans for a table use.
pub fn analyze(schema: &str, table: &str) -> String {
    format!("analyze {schema}.{table}")
}

/// Gives a schema another name.
pub fn rename_schema(schema: &str, name: &str) -> String {
    format!("alter schema {schema} rename to {name}")
}

/// Lets a function find its tables in a schema.
pub fn search_in(function: &str, schema: &str) -> String {
    format!("alter function {function} set search_path = pg_catalog, {schema}, pg_temp")
}
