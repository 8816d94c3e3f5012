//! The client: access to a database for processes without workers.

use std::sync::Arc;
use std::time::Duration;

use fsm_store::invariants::Invariant;
use fsm_store::settings::Settings;

use crate::catalog::Catalog;
use crate::codec::PayloadCodec;
use crate::data_protection::DataProtection;
use crate::engine::Engine;
use crate::engine_access::EngineAccess;
use crate::engines::{ClientGuard, Engines};
use crate::error::Error;
use crate::handle::Handle;
use crate::limits::{Limits, SHORTEST_PATIENCE};
use crate::redact::{Redactable, Redaction};
use crate::registry::Machine;
use crate::start::{at_last, open, patiently, prepare};

/// A connection to a database that sends events, reads and operates, and runs no verbs.
#[derive(Clone)]
pub struct Client {
    pub(crate) engines: Engines,
    client_guard: Arc<ClientGuard>,
}

/// The settings of a [`Client`] other than the URL.
#[derive(Clone, Default)]
pub struct ClientBuilder {
    data_protection: DataProtection,
    limits: Limits,
}

impl ClientBuilder {
    /// Sets the redaction of texts before they are shown, as a runtime's builder does.
    pub fn redact(mut self, redact: impl Fn(&Redactable<'_>) -> Option<String> + Send + Sync + 'static) -> Self {
        self.data_protection.redaction = Redaction::by(redact);
        self
    }

    /// Sets the codec that encrypts payloads, records, error texts and results of `ctx.once` before they are stored. Every process on a
    /// database needs the same codec. Values that were stored without a codec are read as they are.
    pub fn codec(mut self, codec: impl PayloadCodec) -> Self {
        self.data_protection.codec = Some(Arc::new(codec));
        self
    }

    /// The longest time for which [`connect`](ClientBuilder::connect), a send or an operator's act retries without progress while the
    /// database is unavailable. The caller then gets the error. 10 s by default, at least 100 ms.
    pub fn patience(mut self, limit: Duration) -> Self {
        self.limits.patience = limit.max(SHORTEST_PATIENCE);
        self
    }

    /// Connects like [`Client::connect`].
    pub async fn connect(self, url: impl AsRef<str>) -> Result<Client, Error> {
        let settings = Settings::new(url.as_ref());
        let databases = patiently(self.limits.patience, |left| Box::pin(open(settings.clone(), left))).await?;
        let (mut engines, mut are_prepared) = (Vec::with_capacity(databases.len()), Vec::with_capacity(databases.len()));
        for database in databases {
            let settings = (self.limits, self.data_protection.clone());
            are_prepared.push(database.is_prepared);
            engines.push(Engine::new(database, Catalog::new(&[], false)?, settings, None));
        }
        let engines = Engines::new(engines);
        for (engine, is_prepared) in engines.all().iter().zip(are_prepared) {
            if is_prepared {
                start_work(engine);
            } else {
                let engine = Arc::clone(engine);
                Arc::clone(&engine).spawn(async move {
                    if at_last(&engine, || Box::pin(prepare(&engine))).await {
                        start_work(&engine);
                    }
                });
            }
        }
        let client_guard = Arc::new(ClientGuard(engines.clone()));
        Ok(Client { engines, client_guard })
    }
}

fn start_work(engine: &Arc<Engine>) {
    engine.start_lanes();
    engine.start_notifying();
}

impl Client {
    /// Connects to the database at `url` and migrates its tables. A database that is unavailable is tried again until the
    /// [patience](ClientBuilder::patience) ends.
    ///
    /// Returns an `is_database` error if the URL is invalid, or if the database is unreachable, of a newer version, or read-only with
    /// outdated tables. A read-only database with current tables can be read; requests that write are errors.
    pub async fn connect(url: impl AsRef<str>) -> Result<Client, Error> {
        Client::builder().connect(url).await
    }

    /// Returns a builder for a client with other settings than the defaults.
    pub fn builder() -> ClientBuilder {
        ClientBuilder::default()
    }

    /// A typed handle to the instances of `M`.
    pub fn machine<M: Machine>(&self) -> Handle<M> {
        Handle::new(self.engines.clone(), Some(Arc::clone(&self.client_guard)))
    }

    /// Returns the text after the redaction that the builder's [`redact`](ClientBuilder::redact) set.
    pub fn redacted(&self, shown: Redactable<'_>) -> String {
        self.engines.first().data_protection.redaction.of(shown).into_owned()
    }

    /// Returns the invariants of [`doctor`](crate::doctor::doctor)'s report that do not hold. A healthy database has none.
    pub async fn check_invariants(&self) -> Result<Vec<Invariant>, Error> {
        self.engines.check_invariants().await
    }
}

impl From<&Client> for EngineAccess {
    fn from(client: &Client) -> EngineAccess {
        EngineAccess::new(&client.engines, Some(&client.client_guard))
    }
}
