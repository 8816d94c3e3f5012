//! The console shows full inboxes, and the events that wait in the outbox for room in them.

use std::time::{Duration, Instant};

use axum::body::Body;
use axum::http::Request;
use fsm::prelude::*;
use fsm::{Access, console};
use http_body_util::BodyExt;
use serde::{Deserialize, Serialize};
use tower::ServiceExt;

use crate::support::Folder;

const LIMIT: Duration = Duration::from_secs(60);

#[derive(Debug, Clone, Serialize, Deserialize)]
struct Enqueue;

#[derive(Debug, Clone, Serialize, Deserialize)]
struct Forward;

#[verb]
async fn queued(_event: Enqueue) -> Result {
    Ok(())
}

fsm! {
    machine Queue = "outbox-shown" {
        on Enqueue {
            start queued;
            queued -> queued;
        }
    }
}

#[verb]
async fn forwarded(ctx: &mut Ctx<'_>, _event: Forward) -> Result {
    ctx.send::<Queue>("q-1", Enqueue)?;
    Ok(())
}

fsm! {
    machine Forwarder = "outbox-forwarder" {
        start forwarded;
        end forwarded;
    }
}

/// A paused instance has one place in its inbox. The first event is the held call, the second takes the place, and the third waits in the
/// outbox.
async fn the_console_shows(url: &str) {
    let runtime = Runtime::builder().database(url).only::<Queue>().only::<Forwarder>().inbox_limit(1).start().await.unwrap();
    let queues = runtime.machine::<Queue>();
    queues.send("q-1", Enqueue).await.unwrap();
    queues.settled("q-1").within(LIMIT).await.unwrap();
    queues.pause("q-1").await.unwrap();
    for _ in 0..2 {
        queues.send("q-1", Enqueue).await.unwrap();
    }
    runtime.machine::<Forwarder>().send("f-1", Forward).await.unwrap();
    let router = console(&runtime).authorize(|_| Access::Viewer.named("ada")).router();
    let page = async |path: &str| {
        let answer = router.clone().oneshot(Request::get(path).body(Body::empty()).unwrap()).await.unwrap();
        String::from_utf8(answer.into_body().collect().await.unwrap().to_bytes().to_vec()).unwrap()
    };
    let begun = Instant::now();
    loop {
        let (instance, errors) = (page("/i/outbox-shown/q-1").await, page("/errors").await);
        let is_listed = !errors.contains("Every event that a verb sent found room.") && errors.contains("/i/outbox-shown/q-1");
        if instance.contains("The inbox is full. 1 more wait in the outbox since") && is_listed {
            break;
        }
        assert!(begun.elapsed() < LIMIT, "{instance}\n{errors}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    queues.resume("q-1").await.unwrap();
    queues.settled("q-1").within(LIMIT).await.unwrap();
    while queues.get("q-1").await.unwrap().unwrap().version < 4 {
        assert!(begun.elapsed() < LIMIT, "the event is not delivered");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert!(page("/errors").await.contains("Every event that a verb sent found room."));
    runtime.shutdown().await.unwrap();
}

mod the_console_shows_full_inboxes_and_the_events_that_wait_for_them {
    use super::*;

    #[cfg(feature = "sqlite")]
    #[tokio::test]
    async fn sqlite() {
        let folder = Folder::new("outbox-shown");
        the_console_shows(&folder.url("fsm.db")).await;
    }

    #[cfg(feature = "postgres")]
    #[tokio::test]
    async fn postgres() {
        let bed = crate::clumsy::clumsy().postgres().await;
        the_console_shows(bed.url()).await;
    }
}
