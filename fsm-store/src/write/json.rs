//! Values that are stored as JSON texts.

use fsm_core::retry::RetryState;

use crate::error::{Result, StoreError};

/// The retry policy as the JSON text that is stored.
pub(crate) fn policy_text(retry_state: &RetryState) -> Result<Option<String>> {
    json(retry_state.policy.as_ref())
}

/// The JSON text of a value.
pub(crate) fn json(value: Option<&impl serde::Serialize>) -> Result<Option<String>> {
    let text = value.map(serde_json::to_string).transpose();
    text.map_err(|error| StoreError::Database(sqlx::Error::Encode(error.into())))
}
