//! What all requests of one console share.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::{Duration, Instant};

use axum::extract::{FromRequestParts, NestedPath};
use axum::http::request::Parts;
use fsm_runtime::admin::{Admin, Opening};
use fsm_runtime::error::Error;
use tokio::sync::{Mutex, RwLock};
use uuid::Uuid;

use crate::access::{Access, Action, Actor, Authentication, may};
use crate::bulk::BulkRun;
use crate::path::Base;

/// How long the list of machines is used before it is read again.
const MACHINES_FRESH: Duration = Duration::from_secs(10);

/// What all requests of one console share.
pub(crate) struct Shared {
    opening: Opening,
    pub(crate) authentication: Authentication,
    pub(crate) is_read_only: bool,
    pub(crate) hides_payloads: bool,
    /// Proves that a form came from a page of this console.
    pub(crate) token: String,
    admin: RwLock<Option<(Instant, Admin)>>,
    pub(crate) bulk_runs: Mutex<HashMap<Uuid, Arc<BulkRun>>>,
    /// The open event streams.
    pub(crate) streams: AtomicUsize,
}

impl Shared {
    pub(crate) fn new(opening: Opening, authentication: Authentication, is_read_only: bool, hides_payloads: bool) -> Shared {
        Shared {
            opening,
            authentication,
            is_read_only,
            hides_payloads,
            token: Uuid::new_v4().simple().to_string(),
            admin: RwLock::default(),
            bulk_runs: Mutex::default(),
            streams: AtomicUsize::new(0),
        }
    }

    /// The database. It is opened at the first request, and its list of machines is at most ten seconds old.
    pub(crate) async fn admin(&self) -> Result<Admin, Error> {
        if let Some((read, admin)) = &*self.admin.read().await
            && read.elapsed() < MACHINES_FRESH
        {
            return Ok(admin.clone());
        }
        let mut kept = self.admin.write().await;
        let admin = match &*kept {
            Some((read, admin)) if read.elapsed() < MACHINES_FRESH => return Ok(admin.clone()),
            Some((_, admin)) => admin.refreshed().await?,
            None if self.is_read_only => Admin::open(self.opening.clone()).await?,
            None => Admin::open(self.opening.clone().acting()).await?,
        };
        *kept = Some((Instant::now(), admin.clone()));
        Ok(admin)
    }
}

/// One request: who asks, and where the console is.
#[derive(Clone)]
pub(crate) struct Asked {
    pub(crate) shared: Arc<Shared>,
    pub(crate) actor: Actor,
    pub(crate) base: Base,
}

impl Asked {
    pub(crate) fn may(&self, action: Action) -> bool {
        may(&self.actor, action) && (action == Action::Read || !self.shared.is_read_only)
    }

    pub(crate) async fn admin(&self) -> Result<Admin, Error> {
        self.shared.admin().await
    }
}

impl FromRequestParts<Arc<Shared>> for Asked {
    type Rejection = std::convert::Infallible;

    async fn from_request_parts(parts: &mut Parts, shared: &Arc<Shared>) -> Result<Asked, Self::Rejection> {
        // Without it the console is not nested.
        let nested = NestedPath::from_request_parts(parts, shared).await;
        let base = nested.ok().map(|path| path.as_str().trim_end_matches('/').to_owned()).unwrap_or_default();
        // The guard in front of every route has put it there.
        let actor = parts.extensions.get::<Actor>().cloned().unwrap_or_else(|| Access::Denied.into());
        Ok(Asked { shared: Arc::clone(shared), actor, base: Base(base) })
    }
}
