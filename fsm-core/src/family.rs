//! Families: the children that an instance started, and the instance that started a child.

use crate::ids::InstanceId;
use crate::outcome::Child;

/// The parent of a child, with the group to which the child belongs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Parent {
    /// The instance that started the child.
    pub id: InstanceId,
    /// The group: the children that the parent started while it entered a state or was in it. Its number is the parent's version at the
    /// first of them.
    pub group: i64,
    /// The number of the parent's partition, if the child was started in another one.
    pub partition: Option<u32>,
}

impl Parent {
    /// True if both are the same group of the same instance. An import may have changed the number of the partition.
    pub fn is_in_group_of(self, other: Parent) -> bool {
        (self.id, self.group) == (other.id, other.group)
    }
}

/// The name of a parent in another partition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ParentName {
    /// Its machine.
    pub machine: String,
    /// Its key.
    pub key: String,
}

/// The children of an instance, as far as its own decisions depend on them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Family {
    /// It has started no children.
    #[default]
    None,
    /// It has started children, and waits for none of them.
    Past,
    /// It started this group while it entered its state or in it. Not all of the group are known to have ended.
    Open(i64),
    /// All of this group have ended. The instance takes the event `ChildrenEnded` when it comes to rest.
    Ended(i64),
    /// It was cancelled, and its children are being cancelled.
    Cancelling,
}

impl Family {
    /// The name in the database; `None` without children.
    pub fn as_str(self) -> Option<&'static str> {
        match self {
            Family::None => None,
            Family::Past => Some("past"),
            Family::Open(_) => Some("open"),
            Family::Ended(_) => Some("ended"),
            Family::Cancelling => Some("cancelling"),
        }
    }

    /// The group that was started in the present state.
    pub fn group(self) -> Option<i64> {
        match self {
            Family::Open(group) | Family::Ended(group) => Some(group),
            Family::None | Family::Past | Family::Cancelling => None,
        }
    }

    /// The value of the two columns; `None` if they do not belong together.
    pub fn of(name: Option<&str>, group: Option<i64>) -> Option<Family> {
        match (name, group) {
            (None, None) => Some(Family::None),
            (Some("past"), None) => Some(Family::Past),
            (Some("open"), Some(group)) => Some(Family::Open(group)),
            (Some("ended"), Some(group)) => Some(Family::Ended(group)),
            (Some("cancelling"), None) => Some(Family::Cancelling),
            _ => None,
        }
    }
}

/// The connection of a new child to its parent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Link {
    /// The parent.
    pub parent: Parent,
    /// The parent's name, if it is in another partition.
    pub elsewhere: Option<ParentName>,
    /// The child is not cancelled with its parent.
    pub is_detached: bool,
    /// The event type of the child's end.
    pub end_event: Option<String>,
    /// The event type of the child's error.
    pub failure_event: Option<String>,
}

impl Link {
    /// The connection of this child to a parent in the same partition.
    pub fn of(child: &Child, parent: Parent) -> Link {
        let (end_event, failure_event) = (child.end_event.clone(), child.failure_event.clone());
        Link { parent, elsewhere: None, is_detached: child.is_detached, end_event, failure_event }
    }
}
