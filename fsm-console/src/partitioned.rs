//! The routes of a database with partitions: the pages about all of them, and below them a console for each.

use std::sync::Arc;

use axum::Router;
use axum::routing::get;

use crate::pages::{self, all_errors, partitions};
use crate::path::partition;
use crate::shared::Shared;
use crate::{assets, live, secure};

/// The router of all partitions. `of_one` makes the router of one.
pub(crate) fn router(shared: Arc<Shared>, of_one: impl Fn(Arc<Shared>) -> Router) -> Router {
    let above = Router::new()
        .route("/", get(partitions::show))
        .route("/errors", get(all_errors::show))
        .route("/find", get(partitions::find))
        .route("/live", get(live::stream))
        .route("/assets/{name}", get(assets::serve))
        .route("/robots.txt", get(assets::robots))
        .fallback(pages::not_found)
        .layer(axum::middleware::from_fn_with_state(Arc::clone(&shared), secure::guard))
        .with_state(Arc::clone(&shared));
    // Each console has the guard of its own routes, so these are added after the guard of the pages about all.
    let each = shared.partitions().iter().filter_map(|one| Some((one.partition()?, one)));
    each.fold(above, |all, (place, one)| all.nest(&partition(place.number()), of_one(Arc::clone(one))))
}
