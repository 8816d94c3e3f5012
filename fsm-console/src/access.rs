//! Authentication and access: the actor of a request, and the actions that are allowed to it.

use std::net::SocketAddr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use axum::extract::ConnectInfo;
use axum::http::header::AUTHORIZATION;
use axum::http::request::Parts;
use base64::Engine;
use base64::prelude::BASE64_STANDARD;

/// The access of an actor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Access {
    /// Nothing.
    Denied,
    /// Read every page.
    Viewer,
    /// Read, and act on one instance: retry, pause, resume, skip, cancel, send.
    Operator,
    /// Also act on many instances at once.
    Admin,
}

impl Access {
    /// The same access for an actor with a name. The history records the name.
    pub fn named(self, name: impl Into<String>) -> Actor {
        Actor { access: self, name: name.into() }
    }
}

/// The person or program that makes a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Actor {
    /// The access.
    pub access: Access,
    /// The name that the history records; empty for none.
    pub name: String,
}

impl From<Access> for Actor {
    fn from(access: Access) -> Actor {
        access.named("")
    }
}

/// The kind of a request, for the check of access.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Action {
    Read,
    ActOnOne,
    ActOnMany,
}

/// Returns true if the actor is allowed to do the action.
pub(crate) fn may(actor: &Actor, action: Action) -> bool {
    actor.access
        >= match action {
            Action::Read => Access::Viewer,
            Action::ActOnOne => Access::Operator,
            Action::ActOnMany => Access::Admin,
        }
}

/// The method by which the console authenticates requests.
#[derive(Clone)]
pub(crate) enum Authentication {
    /// Requests from this machine have full access; all others are denied.
    Loopback,
    Basic {
        user: String,
        password: String,
    },
    Custom(Arc<dyn Fn(&Parts) -> Actor + Send + Sync>),
}

impl Authentication {
    pub(crate) fn actor(&self, parts: &Parts) -> Actor {
        match self {
            Authentication::Loopback => {
                let address = parts.extensions.get::<ConnectInfo<SocketAddr>>().map(|info| info.0.ip());
                match address.is_some_and(|address| address.is_loopback()) {
                    true => Access::Admin.into(),
                    false => Access::Denied.into(),
                }
            }
            Authentication::Basic { user, password } => match credentials(parts) {
                Some(given) if is_same(&given, &format!("{user}:{password}")) => Access::Admin.named(user),
                _ => Access::Denied.into(),
            },
            // This calls the program's own code. If it panics, the request is denied.
            Authentication::Custom(decide) => catch_unwind(AssertUnwindSafe(|| decide(parts))).unwrap_or_else(|_| {
                tracing::error!("the function that authorizes requests to the console panicked; the request is refused");
                Access::Denied.into()
            }),
        }
    }
}

fn credentials(parts: &Parts) -> Option<String> {
    let value = parts.headers.get(AUTHORIZATION)?.to_str().ok()?.strip_prefix("Basic ")?;
    String::from_utf8(BASE64_STANDARD.decode(value.trim()).ok()?).ok()
}

/// Compares in constant time, so that the time does not reveal how much of the text is right.
pub(crate) fn is_same(given: &str, wanted: &str) -> bool {
    let (given, wanted) = (given.as_bytes(), wanted.as_bytes());
    let differences = wanted.iter().enumerate().fold(0_u8, |all, (at, byte)| all | (byte ^ given.get(at).unwrap_or(&!byte)));
    differences == 0 && given.len() == wanted.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_access_may_do_what_the_one_below_may() {
        let all = [Access::Denied, Access::Viewer, Access::Operator, Access::Admin];
        let may_do = |access: Access| [Action::Read, Action::ActOnOne, Action::ActOnMany].map(|action| may(&access.into(), action));
        assert_eq!(all.map(may_do), [[false, false, false], [true, false, false], [true, true, false], [true, true, true]]);
    }

    #[test]
    fn credentials_are_the_same_only_in_full() {
        assert!(is_same("ada:secret", "ada:secret"));
        for other in ["", "ada:secre", "ada:secret1", "Ada:secret"] {
            assert!(!is_same(other, "ada:secret"), "{other}");
        }
    }
}
