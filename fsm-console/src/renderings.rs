//! Renderings of pages for live updates. All streams that show the same page with the same access share each rendering.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Instant;

use fsm_core::time::Timestamp;

use crate::access::Access;

/// A page as it was at one moment.
pub(crate) struct Rendering {
    /// The time at which the rendering began. The page contains all changes before it.
    pub(crate) began: Instant,
    pub(crate) now: Timestamp,
    pub(crate) sections: Vec<RenderedSection>,
}

/// A section of a page.
pub(crate) struct RenderedSection {
    pub(crate) id: &'static str,
    pub(crate) html: String,
    /// The HTML without relative times, which the script of the page updates.
    lasting: String,
}

impl RenderedSection {
    pub(crate) fn new(id: &'static str, html: String) -> RenderedSection {
        RenderedSection { id, lasting: without_relative_times(&html), html }
    }

    fn is_as(&self, other: &RenderedSection) -> bool {
        self.id == other.id && self.lasting == other.lasting
    }
}

impl Rendering {
    /// The sections that differ from those of another rendering of the same page; all of them if there is none.
    pub(crate) fn changed_since(&self, before: Option<&Rendering>) -> Vec<&RenderedSection> {
        let is_new = |section: &&RenderedSection| !before.is_some_and(|before| before.sections.iter().any(|old| old.is_as(section)));
        self.sections.iter().filter(is_new).collect()
    }
}

/// The path of the console, the access of the actor, and the path of the page. Two requests with the same key get the same content.
pub(crate) type PageKey = (String, Access, String);

/// The newest rendering of a page that is open in at least one browser.
#[derive(Default)]
pub(crate) struct OpenPage(tokio::sync::Mutex<Option<Arc<Rendering>>>);

impl OpenPage {
    /// Returns a rendering that began after `since`. It waits while another stream renders the page. If that rendering is too old, it calls
    /// `render`. `None` if that returns `None`.
    pub(crate) async fn newer_than(&self, since: Instant, render: impl Future<Output = Option<Rendering>>) -> Option<Arc<Rendering>> {
        let mut newest = self.0.lock().await;
        match &*newest {
            Some(newest) if newest.began > since => Some(Arc::clone(newest)),
            _ => {
                let rendering = Arc::new(render.await?);
                *newest = Some(Arc::clone(&rendering));
                Some(rendering)
            }
        }
    }
}

/// The open pages of one console. A page is forgotten when its last stream has ended.
#[derive(Default)]
pub(crate) struct OpenPages(Mutex<BTreeMap<PageKey, Weak<OpenPage>>>);

impl OpenPages {
    /// Returns the page with that key.
    pub(crate) fn open(&self, key: PageKey) -> Arc<OpenPage> {
        let mut pages = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        pages.retain(|_, page| page.strong_count() > 0);
        if let Some(page) = pages.get(&key).and_then(Weak::upgrade) {
            return page;
        }
        let page = Arc::<OpenPage>::default();
        pages.insert(key, Arc::downgrade(&page));
        page
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
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_relative_time_is_no_change() {
        let html = |text: &str| format!("<p>a <time data-at=\"5\">{text}</time> b <time data-at=\"7\">{text}</time>.</p>");
        assert_eq!(without_relative_times(&html("3s ago")), without_relative_times(&html("4s ago")));
        assert_eq!(without_relative_times("<p>a</p>"), "<p>a</p>");
    }

    #[test]
    fn only_sections_that_differ_are_sent() {
        let at = |sections: &[(&'static str, &str)]| Rendering {
            began: Instant::now(),
            now: Timestamp::from_micros(0),
            sections: sections.iter().map(|(id, html)| RenderedSection::new(id, (*html).to_owned())).collect(),
        };
        let ids = |rendering: &Rendering, before| rendering.changed_since(before).iter().map(|section| section.id).collect::<Vec<_>>();
        let first = at(&[("rows", "<p>1</p>"), ("counts", "<p>2</p>")]);
        assert_eq!(ids(&first, None), ["rows", "counts"]);
        assert_eq!(ids(&at(&[("rows", "<p>1</p>"), ("counts", "<p>3</p>")]), Some(&first)), ["counts"]);
        assert_eq!(ids(&at(&[("rows", "<p>1</p>"), ("counts", "<p>2</p>"), ("more", "")]), Some(&first)), ["more"]);
    }

    #[tokio::test]
    async fn streams_of_one_page_share_a_rendering_and_those_of_another_do_not() {
        let (pages, rendered) = (OpenPages::default(), AtomicU32::new(0));
        let render = async || {
            let began = Instant::now();
            rendered.fetch_add(1, Ordering::Relaxed);
            tokio::time::sleep(Duration::from_millis(20)).await;
            Some(Rendering { began, now: Timestamp::from_micros(0), sections: Vec::new() })
        };
        let opened = Instant::now();
        let stream = async |access, path: &str| {
            pages.open((String::new(), access, path.to_owned())).newer_than(opened, render()).await.unwrap();
        };
        // The pages stay open, as streams keep them.
        let kept = pages.open((String::new(), Access::Viewer, "/".to_owned()));
        tokio::join!(stream(Access::Viewer, "/"), stream(Access::Viewer, "/"), stream(Access::Viewer, "/"));
        assert_eq!(rendered.load(Ordering::Relaxed), 1);
        tokio::join!(stream(Access::Operator, "/"), stream(Access::Viewer, "/due"));
        assert_eq!(rendered.load(Ordering::Relaxed), 3, "another access or page has other content");
        let newest = kept.newer_than(opened, render()).await.unwrap();
        assert_eq!(rendered.load(Ordering::Relaxed), 3);
        kept.newer_than(newest.began, render()).await.unwrap();
        assert_eq!(rendered.load(Ordering::Relaxed), 4, "what a stream has shown is not sent again");
    }
}
