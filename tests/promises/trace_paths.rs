//! Traces: all that a send or a verb causes links to it, on every path that an event can take.

use std::collections::HashMap;

use fsm::SendItem;
use fsm::TraceContext;
use fsm::prelude::*;
use fsm::testing::{TestBed, TestBedBuilder};
use opentelemetry_sdk::trace::{Sampler, SpanData};
use serde::{Deserialize, Serialize};
use sqlx::{Connection, PgConnection, SqliteConnection};
use tracing::Instrument;

use crate::family::{Gather, Gathering, family, hand};
use crate::support::{Folder, promise};
use crate::trace_contexts::{HOUR, Spans, field, follows, recorded, recorded_by};

#[derive(Debug, Clone, Serialize, Deserialize)]
struct Depart;
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Arrive;
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Write;
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Read;
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Answer;
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Discard;

#[verb]
async fn departed(ctx: &mut Ctx<'_>, _event: Depart) -> Result {
    Ok(ctx.next(Arrive)?)
}

/// Starts children and sends cards, one of them in an hour.
#[verb]
async fn arrived(ctx: &mut Ctx<'_>, _event: Arrive) -> Result {
    ctx.child::<Card>("child", Write)?;
    ctx.start_children::<Card>([("one", Write), ("other", Write)])?;
    ctx.send::<Card>("now", Write)?;
    ctx.send::<Card>("later", Write)?.after(HOUR);
    ctx.send::<Card>("held", Answer)?;
    Ok(())
}

#[verb]
async fn returned(_all: ChildrenEnded) -> Result {
    Ok(())
}

#[verb]
#[retry(1, "5s", catch = forgotten)]
async fn written(ctx: &mut Ctx<'_>, _event: Write) -> Result {
    if ctx.key() == "lost" { Err(Failure::new("no pen")) } else { Ok(()) }
}

#[verb]
async fn forgotten(_caught: Caught<Write>) -> Result {
    Ok(())
}

/// Succeeds five seconds after the first attempt. The card is busy until then.
#[verb]
#[retry(1, "5s")]
async fn read(ctx: &mut Ctx<'_>, _event: Read) -> Result {
    if ctx.attempt() == 1 { Err(Failure::new("the glasses are not here")) } else { Ok(()) }
}

#[verb]
async fn thrown_away(_event: Discard) -> Result {
    Ok(())
}

#[verb]
async fn answered(_event: Answer) -> Result {
    Ok(())
}

fsm! {
    machine Journey = "traced-journey" {
        start departed;
        departed -> arrived;
        arrived -> returned;
        end returned;
    }
}

fsm! {
    machine Card = "traced-card" {
        start written | read;
        read stays on answered;
        read -> thrown_away;
        end written, thrown_away;
    }
}

fn builder() -> TestBedBuilder {
    TestBed::builder().only::<Journey>().only::<Card>().with(|builder| builder.inbox_limit(1))
}

/// The attempts by verb, key and number.
fn attempts(spans: &Spans) -> HashMap<String, SpanData> {
    let attempts = spans.all().into_iter().filter(|span| span.name == "fsm.attempt");
    let name = |span: &SpanData| ["fsm.verb", "fsm.key", "fsm.attempt"].map(|name| field(span, name)).join(" ");
    attempts.map(|span| (name(&span), span)).collect()
}

#[track_caller]
fn links(attempts: &HashMap<String, SpanData>, later: &str, earlier: &SpanData) {
    let span = attempts.get(later).unwrap_or_else(|| panic!("{later} is not one of {:?}", attempts.keys()));
    assert!(follows(span, earlier), "{later} links to {:?}, not to {:?}", span.links, earlier.span_context);
}

promise! {
    async fn what_a_verb_causes_links_to_its_attempt_on_every_path(bed in builder()) {
        let spans = recorded();
        let bed = builder().beside(bed).await.unwrap();
        let (journeys, cards) = (bed.machine::<Journey>(), bed.machine::<Card>());
        // The card is busy and its inbox is full, so an event of a verb waits in the outbox.
        cards.send("held", Read).await.unwrap();
        bed.run_until_idle().await;
        cards.send("held", Answer).await.unwrap();
        journeys.send("j", Depart).await.unwrap();
        bed.run_until_idle().await;
        assert!(!attempts(&spans).contains_key("answered held 1"));
        bed.advance(HOUR * 2).await;

        let attempts = attempts(&spans);
        links(&attempts, "arrived j 1", &attempts["departed j 1"]);
        let arrived = &attempts["arrived j 1"];
        for card in ["child", "one", "other", "now", "later"] {
            links(&attempts, &format!("written {card} 1"), arrived);
        }
        links(&attempts, "returned j 1", arrived);
        let answers: Vec<_> = spans.all().into_iter().filter(|span| field(span, "fsm.verb") == "answered").collect();
        assert_eq!(answers.len(), 2, "one was sent by the test, and one came out of the outbox");
        assert_eq!(answers.iter().filter(|answer| follows(answer, arrived)).count(), 1);
    }
}

promise! {
    /// They have no sender, so they follow the call of the parent before.
    async fn the_reports_of_children_link_to_the_call_before(bed in family()) {
        let spans = recorded();
        let bed = family().beside(bed).await.unwrap();
        bed.machine::<Gathering>().send("g", Gather { parcels: vec!["ends".into(), "heavy".into()] }).await.unwrap();
        bed.run_until_idle().await;
        hand(&bed, &["ends"]).await;

        let attempts = attempts(&spans);
        links(&attempts, "packed ends 1", &attempts["gathering g 1"]);
        let told: Vec<_> = spans.all().into_iter().filter(|span| field(span, "fsm.key") == "g" && span.name == "fsm.attempt").collect();
        let verbs: Vec<_> = told.iter().map(|span| field(span, "fsm.verb")).collect();
        assert_eq!(verbs, ["gathering", "alarmed", "gathered"]);
        for two in told.windows(2) {
            assert!(follows(&two[1], &two[0]), "{:?} links to {:?}", two[1].attributes, two[1].links);
        }
    }
}

promise! {
    async fn the_catch_verb_links_to_the_last_attempt(bed in builder()) {
        let spans = recorded();
        let bed = builder().beside(bed).await.unwrap();
        bed.machine::<Card>().send("lost", Write).await.unwrap();
        bed.advance(HOUR).await;
        let attempts = attempts(&spans);
        links(&attempts, "written lost 2", &attempts["written lost 1"]);
        links(&attempts, "forgotten lost 1", &attempts["written lost 2"]);
    }
}

promise! {
    async fn each_of_many_sends_has_a_span_of_its_own(bed in builder()) {
        let spans = recorded();
        let bed = builder().beside(bed).await.unwrap();
        let cards = bed.machine::<Card>();
        let items = ["a", "b"].map(|key| SendItem::new(key, Write));
        async { cards.send_many(items).collect().await.unwrap() }.instrument(tracing::info_span!("request")).await;
        bed.run_until_idle().await;
        let (attempts, request) = (attempts(&spans), spans.named("request"));
        for key in ["a", "b"] {
            let send = spans.all().into_iter().find(|span| span.name == "fsm.send" && field(span, "fsm.key") == key).unwrap();
            assert_eq!(send.parent_span_id, request.span_context.span_id());
            links(&attempts, &format!("written {key} 1"), &send);
        }
    }
}

promise! {
    async fn a_trace_waits_with_its_event_in_the_inbox_and_is_that_of_the_first_of_equal_requests(bed in builder()) {
        let spans = recorded();
        let bed = builder().beside(bed).await.unwrap();
        let cards = bed.machine::<Card>();
        let named = |trace: u8| TraceContext::new(&format!("00-{}-00f067aa0ba902b7-01", format!("{trace:02x}").repeat(16)), None).unwrap();
        cards.send("c", Read).await.unwrap();
        bed.run_until_idle().await;
        cards.send("c", Answer).trace(named(1)).dedup("answer").await.unwrap();
        cards.send("c", Answer).trace(named(2)).dedup("answer").await.unwrap();
        bed.advance(HOUR).await;
        let answer = &attempts(&spans)["answered c 1"];
        let linked: Vec<_> = answer.links.iter().map(|link| link.span_context.trace_id().to_string()).collect();
        assert_eq!(linked, [named(1).trace_id()]);
    }
}

promise! {
    /// Each caller has a trace, and one of a hundred is recorded: the others cost no row.
    async fn a_span_that_is_not_sampled_leaves_no_trace_in_the_database(bed in builder()) {
        let spans = recorded_by(Sampler::AlwaysOff);
        let bed = builder().beside(bed).await.unwrap();
        let cards = bed.machine::<Card>();
        cards.send("c", Write).await.unwrap();
        bed.run_until_idle().await;
        assert_eq!(cards.get("c").await.unwrap().unwrap().trace, None);
        assert!(spans.all().is_empty());
        // A context that the caller names is stored as it is.
        let unsampled = TraceContext::new("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00", None).unwrap();
        cards.send("named", Write).trace(unsampled.clone()).await.unwrap();
        assert_eq!(cards.get("named").await.unwrap().unwrap().trace, Some(unsampled));
        bed.run_until_idle().await;
    }
}

/// The same test for both databases, whose transactions are different types.
macro_rules! check {
    ($url:expr, $connection:ty, $begin:expr) => {{
        let spans = recorded();
        let runtime = Runtime::builder().database($url).only::<Card>().start().await.unwrap();
        let cards = runtime.machine::<Card>();
        let mut mine = <$connection>::connect($url).await.unwrap();
        let mut tx = mine.begin_with($begin).await.unwrap();
        cards.send_in(&mut tx, "card", Write).await.unwrap();
        tx.commit().await.unwrap();
        cards.settled("card").within(Duration::from_secs(60)).await.unwrap();
        runtime.shutdown().await.unwrap();
        links(&attempts(&spans), "written card 1", &spans.named("fsm.send"));
        mine.close().await.unwrap();
    }};
}

mod a_trace_is_committed_with_the_callers_own_transaction {
    use super::*;

    #[tokio::test]
    async fn sqlite() {
        let folder = Folder::new("trace-of-send-in");
        check!(&folder.url("cards.db"), SqliteConnection, "begin immediate");
    }

    #[tokio::test]
    async fn postgres() {
        let bed = crate::clumsy::clumsy().postgres().await;
        check!(bed.url(), PgConnection, "begin");
    }
}
