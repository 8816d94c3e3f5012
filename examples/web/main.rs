//! Orders behind HTTP (axum): an idempotent POST, a webhook with deduplication, the program's own table in the same commit, server-sent events,
//! and a graceful shutdown of server and workers together.
//!
//! ```sh
//! cargo run --example web                                                # a client of its own orders something, and the program ends
//! cargo run --example web -- --listen 127.0.0.1:8080                     # serves until Ctrl-C
//! cargo run --example web -- --database postgres://… --listen 127.0.0.1:8080
//!
//! curl -i localhost:8080/orders -H 'idempotency-key: 7' -H 'content-type: application/json' -d '{"customer": "ada", "cents": 1200}'
//! curl -N localhost:8080/orders/order-7/events &
//! curl -i localhost:8080/webhooks/payment -H 'content-type: application/json' \
//!     -d '{"id": "evt-1", "order": "order-7", "type": "Paid", "data": {"receipt": "r-1"}}'
//! curl -s localhost:8080/orders/order-7
//! ```
//!
//! Without `--listen`, the program exits with status 1 if an answer is not as expected.

mod client;
mod orders;
mod routes;

use std::error::Error;
use std::process::ExitCode;
use std::sync::Arc;

use fsm::prelude::*;
use tokio::net::TcpListener;

use orders::{Carrier, Order, Post, Shop};
use routes::App;

/// Serves until a signal, or until the program's own client has ended if there is no address to listen on. Returns true if all is well.
async fn serve(url: &str, listen: Option<&str>) -> Result<bool, Box<dyn Error + Send + Sync>> {
    let carrier: Arc<dyn Carrier> = Arc::new(Post);
    let shop = Shop { is_postgres: url.starts_with("postgres") };
    let runtime = Runtime::builder().database(url).only::<Order>().data(shop).data_arc(carrier).start().await?;
    let shutdown = runtime.shutdown_handle();

    let listener = TcpListener::bind(listen.unwrap_or("127.0.0.1:0")).await?;
    let address = listener.local_addr()?;
    let app = App { orders: runtime.machine(), shutdown: shutdown.clone() };
    let server = axum::serve(listener, routes::router(app)).with_graceful_shutdown(shutdown.requested());
    let server = tokio::spawn(server.into_future());
    println!("listening on http://{address}");

    let tour = listen.is_none().then(|| {
        tokio::spawn(async move {
            let toured = client::tour(address).await;
            shutdown.shutdown().await?;
            toured
        })
    });

    // A signal or the shutdown handle ends both: the server answers its open requests, and the workers finish their attempts.
    runtime.run_until_signal().await?;
    server.await??;
    match tour {
        Some(tour) => tour.await?,
        None => Ok(true),
    }
}

fn arguments() -> Result<(String, Option<String>), String> {
    let file = std::env::temp_dir().join(format!("fsm-web-{}.db", std::process::id()));
    let (mut url, mut listen) = (format!("sqlite://{}", file.display()), None);
    let mut arguments = std::env::args().skip(1);
    while let Some(option) = arguments.next() {
        match (option.as_str(), arguments.next()) {
            ("--database", Some(value)) => url = value,
            ("--listen", Some(value)) => listen = Some(value),
            _ => return Err("usage: web [--database URL] [--listen ADDRESS]".to_owned()),
        }
    }
    Ok((url, listen))
}

#[tokio::main]
async fn main() -> ExitCode {
    let (url, listen) = match arguments() {
        Ok(arguments) => arguments,
        Err(usage) => {
            eprintln!("{usage}");
            return ExitCode::from(2);
        }
    };
    match serve(&url, listen.as_deref()).await {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("web: {error}");
            ExitCode::FAILURE
        }
    }
}
