//! The HTTP interface: how requests become events, and how errors become status codes.

use axum::extract::{FromRef, Path, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use fsm::{ErrorKind, Handle, Instance, SendOutcome, ShutdownHandle};
use futures_util::stream::{Stream, StreamExt};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::orders::{Order, Place};

/// The shared state of the routes. Cheap to clone.
#[derive(Clone)]
pub struct App {
    pub orders: Handle<Order>,
    pub shutdown: ShutdownHandle,
}

impl FromRef<App> for Handle<Order> {
    fn from_ref(app: &App) -> Handle<Order> {
        app.orders.clone()
    }
}

pub fn router(app: App) -> Router {
    Router::new()
        .route("/orders", post(place))
        .route("/orders/{key}", get(show))
        .route("/orders/{key}/events", get(events))
        .route("/webhooks/payment", post(webhook))
        .with_state(app)
}

/// Places an order. The client's idempotency key is the deduplication id: the same request again gets the same answer and changes nothing.
/// When this answers, the order is durable.
pub async fn place(State(orders): State<Handle<Order>>, headers: HeaderMap, Json(order): Json<Place>) -> Result<Response, Problem> {
    let id = headers.get("idempotency-key").and_then(|value| value.to_str().ok());
    let id = id.ok_or_else(|| Problem(StatusCode::BAD_REQUEST, "the header `idempotency-key` is missing".to_owned()))?;
    let key = format!("order-{id}");
    let sent = orders.send(&key, order).dedup(id).await?;
    let status = if sent.outcome == SendOutcome::Duplicate { StatusCode::OK } else { StatusCode::CREATED };
    Ok((status, Json(json!({ "order": key }))).into_response())
}

/// The order as it is now.
pub async fn show(State(orders): State<Handle<Order>>, Path(key): Path<String>) -> Result<Json<Instance<Order>>, Problem> {
    let order = orders.get(&key).await?;
    order.map(Json).ok_or_else(|| Problem(StatusCode::NOT_FOUND, format!("there is no order `{key}`")))
}

/// A message of the payment provider, which repeats it until it gets an answer of 2xx.
#[derive(Debug, Clone, Deserialize)]
pub struct Notice {
    /// The provider's id of the notice.
    pub id: String,
    pub order: String,
    /// The name of the event type.
    #[serde(rename = "type")]
    pub event: String,
    pub data: Value,
}

/// Turns a message into the event of the same name. The id of the message is the deduplication id.
pub async fn webhook(State(orders): State<Handle<Order>>, Json(notice): Json<Notice>) -> Result<StatusCode, Problem> {
    orders.send_json(&notice.order, &notice.event, &notice.data).dedup(&notice.id).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Streams each change of an order as a server-sent event, until the order has ended or the program shuts down.
async fn events(State(app): State<App>, Path(key): Path<String>) -> Sse<impl Stream<Item = Result<Event, axum::Error>>> {
    let changes = app.orders.watch(&key).map(|seen| match seen {
        Ok(order) => Event::default().event("order").json_data(&order),
        Err(error) => Ok(Event::default().event("error").data(error.to_string())),
    });
    Sse::new(changes.take_until(app.shutdown.requested())).keep_alive(KeepAlive::default())
}

/// An answer that is not a success.
#[derive(Debug)]
pub struct Problem(pub StatusCode, pub String);

impl From<fsm::Error> for Problem {
    fn from(error: fsm::Error) -> Problem {
        let status = match error.kind() {
            // The event does not fit the state of the order, or the same id came with other content.
            ErrorKind::Refused | ErrorKind::Conflict => StatusCode::CONFLICT,
            ErrorKind::NotFound => StatusCode::NOT_FOUND,
            ErrorKind::Input => StatusCode::UNPROCESSABLE_ENTITY,
            ErrorKind::Busy => StatusCode::TOO_MANY_REQUESTS,
            ErrorKind::Database | ErrorKind::Stopping => StatusCode::SERVICE_UNAVAILABLE,
            _ => StatusCode::INTERNAL_SERVER_ERROR,
        };
        Problem(status, error.to_string())
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        (self.0, Json(json!({ "error": self.1 }))).into_response()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use fsm::prelude::*;
    use fsm::testing::{Effects, TestBed, TestBedBuilder};
    use futures_util::future::BoxFuture;

    use super::*;
    use crate::orders::{Carrier, OrderState, Shop};

    /// A carrier whose parcels the test counts.
    struct Counted(Effects);
    impl Carrier for Counted {
        fn ship<'s>(&'s self, idempotency_key: &'s str, customer: &'s str) -> BoxFuture<'s, String> {
            Box::pin(async move {
                self.0.keyed(idempotency_key, format!("parcel to {customer}")).await;
                "parcel-1".to_owned()
            })
        }
    }

    fn shop(is_postgres: bool) -> TestBedBuilder {
        let effects = Effects::default();
        let carrier: Arc<dyn Carrier> = Arc::new(Counted(effects.clone()));
        TestBed::builder().only::<Order>().data(Shop { is_postgres }).data(effects).data_arc(carrier)
    }

    fn headers(id: &str) -> HeaderMap {
        HeaderMap::from_iter([("idempotency-key".parse().expect("a name"), id.parse().expect("a value"))])
    }

    fn notice(id: &str, event: &str, data: Value) -> Json<Notice> {
        Json(Notice { id: id.into(), order: "order-7".into(), event: event.into(), data })
    }

    fn basket() -> Json<Place> {
        Json(Place { customer: "ada".into(), cents: 1200 })
    }

    /// The client and the payment provider repeat their requests after a crash, as they do when they get no answer.
    async fn order(bed: Arc<TestBed>) -> (Option<OrderState>, i64) {
        let orders = bed.machine::<Order>();
        let placed = place(State(orders.clone()), headers("7"), basket()).await.expect("the order is accepted");
        assert!(placed.status().is_success());
        let paid = notice("evt-1", "Paid", json!({ "receipt": "r-1" }));
        assert_eq!(webhook(State(orders.clone()), paid).await.expect("the message is accepted"), StatusCode::NO_CONTENT);
        bed.run_until_idle().await;
        bed.advance(Duration::from_secs(60)).await;
        let Json(order) = show(State(orders), Path("order-7".into())).await.expect("the order is there");
        (order.state, order.record.invoices)
    }

    #[tokio::test]
    async fn a_crash_at_any_point_changes_nothing_about_the_end() {
        let crashes = shop(false).sqlite().await.crash_at_every_point(order).await;
        assert!(crashes.points > 20, "{crashes}");
    }

    #[tokio::test]
    async fn an_order_ends_with_one_invoice_on_postgresql_too() {
        let bed = Arc::new(shop(true).postgres().await);
        assert_eq!(order(bed).await, (Some(OrderState::Shipped), 1));
    }

    #[tokio::test]
    async fn requests_and_messages_are_known_again_and_errors_have_their_status() {
        let bed = Arc::new(shop(false).sqlite().await);
        assert_eq!(order(bed.clone()).await, (Some(OrderState::Shipped), 1));
        let orders = bed.machine::<Order>();
        let again = place(State(orders.clone()), headers("7"), basket()).await.expect("it is known again");
        assert_eq!(again.status(), StatusCode::OK);
        let other = Json(Place { customer: "ada".into(), cents: 1 });
        assert_eq!(place(State(orders.clone()), headers("7"), other).await.expect_err("other content").0, StatusCode::CONFLICT);
        assert_eq!(place(State(orders.clone()), HeaderMap::new(), basket()).await.expect_err("no key").0, StatusCode::BAD_REQUEST);
        for (event, data, status) in [
            ("Cancel", json!({ "reason": "too late" }), StatusCode::CONFLICT),
            ("Refund", json!({}), StatusCode::UNPROCESSABLE_ENTITY),
            ("Paid", json!({ "receipt": 1 }), StatusCode::UNPROCESSABLE_ENTITY),
        ] {
            let refused = webhook(State(orders.clone()), notice("evt-2", event, data)).await.expect_err(event);
            assert_eq!(refused.0, status, "{}", refused.1);
        }
        assert_eq!(show(State(orders), Path("order-8".into())).await.expect_err("no order").0, StatusCode::NOT_FOUND);
    }
}
