//! Failures that a test injects into the statements of a test bed: a crash, a panic, an error of the database.

use std::panic::AssertUnwindSafe;

use futures_util::FutureExt;

use super::bed::TestBed;

impl TestBed {
    /// Runs `scenario` and lets the process die in it after `statements` of its database statements. A commit counts as two, because a
    /// process can also die before it learns the result of its commit. Then a new process starts; it has not run anything yet.
    ///
    /// Returns false if the scenario ended first. A loop with 0, 1, 2 and so on until then lets the process die at every crash point.
    pub async fn crash_after_statements(&self, statements: u32, scenario: impl Future<Output = ()>) -> bool {
        self.cut_after(statements, scenario).await;
        self.engine().store.failpoint().triggered_at().is_some()
    }

    /// Runs `scenario` and makes a statement panic in it, after `statements` others, in the task that executes it. The engine recovers by
    /// itself. Returns false if the scenario ended before the panic.
    pub async fn panic_after_statements(&self, statements: u32, scenario: impl Future<Output = ()>) -> bool {
        let failpoint = self.engine().store.failpoint();
        failpoint.panic_after(statements);
        let _ = AssertUnwindSafe(scenario).catch_unwind().await;
        let has_panicked = !failpoint.is_about_to_panic();
        failpoint.reset();
        has_panicked
    }

    /// Makes each statement an await point from now on, so that other tasks run even if the database answers at once.
    pub fn yield_at_statements(&self) {
        self.engine().store.failpoint().yield_at_statements();
    }

    /// Like `crash_after_statements`, for a scenario with a result. `None` if the process died.
    pub(super) async fn cut_after<T>(&self, statements: u32, scenario: impl Future<Output = T>) -> Option<T> {
        let failpoint = self.engine().store.failpoint();
        failpoint.trigger_after(statements);
        let said = tokio::select! {
            biased;
            () = failpoint.triggered() => None,
            said = scenario => Some(said),
        };
        let died = failpoint.has_triggered();
        if died {
            self.end_tasks().await;
        }
        failpoint.reset();
        if died {
            self.restart().await;
        }
        said
    }

    /// Makes the next `statements` statements of this test bed and of others on its database fail with `code`, as if the database had
    /// returned it. Five characters are a SQLSTATE of PostgreSQL; a shorter number is a result code of SQLite. A commit also fails after it
    /// has taken effect, because it counts as two statements.
    pub fn fail_statements(&self, statements: u32, code: &str) {
        self.engine().store.failpoint().fail_next(statements, code);
    }

    /// The number of statements that will still fail.
    pub fn failures_left(&self) -> u32 {
        self.engine().store.failpoint().to_fail()
    }

    /// The number of statements that this test bed and others on its database have executed. A commit counts as two.
    pub fn statements(&self) -> u64 {
        self.engine().store.failpoint().passed()
    }

    /// Returns the number of rows that the database returned for these statements.
    pub fn rows(&self) -> u64 {
        self.engine().store.failpoint().rows()
    }
}
