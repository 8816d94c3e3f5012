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

async fn list_one<M: Machine>(engine: &Engine, wanted: &PageFilter) -> Result<Page<Instance<M>>, Error> {
    engine
        .read(|| async {
            let mut reader = engine.store.reader().await?;
            let conn = &mut reader.conn();
            if !wanted.search.is_empty() {
                search::check(conn, &engine.catalog.expect(M::NAME)?.machine, wanted).await?;
            }
            page(conn, wanted, &engine.data_protection).await
        })
        .await
}

/// Merges the same page of several partitions into one. An instance that cannot be read may be on two pages.
pub(crate) fn merged<M: Machine>(pages: Vec<Page<Instance<M>>>, wanted: &PageFilter) -> Page<Instance<M>> {
    let mut unreadable = Vec::new();
    let mut of_partition = |page: Page<Instance<M>>| {
        unreadable.extend(page.unreadable);
        let items = page.items.into_iter().map(|item| (wanted.position(item.id, &item.key), item)).collect();
        PartitionPage { items, next: page.next.map(|cursor| cursor.0), was_cut: false }
    };
    let pages = pages.into_iter().map(&mut of_partition).collect();
    let PartitionPage { items, next, .. } = partition_pages::merged(pages, wanted);
    Page { items: items.into_iter().map(|(_, item)| item).collect(), next: next.map(Cursor), unreadable }
}

/// Reads a page of instances. Those that this program cannot read are listed separately.
pub(crate) async fn page<M: Machine>(
    conn: &mut Conn<'_>,
    wanted: &PageFilter,
    data_protection: &DataProtection,
) -> Result<Page<Instance<M>>, Error> {
    let Found { rows, next, mut unreadable, .. } = rows::page(conn, M::NAME, wanted).await?;
    let mut items = Vec::with_capacity(rows.len());
    let search = M::ENTRY.search.map_or(&[][..], |search| search.names);
    let found = with_calls(conn, rows, search, data_protection).await?;
    unreadable.extend(found.unreadable);
    for seen in found.instances {
        let key = seen.row.key.clone();
        match Instance::of(seen, data_protection) {
            Ok(instance) => items.push(instance),
            Err(error) => unreadable.push(Unreadable { key, why: error.to_string() }),
        }
    }
    Ok(Page { items, next: next.map(Cursor), unreadable })
}
