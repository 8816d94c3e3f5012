//! The progress of long commands: a bar on the standard error if that is a terminal.

use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::stage::Stage;

/// A progress bar that is removed when it is dropped.
pub struct Progress(ProgressBar);

impl Progress {
    /// A bar for `all` items with the name `things`, or a spinner if their number is unknown.
    pub fn of(stage: &Stage<'_>, all: Option<u64>, things: &'static str) -> Progress {
        if !stage.shows_progress {
            return Progress(ProgressBar::hidden());
        }
        let bar = ProgressBar::with_draw_target(all, ProgressDrawTarget::stderr_with_hz(5));
        let template = match all {
            Some(_) => format!("{{bar:40}} {{human_pos}} of {{human_len}} {things}, {{eta}} to go"),
            None => format!("{{spinner}} {{human_pos}} {things}, {{elapsed}}"),
        };
        bar.set_style(ProgressStyle::with_template(&template).unwrap_or_else(|_| ProgressStyle::default_bar()));
        bar.enable_steady_tick(Duration::from_millis(200));
        Progress(bar)
    }

    /// Shows that `done` items are done.
    pub fn at(&self, done: u64) {
        self.0.set_position(done);
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}
