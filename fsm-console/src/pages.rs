//! The pages, and the routing from a path to its page.

pub(crate) mod all_errors;
pub(crate) mod audit;
pub(crate) mod due;
mod each_partition;
pub(crate) mod errors;
pub(crate) mod instance;
pub(crate) mod instances;
pub(crate) mod machine;
pub(crate) mod overview;
pub(crate) mod partitions;
pub(crate) mod policy;
pub(crate) mod simulator;
mod timeline;
pub(crate) mod workers;

use std::fmt::Display;
use std::time::Duration;

use axum::extract::Query;
use axum::http::uri::PathAndQuery;
use axum::http::{StatusCode, Uri};
use axum::response::Response;
use fsm_runtime::admin::Admin;
use fsm_runtime::error::Error;
use percent_encoding::percent_decode_str;
use serde::de::DeserializeOwned;
use uuid::Uuid;

use crate::bulk;
use crate::layout::{Page, document, failed, said};
use crate::shared::Asked;

/// The time limit for rendering a page.
pub(crate) const LIMIT: Duration = Duration::from_secs(10);

/// Why there is no page.
pub(crate) enum NoPage {
    /// The parameters of the path cannot be read.
    Unreadable(String),
    /// The database failed, or what the path names is not there.
    Failed(Error),
}

impl From<Error> for NoPage {
    fn from(error: Error) -> NoPage {
        NoPage::Failed(error)
    }
}

/// Renders the page of a path below the console.
pub(crate) async fn render(asked: &Asked, admin: &Admin, path: &str) -> Result<Page, NoPage> {
    let (path, query) = path.split_once('?').unwrap_or((path, ""));
    let segments: Vec<String> =
        path.split('/').skip(1).map(|segment| percent_decode_str(segment).decode_utf8_lossy().into_owned()).collect();
    let segments: Vec<&str> = segments.iter().map(String::as_str).collect();
    let page = match segments[..] {
        ["m", machine] => machine::page(asked, admin, machine).await,
        ["i", machine, key] => instance::page(asked, admin, machine, key, &parameters(query)?).await,
        ["instances"] => instances::page(asked, admin, &parameters(query)?).await,
        ["errors"] => errors::page(asked, admin).await,
        ["due"] => due::page(asked, admin).await,
        ["workers"] => workers::page(asked, admin).await,
        ["bulk", id] => match Uuid::parse_str(id) {
            Ok(id) => match bulk::page(asked, admin, id).await {
                Some(page) => Ok(page),
                None => overview::page(asked, admin).await,
            },
            Err(_) => overview::page(asked, admin).await,
        },
        ["audit"] => audit::page(asked, admin, &parameters(query)?).await,
        _ => overview::page(asked, admin).await,
    };
    Ok(page?)
}

/// Renders the page of a path below the console of all partitions.
pub(crate) async fn render_of_all(asked: &Asked, path: &str) -> Page {
    match path {
        "/errors" => all_errors::page(asked).await,
        _ => partitions::page(asked).await,
    }
}

/// The parameters of a query string.
fn parameters<T: DeserializeOwned>(query: &str) -> Result<T, NoPage> {
    let unreadable = |why: &dyn Display| NoPage::Unreadable(format!("the parameters cannot be read: {why}"));
    let uri = format!("/?{query}").parse::<Uri>().map_err(|error| unreadable(&error))?;
    Query::try_from_uri(&uri).map(|query| query.0).map_err(|error| unreadable(&error.body_text()))
}

/// Renders a page for a browser.
pub(crate) async fn show(asked: Asked, uri: Uri) -> Response {
    let page = async {
        let admin = asked.admin().await?;
        render(&asked, &admin, uri.path_and_query().map_or("/", PathAndQuery::as_str)).await
    };
    match tokio::time::timeout(LIMIT, page).await {
        Ok(Ok(page)) => document(&asked, &page),
        Ok(Err(NoPage::Failed(error))) => failed(&asked, &error),
        Ok(Err(NoPage::Unreadable(why))) => said(&asked, StatusCode::BAD_REQUEST, &why),
        Err(_) => {
            let text = format!("the database has not answered within {} s; load the page again", LIMIT.as_secs());
            said(&asked, StatusCode::SERVICE_UNAVAILABLE, &text)
        }
    }
}

pub(crate) async fn not_found(asked: Asked) -> Response {
    said(&asked, StatusCode::NOT_FOUND, "there is no such page")
}
