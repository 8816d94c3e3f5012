//! The web console: every machine, instance, attempt and error of a database in the browser, and the acts of an operator.
//!
//! There are two ways in. Inside a program, nest the router into an axum application:
//!
//! ```no_run
//! # use fsm_runtime::runtime::Runtime;
//! # fn example(runtime: &Runtime) {
//! use fsm_console::{Access, console};
//!
//! let app: axum::Router = axum::Router::new().nest(
//!     "/fsm",
//!     console(runtime).authorize(|parts| match parts.headers.get("x-user").and_then(|user| user.to_str().ok()) {
//!         Some(user) => Access::Operator.named(user),
//!         None => Access::Denied.into(),
//!     })
//!     .router(),
//! );
//! # }
//! ```
//!
//! Outside, `fsm console` serves the same pages for any database that a runtime has used.
//!
//! The console reads through the functions of the `fsm` command and acts through the same operator requests. It has no SQL and no store of
//! its own.

mod access;
mod act;
mod assets;
mod bulk;
mod bulk_runs;
mod format;
mod layout;
mod live;
mod pages;
mod partitioned;
mod path;
mod probes;
mod renderings;
mod schedules;
mod secure;
mod shared;
mod turns;

use std::net::SocketAddr;
use std::sync::Arc;

use axum::Router;
use axum::http::request::Parts;
use axum::routing::{get, post};
use fsm_runtime::admin::Opening;
use fsm_runtime::admin::partitions::{self, ListedPartition};
use fsm_runtime::engine_access::EngineAccess;

use access::Authentication;
pub use access::{Access, Actor};
pub use probes::{Probes, probes};
use shared::{Scope, Settings, Shared};

/// A console. Its settings are methods; [`router`](Console::router) makes it an axum router, [`serve`](Console::serve) a server.
#[must_use = "a console does nothing until its router is served"]
pub struct Console {
    opening: Opening,
    partitions: Vec<ListedPartition>,
    settings: Settings,
}

/// The console of a runtime or a client, on its connections: `Router::new().nest("/fsm", console(&runtime).router())`.
///
/// Unless [`authorize`](Console::authorize) or [`basic_auth`](Console::basic_auth) is set, only requests from this machine are answered;
/// the server must then be made with `into_make_service_with_connect_info::<SocketAddr>()`, because a request without an address is
/// refused.
///
/// On a database with partitions, the first page lists the partitions, and the pages of partition `N` are below `/partition/N`.
pub fn console(inside: impl Into<EngineAccess>) -> Console {
    let access = inside.into();
    let partitions = partitions::inside(&access);
    Console::open(Opening::inside(access)).partitions(partitions)
}

impl Console {
    /// A console of a database that a runtime has used.
    pub fn open(opening: Opening) -> Console {
        let settings = Settings { authentication: Authentication::Loopback, is_read_only: false, hides_payloads: false, trace_url: None };
        Console { opening, partitions: Vec::new(), settings }
    }

    /// Sets the partitions of the database, of which `opening` selects none. [`console`] knows them itself.
    pub fn partitions(self, partitions: Vec<ListedPartition>) -> Console {
        Console { partitions, ..self }
    }

    /// Asks the browser for this name and password. The user has the access of an admin, and the history records the name as the actor.
    pub fn basic_auth(self, user: impl Into<String>, password: impl Into<String>) -> Console {
        let authentication = Authentication::Basic { user: user.into(), password: password.into() };
        Console { settings: Settings { authentication, ..self.settings }, ..self }
    }

    /// Decides the actor and the access of each request. Authentication in front of the console, such as a session of your own application,
    /// is read from `parts`.
    pub fn authorize(self, decide: impl Fn(&Parts) -> Actor + Send + Sync + 'static) -> Console {
        Console { settings: Settings { authentication: Authentication::Custom(Arc::new(decide)), ..self.settings }, ..self }
    }

    /// Shows no action and refuses each request for one.
    pub fn read_only(self) -> Console {
        Console { settings: Settings { is_read_only: true, ..self.settings }, ..self }
    }

    /// Shows neither payloads nor records.
    pub fn hide_payloads(self) -> Console {
        Console { settings: Settings { hides_payloads: true, ..self.settings }, ..self }
    }

    /// Links each trace to the page of another program, such as `https://traces.example.com/trace/{trace_id}`. `{trace_id}` stands for the 32
    /// hexadecimal digits of the trace. Without it, the page of an instance names the trace only.
    pub fn trace_url(self, pattern: impl Into<String>) -> Console {
        Console { settings: Settings { trace_url: Some(pattern.into()), ..self.settings }, ..self }
    }

    /// The console as a router. All links begin at the path that it is nested at.
    pub fn router(self) -> Router {
        match self.partitions.len() {
            0 | 1 => router(Arc::new(Shared::new(self.opening, Scope::Database, self.settings))),
            _ => partitioned::router(Arc::new(Shared::of_partitions(self.opening, self.partitions, self.settings)), router),
        }
    }

    /// Serves the console at `address` until `stop` is ready. Open streams end at once then.
    ///
    /// An error if the address cannot be bound, or if it is reachable from other machines and there is no authentication.
    pub async fn serve(self, address: SocketAddr, stop: impl Future<Output = ()> + Send + 'static) -> std::io::Result<()> {
        if !address.ip().is_loopback() && matches!(self.settings.authentication, Authentication::Loopback) {
            let text = format!("{address} is reachable from other machines: set a user and a password, or listen on 127.0.0.1");
            return Err(std::io::Error::new(std::io::ErrorKind::PermissionDenied, text));
        }
        let listener = tokio::net::TcpListener::bind(address).await?;
        let service = self.router().into_make_service_with_connect_info::<SocketAddr>();
        tokio::select! {
            served = async { axum::serve(listener, service).await } => served,
            () = stop => Ok(()),
        }
    }
}

/// The router of a database without partitions, or of one partition.
fn router(shared: Arc<Shared>) -> Router {
    Router::new()
        .route("/", get(pages::show))
        .route("/m/{machine}", get(pages::show))
        .route("/instances", get(pages::show))
        .route("/i/{machine}/{key}", get(pages::show).post(act::act))
        .route("/i/{machine}/{key}/json", get(pages::instance::json))
        .route("/errors", get(pages::show))
        .route("/due", get(pages::show))
        .route("/schedules", post(schedules::act))
        .route("/workers", get(pages::show))
        .route("/simulator", get(pages::simulator::show))
        .route("/audit", get(pages::show))
        .route("/bulk", post(bulk::plan))
        .route("/bulk/run", post(bulk::begin))
        .route("/bulk/{id}", get(bulk::show))
        .route("/live", get(live::stream))
        .route("/search", get(pages::instances::search))
        .route("/assets/{name}", get(assets::serve))
        .route("/robots.txt", get(assets::robots))
        .fallback(pages::not_found)
        .layer(axum::middleware::from_fn_with_state(Arc::clone(&shared), secure::guard))
        .with_state(shared)
}
