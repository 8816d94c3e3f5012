//! An outage of the database makes a handful of log lines, however much fails meanwhile.

use std::fmt::Debug;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use fsm::Schedule;
use fsm::prelude::*;
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::{Context, SubscriberExt};

use crate::durable::{Load, Ship, Stall};
use crate::hostile_database::own_cluster;

/// A time limit that is long enough on a busy machine.
const LIMIT: Duration = Duration::from_secs(120);
/// The callers that send all the time.
const CALLERS: usize = 50;
/// The line at the end of an outage.
const OVER: &str = "the database can be used again";

/// The warnings and errors of the log, and the end of an outage, each with its message and the number of failures that it names.
#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<Line>>>);

#[derive(Debug, Clone, Default)]
struct Line {
    message: String,
    failures: Option<u64>,
}

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        if field.name() == "message" {
            self.message = format!("{value:?}");
        }
    }
    fn record_u64(&mut self, field: &Field, value: u64) {
        if field.name() == "failures" {
            self.failures = Some(value);
        }
    }
}

impl<S: Subscriber> Layer<S> for Lines {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let mut line = Line::default();
        event.record(&mut line);
        // What becomes of single attempts after an outage is information: one is lost, another one is released.
        let is_told = *event.metadata().level() <= Level::WARN || line.message == OVER;
        if is_told && event.metadata().target().starts_with("fsm_runtime") {
            self.0.lock().unwrap().push(line);
        }
    }
}

impl Lines {
    fn taken(&self) -> Vec<Line> {
        std::mem::take(&mut self.0.lock().unwrap())
    }

    async fn until(&self, message: &str) {
        let begin = std::time::Instant::now();
        while !self.0.lock().unwrap().iter().any(|line| line.message == message) {
            assert!(begin.elapsed() < LIMIT, "`{message}` was not logged: {:?}", self.taken());
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
}

#[cfg(feature = "postgres")]
#[tokio::test(flavor = "multi_thread")]
async fn an_outage_of_the_database_makes_a_handful_of_log_lines() {
    let Some(mut cluster) = own_cluster() else { return };
    let lines = Lines::default();
    // The lease has a thread of its own, so a subscriber of this thread would not see all.
    tracing::subscriber::set_global_default(tracing_subscriber::registry().with(lines.clone())).unwrap();
    let builder = Runtime::builder().database(cluster.url()).only::<Ship>().data(Arc::new(Stall::default()));
    let builder = builder.schedule(Schedule::every("1s").name("ship").send::<Ship>(|due| (due.at().to_string(), Load)));
    let builder = builder.lease(Duration::from_secs(4)).patience(Duration::from_millis(200)).poll_interval(Duration::from_millis(50));
    let runtime = builder.start().await.unwrap();
    let callers: Vec<_> = (0..CALLERS)
        .map(|caller| {
            let ships = runtime.machine::<Ship>();
            tokio::spawn(async move {
                for n in 0.. {
                    // The callers see the errors; the log need not repeat them.
                    let _ = ships.send(format!("{caller}-{n}"), Load).await;
                }
            })
        })
        .collect();
    tokio::time::sleep(Duration::from_millis(500)).await;
    drop(lines.taken());

    cluster.stop().unwrap();
    lines.until("the database cannot be used, and is tried again").await;
    tokio::time::sleep(Duration::from_secs(6)).await;
    cluster.start().unwrap();
    lines.until(OVER).await;
    callers.iter().for_each(|caller| caller.abort());

    let told = lines.taken();
    let over = told.iter().find(|line| line.message == OVER).unwrap();
    assert!(over.failures.is_some_and(|failures| failures > 100), "{over:?}");
    assert!(told.len() <= 8, "{} lines: {told:#?}", told.len());
    runtime.shutdown().await.unwrap();
}
