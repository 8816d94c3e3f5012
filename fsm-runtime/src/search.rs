//! Search fields: the values of an instance that has no record yet, the reading of stored values, and the values of instances that existed
//! before the code declared the fields.

use std::collections::HashMap;

use fsm_core::check::{listed, nearest};
use fsm_core::commit::rows::Target;
use fsm_core::ids::InstanceId;
use fsm_core::instance::Instance;
use fsm_core::machine::Machine;
use fsm_core::search::SearchField;
use fsm_core::time::Timestamp;
use fsm_store::conn::Conn;
use fsm_store::drift::Page;
use fsm_store::error::StoreError;
use fsm_store::fair;
use fsm_store::lock;
use fsm_store::open::Store;
use fsm_store::pages::PageFilter;
use fsm_store::search;
use serde_json::Value;
use uuid::Uuid;

use crate::catalog::KnownMachine;
use crate::data_protection::{DataProtection, Owner};
use crate::drift;
use crate::error::Error;

/// The maximum number of instances whose fields one transaction fills in.
const AT_A_TIME: u32 = 200;

/// The search fields of an instance that this event creates: the members of the event that have their names, if these are texts, numbers or
/// booleans. They hold until a verb writes the record.
pub(crate) fn of_event(names: &[impl AsRef<str>], payload: &[u8]) -> Vec<SearchField> {
    let Ok(members) = serde_json::from_slice::<HashMap<String, Value>>(payload) else { return Vec::new() };
    let field = |name: &str| match members.get(name)? {
        Value::String(text) => Some(SearchField::new(name, text)),
        value @ (Value::Number(_) | Value::Bool(_)) => Some(SearchField::new(name, &value.to_string())),
        Value::Null | Value::Array(_) | Value::Object(_) => None,
    };
    names.iter().filter_map(|name| field(name.as_ref())).collect()
}

/// The search fields of these instances, in the order in which their machine declares them. Nothing is read if it declares none.
pub(crate) async fn fields_of(
    conn: &mut Conn<'_>,
    declared: &[impl AsRef<str>],
    instances: &[InstanceId],
) -> Result<HashMap<InstanceId, Vec<SearchField>>, StoreError> {
    if declared.is_empty() || instances.is_empty() {
        return Ok(HashMap::new());
    }
    let mut fields = search::of(conn, instances).await?;
    for fields in fields.values_mut() {
        let place = |field: &SearchField| declared.iter().position(|name| name.as_ref() == field.name);
        fields.retain(|field| place(field).is_some());
        fields.sort_by_key(place);
    }
    Ok(fields)
}

/// Returns an `is_input` error if a field of a filter is not a search field of the machine, or if no process that fills it in was ever started.
///
/// The children of an instance cannot be selected by search fields, because no index has both.
pub(crate) async fn check(conn: &mut Conn<'_>, machine: &Machine, filter: &PageFilter) -> Result<(), Error> {
    let fields = &filter.search;
    if filter.parent.is_some() && !fields.is_empty() {
        return Err(Error::input("a list is of the children of an instance or of those with a value in a search field, not of both"));
    }
    for SearchField { name, .. } in fields {
        if !machine.search.contains(name) {
            return Err(undeclared(machine, name));
        }
    }
    if fields.is_empty() {
        return Ok(());
    }
    let stored = drift::definitions(conn, &machine.name).await?;
    let has_been_started = |name: &String| stored.as_ref().is_none_or(|all| all.iter().any(|one| one.search.contains(name)));
    match fields.iter().find(|field| !has_been_started(&field.name)) {
        Some(SearchField { name, .. }) => Err(Error::input(format!(
            "no worker of `{}` with the search field `{name}` was ever started, so that the field is not filled in; start one",
            machine.name
        ))),
        None => Ok(()),
    }
}

fn undeclared(machine: &Machine, name: &str) -> Error {
    let declared = || machine.search.iter().map(String::as_str);
    let has = match machine.search.is_empty() {
        true => "it has none; declare them with `keeps Record, search(…);` in `fsm!`".to_owned(),
        false => format!("it has {}", listed(declared())),
    };
    let meant = nearest(name, declared()).map_or_else(String::new, |near| format!("; did you mean `{near}`?"));
    Error::input(format!("`{}` has no search field `{}`; {has}{meant}", machine.name, name.escape_debug()))
}

/// Fills in the search fields of all instances if the definition that was started last lacks one of them. Its code wrote records without
/// them. Returns the number of instances.
pub(crate) async fn fill_new_fields(store: &Store, known: &KnownMachine, data_protection: &DataProtection) -> Result<usize, Error> {
    let machine = &*known.machine;
    let stored = drift::definitions(&mut store.reader().await?.conn(), &machine.name).await?;
    let last = stored.as_ref().and_then(|stored| stored.last());
    let lacks = |last: &Machine| machine.search.iter().any(|name| !last.search.contains(name)) || last.fair_by != machine.fair_by;
    if !last.is_some_and(lacks) {
        return Ok(0);
    }
    let filled = fill(store, known, data_protection, Timestamp::from_micros(i64::MIN)).await?;
    tracing::info!(machine = machine.name, instances = filled, "filled in the search fields of the instances");
    Ok(filled)
}

/// Fills in the search fields of the instances that have changed since `since`, if a process may run whose code lacks one of the fields.
/// Returns the number of instances.
pub(crate) async fn follow(
    store: &Store,
    known: &KnownMachine,
    data_protection: &DataProtection,
    since: Timestamp,
) -> Result<usize, Error> {
    let machine = &*known.machine;
    if machine.search.is_empty() {
        return Ok(0);
    }
    let stored = drift::definitions(&mut store.reader().await?.conn(), &machine.name).await?;
    let lacks = |other: &Machine| machine.search.iter().any(|name| !other.search.contains(name));
    if stored.is_some_and(|stored| !stored.iter().any(lacks)) {
        return Ok(0);
    }
    fill(store, known, data_protection, since).await
}

async fn fill(store: &Store, known: &KnownMachine, data_protection: &DataProtection, since: Timestamp) -> Result<usize, Error> {
    let machine = &*known.machine;
    let (mut after, mut filled) = (Some(InstanceId(Uuid::nil())), 0);
    while let Some(from) = after {
        let Page { found, next } = {
            let mut reader = store.reader().await?;
            search::recorded(&mut reader.conn(), &machine.name, since, from, AT_A_TIME).await?
        };
        let fill_some = |some| fill_some(store, known, data_protection, &found[some]);
        let count = drift::each_if_not_all(&found, fill_some, |(_, key), error| {
            tracing::warn!(machine = machine.name, key, %error, "the search fields of an instance cannot be filled in; those of the others are");
        });
        filled += count.await?;
        after = next;
    }
    Ok(filled)
}

/// Fills in the search fields of these instances in one transaction. Returns the number of instances.
async fn fill_some(
    store: &Store,
    known: &KnownMachine,
    data_protection: &DataProtection,
    found: &[(InstanceId, String)],
) -> Result<usize, StoreError> {
    let machine = &known.machine.name;
    let targets: Vec<_> = found.iter().map(|(_, key)| Target { machine, key }).collect();
    let mut tx = store.begin().await?;
    let locked = lock::instances(&mut tx.conn(), &targets).await?.into_iter().flatten();
    let filled: Vec<_> = locked.filter_map(|locked| with_fields(known, data_protection, locked.instance)).collect();
    search::put(&mut tx.conn(), &filled).await?;
    let fair = filled.iter().filter_map(|(instance, fields)| Some((instance.id, known.machine.fair_value(fields)?))).collect::<Vec<_>>();
    fair::put(&mut tx.conn(), fair.iter().map(|(instance, value)| (*instance, value.as_str()))).await?;
    tx.commit().await?;
    Ok(filled.len())
}

/// The instance with its search fields; `None` if its record cannot be read.
fn with_fields(known: &KnownMachine, data_protection: &DataProtection, instance: Instance) -> Option<(Instance, Vec<SearchField>)> {
    let record = data_protection.open(&Owner::of(&instance).record(), instance.record.as_deref()?);
    let fields = record.map_err(|why| format!("the record cannot be read: {why}"));
    let fields = fields.and_then(|record| known.changed_search(None, Some(&record)).map_err(|failure| failure.to_string()));
    match fields {
        Ok(fields) => Some((instance, fields)),
        Err(error) => {
            tracing::warn!(machine = instance.machine, key = instance.key, error, "an instance is not found by its search fields");
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_members_of_an_event_are_the_first_values() {
        let found = of_event(&["customer", "cents", "paid", "gone", "list"], br#"{"customer":"c-77","cents":12,"paid":true,"list":[1]}"#);
        let texts: Vec<_> = found.iter().map(|field| (field.name.as_str(), field.value.as_str())).collect();
        assert_eq!(texts, [("customer", "c-77"), ("cents", "12"), ("paid", "true")]);
        assert!(of_event(&["customer"], b"null").is_empty());
    }
}
