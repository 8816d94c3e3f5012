//! Pages of instances, with the types of their machine.

use crate::catalog::Catalog;
use crate::data_protection::DataProtection;
use crate::error::Error;
use crate::registry::Machine;
use crate::store::conn::Conn;
use crate::store::view::{self as rows, Found, PageFilter};

use super::instance_view::with_calls;
use super::view::{Cursor, Instance, Page, Unreadable};

/// Reads a page of instances. Those that this program cannot read are listed separately.
pub(crate) async fn page<M: Machine>(
    conn: &mut Conn<'_>,
    wanted: &PageFilter,
    catalog: &Catalog,
    data_protection: &DataProtection,
) -> Result<Page<Instance<M>>, Error> {
    let Found { rows, next, mut unreadable, .. } = rows::page(conn, M::NAME, wanted).await?;
    let mut items = Vec::with_capacity(rows.len());
    let found = with_calls(conn, rows, catalog, data_protection).await?;
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
