//! The state that all requests of one console share.

use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::{Duration, Instant};

use axum::extract::{FromRequestParts, NestedPath};
use axum::http::request::Parts;
use fsm_core::partition::Partition;
use fsm_runtime::admin::partitions::ListedPartition;
use fsm_runtime::admin::{Admin, Opening};
use fsm_runtime::engine_access::EngineAccess;
use fsm_runtime::error::Error;
use fsm_runtime::health::{DatabaseHealth, Health};
use tokio::sync::{OwnedSemaphorePermit, RwLock, Semaphore};
use uuid::Uuid;

use crate::access::{Access, Action, Actor, Authentication, may};
use crate::bulk_runs::BulkRuns;
use crate::path::Base;
use crate::renderings::OpenPages;
use crate::turns::Turns;

/// The time for which the list of machines is used before it is read again.
const MACHINES_FRESH: Duration = Duration::from_secs(10);

/// The maximum number of pages that are read from the database at a time. Each takes one connection of the program.
const READS_AT_A_TIME: usize = 3;

/// The settings of a console.
#[derive(Clone)]
pub(crate) struct Settings {
    pub(crate) authentication: Authentication,
    pub(crate) is_read_only: bool,
    pub(crate) hides_payloads: bool,
    pub(crate) trace_url: Option<String>,
}

/// The part of a database that a console is about.
pub(crate) enum Scope {
    /// All of it: it has no partitions, or this one was selected.
    Database,
    /// One of its partitions.
    Partition(ListedPartition),
    /// All partitions, each with a console of its own.
    Partitions(Vec<Arc<Shared>>),
}

/// The state that all requests of one console share.
pub(crate) struct Shared {
    opening: Opening,
    pub(crate) scope: Scope,
    pub(crate) authentication: Authentication,
    pub(crate) is_read_only: bool,
    pub(crate) hides_payloads: bool,
    /// The address of a trace in another program, with `{trace_id}`.
    pub(crate) trace_url: Option<String>,
    /// The token that proves that a form came from a page of this console.
    pub(crate) token: String,
    admin: RwLock<Option<(Instant, Admin)>>,
    pub(crate) bulk_runs: BulkRuns,
    /// The number of open event streams.
    pub(crate) streams: AtomicUsize,
    reads: Arc<Semaphore>,
    /// The turns of the open pages.
    pub(crate) turns: Turns,
    /// The pages of the open streams.
    pub(crate) open_pages: OpenPages,
}

impl Shared {
    pub(crate) fn new(opening: Opening, scope: Scope, settings: Settings) -> Shared {
        let Settings { authentication, is_read_only, hides_payloads, trace_url } = settings;
        Shared {
            opening,
            scope,
            authentication,
            is_read_only,
            hides_payloads,
            trace_url,
            token: Uuid::new_v4().simple().to_string(),
            admin: RwLock::default(),
            bulk_runs: BulkRuns::default(),
            streams: AtomicUsize::new(0),
            reads: Arc::new(Semaphore::new(READS_AT_A_TIME)),
            turns: Turns::default(),
            open_pages: OpenPages::default(),
        }
    }

    /// The console of all partitions. Each partition has its own connection and its own limits, so that one that does not answer delays only its
    /// own pages.
    pub(crate) fn of_partitions(opening: Opening, partitions: Vec<ListedPartition>, settings: Settings) -> Shared {
        let of_one = |listed: ListedPartition| {
            let opening = opening.clone().partition(listed.place.partition.number());
            Arc::new(Shared::new(opening, Scope::Partition(listed), settings.clone()))
        };
        let all = partitions.into_iter().map(of_one).collect();
        Shared::new(opening, Scope::Partitions(all), settings)
    }

    /// The partition that this console is about, if its database has several.
    pub(crate) fn partition(&self) -> Option<Partition> {
        match &self.scope {
            Scope::Partition(listed) => Some(listed.place.partition),
            Scope::Database | Scope::Partitions(_) => None,
        }
    }

    /// The consoles of all partitions, if this one is about all of them.
    pub(crate) fn partitions(&self) -> &[Arc<Shared>] {
        match &self.scope {
            Scope::Partitions(all) => all,
            Scope::Database | Scope::Partition(_) => &[],
        }
    }

    /// Returns the connection to the database. It is opened by the first request, and its list of machines is at most ten seconds old.
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

    /// True if the program that serves this console is known to shut down.
    pub(crate) fn is_shutting_down(&self) -> bool {
        self.health().is_some_and(|health| health.is_shutting_down) || self.partitions().iter().any(|one| one.is_shutting_down())
    }

    /// The reason why the database did not answer the program's last observation; `None` if it answered or is not observed.
    pub(crate) fn observed_outage(&self) -> Option<String> {
        match self.health()?.database {
            DatabaseHealth::Unreachable(why) => Some(why),
            DatabaseHealth::Reachable => None,
        }
    }

    fn health(&self) -> Option<Health> {
        let admin = self.admin.try_read().ok()?;
        admin.as_ref().map(|(_, admin)| EngineAccess::from(admin).health())
    }
}

/// The connection to the database while one page is read.
pub(crate) struct Reading {
    admin: Admin,
    _permit: OwnedSemaphorePermit,
}

impl Deref for Reading {
    type Target = Admin;

    fn deref(&self) -> &Admin {
        &self.admin
    }
}

/// One request: its actor, and the path of the console.
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

    /// The console of the partition that has this key.
    pub(crate) fn base_of(&self, key: &str) -> Base {
        match self.shared.partition().and_then(|here| Some((here.number(), here.elsewhere(key)?))) {
            Some((here, there)) => self.base.above_partition(here).partition(there),
            None => self.base.clone(),
        }
    }

    /// Returns the connection for reading a page. It waits while the maximum number of pages is being read.
    pub(crate) async fn admin(&self) -> Result<Reading, Error> {
        let permit = self.permit().await;
        Ok(Reading { admin: self.shared.admin().await?, _permit: permit })
    }

    /// Waits while the maximum number of pages is being read.
    pub(crate) async fn permit(&self) -> OwnedSemaphorePermit {
        Arc::clone(&self.shared.reads).acquire_owned().await.expect("nobody closes the semaphore")
    }

    /// Returns the connection for what has a limit of its own: acts, which go through the program's queue, and live updates.
    pub(crate) async fn admin_without_permit(&self) -> Result<Admin, Error> {
        self.shared.admin().await
    }
}

impl FromRequestParts<Arc<Shared>> for Asked {
    type Rejection = std::convert::Infallible;

    async fn from_request_parts(parts: &mut Parts, shared: &Arc<Shared>) -> Result<Asked, Self::Rejection> {
        // Without a nested path the console is at the root.
        let nested = NestedPath::from_request_parts(parts, shared).await;
        let base = nested.ok().map(|path| path.as_str().trim_end_matches('/').to_owned()).unwrap_or_default();
        // The guard of every route has set the actor.
        let actor = parts.extensions.get::<Actor>().cloned().unwrap_or_else(|| Access::Denied.into());
        Ok(Asked { shared: Arc::clone(shared), actor, base: Base(base) })
    }
}
