//! The rest of the product page, beside machines and handles: delayed sends that are taken back, required sends, the health of a program, its
//! console, and the kinds of errors.

use fsm::prelude::*;
use fsm::testing::TestBed;
use fsm::{ErrorKind, Health};
use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Issue;
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Pay;
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Remind;

#[verb]
pub async fn issued(ctx: &mut Ctx<'_>, _event: Issue) -> Result {
    let key = format!("{}-reminder", ctx.key());
    let later = ctx.send::<Letter>(&key, Remind)?.after(Duration::from_secs(60));
    ctx.unsend(later);
    ctx.send::<Letter>(&key, Remind)?.required();
    Ok(())
}
#[verb]
pub async fn paid(_event: Pay) -> Result {
    Ok(())
}
#[verb]
pub async fn reminded(_event: Remind) -> Result {
    Ok(())
}

fsm! { pub machine Bill = "contract-bill" { start issued; issued -> paid; end paid; } }
fsm! { pub machine Letter = "contract-letter" { start reminded; end reminded; } }

async fn runs(is_postgres: bool) {
    let builder = TestBed::builder().only::<Bill>().only::<Letter>();
    let bed = if is_postgres { builder.postgres().await } else { builder.sqlite().await };
    bed.machine::<Bill>().send("b-1", Issue).priority(Priority::High).await.unwrap();
    bed.advance(Duration::from_secs(61)).await;
    let letter = bed.machine::<Letter>().get("b-1-reminder").await.unwrap().unwrap();
    assert_eq!((letter.status, letter.version, letter.parent, letter.trace), (Status::Completed, 1, None, None));
    let refused = bed.machine::<Bill>().send("b-1", Issue).await.unwrap_err();
    assert!(refused.is_refused() && refused.kind() == ErrorKind::Refused, "{:?}", refused.kind());
}

#[tokio::test]
async fn a_program_of_the_product_page_runs_on_sqlite() {
    runs(false).await;
}

#[tokio::test]
async fn a_program_of_the_product_page_runs_on_postgres() {
    runs(true).await;
}

#[tokio::test]
async fn a_program_tells_its_health_and_has_a_console() {
    let builder = Runtime::builder().database("sqlite::memory:").only::<Letter>().patience(Duration::from_secs(5));
    let runtime = builder.start().await.unwrap();
    let health: Health = runtime.health();
    assert!(!health.is_shutting_down, "{health:?}");
    let _router = fsm::console(&runtime).router();
    let _stop = runtime.shutdown_handle();
    runtime.shutdown().await.unwrap();
}
