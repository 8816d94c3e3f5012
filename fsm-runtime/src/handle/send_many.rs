//! Many sends in one call: a stream of one answer for each item, in the order of the items, with bounded memory.

use std::collections::VecDeque;
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, SystemTime};

use fsm_core::commit::request::Reply;
use fsm_core::priority::Priority;
use futures_util::future::BoxFuture;
use futures_util::stream::{Stream, StreamExt};
use tracing::Instrument;

use super::send::{Deliver, SendRequest, Sent};
use crate::committer::request::Request;
use crate::engines::ClientGuard;
use crate::error::Error;

/// The maximum number of sends in flight. It is a few full batches, so that the next ones fill while one is written.
const WINDOW: usize = 1000;

/// One event for one instance, for [`Handle::send_many`](super::Handle::send_many). A pair `(key, event)` is the short form.
#[derive(Debug, Clone)]
pub struct SendItem<E> {
    key: String,
    event: E,
    dedup: Option<String>,
    deliver: Deliver,
    priority: Priority,
}

impl<E> SendItem<E> {
    /// An event for the instance `key`.
    pub fn new(key: impl AsRef<str>, event: E) -> SendItem<E> {
        SendItem { key: key.as_ref().to_owned(), event, dedup: None, deliver: Deliver::Now, priority: Priority::Normal }
    }

    /// The caller's own id for this item, as for [`SendRequest::dedup`].
    pub fn dedup(mut self, id: impl Into<String>) -> Self {
        self.dedup = Some(id.into());
        self
    }

    /// Delivers the event after `wait` or later, like [`SendRequest::after`].
    pub fn after(mut self, wait: Duration) -> Self {
        self.deliver = Deliver::After(wait);
        self
    }

    /// Delivers the event at `time` or later, like [`SendRequest::at`].
    pub fn at(mut self, time: impl Into<SystemTime>) -> Self {
        self.deliver = Deliver::At(time.into().into());
        self
    }

    /// The priority of the call, like [`SendRequest::priority`].
    pub fn priority(mut self, priority: Priority) -> Self {
        self.priority = priority;
        self
    }

    /// The same item as a single send.
    pub(super) fn addressed(self, send: impl FnOnce(&str, E) -> SendRequest) -> SendRequest {
        let mut request = send(&self.key, self.event);
        request.dedup = self.dedup;
        request.deliver = self.deliver;
        request.priority = self.priority;
        request
    }
}

/// An item of [`Handle::send_many`](super::Handle::send_many): a [`SendItem`], or a pair of a key and an event.
pub trait IntoSendItem {
    /// The event type.
    type Event;

    /// The item in its long form.
    fn into_send_item(self) -> SendItem<Self::Event>;
}

impl<E> IntoSendItem for SendItem<E> {
    type Event = E;

    fn into_send_item(self) -> SendItem<E> {
        self
    }
}

impl<K: AsRef<str>, E> IntoSendItem for (K, E) {
    type Event = E;

    fn into_send_item(self) -> SendItem<E> {
        SendItem::new(self.0, self.1)
    }
}

/// The answers to many sends: a `Stream` of one `Result<Sent, Error>` for each item, in the order of the items.
///
/// Items are taken from the iterator only as fast as the database commits them; at most 1,000 are in flight at once. Items that were taken
/// are sent even if the stream is dropped. Items that were not taken are not sent.
#[must_use = "nothing is sent until it is polled"]
pub struct SendMany<'i> {
    _client_guard: Option<Arc<ClientGuard>>,
    items: Box<dyn Iterator<Item = SendRequest> + Send + 'i>,
    under_way: VecDeque<InFlightCommit>,
    has_more: bool,
}

enum InFlightCommit {
    /// The item cannot be sent, because its key, its payload or its deduplication id is invalid.
    Failed(Option<Error>),
    Waiting(BoxFuture<'static, Result<Reply, Error>>),
}

impl<'i> SendMany<'i> {
    pub(super) fn new(client_guard: Option<Arc<ClientGuard>>, items: impl Iterator<Item = SendRequest> + Send + 'i) -> SendMany<'i> {
        SendMany { _client_guard: client_guard, items: Box::new(items), under_way: VecDeque::new(), has_more: true }
    }

    /// The answer to the next item; `None` after the last one.
    pub async fn next(&mut self) -> Option<Result<Sent, Error>> {
        StreamExt::next(self).await
    }

    /// Sends all items and returns their answers in order. All accepted items are then durable.
    ///
    /// The outer error means that the process is shutting down and that the answers of the remaining items are unknown. Send those items
    /// again with their deduplication ids.
    pub async fn collect(mut self) -> Result<Vec<Result<Sent, Error>>, Error> {
        let mut answers = Vec::with_capacity(self.items.size_hint().0);
        while let Some(answer) = self.next().await {
            match answer {
                Err(error) if error.is_stopping() => return Err(error),
                answer => answers.push(answer),
            }
        }
        Ok(answers)
    }

    /// Passes items to the committer until enough are in flight. They are passed in order, so events for one instance keep their order.
    fn fill(&mut self) {
        while self.has_more && self.under_way.len() < WINDOW {
            let Some(item) = self.items.next() else {
                self.has_more = false;
                return;
            };
            let (span, engine) = (item.span(), Arc::clone(&item.engine));
            self.under_way.push_back(match span.in_scope(|| item.into_request()) {
                Err(error) => InFlightCommit::Failed(Some(error)),
                Ok((target, kind, trace)) => {
                    let request = |reply| Request::new(target, kind, Some(reply)).traced(trace);
                    InFlightCommit::Waiting(Box::pin(engine.ask(request).instrument(span)))
                }
            });
        }
    }
}

impl Stream for SendMany<'_> {
    type Item = Result<Sent, Error>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.fill();
        let answer = match self.under_way.front_mut() {
            None => return Poll::Ready(None),
            Some(InFlightCommit::Failed(error)) => Err(error.take().expect("an item is answered once")),
            Some(InFlightCommit::Waiting(answer)) => match answer.as_mut().poll(context) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(reply) => reply.and_then(Sent::of),
            },
        };
        self.under_way.pop_front();
        Poll::Ready(Some(answer))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let (least, most) = self.items.size_hint();
        let under_way = self.under_way.len();
        (least.saturating_add(under_way), most.and_then(|most| most.checked_add(under_way)))
    }
}

impl fmt::Debug for SendMany<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} sends under way", self.under_way.len())
    }
}
