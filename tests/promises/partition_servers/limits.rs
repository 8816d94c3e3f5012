//! Limits over partitions on two servers, with processes that are killed, and with a server that stops.

use std::sync::Arc;

use super::*;
use crate::partition_limits::Meter;

const LEASE: Duration = Duration::from_secs(2);
/// The home of the first limit is on the second server, and that of the second one on the first.
const LIMITS: [&str; 2] = ["limit-far", "limit-near"];

#[derive(Debug, Clone, Serialize, Deserialize)]
struct Far;
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Near;

#[verb(limit = "limit-far")]
#[retry("1s")]
async fn called_far(ctx: &mut Ctx<'_>, meter: Data<Arc<Meter>>, _event: Far) -> Result {
    let _running = meter.begin(LIMITS[0], ctx.key(), ctx.now());
    tokio::time::sleep(Duration::from_millis(5)).await;
    Ok(())
}
#[verb(limit = "limit-near")]
#[retry("1s")]
async fn called_near(ctx: &mut Ctx<'_>, meter: Data<Arc<Meter>>, _event: Near) -> Result {
    let _running = meter.begin(LIMITS[1], ctx.key(), ctx.now());
    tokio::time::sleep(Duration::from_millis(5)).await;
    Ok(())
}

fsm! {
    machine Caller = "server-caller" {
        start called_far | called_near;
        end called_far, called_near;
    }
}

impl Servers {
    fn callers(&self, meter: &Arc<Meter>) -> Builder {
        let builder = Runtime::builder().database(self.url()).only::<Caller>().data(Arc::clone(meter)).lease(LEASE);
        let builder = builder.limit(LIMITS[0], Limit::concurrency(3)).limit(LIMITS[1], Limit::concurrency(3));
        builder.poll_interval(Duration::from_millis(50)).shutdown_timeout(Duration::from_secs(5)).patience(Duration::from_secs(5))
    }

    /// The number of permits in all partitions.
    async fn permits(&self) -> i64 {
        let mut sum = 0;
        for partition in 0..PARTITIONS {
            let mut server = PgConnection::connect(&self.url_of(partition)).await.unwrap();
            let count = format!("select count(*) from fsm_{partition:04}.fsm_limit_permits");
            sum += sqlx::query_scalar::<_, i64>(sqlx::AssertSqlSafe(count)).fetch_one(&mut server).await.unwrap();
            server.close().await.unwrap();
        }
        sum
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn processes_that_are_killed_never_exceed_a_limit_of_all_partitions_and_leave_no_place_behind() {
    let Some(servers) = Servers::start().await else { return };
    let meter: Arc<Meter> = Arc::default();
    let keys = keys("far", 100);
    let stays = servers.callers(&meter).start().await.unwrap();
    let callers = stays.machine::<Caller>();
    for sent in callers.send_many(keys.iter().map(|key| (key, Far))).collect().await.unwrap() {
        sent.unwrap();
    }
    // Each of these processes is killed while calls run.
    for round in 1..=6 {
        let begun = meter.started(LIMITS[0]).len();
        let killed = servers.callers(&meter).start().await.unwrap();
        until("calls start", async || meter.started(LIMITS[0]).len() >= (begun + 15).min(keys.len())).await;
        drop(killed);
        println!("after {round} processes {} calls have started", meter.started(LIMITS[0]).len());
    }
    for key in &keys {
        callers.settled(key).within(LIMIT).await.unwrap();
    }
    assert_eq!(meter.most(LIMITS[0]), 3, "and no place stayed unused");
    until("all permits are released", async || servers.permits().await == 0).await;
    assert!(stays.check_invariants().await.unwrap().is_empty());
    stays.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_wait_while_the_home_of_their_limit_is_down_and_others_go_on() {
    let Some(mut servers) = Servers::start().await else { return };
    let homes = LIMITS.map(|limit| is_on_second(partition_of(limit, PARTITIONS)));
    assert_eq!(homes, [true, false]);
    let meter: Arc<Meter> = Arc::default();
    let runtime = servers.callers(&meter).start().await.unwrap();
    let callers = runtime.machine::<Caller>();
    let on_first = |form| keys(form, 10).into_iter().filter(|key| !is_on_second(partition_of(key, PARTITIONS))).collect::<Vec<_>>();
    let (far, near) = (on_first("far"), on_first("near"));
    tokio::task::block_in_place(|| servers.second.stop()).unwrap();
    for key in &far {
        callers.send(key, Far).await.unwrap();
    }
    let begun = Instant::now();
    for key in &near {
        callers.send(key, Near).await.unwrap();
        callers.settled(key).within(LIMIT).await.unwrap();
    }
    println!("{} calls under the other limit took {:?}", near.len(), begun.elapsed());
    assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
    assert_eq!(meter.started(LIMITS[0]).len(), 0);

    tokio::task::block_in_place(|| servers.second.start()).unwrap();
    for key in &far {
        callers.settled(key).within(LIMIT).await.unwrap();
    }
    assert!(meter.most(LIMITS[0]) <= 3 && meter.most(LIMITS[1]) <= 3);
    until("all permits are released", async || servers.permits().await == 0).await;
    runtime.shutdown().await.unwrap();
}
