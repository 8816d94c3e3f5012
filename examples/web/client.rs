//! A client of the example's own server: it orders something and prints the answers.

use std::error::Error;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use serde_json::{Value, json};

type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

/// The time limit of one request.
const LIMIT: Duration = Duration::from_secs(30);

/// Returns true if every answer was as expected.
pub async fn tour(address: SocketAddr) -> Outcome<bool> {
    let mut is_well = true;
    let mut expect = |what: &str, (status, body): (u16, String), expected: u16| {
        println!("\n{what}\n    {status} {body}");
        is_well &= status == expected;
        body
    };
    // The database may hold orders of earlier runs.
    let id = std::process::id();
    let order = format!("/orders/order-{id}");
    let basket = json!({ "customer": "ada", "cents": 1200 });
    let changes = tokio::task::spawn_blocking({
        let order = order.clone();
        move || request(address, "GET", &format!("{order}/events"), None, None)
    });
    let early = changes.await??;
    expect("GET …/events of an order that is not there", early, 200);
    expect("POST /orders", send(address, "/orders", Some(id), basket.clone()).await?, 201);
    expect("the same request again", send(address, "/orders", Some(id), basket).await?, 200);

    let changes = tokio::task::spawn_blocking({
        let order = order.clone();
        move || request(address, "GET", &format!("{order}/events"), None, None)
    });
    let message =
        |event: &str, data: Value| json!({ "id": format!("{event}-{id}"), "order": format!("order-{id}"), "type": event, "data": data });
    let paid = message("Paid", json!({ "receipt": "r-1" }));
    expect("the payment provider's message", send(address, "/webhooks/payment", None, paid.clone()).await?, 204);
    expect("the same message again", send(address, "/webhooks/payment", None, paid).await?, 204);
    let events = expect("GET …/events, until the order has ended", changes.await??, 200);
    let cancel = message("Cancel", json!({ "reason": "too late" }));
    expect("a cancellation that comes too late", send(address, "/webhooks/payment", None, cancel).await?, 409);
    let shown = tokio::task::spawn_blocking(move || request(address, "GET", &order, None, None)).await??;
    let shown: Value = serde_json::from_str(&expect("GET /orders/…", shown, 200))?;

    is_well &= events.contains(r#""state":"shipped""#);
    is_well &= shown["status"] == "completed" && shown["record"]["invoices"] == 1;
    println!("\n{}", if is_well { "Every answer was as expected." } else { "AN ANSWER WAS NOT AS EXPECTED." });
    Ok(is_well)
}

async fn send(address: SocketAddr, path: &'static str, idempotency_key: Option<u32>, body: Value) -> Outcome<(u16, String)> {
    tokio::task::spawn_blocking(move || request(address, "POST", path, idempotency_key, Some(body))).await?
}

/// One request of HTTP/1.0: the connection ends with the answer.
fn request(address: SocketAddr, method: &str, path: &str, idempotency_key: Option<u32>, body: Option<Value>) -> Outcome<(u16, String)> {
    let mut connection = TcpStream::connect(address)?;
    connection.set_read_timeout(Some(LIMIT))?;
    let body = body.map(|body| body.to_string()).unwrap_or_default();
    let key = idempotency_key.map(|key| format!("idempotency-key: {key}\r\n")).unwrap_or_default();
    let head = format!("{method} {path} HTTP/1.0\r\ncontent-type: application/json\r\ncontent-length: {}\r\n{key}\r\n", body.len());
    connection.write_all((head + &body).as_bytes())?;
    let mut answer = String::new();
    connection.read_to_string(&mut answer)?;
    let (head, body) = answer.split_once("\r\n\r\n").ok_or("the answer has no head")?;
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).ok_or("the answer has no status")?;
    Ok((status, body.trim_end().to_owned()))
}
