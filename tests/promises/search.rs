//! Instances are found by fields of their records. The values are committed with the transitions that change them.

use std::time::Duration;

use fsm::prelude::*;
use fsm::testing::{TestBed, TestBedBuilder};
use serde::{Deserialize, Serialize};

use crate::console::Browser;
use crate::sql_runner::is_postgres;
use crate::support::{Folder, in_own_transaction, promise};

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
struct Order {
    customer: String,
    tenant: Tenant,
    cents: u64,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Tenant(u32);

impl std::fmt::Display for Tenant {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "t-{}", self.0)
    }
}

#[derive(Debug, Clone, Serialize, Deserialize)]
struct Place {
    customer: String,
    tenant: u32,
    fails: bool,
}
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Rename {
    customer: String,
    in_own_sql: Option<bool>,
}
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Look;
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Start(Vec<String>);

#[verb]
#[retry(1, "1h")]
async fn placed(record: &mut Order, event: Place) -> Result {
    if event.fails {
        return Err(Failure::new("out of stock"));
    }
    *record = Order { customer: event.customer, tenant: Tenant(event.tenant), cents: 1 };
    Ok(())
}
#[verb]
async fn renamed(ctx: &mut Ctx<'_>, record: &mut Order, event: Rename) -> Result {
    if let Some(is_postgres) = event.in_own_sql {
        in_own_transaction!(ctx, is_postgres, conn => fsm::sqlx::query("select 1").execute(conn).await.map(drop)?);
    }
    record.customer = event.customer;
    Ok(())
}
#[verb]
async fn looked(_event: Look) -> Result {
    Ok(())
}
/// Sends an order for each customer.
#[verb]
async fn started(ctx: &mut Ctx<'_>, event: Start) -> Result {
    for customer in event.0 {
        ctx.send::<Shop>(format!("o-{customer}"), Place { customer, tenant: 1, fails: true })?;
    }
    Ok(())
}

fsm! {
    machine Shop = "search-order" {
        keeps Order, search(customer, tenant);
        start placed;
        any(placed, renamed, looked) -> renamed | looked;
    }
}
fsm! {
    machine Plain = "search-plain" {
        start started;
        end started;
    }
}

fn shops() -> TestBedBuilder {
    TestBed::builder().only::<Shop>().only::<Plain>()
}

fn order(customer: &str, tenant: u32) -> Place {
    Place { customer: customer.to_owned(), tenant, fails: false }
}

/// The keys of the instances that the filter selects.
async fn keys(bed: &TestBed, filter: Filter) -> Vec<String> {
    bed.machine::<Shop>().list(filter).await.unwrap().items.into_iter().map(|found| found.key).collect()
}

async fn of_customer(bed: &TestBed, customer: &str) -> Vec<String> {
    keys(bed, Filter::default().field("customer", customer)).await
}

promise! {
    async fn instances_are_found_by_the_fields_of_their_records(bed in shops()) {
        let shops = bed.machine::<Shop>();
        for n in 0..12 {
            shops.send(format!("2026-{n:02}"), order(&format!("c-{}", n % 3), n % 2)).await.unwrap();
        }
        bed.run_until_idle().await;
        assert_eq!(of_customer(bed, "c-1").await, ["2026-01", "2026-04", "2026-07", "2026-10"]);
        let both = Filter::default().field("customer", "c-1").field("tenant", Tenant(1));
        assert_eq!(keys(bed, both.clone()).await, ["2026-01", "2026-07"]);
        assert_eq!(keys(bed, both.key_prefix("2026-07")).await, ["2026-07"]);
        assert_eq!(keys(bed, Filter::default().field("tenant", "t-1").state(ShopState::Renamed)).await, [""; 0]);
        let fields = shops.get("2026-07").await.unwrap().unwrap().fields;
        let fields: Vec<_> = fields.iter().map(|field| (field.name.as_str(), field.value.as_str())).collect();
        assert_eq!(fields, [("customer", "c-1"), ("tenant", "t-1")]);
        assert!(of_customer(bed, "c-9").await.is_empty());
    }
}

promise! {
    async fn a_list_by_a_field_continues_after_each_page(bed in shops()) {
        let shops = bed.machine::<Shop>();
        for n in 0..25 {
            shops.send(format!("o-{n:02}"), order("c-1", n % 2)).await.unwrap();
        }
        bed.run_until_idle().await;
        let (mut found, mut filter) = (Vec::new(), Filter::default().field("customer", "c-1").field("tenant", "t-0").limit(5));
        loop {
            let page = shops.list(filter.clone()).await.unwrap();
            found.extend(page.items.into_iter().map(|one| one.key));
            let Some(next) = page.next else { break };
            filter = filter.after(next);
        }
        let expected: Vec<_> = (0..25).step_by(2).map(|n| format!("o-{n:02}")).collect();
        assert_eq!(found, expected);
    }
}

promise! {
    async fn a_transition_commits_the_values_that_it_changes(bed in shops()) {
        let shops = bed.machine::<Shop>();
        shops.send("o", order("c-1", 1)).await.unwrap();
        bed.run_until_idle().await;
        for (n, in_own_sql) in [None, Some(is_postgres(bed))].into_iter().enumerate() {
            shops.send("o", Rename { customer: format!("new-{n}"), in_own_sql }).await.unwrap();
            bed.run_until_idle().await;
            assert_eq!(of_customer(bed, &format!("new-{n}")).await, ["o"]);
        }
        assert!(of_customer(bed, "c-1").await.is_empty() && of_customer(bed, "new-0").await.is_empty());
        shops.send("o", Look).await.unwrap();
        bed.run_until_idle().await;
        assert_eq!(of_customer(bed, "new-1").await, ["o"], "a verb without the record keeps the values");
        assert_eq!(keys(bed, Filter::default().field("tenant", "t-1")).await, ["o"]);
    }
}

promise! {
    async fn an_instance_without_a_record_is_found_by_the_event_that_created_it(bed in shops()) {
        let shops = bed.machine::<Shop>();
        shops.send("fails", Place { fails: true, ..order("c-1", 7) }).await.unwrap();
        shops.send("later", order("c-1", 7)).after(Duration::from_secs(60)).await.unwrap();
        let many: Vec<_> = shops.send_many([("many", order("c-1", 7))]).collect().await.unwrap();
        assert!(many.iter().all(Result::is_ok));
        bed.machine::<Plain>().send("p", Start(vec!["c-1".to_owned()])).await.unwrap();
        bed.run_until_idle().await;
        assert_eq!(of_customer(bed, "c-1").await, ["fails", "later", "many", "o-c-1"]);
        assert_eq!(shops.get("fails").await.unwrap().unwrap().status, Status::Running);
        // The event has a number, and the field of the record shows itself otherwise.
        assert_eq!(keys(bed, Filter::default().field("tenant", 7)).await, ["fails", "later"]);
        assert_eq!(keys(bed, Filter::default().field("tenant", Tenant(7))).await, ["many"]);
    }
}

promise! {
    async fn a_field_that_is_not_declared_is_an_error_that_lists_the_declared_ones(bed in shops()) {
        let error = bed.machine::<Shop>().list(Filter::default().field("custmer", "c-1")).await.unwrap_err();
        assert!(error.is_input(), "{error}");
        let expected = "`search-order` has no search field `custmer`; it has `customer` and `tenant`; did you mean `customer`?";
        assert_eq!(error.to_string(), expected);
        let error = bed.machine::<Plain>().list(Filter::default().field("customer", "c-1")).await.unwrap_err();
        assert!(error.to_string().contains("it has none"), "{error}");
    }
}

promise! {
    async fn a_value_of_more_than_255_bytes_is_found_by_its_beginning(bed in shops()) {
        let long = format!("{}é{}", "x".repeat(254), "y".repeat(300));
        bed.machine::<Shop>().send("o", order(&long, 1)).await.unwrap();
        bed.machine::<Shop>().send("nul", order("a\0b", 1)).await.unwrap();
        bed.run_until_idle().await;
        assert_eq!(of_customer(bed, &long).await, ["o"]);
        assert_eq!(of_customer(bed, &"x".repeat(254)).await, ["o"]);
        assert_eq!(of_customer(bed, "a\0b").await, ["nul"]);
        let record = bed.machine::<Shop>().get("o").await.unwrap().unwrap().record;
        assert_eq!(record.customer, long, "the record itself is not cut");
    }
}

promise! {
    async fn an_act_goes_to_the_instances_that_have_a_value(bed in shops()) {
        let shops = bed.machine::<Shop>();
        for n in 0..4 {
            shops.send(format!("o-{n}"), order(&format!("c-{}", n % 2), 1)).await.unwrap();
        }
        bed.run_until_idle().await;
        let outcome = shops.bulk(Filter::default().field("customer", "c-1")).pause().await.unwrap();
        assert_eq!(outcome.done, ["o-1", "o-3"]);
        assert_eq!(keys(bed, Filter::default().paused(true)).await, ["o-1", "o-3"]);
    }
}

promise! {
    async fn the_values_of_deleted_instances_are_deleted(bed in shops().with(|builder| builder.retention(Duration::from_secs(3600)))) {
        let shops = bed.machine::<Shop>();
        shops.send("o", order("c-1", 1)).await.unwrap();
        bed.run_until_idle().await;
        shops.cancel("o", "a test").await.unwrap();
        bed.advance(Duration::from_secs(2 * 3600)).await;
        assert!(shops.get("o").await.unwrap().is_none());
        assert!(of_customer(bed, "c-1").await.is_empty());
        shops.send("o", order("c-2", 1)).await.unwrap();
        bed.run_until_idle().await;
        assert_eq!(of_customer(bed, "c-2").await, ["o"]);
    }
}

#[cfg(feature = "sqlite")]
#[tokio::test(flavor = "multi_thread")]
async fn the_console_lists_the_instances_with_a_value_of_a_search_field() {
    let folder = Folder::new("search-console");
    let runtime = Runtime::builder().database(folder.url("fsm.db")).only::<Shop>().start().await.unwrap();
    let orders = runtime.machine::<Shop>();
    for (key, customer, tenant) in [("o-1", "ada", 1), ("o-2", "bob", 1), ("o-3", "ada", 2)] {
        orders.send(key, Place { customer: customer.into(), tenant, fails: false }).await.unwrap();
        orders.settled(key).within(Duration::from_secs(60)).await.unwrap();
    }
    let browser = Browser::of(fsm::console(&runtime).authorize(|_| fsm::Access::Viewer.into()));
    for (facets, expected) in [("field.customer=ada", [true, false, true]), ("field.customer=ada&field.tenant=t-2", [false, false, true])] {
        let page = browser.get(&format!("/instances?machine=search-order&{facets}")).await.text;
        let shown = ["o-1", "o-2", "o-3"].map(|key| page.contains(&format!(">{key}<")));
        assert_eq!(shown, expected, "{facets}: {page}");
    }
    runtime.shutdown().await.unwrap();
}
