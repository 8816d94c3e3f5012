//! A process's door to a database of machines: with workers it is a runtime, without them a client.

use std::sync::Arc;
use std::time::Duration;

use crate::catalog::Catalog;
use crate::codec::PayloadCodec;
use crate::data_protection::DataProtection;
use crate::engine::{ClientGuard, Engine};
use crate::engine_access::EngineAccess;
use crate::error::Error;
use crate::handle::Handle;
use crate::limits::{Limits, SHORTEST_PATIENCE};
use crate::redact::{Redactable, Redaction};
use crate::registry::Machine;
use crate::start::{open, patiently};
use crate::store::invariants::Invariant;
use crate::store::open::Settings;

/// Sends and looks, but runs nothing: for processes without workers.
#[derive(Clone)]
pub struct Client {
    pub(crate) engine: Arc<Engine>,
    client_guard: Arc<ClientGuard>,
}

/// What a client is built from, where a URL is not all.
#[derive(Clone, Default)]
pub struct ClientBuilder {
    data_protection: DataProtection,
    limits: Limits,
}

impl ClientBuilder {
    /// What takes secrets out of texts before they are shown, as that of a runtime's builder.
    pub fn redact(mut self, redact: impl Fn(&Redactable<'_>) -> Option<String> + Send + Sync + 'static) -> Self {
        self.data_protection.redaction = Redaction::by(redact);
        self
    }

    /// What encodes payloads, records, error texts and what `ctx.once` keeps, on their way into the database. Every process on a
    /// database needs the same one. Values from before there was a codec are read as they are.
    pub fn codec(mut self, codec: impl PayloadCodec) -> Self {
        self.data_protection.codec = Some(Arc::new(codec));
        self
    }

    /// The time that a send or an operator's act may wait without progress, and [`connect`](ClientBuilder::connect); 10 s unless set, at least 100 ms. While
    /// the database cannot be used, requests are retried for so long; then the caller gets the error.
    pub fn patience(mut self, limit: Duration) -> Self {
        self.limits.patience = limit.max(SHORTEST_PATIENCE);
        self
    }

    /// Connects, as [`Client::connect`].
    pub async fn connect(self, url: impl AsRef<str>) -> Result<Client, Error> {
        let settings = Settings::new(url.as_ref());
        let (store, clock) = patiently(self.limits.patience, |left| Box::pin(open(settings.clone(), left))).await?;
        let engine = Engine::new(store, clock, Catalog::new(&[], false)?, (self.limits, self.data_protection), None);
        engine.start_lanes();
        engine.start_notifying();
        let client_guard = Arc::new(ClientGuard(Arc::clone(&engine)));
        Ok(Client { engine, client_guard })
    }
}

impl Client {
    /// Connects to the database at `url` and brings its tables up to date. A database that cannot be used yet is tried again for as long as
    /// the [patience](ClientBuilder::patience).
    ///
    /// `is_database` errors: a URL that is none, a database that is out of reach, of a newer version, or read-only while its
    /// tables are not up to date. One that is read-only and up to date can be looked at, and refuses what writes.
    pub async fn connect(url: impl AsRef<str>) -> Result<Client, Error> {
        Client::builder().connect(url).await
    }

    /// What a client is built from, where a URL is not all.
    pub fn builder() -> ClientBuilder {
        ClientBuilder::default()
    }

    /// A typed handle to the instances of `M`.
    pub fn machine<M: Machine>(&self) -> Handle<M> {
        Handle::new(Arc::clone(&self.engine), Some(Arc::clone(&self.client_guard)))
    }

    /// The text as a person may see it, by what the builder's [`redact`](ClientBuilder::redact) says.
    pub fn redacted(&self, shown: Redactable<'_>) -> String {
        self.engine.data_protection.redaction.of(shown).into_owned()
    }

    /// The invariants that do not hold, of [`doctor`](crate::doctor::doctor)'s report: none in a healthy database.
    pub async fn check_invariants(&self) -> Result<Vec<Invariant>, Error> {
        self.engine.check_invariants().await
    }
}

impl From<&Client> for EngineAccess {
    fn from(client: &Client) -> EngineAccess {
        EngineAccess::new(&client.engine, Some(&client.client_guard))
    }
}
