//! Money between two tables of the program's own, moved in the same commit as the state of the machine: never half of a transfer.
//!
//! ```sh
//! cargo run --example transfer                                # embedded SQLite, nothing else installed
//! cargo run --example transfer -- --database postgres://…     # the same on PostgreSQL
//! ```
//!
//! One transfer succeeds. One fails between its two statements, one panics there, one is larger than the balance, and during the last one
//! the process dies. The balances are printed after each transfer.
//!
//! The program exits with status 1 if a cent was lost or created.

use std::process::ExitCode;
use std::sync::Arc;

use fsm::prelude::*;
use serde::{Deserialize, Serialize};
use sqlx::{AssertSqlSafe, Connection, PgConnection, SqliteConnection};
use tokio::sync::Notify;

/// The program's own tables. They share only the database with the tables of durable-fsm.
const TABLES: &str = "
    create table if not exists example_current (owner text not null primary key, cents bigint not null check (cents >= 0));
    create table if not exists example_savings (owner text not null primary key, cents bigint not null check (cents >= 0));";

// --- The machine. ---

/// Moves money from the owner's current account to the savings account.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Save {
    owner: String,
    cents: i64,
    /// The failure of the first attempt, between the two statements.
    mishap: Mishap,
}

#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
enum Mishap {
    None,
    Error,
    Panic,
    Death,
}

/// Runs both statements on the connection whose transaction commits this transition. An error, a panic or the death of the process rolls
/// them back together with it. A retry finds the tables unchanged.
#[verb]
#[retry(3, "50ms")]
async fn saved(ctx: &mut Ctx<'_>, bank: Data<Bank>, event: Save) -> Result {
    add(ctx, &bank, "example_current", &event.owner, -event.cents).await?;
    match event.mishap {
        _ if ctx.attempt() > 1 => {}
        Mishap::None => {}
        Mishap::Error => return Err(Failure::new("the network is down")),
        Mishap::Panic => panic!("a bug"),
        Mishap::Death => {
            bank.halfway.notify_one();
            std::future::pending::<()>().await;
        }
    }
    add(ctx, &bank, "example_savings", &event.owner, event.cents).await
}

/// Updates one balance. On SQLite all other writers wait while a verb holds this connection, so take it late and return soon.
async fn add(ctx: &mut Ctx<'_>, bank: &Bank, table: &str, owner: &str, cents: i64) -> Result {
    // The table name is a constant of this program. The values are bound.
    let statement = AssertSqlSafe(format!("update {table} set cents = cents + $1 where owner = $2"));
    if bank.is_postgres {
        sqlx::query(statement).bind(cents).bind(owner).execute(ctx.postgres().await?).await?;
    } else {
        sqlx::query(statement).bind(cents).bind(owner).execute(ctx.sqlite().await?).await?;
    }
    Ok(())
}

fsm! {
    /// A transfer between two accounts.
    machine Transfer = "transfer" {
        start saved;
        end saved;
    }
}

#[derive(Clone)]
struct Bank {
    is_postgres: bool,
    /// Notified when the transfer in which the process dies is half done.
    halfway: Arc<Notify>,
}

// --- The example. ---

async fn run(url: &str) -> Result<bool, Box<dyn std::error::Error>> {
    // The panic is intended, and the history of its transfer shows it.
    std::panic::set_hook(Box::new(|_| {}));
    let bank = Bank { is_postgres: url.starts_with("postgres"), halfway: Arc::default() };
    // A short lease, so that the attempt of the dead process is found lost soon.
    let start = || Runtime::builder().database(url).data(bank.clone()).lease(Duration::from_secs(1)).start();
    let runtime = start().await?;
    for statement in [
        TABLES,
        "delete from example_current; delete from example_savings;",
        "insert into example_current values ('ada', 10000); insert into example_savings values ('ada', 500);",
    ] {
        execute(url, statement).await?;
    }
    println!("{:<34} {:>8} {:>8} {:>8}", "", "current", "savings", "sum");
    let mut is_well = show(url, "at the beginning", (10_000, 500)).await?;

    let transfers = runtime.machine::<Transfer>();
    let key = |name: &str| format!("{name}-{}", std::process::id());
    let save = |cents, mishap| Save { owner: "ada".into(), cents, mishap };
    let told = [
        ("good", save(1000, Mishap::None), "10.00 succeeded", (9000, 1500)),
        ("error", save(2000, Mishap::Error), "20.00, retried after an error", (7000, 3500)),
        ("panic", save(500, Mishap::Panic), "5.00, retried after a panic", (6500, 4000)),
        ("large", save(999_999, Mishap::None), "more than the balance: in error", (6500, 4000)),
    ];
    for (name, event, says, expected) in told {
        transfers.send(key(name), event).await?;
        transfers.settled(key(name)).within(Duration::from_secs(20)).await?;
        is_well &= show(url, says, expected).await?;
    }

    transfers.send(key("death"), save(1500, Mishap::Death)).await?;
    bank.halfway.notified().await;
    // A runtime that is dropped without a shutdown leaves the database as a dead process does.
    drop(runtime);
    is_well &= show(url, "the process died during 15.00", (6500, 4000)).await?;
    let runtime = start().await?;
    let transfers = runtime.machine::<Transfer>();
    transfers.settled(key("death")).within(Duration::from_secs(20)).await?;
    is_well &= show(url, "15.00, retried by the next process", (5000, 5500)).await?;

    let large = transfers.get(key("large")).await?.ok_or("the large transfer is gone")?;
    println!("\nthe transfer that is in error waits for an operator: {}", large.error.unwrap_or_default());
    for (name, says) in [("panic", "the transfer with the panic"), ("death", "the transfer in which the process died")] {
        println!("\n{says}:");
        for entry in transfers.history(key(name)).await? {
            println!("  {entry}");
        }
    }
    runtime.shutdown().await?;
    println!("\n{}", if is_well { "No cent was lost, and none was created." } else { "THE BALANCES ARE WRONG." });
    Ok(is_well)
}

/// Prints the balances as another connection sees them. Returns true if they are as expected.
async fn show(url: &str, says: &str, expected: (i64, i64)) -> Result<bool, sqlx::Error> {
    let balances = "select c.cents, s.cents from example_current c join example_savings s on s.owner = c.owner where c.owner = 'ada'";
    let (current, savings): (i64, i64) = if url.starts_with("postgres") {
        sqlx::query_as(balances).fetch_one(&mut PgConnection::connect(url).await?).await?
    } else {
        sqlx::query_as(balances).fetch_one(&mut SqliteConnection::connect(url).await?).await?
    };
    let money = |cents: i64| format!("{}.{:02}", cents / 100, cents % 100);
    let is_well = (current, savings) == expected && current + savings == 10_500;
    println!(
        "{says:<34} {:>8} {:>8} {:>8}{}",
        money(current),
        money(savings),
        money(current + savings),
        if is_well { "" } else { "  WRONG" }
    );
    Ok(is_well)
}

async fn execute(url: &str, statements: &'static str) -> Result<(), sqlx::Error> {
    if url.starts_with("postgres") {
        sqlx::raw_sql(statements).execute(&mut PgConnection::connect(url).await?).await?;
    } else {
        sqlx::raw_sql(statements).execute(&mut SqliteConnection::connect(url).await?).await?;
    }
    Ok(())
}

fn database() -> Result<String, String> {
    let mut arguments = std::env::args().skip(1);
    match (arguments.next().as_deref(), arguments.next()) {
        (None, _) => Ok(format!("sqlite://{}", std::env::temp_dir().join(format!("fsm-transfer-{}.db", std::process::id())).display())),
        (Some("--database"), Some(url)) => Ok(url),
        _ => Err("usage: transfer [--database URL]".to_owned()),
    }
}

#[tokio::main]
async fn main() -> ExitCode {
    let url = match database() {
        Ok(url) => url,
        Err(usage) => {
            eprintln!("{usage}");
            return ExitCode::from(2);
        }
    };
    match run(&url).await {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("transfer: {error}");
            ExitCode::FAILURE
        }
    }
}
