//! The progress that a running verb shows.

use serde::Serialize;

use super::Ctx;
use crate::error::Error;
use crate::progress::LARGEST;

impl<V> Ctx<'_, V> {
    /// Shows how far the verb is: `fsm show`, the console and [`OpenCall::progress`](crate::handle::activity::OpenCall) have the value and
    /// its time. An attempt of a verb with `#[verb(heartbeat = "30s")]` fails if it shows no progress for that long.
    ///
    /// The call only stores the value in memory. The engine writes the last value of each attempt at most once a second, together with those
    /// of other attempts. It is forgotten when the attempt ends, and no decision depends on it.
    ///
    /// Returns an error if the value does not encode as JSON, or has more than 4 KiB.
    pub fn progress(&mut self, value: impl Serialize) -> Result<(), Error> {
        let json = serde_json::to_vec(&value).map_err(|error| Error::input(format!("the progress does not encode: {error}")))?;
        if json.len() > LARGEST {
            return Err(Error::input(format!("the progress has {} bytes of JSON; at most {LARGEST} are stored", json.len())));
        }
        self.running.progress.show(json, self.now());
        self.running.environment.has_progress.notify_one();
        Ok(())
    }
}
