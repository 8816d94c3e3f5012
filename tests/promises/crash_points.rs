//! Crashes between any two statements: either all parts of a transition are in the database, or none: the user's rows, the next event,
//! events to other instances, the record, the timers. The same for a send in the caller's own transaction.

use std::time::Duration;

use fsm::prelude::*;
use fsm::testing::{TestBed, TestBedBuilder};
use serde::{Deserialize, Serialize};
use sqlx::{Connection, PgConnection, SqliteConnection};

use crate::payment::{Payment, checkout, failing, paid_with};
use crate::sql_runner::{SqlRunner, is_postgres, run};
use crate::support::{promise, stride};

const TEN_MINUTES: Duration = Duration::from_secs(600);
const PRICE: i64 = 7;

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
struct Takings {
    cents: i64,
}
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Open;
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Sale {
    is_postgres: bool,
}
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Print;

#[verb]
#[retry("5s")]
async fn opened(_event: Open) -> Result {
    Ok(())
}

/// All parts of a transition: a row of the user's own, the record, the next event, and events to another instance.
#[verb]
#[retry("5s")]
async fn sold(ctx: &mut Ctx<'_>, record: &mut Takings, event: Sale) -> Result {
    let till = ctx.key().to_owned();
    ctx.send::<Shelf>(&till, Take)?;
    ctx.send::<Shelf>(&till, Restock)?.after(TEN_MINUTES);
    ctx.next(Print)?;
    record.cents += PRICE;
    let text = "insert into sales values ($1)";
    if event.is_postgres {
        sqlx::query(text).bind(till).execute(ctx.postgres().await?).await?;
    } else {
        sqlx::query(text).bind(till).execute(ctx.sqlite().await?).await?;
    }
    Ok(())
}

#[verb]
#[retry("5s")]
async fn printed(_event: Print) -> Result {
    Ok(())
}
#[verb]
async fn closed(_timeout: Timeout) -> Result {
    Ok(())
}

fsm! {
    machine Till = "till" {
        keeps Takings;
        start opened;
        opened -> sold;
        sold -> printed;
        printed after "1h" -> closed;
        end closed;
    }
}

#[derive(Debug, Clone, Serialize, Deserialize)]
struct Take;
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Restock;

#[verb]
#[retry("5s")]
async fn taken(_event: Take) -> Result {
    Ok(())
}
#[verb]
#[retry("5s")]
async fn restocked(_event: Restock) -> Result {
    Ok(())
}

fsm! {
    machine Shelf = "shelf" {
        start taken;
        taken -> restocked;
        end restocked;
    }
}

fn tills() -> TestBedBuilder {
    TestBed::builder().only::<Till>().only::<Shelf>().only::<SqlRunner>()
}

/// Runs one till from its opening to the receipt. Running it again changes nothing.
async fn sell(bed: &TestBed, key: &str) {
    let tills = bed.machine::<Till>();
    tills.send(key, Open).dedup("open").await.unwrap();
    tills.send(key, Sale { is_postgres: is_postgres(bed) }).dedup("sale").await.unwrap();
    bed.run_until_idle().await;
}

/// The rows of one till in each table.
#[derive(Debug, PartialEq)]
struct Traces {
    has_sold: bool,
    rows: i64,
    cents: i64,
    is_printing_or_printed: bool,
    has_taken: bool,
    restocks_to_come: i64,
    timers: i64,
}

async fn traces(bed: &TestBed, key: &str) -> Traces {
    let till = bed.machine::<Till>().get(key).await.unwrap();
    let version = till.as_ref().map_or(0, |till| till.version);
    let timers = |machine: &str, kind: &str| {
        format!(
            "select count(*) from fsm_timers t join fsm_instances i on i.instance_id = t.instance_id
             where i.machine = '{machine}' and i.key = '{key}' and t.state {kind}"
        )
    };
    Traces {
        has_sold: version >= 2,
        rows: run(bed, format!("select count(*) from sales where till = '{key}'")).await.unwrap(),
        cents: till.as_ref().map_or(0, |till| till.record.cents),
        is_printing_or_printed: version > 2 || till.and_then(|till| till.call).is_some_and(|call| call.verb == "printed"),
        has_taken: bed.machine::<Shelf>().get(key).await.unwrap().is_some(),
        restocks_to_come: run(bed, timers("shelf", "is null")).await.unwrap(),
        timers: run(bed, timers("till", "= 'printed'")).await.unwrap(),
    }
}

impl Traces {
    fn of(version: i64) -> Traces {
        let (has_sold, once) = (version >= 2, i64::from(version >= 2));
        Traces {
            has_sold,
            rows: once,
            cents: once * PRICE,
            is_printing_or_printed: has_sold,
            has_taken: has_sold,
            restocks_to_come: once,
            timers: i64::from(version == 3),
        }
    }
}

promise! {
    async fn a_process_that_dies_between_any_two_statements_leaves_all_of_a_transition_or_nothing(bed in tills()) {
        run(bed, "create table sales (till text not null)").await;
        let tills = bed.machine::<Till>();
        let mut deaths: u32 = 0;
        for statements in (0..).step_by(stride(bed)) {
            let key = format!("t-{statements}");
            let died = bed.crash_after_statements(statements, sell(bed, &key)).await;
            let version = tills.get(&key).await.unwrap().map_or(0, |till| till.version);
            assert_eq!(traces(bed, &key).await, Traces::of(version), "after {statements} statements");
            if !died {
                assert_eq!(version, 3);
                break;
            }
            deaths += 1;
            // The caller repeats its request, because it received no answer, and the running attempt is found lost.
            tills.send(&key, Open).dedup("open").await.unwrap();
            bed.advance(Duration::from_secs(60)).await;
            sell(bed, &key).await;
            assert_eq!(traces(bed, &key).await, Traces::of(3), "after {statements} statements and all that followed");
        }
        println!("died at {deaths} crash points");
        assert!(deaths as usize * stride(bed) > 30, "there are only {deaths} crash points");

        bed.advance(Duration::from_secs(7200)).await;
        for (machine, state) in [("till", "closed"), ("shelf", "restocked")] {
            let text = format!("select count(*) from fsm_instances where machine = '{machine}' and state = '{state}' and status = 'completed'");
            assert_eq!(run(bed, text).await.unwrap(), i64::from(deaths) + 1, "{machine}");
        }
        assert_eq!(run(bed, "select count(*) from sales").await.unwrap(), i64::from(deaths) + 1);
    }
}

/// A payment that is created and paid in the caller's own transaction, together with a row of the caller's.
macro_rules! dies_in_send_in {
    ($bed:expr, $connection:ty, $begin:expr) => {{
        let bed = &$bed;
        let url = bed.url();
        let payments = bed.machine::<Payment>();
        let mut mine = <$connection>::connect(url).await.unwrap();
        sqlx::raw_sql("create table orders (number text not null)").execute(&mut mine).await.unwrap();
        let mut deaths = 0;
        loop {
            let key = format!("o-{deaths}");
            let died = bed.crash_after_statements(deaths, async {
                let mut own = <$connection>::connect(url).await.unwrap();
                let mut tx = own.begin_with($begin).await.unwrap();
                sqlx::query("insert into orders values ($1)").bind(&key).execute(&mut *tx).await.unwrap();
                payments.send_in(&mut tx, &key, checkout()).await.unwrap();
                payments.send_in(&mut tx, &key, paid_with("r")).await.unwrap();
                payments.send_in(&mut tx, format!("{key}-later"), checkout()).after(TEN_MINUTES).await.unwrap();
                tx.commit().await.unwrap();
            });
            let died = died.await;
            let orders: i64 =
                sqlx::query_scalar("select count(*) from orders where number = $1").bind(&key).fetch_one(&mut mine).await.unwrap();
            let payment = payments.get(&key).await.unwrap();
            let later = payments.get(format!("{key}-later")).await.unwrap();
            assert_eq!(
                (orders, payment.is_some(), later.is_some()),
                if died { (0, false, false) } else { (1, true, true) },
                "after {deaths}"
            );
            if !died {
                break;
            }
            deaths += 1;
        }
        println!("died at {deaths} crash points");
        assert!(deaths > 7, "there are only {deaths} crash points");
        let key = format!("o-{deaths}");
        bed.advance(TEN_MINUTES).await;
        assert_eq!(payments.get(&key).await.unwrap().unwrap().version, 2);
        assert_eq!(payments.get(format!("{key}-later")).await.unwrap().unwrap().version, 1);
        crate::support::assert_invariants_hold(bed).await;
    }};
}

mod a_process_that_dies_in_a_send_of_the_callers_transaction_leaves_nothing {
    use super::*;
    use crate::support::Folder;

    #[tokio::test]
    async fn sqlite() {
        let folder = Folder::new("crash-points");
        dies_in_send_in!(failing(0).on(&folder.url("payments.db")).await, SqliteConnection, "begin immediate");
    }

    #[tokio::test]
    async fn postgres() {
        dies_in_send_in!(failing(0).postgres().await, PgConnection, "begin");
    }
}
