//! The role that a server must have for a session: libpq's `target_session_attrs`.

use sqlx::Row;
use sqlx::postgres::PgConnection;

use crate::sql;

/// The value of `target_session_attrs`, with libpq's meaning.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wanted {
    Any,
    /// Transactions may write.
    ReadWrite,
    /// Transactions may not write.
    ReadOnly,
    /// The server is not in recovery.
    Primary,
    Standby,
    /// A standby if there is one, else any server.
    PreferStandby,
}

/// The role of a session's server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Role {
    pub is_standby: bool,
    /// True if transactions of this session may not write.
    pub is_read_only: bool,
}

impl Role {
    /// Asks the server.
    pub(super) async fn of(conn: &mut PgConnection) -> sqlx::Result<Role> {
        let row = sqlx::Executor::fetch_one(conn, sqlx::raw_sql(sql::ROLE)).await?;
        Ok(Role { is_standby: row.try_get(0)?, is_read_only: row.try_get(1)? })
    }
}

const WORDS: [(&str, Wanted); 6] = [
    ("any", Wanted::Any),
    ("read-write", Wanted::ReadWrite),
    ("read-only", Wanted::ReadOnly),
    ("primary", Wanted::Primary),
    ("standby", Wanted::Standby),
    ("prefer-standby", Wanted::PreferStandby),
];

impl Wanted {
    pub(super) fn parse(word: &str) -> Result<Wanted, String> {
        WORDS.iter().find(|(known, _)| *known == word).map(|(_, wanted)| *wanted).ok_or_else(|| {
            let known: Vec<&str> = WORDS.iter().map(|(known, _)| *known).collect();
            format!("has `target_session_attrs={word}`, which is none of {}", known.join(", "))
        })
    }

    pub(super) fn word(self) -> &'static str {
        WORDS.iter().find(|(_, wanted)| *wanted == self).map_or("any", |(word, _)| word)
    }

    /// True if at most one server of a cluster fits at a time.
    pub(super) fn is_exclusive(self) -> bool {
        matches!(self, Wanted::ReadWrite | Wanted::Primary)
    }

    /// The same role for a session that is read-only because of its own settings.
    pub(super) fn for_reading(self) -> Wanted {
        match self {
            Wanted::ReadWrite => Wanted::Primary,
            Wanted::ReadOnly => Wanted::Any,
            wanted => wanted,
        }
    }

    /// The reason why a server of this role does not fit.
    pub(super) fn refusal(self, role: Role) -> Option<&'static str> {
        match self {
            Wanted::ReadWrite if role.is_standby => Some("is a standby"),
            Wanted::ReadWrite if role.is_read_only => Some("is read-only"),
            Wanted::ReadOnly if !role.is_standby && !role.is_read_only => Some("is writable"),
            Wanted::Primary if role.is_standby => Some("is a standby"),
            Wanted::Standby if !role.is_standby => Some("is the primary"),
            _ => None,
        }
    }
}
