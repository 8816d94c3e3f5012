//! Live updates: the sections of a page that changed, as server-sent events. The page and its updates are rendered by the same functions.

use std::collections::HashMap;
use std::convert::Infallible;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

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
use crate::shared::{Asked, Shared};
use crate::turns::Turn;

/// The pause between two renderings of the page. It limits a browser to two updates a second, however busy the engine is.
const PAUSE: Duration = Duration::from_millis(500);
/// The maximum pause. The pause doubles after each rendering without a change.
const LONGEST_PAUSE: Duration = Duration::from_secs(2);
/// The time after which a stream that waits for its turn checks whether the program shuts down.
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
    page: String,
    /// The sections as they were last sent, by id.
    sent: HashMap<&'static str, String>,
    pause: Duration,
    is_first: bool,
    _counted: Counted,
}

/// The stream of the page with that path.
pub(crate) async fn stream(asked: Asked, Query(Wanted { page }): Query<Wanted>) -> Response {
    if asked.shared.streams.fetch_add(1, Ordering::Relaxed) >= MOST_STREAMS {
        asked.shared.streams.fetch_sub(1, Ordering::Relaxed);
        return (StatusCode::SERVICE_UNAVAILABLE, "too many pages are open\n").into_response();
    }
    let counted = Counted(Arc::clone(&asked.shared));
    let state = State { asked, page, sent: HashMap::new(), pause: PAUSE, is_first: true, _counted: counted };
    Sse::new(updates(state)).keep_alive(KeepAlive::new().interval(Duration::from_secs(15))).into_response()
}

fn updates(state: State) -> impl Stream<Item = Result<Event, Infallible>> {
    stream::unfold(state, |mut state| async move {
        loop {
            if !std::mem::take(&mut state.is_first) {
                tokio::time::sleep(state.pause).await;
            }
            let turn = state.turn().await?;
            // If the page cannot be rendered, the stream ends and the browser tries again with backoff.
            let page = tokio::time::timeout(pages::LIMIT, state.render()).await.ok()??;
            drop(turn);
            let now = page.now;
            let changed = state.changed(page);
            state.pause = if changed.is_empty() { (state.pause * 2).min(LONGEST_PAUSE) } else { PAUSE };
            if !changed.is_empty() {
                let data = json!({ "now": now.as_micros(), "sections": changed });
                return Some((Ok(Event::default().event("patch").data(data.to_string())), state));
            }
        }
    })
}

impl State {
    /// Waits for a turn; `None` if the program shuts down meanwhile, because an open stream must not delay that.
    async fn turn(&self) -> Option<Turn> {
        let mut turn = pin!(self.asked.shared.turns.take());
        loop {
            match tokio::time::timeout(SHUTDOWN_CHECK, turn.as_mut()).await {
                Ok(turn) => return Some(turn),
                Err(_) if self.asked.shared.is_shutting_down() => return None,
                Err(_) => {}
            }
        }
    }

    /// The page as it is now; `None` if it cannot be rendered, or if the program shuts down.
    async fn render(&self) -> Option<Page> {
        let admin = self.asked.admin_without_permit().await.ok()?;
        if EngineAccess::from(&admin).health().is_shutting_down {
            return None;
        }
        pages::render(&self.asked, &admin, &self.page).await.ok()
    }

    /// The sections that differ from those that were last sent. Relative times do not count, because the script updates them.
    fn changed(&mut self, page: Page) -> Vec<serde_json::Value> {
        let mut changed = Vec::new();
        for section in page.sections {
            let html = section.content.into_string();
            let lasting = without_relative_times(&html);
            if self.sent.get(section.id) != Some(&lasting) {
                changed.push(json!({ "id": section.id, "html": html }));
                self.sent.insert(section.id, lasting);
            }
        }
        changed
    }
}

/// The HTML without the texts of its `time` elements, which the script updates.
fn without_relative_times(html: &str) -> String {
    let mut lasting = String::with_capacity(html.len());
    let mut rest = html;
    while let Some(start) = rest.find("<time ") {
        let end = rest[start..].find('>').map_or(rest.len(), |end| start + end + 1);
        lasting.push_str(&rest[..end]);
        rest = rest[end..].find("</time>").map_or("", |close| &rest[end + close..]);
    }
    lasting + rest
}

#[cfg(test)]
mod tests {
    use super::without_relative_times;

    #[test]
    fn a_relative_time_is_no_change() {
        let html = |text: &str| format!("<p>a <time data-at=\"5\">{text}</time> b <time data-at=\"7\">{text}</time>.</p>");
        assert_eq!(without_relative_times(&html("3s ago")), without_relative_times(&html("4s ago")));
        assert_eq!(without_relative_times("<p>a</p>"), "<p>a</p>");
    }
}
