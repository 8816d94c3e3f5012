//! Identifiers. All are UUIDs made by the client, so that a repeated request is recognised by its id.

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
    /// An instance (UUIDv7: lists are in order of creation).
    InstanceId
);
id!(
    /// An async call: one durable request to run a verb. All its attempts share the id (UUIDv7).
    CallId
);
id!(
    /// A worker session: one life of a worker process. It is random and new at each start, so that a restarted process is never
    /// mistaken for its predecessor (known bug 4).
    SessionId
);
id!(
    /// A timer (UUIDv7).
    TimerId
);
