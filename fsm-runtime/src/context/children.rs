//! Children: instances that a verb starts with its transition.

use std::any::TypeId;
use std::future::IntoFuture;
use std::marker::PhantomData;
use std::sync::Arc;

use fsm_core::ids::CallId;
use fsm_core::instance::Status;
use fsm_core::outcome::{Child, Event};
use fsm_core::partition::Partition;
use fsm_core::priority::Priority;
use fsm_store::open::Store;
use fsm_store::pages::PageFilter;
use fsm_store::remote_children;
use futures_util::future::{BoxFuture, try_join_all};
use uuid::Uuid;

use super::Ctx;
use crate::children::{ChildEnded, ChildFailed};
use crate::data_protection::DataProtection;
use crate::encode;
use crate::error::Error;
use crate::handle::pages;
use crate::handle::view::{Cursor, Filter, Instance, Page};
use crate::registry::{EventFor, Machine};
use crate::search;

/// The maximum number of children that one attempt starts.
const MOST: usize = 10_000;

impl<V> Ctx<'_, V> {
    /// Starts an instance of the machine `M` as a child of this instance, in the commit of this transition; nothing is started if the attempt
    /// fails.
    ///
    /// This instance takes [`ChildrenEnded`](crate::children::ChildrenEnded) when all children have ended that were started while it entered
    /// the state or in it, if an edge accepts that event. If this instance is cancelled, its children are cancelled too, unless they are
    /// [`detached`](NewChildren::detached).
    ///
    /// On a database with partitions, the child may belong to another one than this instance. It is started there soon after the commit. If its key is
    /// taken there, the child counts as cancelled before its first transition, and the history of this instance says so.
    ///
    /// The key must be free. If there is an instance with this key, the attempt fails with an error that names the key, when it ends. If that
    /// instance is a child that this instance started in the same state, it is taken to be this child, and nothing is started.
    ///
    /// Returns an error if the key or the payload is too long, if this program has no such machine, if no instance of it starts with the event, if
    /// this attempt has started a child with this key already, or if it has started 10,000 children.
    pub fn child<M: Machine>(&mut self, key: impl AsRef<str>, event: impl EventFor<M>) -> Result<NewChildren<'_>, Error> {
        self.start_children::<M>([(key, event)])
    }

    /// Starts children of the machine `M` from pairs of keys and events, each like [`child`](Ctx::child). If one of them is an error, none of
    /// them is started.
    ///
    /// All children of an attempt are written in one commit. The limit is 10,000 for each attempt; start more of them in several transitions.
    pub fn start_children<M: Machine>(
        &mut self,
        children: impl IntoIterator<Item = (impl AsRef<str>, impl EventFor<M>)>,
    ) -> Result<NewChildren<'_>, Error> {
        let before = self.running.verb_requests.children.len();
        for (key, event) in children {
            match self.new_child::<M, _>(key.as_ref(), event) {
                Ok(child) => self.running.verb_requests.children.push(child),
                Err(error) => {
                    for child in self.running.verb_requests.children.drain(before..) {
                        self.running.child_keys.remove(&(child.machine, child.key));
                    }
                    return Err(error);
                }
            }
        }
        Ok(NewChildren { children: &mut self.running.verb_requests.children[before..] })
    }

    fn new_child<M: Machine, E: EventFor<M>>(&mut self, key: &str, event: E) -> Result<Child, Error> {
        let (machine, environment) = (M::NAME.to_owned(), &self.running.environment);
        encode::check_key(key)?;
        environment.check_served(M::NAME)?;
        if !M::ENTRY.edges.iter().any(|edge| edge.from.is_none() && edge.verb.event == E::EVENT) {
            let starts: Vec<_> =
                M::ENTRY.edges.iter().filter(|edge| edge.from.is_none()).map(|edge| format!("`{}`", edge.verb.event)).collect();
            return Err(Error::input(format!("a `{machine}` starts with {}, not with `{}`", starts.join(" or "), E::EVENT)));
        }
        let payload = encode::payload(&event, E::EVENT, environment.limits.payload)?;
        let (end_event, failure_event) = (TypeId::of::<ChildEnded<M>>(), TypeId::of::<ChildFailed<M>>());
        let [end_event, failure_event] = [end_event, failure_event].map(|event| environment.event_name(event).map(str::to_owned));
        if self.running.verb_requests.children.len() >= MOST {
            return Err(Error::input(format!("an attempt starts at most {MOST} children; start the others in another transition")));
        }
        if !self.running.child_keys.insert((machine.clone(), key.to_owned())) {
            return Err(Error::input(format!("this attempt has started `{machine}` `{}` already", key.escape_debug())));
        }
        let search = M::ENTRY.search.map_or_else(Vec::new, |search| search::of_event(search.names, &payload));
        let event = Event { name: E::EVENT.to_owned(), payload };
        let (id, key, is_detached, priority) = (CallId(Uuid::now_v7()), key.to_owned(), false, Priority::Normal);
        Ok(Child { id, machine, key, event, search, is_detached, priority, end_event, failure_event })
    }

    /// Lists the children of this instance of the machine `M` that exist, in the order of their creation: those that were started by earlier
    /// transitions, in any state. Children are kept as long as their parent has not ended.
    ///
    /// Await it for the first page of 100 children. [`limit`](ChildrenRequest::limit) and [`after`](ChildrenRequest::after) read the others, so
    /// that the memory is bounded.
    ///
    /// The children in other partitions are those that are started there. Returns an error if a database with children cannot be read.
    pub fn children<M: Machine>(&self) -> ChildrenRequest<M> {
        let environment = &self.running.environment;
        let filter = PageFilter { parent: Some(self.running.attempt.instance), limit: Filter::default().limit, ..PageFilter::default() };
        ChildrenRequest {
            store: environment.store.clone(),
            partition: environment.partition,
            stores: environment.stores.clone(),
            data_protection: environment.data_protection.clone(),
            filter,
            machine: PhantomData,
        }
    }
}

/// Children that a verb starts. They are started as they are when this value is dropped.
#[derive(Debug)]
pub struct NewChildren<'c> {
    children: &'c mut [Child],
}

impl NewChildren<'_> {
    /// Lets the children go on if their parent is cancelled. In all else they are children like others: the end of all of them is awaited.
    pub fn detached(self) -> Self {
        self.children.iter_mut().for_each(|child| child.is_detached = true);
        self
    }

    /// The priority of the first call of each child, and of its retries, like
    /// [`SendRequest::priority`](crate::handle::send::SendRequest::priority). Without it, the priority is normal.
    pub fn priority(self, priority: Priority) -> Self {
        self.children.iter_mut().for_each(|child| child.priority = priority);
        self
    }
}

/// A list of children. Await it for a page.
#[must_use = "nothing is read until it is awaited"]
pub struct ChildrenRequest<M> {
    store: Store,
    partition: Option<Partition>,
    stores: Option<Arc<[Store]>>,
    data_protection: DataProtection,
    filter: PageFilter,
    machine: PhantomData<fn() -> M>,
}

impl<M: Machine> ChildrenRequest<M> {
    /// Selects children with this status.
    pub fn status(mut self, status: Status) -> Self {
        self.filter.status = Some(status);
        self
    }

    /// Selects children in this state.
    pub fn state(mut self, state: M::State) -> Self {
        self.filter.state = Some(state.to_string());
        self
    }

    /// The maximum number of children on a page, from 1 to 1,000; 100 by default.
    pub fn limit(mut self, limit: u32) -> Self {
        self.filter.limit = limit.clamp(1, Filter::MOST);
        self
    }

    /// Continues after the end of an earlier page.
    pub fn after(mut self, cursor: Cursor) -> Self {
        self.filter.after = Some(cursor.0);
        self
    }
}

impl<M: Machine> IntoFuture for ChildrenRequest<M> {
    type Output = Result<Page<Instance<M>>, Error>;
    type IntoFuture = BoxFuture<'static, Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async move {
            let (own, elsewhere) = {
                let mut reader = self.store.reader().await?;
                let conn = &mut reader.conn();
                let elsewhere = match (self.filter.parent, &self.stores) {
                    (Some(parent), Some(_)) => remote_children::partitions(conn, parent).await?,
                    _ => Vec::new(),
                };
                (pages::listed(conn, &self.filter, &self.data_protection).await?, elsewhere)
            };
            let here = self.partition.map(|here| here.number());
            let stores = elsewhere.into_iter().filter(|number| Some(*number) != here);
            let stores = stores.filter_map(|number| self.stores.as_ref()?.get(number as usize));
            let others = try_join_all(stores.map(|store| async {
                let mut reader = store.reader().await?;
                pages::listed(&mut reader.conn(), &self.filter, &self.data_protection).await
            }));
            let mut all = others.await?;
            all.push(own);
            Ok(pages::merged(all, &self.filter))
        })
    }
}

impl<M> std::fmt::Debug for ChildrenRequest<M> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ChildrenRequest").field("filter", &self.filter).finish_non_exhaustive()
    }
}
