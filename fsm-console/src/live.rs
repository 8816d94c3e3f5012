//! Live updates: the sections of a page that changed, as server-sent events. The page and its updates are rendered by the same functions.

use std::convert::Infallible;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use axum::extract::Query;
use axum::http::StatusCode;
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use fsm_runtime::engine_access::EngineAccess;
use futures_util::stream::{self, Stream};
use serde::Deserialize;
use serde_json::json;

use crate::layout::Page;
use crate::pages;
use crate::renderings::{OpenPage, RenderedSection, Rendering};
use crate::shared::{Asked, Shared};
use crate::turns::Turn;

/// The pause between two renderings of the page. It limits a browser to two updates a second, however busy the engine is.
const PAUSE: Duration = Duration::from_millis(500);
/// The maximum pause. The pause doubles after each rendering without a change.
const LONGEST_PAUSE: Duration = Duration::from_secs(2);
/// While a stream waits to render, it checks at this interval whether the program shuts down.
const SHUTDOWN_CHECK: Duration = Duration::from_secs(1);
/// The maximum number of open streams. Further streams are refused.
const MOST_STREAMS: usize = 1000;

#[derive(Deserialize)]
pub(crate) struct Wanted {
    page: String,
}

/// One open stream, counted while it lives.
struct Counted(Arc<Shared>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.streams.fetch_sub(1, Ordering::Relaxed);
    }
}

struct State {
    asked: Asked,
    path: String,
    page: Arc<OpenPage>,
    /// The rendering that the browser shows.
    shown: Option<Arc<Rendering>>,
    /// The time at which the stream began, and then that of the shown rendering.
    since: Instant,
    pause: Duration,
    _counted: Counted,
}

/// The stream of the page with that path.
pub(crate) async fn stream(asked: Asked, Query(Wanted { page: path }): Query<Wanted>) -> Response {
    if asked.shared.streams.fetch_add(1, Ordering::Relaxed) >= MOST_STREAMS {
        asked.shared.streams.fetch_sub(1, Ordering::Relaxed);
        return (StatusCode::SERVICE_UNAVAILABLE, "too many pages are open\n").into_response();
    }
    let counted = Counted(Arc::clone(&asked.shared));
    let page = asked.shared.open_pages.open((asked.base.0.clone(), asked.actor.access, path.clone()));
    let state = State { asked, path, page, shown: None, since: Instant::now(), pause: PAUSE, _counted: counted };
    Sse::new(updates(state)).keep_alive(KeepAlive::new().interval(Duration::from_secs(15))).into_response()
}

fn updates(state: State) -> impl Stream<Item = Result<Event, Infallible>> {
    stream::unfold(state, |mut state| async move {
        loop {
            if state.shown.is_some() {
                tokio::time::sleep(state.pause).await;
            }
            // If the page cannot be rendered, the stream ends and the browser tries again with backoff.
            let rendering = state.page.newer_than(state.since, state.rendered()).await?;
            let section = |section: &RenderedSection| json!({ "id": section.id, "html": section.html });
            let changed: Vec<_> = rendering.changed_since(state.shown.as_deref()).into_iter().map(section).collect();
            let now = rendering.now.as_micros();
            (state.since, state.shown) = (rendering.began, Some(rendering));
            state.pause = if changed.is_empty() { (state.pause * 2).min(LONGEST_PAUSE) } else { PAUSE };
            if !changed.is_empty() {
                let data = json!({ "now": now, "sections": changed });
                return Some((Ok(Event::default().event("patch").data(data.to_string())), state));
            }
        }
    })
}

impl State {
    /// Renders the page when it has a turn; `None` if that is not possible, or if the program shuts down.
    async fn rendered(&self) -> Option<Rendering> {
        let _turn = self.turn().await?;
        let began = Instant::now();
        let page = tokio::time::timeout(pages::LIMIT, self.render()).await.ok()??;
        let sections = page.sections.into_iter().map(|section| RenderedSection::new(section.id, section.content.into_string())).collect();
        Some(Rendering { began, now: page.now, sections })
    }

    /// Waits for a turn; `None` if the program shuts down meanwhile, because an open stream must not delay that.
    async fn turn(&self) -> Option<Turn> {
        let mut turn = pin!(self.asked.shared.turns.take());
        // Checked before the first wait too: the streams of one page wait for their turn one after another.
        while !self.asked.shared.is_shutting_down() {
            if let Ok(turn) = tokio::time::timeout(SHUTDOWN_CHECK, turn.as_mut()).await {
                return Some(turn);
            }
        }
        None
    }

    async fn render(&self) -> Option<Page> {
        if !self.asked.shared.partitions().is_empty() {
            return Some(pages::render_of_all(&self.asked, &self.path).await);
        }
        let admin = self.asked.admin_without_permit().await.ok()?;
        if EngineAccess::from(&admin).health().is_shutting_down {
            return None;
        }
        pages::render(&self.asked, &admin, &self.path).await.ok()
    }
}
