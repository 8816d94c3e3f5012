//! The check of the invariants at the end of each test bed.

use super::bed::TestBed;
use crate::doctor::Report;

/// Every test ends with a check of the invariants. A test that leaves an inconsistent row fails, whatever it asserted.
impl Drop for TestBed {
    fn drop(&mut self) {
        self.engines.kill();
        if std::thread::panicking() || !self.is_examined {
            return;
        }
        let stores: Vec<_> = self.engines.all().iter().map(|engine| engine.store.clone()).collect();
        // On a thread and a connection of its own, because this function must wait and must not block the test's async runtime.
        let examining = std::thread::spawn(move || -> Result<Vec<Report>, Box<dyn std::error::Error + Send + Sync>> {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            let mut reports = Vec::with_capacity(stores.len());
            for store in stores {
                reports.push(runtime.block_on(async { Report::of(&mut store.dedicated().await?.conn()).await })?);
            }
            Ok(reports)
        });
        match examining.join() {
            Ok(Ok(reports)) => match reports.iter().find(|report| !report.is_healthy()) {
                None => {}
                Some(report) => panic!("the test bed's database is not as it must be:\n{report}"),
            },
            Ok(Err(error)) => panic!(
                "the test bed's invariants cannot be checked: {error}; if a commit was under way when the test ended, the test has to await \
                 `run_until_idle()` first"
            ),
            Err(_) => panic!("the test bed's invariants cannot be checked"),
        }
    }
}
