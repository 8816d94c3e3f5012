//! Pages of instances, with the types of their machine.

use fsm_store::conn::Conn;
use fsm_store::pages::{self as rows, Found, PageFilter};
use futures_util::future::try_join_all;

use super::instance_view::with_calls;
use super::view::{Cursor, Filter, Instance, Page, Unreadable};
use crate::data_protection::DataProtection;
use crate::engine::Engine;
use crate::engines::Engines;
use crate::error::Error;
use crate::partition_pages::{self, PartitionPage};
use crate::registry::Machine;
use crate::search;

/// Reads a page of the instances that match the filter. A read that fails because the database cannot be used is repeated.
pub(super) async fn list<M: Machine>(engines: &Engines, filter: Filter) -> Result<Page<Instance<M>>, Error> {
    let limit = filter.limit.clamp(1, Filter::MOST);
    let wanted = PageFilter {
        status: filter.status,
        state: filter.state,
        paused: filter.paused,
        key_prefix: filter.key_prefix,
        retrying: filter.retrying,
        search: filter.search,
        parent: filter.parent,
        after: filter.after.map(|cursor| cursor.0),
        limit,
        ..PageFilter::default()
    };
    let pages = try_join_all(engines.all().iter().map(|engine| list_one(engine, &wanted))).await?;
    Ok(merged(pages, &wanted))
}

/// An instance of a page, or why it cannot be read.
pub(crate) type Listed<M> = Result<Instance<M>, Unreadable>;

/// Merges the same page of several partitions into one. Those that cannot be read are listed separately.
pub(crate) fn merged<M: Machine>(pages: Vec<PartitionPage<Listed<M>>>, wanted: &PageFilter) -> Page<Instance<M>> {
    let page = partition_pages::merged(pages, wanted);
    let (mut items, mut unreadable) = (Vec::with_capacity(page.items.len()), Vec::new());
    for (_, one) in page.items {
        match one {
            Ok(instance) => items.push(instance),
            Err(one) => unreadable.push(one),
        }
    }
    Page { items, next: page.next.map(Cursor), unreadable }
}

async fn list_one<M: Machine>(engine: &Engine, wanted: &PageFilter) -> Result<PartitionPage<Listed<M>>, Error> {
    engine
        .read(|| async {
            let mut reader = engine.store.reader().await?;
            let conn = &mut reader.conn();
            if !wanted.search.is_empty() {
                search::check(conn, &engine.catalog.expect(M::NAME)?.machine, wanted).await?;
            }
            listed(conn, wanted, &engine.data_protection).await
        })
        .await
}

/// Reads a page of instances of one partition, also those that this program cannot read.
pub(crate) async fn listed<M: Machine>(
    conn: &mut Conn<'_>,
    wanted: &PageFilter,
    data_protection: &DataProtection,
) -> Result<PartitionPage<Listed<M>>, Error> {
    let Found { rows, next, unreadable, was_cut } = rows::page(conn, M::NAME, wanted).await?;
    let mut items: Vec<_> = unreadable.into_iter().map(|(position, one)| (position, Err(one))).collect();
    let search = M::ENTRY.search.map_or(&[][..], |search| search.names);
    let found = with_calls(conn, rows, search, data_protection).await?;
    items.extend(found.unreadable.into_iter().map(|(id, one)| (wanted.position(id, &one.key), Err(one))));
    for seen in found.instances {
        let key = seen.row.key.clone();
        let position = wanted.position(seen.row.id, &key);
        items.push((position, Instance::of(seen, data_protection).map_err(|error| Unreadable { key, why: error.to_string() })));
    }
    Ok(PartitionPage { items, next, was_cut })
}
