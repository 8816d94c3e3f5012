//! The notices between a parent and a child in different partitions. They are rows of the outbox of the sender's partition, in one line with the
//! events for the same receiver.

use serde::{Deserialize, Serialize};

use crate::family::{Link, Parent, ParentName};
use crate::ids::{CallId, InstanceId};
use crate::instance::Status;
use crate::outcome::{Child, Event};
use crate::priority::Priority;
use crate::time::Timestamp;

/// A notice from a parent to its child, or from a child to its parent. The number of the sender's partition is not part of it: the process that
/// delivers it knows it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum FamilyNotice {
    /// The receiver is started as a child.
    Start(ChildStart),
    /// The child is cancelled with its parent.
    Cancel {
        /// The group of the child.
        group: i64,
        /// The reason, for the history.
        reason: String,
    },
    /// A child of the receiver has ended, or came into error.
    Report(ChildReport),
}

/// The start of a child in another partition. The event that starts it is that of the row.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChildStart {
    /// The group of the child.
    pub group: i64,
    /// The machine of the parent.
    pub parent_machine: String,
    /// The key of the parent.
    pub parent_key: String,
    /// It is not cancelled with its parent.
    pub is_detached: bool,
    /// The event type of the child's error, if the parent's machine has it.
    pub failure_event: Option<String>,
}

/// The end or the error of a child in another partition. A report whose number is not above that of an earlier one of the same child changes nothing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChildReport {
    /// The parent.
    pub parent: InstanceId,
    /// The group of the child.
    pub group: i64,
    /// The machine of the child.
    pub machine: String,
    /// The key of the child.
    pub key: String,
    /// The row version of the child, which increases from report to report.
    pub number: i64,
    /// The state of the child.
    pub state: Option<String>,
    /// The status of the child.
    pub status: Status,
    /// The time of the change.
    pub at: Timestamp,
}

impl ChildStart {
    /// The child that is started, and its connection to its parent, which is in this partition.
    pub fn child(&self, key: &str, machine: &str, first: (CallId, Event, Priority), parent: (InstanceId, u32)) -> (Child, Link) {
        let ((id, event, priority), (parent, partition)) = (first, parent);
        let child = Child {
            id,
            machine: machine.to_owned(),
            key: key.to_owned(),
            event,
            search: Vec::new(),
            is_detached: self.is_detached,
            priority,
            end_event: None,
            failure_event: self.failure_event.clone(),
        };
        let parent = Parent { id: parent, group: self.group, partition: Some(partition) };
        let name = ParentName { machine: self.parent_machine.clone(), key: self.parent_key.clone() };
        (child.clone(), Link { elsewhere: Some(name), ..Link::of(&child, parent) })
    }
}

impl ChildReport {
    /// The report about a child that is not started, because its partition refuses it. It stands as cancelled before its first transition.
    pub fn not_started(start: &ChildStart, parent: InstanceId, machine: &str, key: &str, at: Timestamp) -> ChildReport {
        let (machine, key) = (machine.to_owned(), key.to_owned());
        ChildReport { parent, group: start.group, machine, key, number: 0, state: None, status: Status::Cancelled, at }
    }
}
