//! What every process does with a database before anything else: open it, bring it up to date, and say what it has code for.

use std::sync::Arc;

use crate::catalog::Catalog;
use crate::clock::Clock;
use crate::data::DataMap;
use crate::drift::{self, Migrate};
use crate::encode;
use crate::error::Error;
use crate::mender;
use crate::mending::Mappings;
use crate::session;
use crate::store::open::{Settings, Store};
use crate::store::{machines, migrate as migrations};

/// Opens and migrates a database, and finds its clock.
pub(crate) async fn open(settings: Settings) -> Result<(Store, Clock), Error> {
    let store = Store::open(settings).await?;
    let clock = if store.is_postgres() { Clock::Database(Arc::default()) } else { Clock::System };
    let mut connection = store.apart().await?;
    session::measure(&store, &clock, &mut connection).await?;
    store.naming(migrations::up(&store, clock.now()).await)?;
    Ok((store, clock))
}

/// Every `Data<T>` is there, no row needs what the code lacks, what rests in a state has its timer, and every machine's definition is known
/// to the database from now on. Gives back what takes the place of which names.
pub(crate) async fn introduce(
    store: &Store,
    clock: &Clock,
    catalog: &Catalog,
    data: &DataMap,
    migrate: &[Migrate],
) -> Result<Mappings, Error> {
    catalog.check_data(data)?;
    let mappings = drift::settle(store, clock, catalog, migrate).await?;
    for known in catalog.iter() {
        mender::set_timers(store, clock, &known.machine).await?;
    }
    let mut tx = store.begin().await?;
    tx.conn().wait_for_locks().await?;
    for known in catalog.iter() {
        let (definition, hash) = encode::definition(&known.machine)?;
        store.naming(machines::remember(&mut tx.conn(), &known.machine.name, &hash, &definition, clock.now()).await)?;
    }
    tx.commit().await?;
    Ok(mappings)
}
