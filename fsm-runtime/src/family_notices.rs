//! The delivery of the notices between parents and children in different partitions.

use std::time::Duration;

use fsm_core::commit::family_notice::{ChildReport, ChildStart};
use fsm_core::commit::partition_delivery::{ClaimedLine, SendAnswer, WaitingEvent};
use fsm_core::commit::request::RequestKind;
use fsm_core::family::Parent;
use fsm_core::ids::InstanceId;
use fsm_core::instance::Status;
use fsm_core::outcome::Child;
use fsm_core::search::SearchField;
use fsm_store::family::{self, Relative};
use fsm_store::parent_elsewhere::ParentElsewhere;
use fsm_store::remote_children::{self, Heard};

use crate::engine::Engine;
use crate::error::Error;

impl Engine {
    /// The request that starts a child whose parent is in this partition.
    pub(crate) fn start_of(
        &self,
        line: &ClaimedLine,
        waiting: &WaitingEvent,
        start: &ChildStart,
        search: Vec<SearchField>,
    ) -> Result<RequestKind, Error> {
        let parent = (waiting.sender, self.partition.ok_or_else(Error::stopping)?.number());
        let first = (waiting.call, waiting.event.clone(), waiting.priority);
        let (child, link) = start.child(&line.key, &line.machine, first, parent);
        Ok(RequestKind::StartChild(Box::new((Child { search, ..child }, link))))
    }

    /// The request that cancels a child whose parent is in this partition.
    pub(crate) fn cancellation_of(&self, waiting: &WaitingEvent, group: i64, reason: &str) -> RequestKind {
        let parent = Parent { id: waiting.sender, group, partition: self.partition.map(|here| here.number()) };
        RequestKind::CancelChild { parent, reason: reason.to_owned() }
    }

    /// Sends the report of a child to the partition of its parent.
    pub(crate) async fn send_report(&self, there: &Engine, waiting: &WaitingEvent, report: &ChildReport) -> Result<SendAnswer, Error> {
        let heard = remote_children::hear(&there.store, report, waiting.sender, waiting.call, there.clock.now()).await?;
        there.look_at_family_soon(report.parent);
        Ok(match heard {
            Heard::Recorded => SendAnswer::Taken,
            Heard::Unawaited(why) => SendAnswer::Unawaited(why),
            Heard::ComesAgain => SendAnswer::Failed,
        })
    }

    /// The parent of an instance, which is in another partition; `None` if retention has deleted it. If that partition cannot be read within a
    /// second, the parent is shown as running and without its state.
    pub(crate) async fn parent_elsewhere(&self, id: InstanceId, elsewhere: ParentElsewhere) -> Option<Relative> {
        let read = async {
            let there = self.of_key(&elsewhere.key)?;
            let mut reader = there.store.reader().await.ok()?;
            family::relative(&mut reader.conn(), id).await.ok()
        };
        let found = tokio::time::timeout(Duration::from_secs(1), read).await.ok().flatten();
        found.unwrap_or_else(|| Some(unread(elsewhere)))
    }

    /// Has the families looked at whose children could not be started.
    pub(crate) fn note_reports(&self, parents: impl Iterator<Item = InstanceId>) {
        parents.for_each(|parent| self.look_at_family_soon(parent));
    }
}

/// A parent in another partition that cannot be read.
pub(crate) fn unread(ParentElsewhere { machine, key, .. }: ParentElsewhere) -> Relative {
    Relative { machine, key, state: None, status: Status::Running }
}
