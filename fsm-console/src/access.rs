//! Who asks, and what they may do.

use std::net::SocketAddr;
use std::sync::Arc;

use axum::extract::ConnectInfo;
use axum::http::header::AUTHORIZATION;
use axum::http::request::Parts;
use base64::Engine;
use base64::prelude::BASE64_STANDARD;

/// What a person may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Access {
    /// Nothing.
    Denied,
    /// Read every page.
    Viewer,
    /// Act on one instance, too: retry, pause, resume, skip, cancel, send.
    Operator,
    /// Act on many instances at once, too.
    Admin,
}

impl Access {
    /// The same access for somebody with a name, which each history records as the actor.
    pub fn named(self, name: impl Into<String>) -> Actor {
        Actor { access: self, name: name.into() }
    }
}

/// Somebody who asks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Actor {
    /// What they may do.
    pub access: Access,
    /// The name that each history records; empty for none.
    pub name: String,
}

impl From<Access> for Actor {
    fn from(access: Access) -> Actor {
        access.named("")
    }
}

/// What a request wants to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Action {
    Read,
    ActOnOne,
    ActOnMany,
}

/// Whether that actor may do that.
pub(crate) fn may(actor: &Actor, action: Action) -> bool {
    actor.access
        >= match action {
            Action::Read => Access::Viewer,
            Action::ActOnOne => Access::Operator,
            Action::ActOnMany => Access::Admin,
        }
}

/// How the console finds out who asks.
#[derive(Clone)]
pub(crate) enum Authentication {
    /// Everybody on this machine may do everything, and nobody else may do anything.
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
            Authentication::Custom(decide) => decide(parts),
        }
    }
}

fn credentials(parts: &Parts) -> Option<String> {
    let value = parts.headers.get(AUTHORIZATION)?.to_str().ok()?.strip_prefix("Basic ")?;
    String::from_utf8(BASE64_STANDARD.decode(value.trim()).ok()?).ok()
}

/// Compares in a time that does not tell how much of it is right.
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
