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
        self.engine.store.failpoint().triggered_at().is_some()
    }

    /// Runs `scenario` and lets a statement panic within it, after so many others: in whatever task of the engine, or of the test, that runs
    /// it. The engine goes on by itself. `false` when the scenario came to its end without.
    pub async fn panic_after_statements(&self, statements: u32, scenario: impl Future<Output = ()>) -> bool {
        let failpoint = self.engine.store.failpoint();
        failpoint.panic_after(statements);
        let _ = AssertUnwindSafe(scenario).catch_unwind().await;
        let has_panicked = !failpoint.is_about_to_panic();
        failpoint.reset();
        has_panicked
    }

    /// From now on each statement is an await point, however fast the database answers.
    pub fn yield_at_statements(&self) {
        self.engine.store.failpoint().yield_at_statements();
    }

    /// The same of a scenario that gives something, if it lives to.
    pub(super) async fn cut_after<T>(&self, statements: u32, scenario: impl Future<Output = T>) -> Option<T> {
        let failpoint = self.engine.store.failpoint();
        failpoint.trigger_after(statements);
        let said = tokio::select! {
            biased;
            () = failpoint.triggered() => None,
            said = scenario => Some(said),
        };
        let died = failpoint.has_triggered();
        if died {
            self.engine.end_tasks().await;
        }
        failpoint.reset();
        if died {
            self.restart().await;
        }
        said
    }

    /// The next `statements` of this test bed, and of those beside it, fail with this code, as if the database had answered so: five characters are a
    /// SQLSTATE of PostgreSQL, a shorter number is a result code of SQLite. Those that hear of the end of a commit fail too: it is committed
    /// then.
    pub fn fail_statements(&self, statements: u32, code: &str) {
        self.engine.store.failpoint().fail_next(statements, code);
    }

    /// How many statements are still to fail.
    pub fn failures_left(&self) -> u32 {
        self.engine.store.failpoint().to_fail()
    }

    /// How many statements were run so far on the database, by this test bed and those beside it; a commit counts for two.
    pub fn statements(&self) -> u64 {
        self.engine.store.failpoint().passed()
    }

    /// Returns the number of rows that the database returned for these statements.
    pub fn rows(&self) -> u64 {
        self.engine.store.failpoint().rows()
    }
}
