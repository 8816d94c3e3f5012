//! Redaction: a text that the builder's function removes is not in the database, not in the log and not in any tool's output.

use std::io;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use fsm::{Redactable, RedactableKind};

use crate::clumsy::{Clumsy, Deed, clumsy};
use crate::sql_runner::{SqlRunner, run};
use crate::support::promise;

const CARD: &str = "4242-4242";

/// Removes card numbers.
fn without_cards(shown: &Redactable<'_>) -> Option<String> {
    shown.text.contains(CARD).then(|| shown.text.replace(CARD, "****"))
}

/// All log output, as it would be printed.
#[derive(Clone, Default)]
pub struct Log(Arc<Mutex<Vec<u8>>>);

impl Log {
    /// Records the log output of this thread while the guard lives.
    pub fn check() -> (Log, tracing::subscriber::DefaultGuard) {
        let log = Log::default();
        let writer = log.clone();
        let subscriber = tracing_subscriber::fmt().with_max_level(tracing::Level::TRACE).with_writer(move || writer.clone()).finish();
        (log, tracing::subscriber::set_default(subscriber))
    }

    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.0.lock().unwrap()).into_owned()
    }
}

impl io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

promise! {
    async fn an_error_text_is_redacted_before_it_is_stored_and_logged(
        bed in clumsy().only::<SqlRunner>().with(|builder| builder.redact(without_cards))
    ) {
        let (log, _kept) = Log::check();
        let clumsies = bed.machine::<Clumsy>();
        for (key, deed) in [("failed", Deed::Fail(format!("no card {CARD}"))), ("panicked", Deed::Panic(format!("bad card {CARD}")))] {
            clumsies.send(key, deed).await.unwrap();
            bed.run_until_idle().await;
            bed.advance(Duration::from_secs(5)).await;
        }
        assert_eq!(clumsies.get("failed").await.unwrap().unwrap().error.unwrap(), "no card ****");
        assert_eq!(clumsies.get("panicked").await.unwrap().unwrap().error.unwrap(), "the verb panicked: bad card ****");
        let stored = |table: &str| format!("select count(*) from {table} where error like '%{CARD}%'");
        assert_eq!(run(bed, stored("fsm_async_calls")).await, Some(0));
        assert_eq!(run(bed, stored("fsm_instances")).await, Some(0));
        assert_eq!(run(bed, format!("select count(*) from fsm_instances where attempt_error like '%{CARD}%'")).await, Some(0));

        let told = log.text();
        assert!(told.contains("no card ****") && told.contains("bad card ****"), "the errors are logged: {told}");
        assert!(!told.contains(CARD), "{told}");
        for key in ["failed", "panicked"] {
            let shown: Vec<_> = clumsies.history(key).await.unwrap().iter().map(ToString::to_string).collect();
            assert!(!shown.join("\n").contains(CARD), "{shown:?}");
        }
    }
}

promise! {
    async fn a_redaction_that_panics_withholds_the_text(bed in clumsy().with(|builder| builder.redact(|shown| match shown.kind {
        RedactableKind::Error => panic!("no rule"),
        _ => None,
    }))) {
        let clumsies = bed.machine::<Clumsy>();
        clumsies.send("c", Deed::Fail(CARD.into())).await.unwrap();
        bed.run_until_idle().await;
        let call = clumsies.get("c").await.unwrap().unwrap().call.unwrap();
        assert_eq!(call.last_error.unwrap(), "(withheld: the redaction panicked)");
    }
}
