//! The machine of an order, with the program's own table of invoices.

use fsm::prelude::*;
use futures_util::future::BoxFuture;
use serde::{Deserialize, Serialize};

/// A customer orders something.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Place {
    pub customer: String,
    pub cents: i64,
}
/// The payment provider received the money.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Paid {
    pub receipt: String,
}
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Cancel {
    pub reason: String,
}
/// The order itself asks for this.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Ship;

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Details {
    pub customer: String,
    pub cents: i64,
    pub receipt: Option<String>,
    /// The number of invoices that were written for this order.
    pub invoices: i64,
    pub parcel: Option<String>,
}

#[verb]
async fn placed(details: &mut Details, event: Place) -> Result {
    details.customer = event.customer;
    details.cents = event.cents;
    Ok(())
}

/// Writes the invoice into the program's own table. The row, the transition and the request for the next event are one commit: after a crash
/// there are all of them or none.
#[verb]
#[retry(5, "1s", "1m")]
async fn paid(ctx: &mut Ctx<'_>, details: &mut Details, shop: Data<Shop>, event: Paid) -> Result {
    let key = ctx.key().to_owned();
    ctx.next(Ship)?;
    details.invoices = shop.invoice(ctx, &key, details.cents, &event.receipt).await?;
    details.receipt = Some(event.receipt);
    Ok(())
}

/// Hands the parcel to the carrier. The carrier knows the idempotency key of a repeated request, so no order is shipped twice.
#[verb(timeout = "30s")]
#[retry(10, "1s", "1h")]
async fn shipped(ctx: &mut Ctx<'_>, details: &mut Details, carrier: Data<dyn Carrier>, _event: Ship) -> Result {
    details.parcel = Some(carrier.ship(ctx.idempotency_key(), &details.customer).await);
    Ok(())
}

#[verb]
async fn cancelled(_event: Cancel) -> Result {
    Ok(())
}

#[verb]
async fn expired(_timeout: Timeout) -> Result {
    Ok(())
}

fsm! {
    /// An order, from the basket to the parcel.
    pub machine Order = "web-order" {
        retry(3, "1s", "1m");
        keeps Details;
        start placed;
        placed -> paid | cancelled;
        placed after "2h" -> expired;
        paid -> shipped;
        end shipped, cancelled, expired;
    }
}

/// A company that delivers parcels. A test has another implementation.
pub trait Carrier: Send + Sync {
    /// Ships once for each key, and returns the number of the parcel.
    fn ship<'s>(&'s self, idempotency_key: &'s str, customer: &'s str) -> BoxFuture<'s, String>;
}

/// A stand-in for a carrier.
pub struct Post;
impl Carrier for Post {
    fn ship<'s>(&'s self, idempotency_key: &'s str, _customer: &'s str) -> BoxFuture<'s, String> {
        Box::pin(async move { format!("parcel-{}", &idempotency_key[..8]) })
    }
}

/// The program's own tables.
pub struct Shop {
    pub is_postgres: bool,
}

impl Shop {
    /// Writes an invoice in the transaction of the present transition. Returns the number of invoices of the order.
    async fn invoice(&self, ctx: &mut Ctx<'_>, order: &str, cents: i64, receipt: &str) -> Result<i64> {
        // The example makes its table here, so that it runs on any database. Other programs make theirs at the start.
        let table = "create table if not exists example_invoices (order_key text not null, cents bigint not null, receipt text not null)";
        let insert = "insert into example_invoices (order_key, cents, receipt) values ($1, $2, $3)";
        let count = "select count(*) from example_invoices where order_key = $1";
        use fsm::sqlx::{query, query_scalar};
        if self.is_postgres {
            let conn = ctx.postgres().await?;
            query(table).execute(&mut *conn).await?;
            query(insert).bind(order).bind(cents).bind(receipt).execute(&mut *conn).await?;
            Ok(query_scalar(count).bind(order).fetch_one(&mut *conn).await?)
        } else {
            let conn = ctx.sqlite().await?;
            query(table).execute(&mut *conn).await?;
            query(insert).bind(order).bind(cents).bind(receipt).execute(&mut *conn).await?;
            Ok(query_scalar(count).bind(order).fetch_one(&mut *conn).await?)
        }
    }
}
