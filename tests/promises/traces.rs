//! Each transition of an attempt is a `tracing` event with machine, key, verb, call and attempt as fields.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use fsm::prelude::*;
use fsm::testing::{TestBed, TestBedBuilder};
use serde::{Deserialize, Serialize};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::{Context, SubscriberExt};
use tracing_subscriber::registry::LookupSpan;

use crate::clumsy::{Clumsy, Deed, clumsy};
use crate::sql_runner::{SqlRunner, bytes, is_postgres, run};
use crate::support::{in_own_transaction, promise};

/// The fields by name, including those of the enclosing spans.
#[derive(Debug, Clone, Default, PartialEq)]
struct Told(BTreeMap<&'static str, String>);

impl Visit for Told {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.0.insert(field.name(), format!("{value:?}"));
    }
    fn record_str(&mut self, field: &Field, value: &str) {
        self.0.insert(field.name(), value.to_owned());
    }
}

/// Records the engine's `tracing` events about calls.
#[derive(Clone, Default)]
struct Listener(Arc<Mutex<Vec<(Level, Told)>>>);

impl<S: Subscriber + for<'s> LookupSpan<'s>> Layer<S> for Listener {
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        let mut told = Told::default();
        attributes.record(&mut told);
        context.span(id).unwrap().extensions_mut().insert(told);
    }

    fn on_event(&self, event: &Event<'_>, context: Context<'_, S>) {
        let mut told = Told::default();
        for span in context.event_scope(event).into_iter().flatten() {
            told.0.extend(span.extensions().get::<Told>().cloned().unwrap_or_default().0);
        }
        event.record(&mut told);
        if event.metadata().target().starts_with("fsm_runtime") && told.0.contains_key("call") {
            self.0.lock().unwrap().push((*event.metadata().level(), told));
        }
    }
}

impl Listener {
    /// Returns the level, the message and the attempt of each event about this call, in order.
    fn timeline(&self, call: fsm::CallId) -> Vec<String> {
        let all = self.0.lock().unwrap();
        let about = all.iter().filter(|(_, told)| told.0["call"] == call.to_string());
        about
            .map(|(level, told)| {
                let attempt = told.0.get("attempt").map(|attempt| format!(" {attempt}")).unwrap_or_default();
                format!("{level} {}{attempt}", told.0["message"])
            })
            .collect()
    }

    fn all(&self) -> Vec<Told> {
        self.0.lock().unwrap().iter().map(|(_, told)| told.clone()).collect()
    }
}

/// The maximum number of nested spans of attempts.
#[derive(Clone, Default)]
struct Depth(Arc<AtomicUsize>);

impl<S: Subscriber + for<'s> LookupSpan<'s>> Layer<S> for Depth {
    fn on_new_span(&self, _: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        let depth = context.span_scope(id).into_iter().flatten().filter(|span| span.name() == "fsm.attempt").count();
        self.0.fetch_max(depth, Ordering::SeqCst);
    }
}

fn measure_depth() -> (Arc<AtomicUsize>, tracing::subscriber::DefaultGuard) {
    let depth = Depth::default();
    let guard = tracing::subscriber::set_default(tracing_subscriber::registry().with(depth.clone()));
    (depth.0, guard)
}

/// One transition after another, each with SQL of the verb's own.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Link {
    left: u32,
    is_postgres: bool,
}

#[verb]
async fn linked(ctx: &mut Ctx<'_>, event: Link) -> Result {
    in_own_transaction!(ctx, event.is_postgres, conn => sqlx::query("select 1").execute(conn).await.map(drop)?);
    if event.left > 0 {
        ctx.next(Link { left: event.left - 1, ..event })?;
    }
    Ok(())
}

fsm! {
    machine Chain = "chain" {
        start linked;
        linked -> linked;
    }
}

fn chains() -> TestBedBuilder {
    TestBed::builder().only::<Chain>()
}

fn listen() -> (Listener, tracing::subscriber::DefaultGuard) {
    let listener = Listener::default();
    let guard = tracing::subscriber::set_default(tracing_subscriber::registry().with(listener.clone()));
    (listener, guard)
}

promise! {
    async fn each_attempt_has_a_span_of_its_own_with_no_other_around_it(bed in chains()) {
        let (deepest, _guard) = measure_depth();
        let chains = bed.machine::<Chain>();
        chains.send("c", Link { left: 30, is_postgres: is_postgres(bed) }).await.unwrap();
        bed.run_until_idle().await;
        assert_eq!(chains.get("c").await.unwrap().unwrap().version, 31);
        assert_eq!(deepest.load(Ordering::SeqCst), 1, "spans around one attempt");
    }
}

promise! {
    async fn each_change_of_a_call_is_logged_with_its_machine_key_and_verb(bed in clumsy()) {
        let (listener, _guard) = listen();
        let clumsies = bed.machine::<Clumsy>();
        let call = clumsies.send("c", Deed::Fail("it fell".into())).await.unwrap().call.unwrap();
        bed.advance(Duration::from_secs(5)).await;
        assert_eq!(listener.timeline(call), [
            "DEBUG sent",
            "DEBUG claimed 1",
            "DEBUG started 1",
            "DEBUG ended 1",
            "WARN retried 1",
            "DEBUG claimed 2",
            "DEBUG started 2",
            "DEBUG ended 2",
            "ERROR exhausted 2",
        ]);
        for told in listener.all() {
            assert_eq!((told.0["machine"].as_str(), told.0["key"].as_str()), ("clumsy", "c"), "{told:?}");
            if told.0["message"] == "sent" {
                assert_eq!((told.0["event"].as_str(), told.0["outcome"].as_str()), ("Deed", "Started"));
            } else {
                assert_eq!(told.0["verb"], "did", "{told:?}");
            }
        }
        let retried = listener.all().into_iter().find(|told| told.0["message"] == "retried").unwrap();
        assert_eq!((retried.0["error"].as_str(), retried.0["next"].as_str(), retried.0["next_at"].as_str()), ("it fell", "2", "2030-01-01T00:00:05Z"));
        let exhausted = listener.all().into_iter().find(|told| told.0["message"] == "exhausted").unwrap();
        assert_eq!(exhausted.0["error"], "it fell");
    }
}

mod a_lost_attempt_is_normal_operation_and_is_logged_at_info {
    use super::*;
    use crate::durable::{Load, Ship, Stall, once, stalling};

    async fn check(bed: &TestBed, stall: &Stall) {
        let (listener, _guard) = listen();
        let ships = bed.machine::<Ship>();
        let call = ships.send("s-1", Load).await.unwrap().call.unwrap();
        stall.entered.notified().await;
        bed.restart().await;
        bed.advance(Duration::from_secs(60)).await;
        assert_eq!(
            listener.timeline(call),
            [
                "DEBUG sent",
                "DEBUG claimed 1",
                "DEBUG started 1",
                "INFO lost 1",
                "INFO retried 1",
                "DEBUG claimed 2",
                "DEBUG started 2",
                "DEBUG ended 2",
            ]
        );
        crate::support::assert_invariants_hold(bed).await;
    }

    #[cfg(feature = "sqlite")]
    #[tokio::test]
    async fn sqlite() {
        let stall = once();
        check(&stalling(&stall).sqlite().await, &stall).await;
    }

    #[cfg(feature = "postgres")]
    #[tokio::test]
    async fn postgres() {
        let stall = once();
        check(&stalling(&stall).postgres().await, &stall).await;
    }
}

promise! {
    async fn an_attempt_that_fails_because_a_stored_value_cannot_be_read_is_told_at_warn(bed in clumsy().only::<SqlRunner>()) {
        let clumsies = bed.machine::<Clumsy>();
        let call = clumsies.send("c", Deed::Fail("it fell".into())).await.unwrap().call.unwrap();
        bed.run_until_idle().await;
        run(bed, format!("update fsm_instances set record = {} where key = 'c'", bytes(bed, "[true]"))).await;
        let (listener, _guard) = listen();
        bed.advance(Duration::from_secs(5)).await;
        let warned = "WARN an attempt failed without its verb: this program cannot read a stored value 2";
        assert_eq!(listener.timeline(call), ["DEBUG claimed 2", "DEBUG started 2", warned, "DEBUG ended 2", "ERROR exhausted 2"]);
        let told = listener.all().into_iter().find(|told| told.0.contains_key("error")).unwrap();
        assert!(told.0["error"].starts_with("the record does not decode as `Tally`: "), "{told:?}");
        assert_eq!((told.0["key"].as_str(), told.0["verb"].as_str()), ("c", "did"));
    }
}
