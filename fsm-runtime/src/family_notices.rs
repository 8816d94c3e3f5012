//! The delivery of the notices between parents and children in different partitions.

use std::time::Duration;

use fsm_core::commit::family_notice::{ChildStart, FamilyNotice};
use fsm_core::commit::instance_key::InstanceKey;
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
use tokio::time::Instant;

use crate::committer::request::Request;
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

    /// Sends a notice about a child to the partition of its receiver. No commit of a cancellation begins after `ends`.
    pub(crate) async fn send_notice(
        &self,
        there: &Engine,
        line: &ClaimedLine,
        waiting: &WaitingEvent,
        notice: &FamilyNotice,
        ends: Instant,
    ) -> Result<SendAnswer, Error> {
        match notice {
            FamilyNotice::Cancel { group, reason } => {
                let parent = Parent { id: waiting.sender, group: *group, partition: self.partition.map(|here| here.number()) };
                let kind = RequestKind::CancelChild { parent, reason: reason.clone() };
                let target = InstanceKey::new(&line.machine, &line.key);
                there.request_until(ends, |reply| Request::new(target, kind, Some(reply))).await?;
                Ok(SendAnswer::Taken)
            }
            FamilyNotice::Report(report) => {
                let heard = remote_children::hear(&there.store, report, waiting.sender, waiting.call, there.clock.now()).await?;
                there.look_at_family_soon(report.parent);
                Ok(match heard {
                    Heard::Recorded => SendAnswer::Taken,
                    Heard::Unawaited(why) => SendAnswer::Unawaited(why),
                    Heard::ComesAgain => SendAnswer::Failed,
                })
            }
            FamilyNotice::Start(_) => Ok(SendAnswer::Taken),
        }
    }

    /// The parent of an instance, which is in another partition; `None` if retention has deleted it. If that partition cannot be read within a
    /// second, the parent is shown as running and without its state.
    pub(crate) async fn parent_elsewhere(&self, id: InstanceId, elsewhere: ParentElsewhere) -> Option<Relative> {
        let ParentElsewhere { machine, key, .. } = elsewhere;
        let read = async {
            let there = self.of_key(&key)?;
            let mut reader = there.store.reader().await.ok()?;
            family::relative(&mut reader.conn(), id).await.ok()
        };
        let found = tokio::time::timeout(Duration::from_secs(1), read).await.ok().flatten();
        found.unwrap_or(Some(Relative { machine, key, state: None, status: Status::Running }))
    }

    /// Has the families looked at whose children could not be started.
    pub(crate) fn note_reports(&self, parents: impl Iterator<Item = InstanceId>) {
        parents.for_each(|parent| self.look_at_family_soon(parent));
    }
}
