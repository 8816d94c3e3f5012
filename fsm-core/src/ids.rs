//! The three identities. All are UUIDs made by the client, so that a request sent twice is known by its id.

use std::fmt;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

macro_rules! id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub Uuid);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

id!(
    /// One living run of a machine (UUIDv7, so that lists are in order of creation).
    InstanceId
);
id!(
    /// One durable request to run a verb: the same over all its attempts (UUIDv7).
    CallId
);
id!(
    /// A worker process's life. Random, and new at each start, so that a restarted process is never taken for the
    /// one that died (known bug 4).
    SessionId
);
id!(
    /// A moment at which an event is delivered (UUIDv7).
    TimerId
);
