//! A process's door to a database of machines: with workers it is a runtime, without them a client.

use std::sync::Arc;

use crate::catalog::Catalog;
use crate::clock::Clock;
use crate::drift;
use crate::engine::{Engine, Life, Limits};
use crate::error::Error;
use crate::handle::Handle;
use crate::registry::Machine;
use crate::runtime::Builder;
use crate::session;
use crate::store::migrate;
use crate::store::open::{Settings, Store};

/// Sends and looks, but runs nothing: for processes without workers.
#[derive(Clone)]
pub struct Client {
    engine: Arc<Engine>,
    life: Arc<Life>,
}

impl Client {
    /// Connects to the database at `url` and brings its tables up to date.
    ///
    /// `is_database` errors: a URL that is none, a database that is out of reach, of a newer version, or read-only while its
    /// tables are not up to date. One that is read-only and up to date can be looked at, and refuses what writes.
    pub async fn connect(url: impl AsRef<str>) -> Result<Client, Error> {
        let (store, clock) = open(Settings::new(url.as_ref())).await?;
        let engine = Engine::new(store, clock, Catalog::new(&[], false)?, Limits::default(), None);
        engine.start_lanes();
        let life = Arc::new(Life(Arc::clone(&engine)));
        Ok(Client { engine, life })
    }

    /// A typed handle to the instances of `M`.
    pub fn machine<M: Machine>(&self) -> Handle<M> {
        Handle::new(Arc::clone(&self.engine), Some(Arc::clone(&self.life)))
    }

    /// Looks for rows that break an invariant; empty on a healthy database.
    pub async fn violations(&self) -> Result<Vec<crate::store::invariants::Violation>, Error> {
        self.engine.violations().await
    }
}

impl Engine {
    pub(crate) async fn violations(&self) -> Result<Vec<crate::store::invariants::Violation>, Error> {
        let mut reader = self.store.reader().await?;
        Ok(crate::store::invariants::violations(&mut reader.conn()).await?)
    }
}

impl Default for Limits {
    fn default() -> Limits {
        Limits { payload: 256 * 1024, inbox: 1000 }
    }
}

/// Opens and migrates a database, and finds its clock.
pub(crate) async fn open(settings: Settings) -> Result<(Store, Clock), Error> {
    let store = Store::open(settings).await?;
    let clock = if store.is_postgres() { Clock::Database(Arc::default()) } else { Clock::System };
    let mut connection = store.apart().await?;
    session::measure(&store, &clock, &mut connection).await?;
    store.naming(migrate::up(&store, clock.now()).await)?;
    Ok((store, clock))
}

/// Every `Data<T>` is there, no row needs what the code lacks, and every machine's definition is known to the database from now on.
pub(crate) async fn introduce(store: &Store, clock: &Clock, catalog: &Catalog, builder: &Builder) -> Result<(), Error> {
    catalog.check_data(&builder.data)?;
    drift::settle(store, clock, catalog, &builder.migrate).await?;
    let mut tx = store.begin().await?;
    for known in catalog.iter() {
        let definition =
            serde_json::to_string(&known.machine).map_err(|error| Error::input(format!("a machine does not encode: {error}")))?;
        let hash: String =
            crate::encode::digest(&known.machine.name, definition.as_bytes()).iter().map(|byte| format!("{byte:02x}")).collect();
        store.naming(crate::store::machines::remember(&mut tx.conn(), &known.machine.name, &hash, &definition, clock.now()).await)?;
    }
    Ok(tx.commit().await?)
}
