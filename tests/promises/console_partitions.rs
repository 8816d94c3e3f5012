//! The web console of a database with partitions: a page about all of them, and a console for each with the same rights and guards.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::body::Body;
use axum::http::{Method, Request};
use fsm::prelude::*;
use fsm::testing::TestBed;
use fsm::{Access, Console, EngineAccess, console, partition_of};
use fsm_runtime::admin::{Opening, partitions};
use fsm_store::testing::Fresh;

use crate::console::{Answer, Broken, Browser, ODD, ORIGIN, Pay, Ship, Shown, encoded, pages};
use crate::hostile_database::own_cluster;

const PARTITIONS: u32 = 4;
/// A time limit that is long enough on a busy machine.
const LIMIT: Duration = Duration::from_secs(60);

/// A test bed with partitions: `o-1` and `ODD` are at rest, `e-1` is in error, and the retry of `d-1` has been due for almost an hour.
async fn site() -> TestBed {
    let broken = Broken::new(false);
    let bed = TestBed::builder().only::<Shown>().data(Arc::clone(&broken)).partitions(PARTITIONS).await;
    let send = async |key: &str| {
        bed.machine::<Shown>().send(key, Pay::new("a note")).await.unwrap();
    };
    send("o-1").await;
    send(ODD).await;
    bed.run_until_idle().await;
    broken.break_down();
    send("e-1").await;
    bed.advance(Duration::from_secs(1)).await;
    send("d-1").await;
    bed.run_until_idle().await;
    bed.outage(Duration::from_secs(3600)).await;
    bed
}

fn home(key: &str) -> u32 {
    partition_of(key, PARTITIONS)
}

fn admin(bed: &TestBed) -> Browser {
    Browser::of(console(bed).authorize(|_| Access::Admin.named("ada")))
}

/// The row of a partition on the page about all of them.
fn row(page: &str, number: u32) -> &str {
    let begin = page.find(&format!("href=\"/fsm/partition/{number}\"")).unwrap_or_else(|| panic!("no partition {number}: {page}"));
    page[begin..].split("</tr>").next().unwrap()
}

fn token(page: &str) -> &str {
    page.split_once("name=\"token\" value=\"").expect("the page has a form").1.split_once('"').unwrap().0
}

fn location(answer: &Answer) -> &str {
    assert_eq!(answer.status, 303, "{}", answer.text);
    answer.headers["location"].to_str().unwrap()
}

#[tokio::test]
async fn the_first_page_shows_each_partition_with_its_figures() {
    let bed = site().await;
    let page = admin(&bed).get("").await.text;
    assert!(page.contains("All 4 partitions are reachable."), "{page}");
    for number in 0..PARTITIONS {
        let row = row(&page, number);
        assert!(row.contains(&format!("<code>fsm_{number:04}</code>")) && row.contains("the PostgreSQL "), "{row}");
        let count = |keys: &[&str]| keys.iter().filter(|key| home(key) == number).count();
        let figures: Vec<_> = row.split("<td class=\"number\">").skip(1).collect();
        let shows = |column: usize, count: usize| {
            figures[column].contains(&format!(">{count}<")) || figures[column].starts_with(&format!("{count}<"))
        };
        assert!(shows(0, count(&["o-1", ODD, "d-1"])), "running: {row}");
        assert!(shows(1, count(&["e-1"])), "error: {row}");
        assert!(shows(2, 0) && shows(3, 0), "completed, cancelled: {row}");
        assert!(shows(4, count(&["d-1"])), "due: {row}");
        assert_eq!(figures[5].contains("59m"), count(&["d-1"]) == 1, "oldest due: {row}");
    }
    // The live update of the page has the same sections.
    assert!(page.contains("data-live=\"\"") && page.contains("<section id=\"partitions\">"));
    // A restarted process runs the due call.
    bed.run_until_idle().await;
}

/// A key with this prefix that belongs to the partition.
fn key_in(number: u32, of: u32, prefix: &str) -> String {
    (0..).map(|n| format!("{prefix}-{n}")).find(|key| partition_of(key, of) == number).unwrap()
}

#[tokio::test]
async fn the_page_of_errors_merges_those_of_all_partitions_and_links_to_each() {
    let bed = site().await;
    let keys: Vec<_> = (0..PARTITIONS).map(|number| key_in(number, PARTITIONS, "error")).collect();
    let orders = bed.machine::<Shown>();
    for key in &keys {
        orders.send(key, Pay::new("a note")).await.unwrap();
    }
    // An event that is accepted, and that nobody takes.
    bed.run_until_idle().await;
    bed.advance(Duration::from_secs(1)).await;
    orders.send("o-1", Ship).after(Duration::from_secs(60)).await.unwrap();
    orders.send("o-1", Ship).await.unwrap();
    bed.run_until_idle().await;
    bed.advance(Duration::from_secs(60)).await;

    let browser = admin(&bed);
    let page = browser.get("/errors").await.text;
    assert!(page.contains("The errors of all 4 partitions.") && page.contains("data-live=\"/errors\""), "{page}");
    let group = page.split("<tr>").find(|row| row.contains("</span> error</span>")).unwrap_or_else(|| panic!("no group: {page}"));
    // One of each partition, `e-1` and `d-1`.
    let total = keys.len() + 2;
    assert!(group.contains(&format!("<td class=\"number\">{total}</td>")) && group.contains("gateway # is down"), "{group}");
    assert!(
        group.contains(&format!("<a href=\"/fsm/partition/{}/i/shown/e-1\">e-1</a>", home("e-1"))),
        "the first one is the example: {group}"
    );
    for number in 0..PARTITIONS {
        let list = format!("/partition/{number}/instances?machine=shown&amp;status=error");
        let link =
            group.split("href=\"/fsm").find(|link| link.starts_with(&list)).unwrap_or_else(|| panic!("no link to {number}: {group}"));
        let others = ["e-1", "d-1"].iter().filter(|key| home(key) == number).count();
        assert!(link.contains(&format!("</a> ({})", 1 + others)), "{link}");
        let path = link.split('"').next().unwrap().replace("&amp;", "&");
        let listed = browser.get(&path).await.text;
        assert!(listed.contains(&keys[number as usize]), "{listed}");
    }
    assert!(!page.contains("method=\"post\""), "the acts are in the console of a partition: {page}");
    let rejected = format!("<a href=\"/fsm/partition/{0}/i/shown/o-1\" data-row>o-1</a></td><td>{0}</td>", home("o-1"));
    assert!(page.contains(&rejected) && page.contains("takes no events, not `Ship`"), "{page}");
}

#[tokio::test]
async fn an_instance_is_found_in_the_partition_of_its_key() {
    let bed = site().await;
    let browser = admin(&bed);
    let form = browser.get("").await.text;
    assert!(form.contains("action=\"/fsm/find\"") && form.contains("<option value=\"shown\">"), "{form}");
    for key in ["o-1", ODD, "e-1"] {
        let found = browser.get(&format!("/find?machine=shown&key={}", encoded(key))).await;
        let page = location(&found);
        assert!(page.starts_with(&format!("/fsm/partition/{}/i/shown/", home(key))), "{page}");
        assert_eq!(browser.get(page.strip_prefix("/fsm").unwrap()).await.status, 200, "{page}");
        // Without a machine, the search of the partition finds it.
        let found = browser.get(&format!("/find?machine=&key={}", encoded(key))).await;
        let searched = browser.get(location(&found).strip_prefix("/fsm").unwrap()).await;
        assert_eq!(location(&searched), page);
        // The search of another partition tells which one it is.
        let other = (home(key) + 1) % PARTITIONS;
        let missed = browser.get(&format!("/partition/{other}/search?q={}", encoded(key))).await;
        assert_eq!(missed.status, 404);
        let there = format!("href=\"/fsm/partition/{}/search?q=", home(key));
        assert!(missed.text.contains(&there) && missed.text.contains(&format!("belongs to partition {}.", home(key))), "{}", missed.text);
    }
    assert_eq!(location(&browser.get("/find?key=+").await), "/fsm");
    bed.run_until_idle().await;
}

#[tokio::test]
async fn every_page_of_a_partition_names_it_and_links_to_all_and_acts_in_it() {
    let bed = site().await;
    let browser = admin(&bed);
    for number in 0..PARTITIONS {
        for path in pages() {
            let base = format!("/partition/{number}");
            let answer = browser.get(&format!("{base}{path}")).await;
            let key = if path.starts_with("/i/shown/e-1") { Some("e-1") } else { path.starts_with("/i/").then_some(ODD) };
            let status = if key.is_none_or(|key| home(key) == number) { 200 } else { 404 };
            assert_eq!(answer.status, status, "{base}{path}: {}", answer.text);
            assert!(answer.text.contains(&format!("partition {number} of 4")) && answer.text.contains("<a href=\"/fsm\""), "{base}{path}");
            // All other links stay in the partition.
            for link in answer.text.split("href=\"/fsm").skip(1).filter(|link| !link.starts_with('"')) {
                assert!(link.starts_with(&format!("{base}/")) || link.starts_with(&format!("{base}\"")), "{base}{path}: {}", &link[..40]);
            }
        }
    }
    let (here, other) = (home("e-1"), (home("e-1") + 1) % PARTITIONS);
    let of_here = browser.get(&format!("/partition/{here}/i/shown/e-1")).await.text;
    let of_other = browser.get(&format!("/partition/{other}/instances?machine=shown")).await.text;
    let pause = |partition: u32, token: &str| (format!("/partition/{partition}/i/shown/e-1"), format!("token={token}&action=pause"));
    for (partition, token, status) in
        [(here, "0", 403), (other, token(&of_here), 403), (other, token(&of_other), 404), (here, token(&of_here), 303)]
    {
        let (path, form) = pause(partition, token);
        assert_eq!(browser.post(&path, ORIGIN, &form).await.status, status, "{path} {form}");
    }
    assert!(bed.machine::<Shown>().get("e-1").await.unwrap().unwrap().paused);
    assert!(browser.get(&format!("/partition/{here}/audit")).await.text.contains("paused"));
    assert_eq!(browser.get("/partition/4").await.status, 404);
    bed.run_until_idle().await;
}

/// The routes of the pages about all partitions, as they are declared, with the status for everyone who may read.
const ROUTES: [(&str, &str, u16); 7] = [
    ("/", "", 200),
    ("/errors", "/errors", 200),
    ("/find", "/find?machine=shown&key=o-1", 303),
    ("/live", "/live?page=", 200),
    ("/assets/{name}", "/assets/console.css", 404),
    ("/robots.txt", "/robots.txt", 200),
    ("", "/instances", 404),
];

#[tokio::test]
async fn the_page_about_all_partitions_is_guarded_as_every_other_one() {
    let source = include_str!("../../fsm-console/src/partitioned.rs");
    let declared: BTreeSet<&str> = source.split(".route(\"").skip(1).map(|rest| rest.split('"').next().unwrap()).collect();
    assert_eq!(declared, ROUTES.iter().map(|route| route.0).filter(|route| !route.is_empty()).collect());

    let bed = site().await;
    let key = encoded("o-1");
    for access in [Access::Denied, Access::Viewer, Access::Operator, Access::Admin] {
        let browser = Browser::of(console(&bed).authorize(move |_| access.named("ada")));
        for (_, path, status) in ROUTES {
            let status = if access == Access::Denied { 403 } else { status };
            assert_eq!(browser.status_of(path).await, status, "{path} as {access:?}");
            let posted = browser.post(path, ORIGIN, "token=0&action=pause").await;
            assert_eq!(posted.status, 403, "{path} as {access:?}: {}", posted.text);
        }
        // The console of each partition has the same guard.
        let list = browser.get(&format!("/partition/{}/instances?machine=shown", home("o-1"))).await;
        assert_eq!(list.status, if access == Access::Denied { 403 } else { 200 }, "{access:?}");
        assert_eq!(list.text.contains("method=\"post\""), access == Access::Admin, "{access:?}");
        let forged =
            browser.post(&format!("/partition/{}/i/shown/{key}", home("o-1")), "https://evil.example", "token=0&action=cancel").await;
        assert_eq!(forged.status, 403, "{access:?}");
    }

    let browser = admin(&bed);
    for path in ["", "/errors", "/find?machine=shown&key=o-1", "/no-such-page", "/partition/0", "/partition/0/no-such-page"] {
        let answer = browser.get(path).await;
        assert!(answer.headers["content-security-policy"].to_str().unwrap().starts_with("default-src 'none'; script-src 'self'"), "{path}");
        assert_eq!(
            (&answer.headers["x-frame-options"], &answer.headers["cache-control"]),
            (&"DENY".parse().unwrap(), &"no-store".parse().unwrap())
        );
        assert_eq!(answer.headers.get_all("content-security-policy").iter().count(), 1, "{path}");
        assert!(!answer.text.contains("style=\"") && !answer.text.contains("http://") && !answer.text.contains("<script>"), "{path}");
        let put = Request::builder().method(Method::PUT).uri(format!("/fsm{path}")).body(Body::empty()).unwrap();
        assert_eq!(browser.ask(put).await.status, 405, "{path}");
    }
    let markup = browser.get("/find?machine=%3Cscript%3E&key=%3Cscript%3E%0d%0aSet-Cookie:x").await;
    assert!(location(&markup).contains("/i/%3Cscript%3E/%3Cscript%3E%0D%0ASet-Cookie%3Ax"), "{}", location(&markup));

    let read_only = Browser::of(console(&bed).authorize(|_| Access::Admin.into()).read_only());
    assert!(read_only.get("").await.text.contains("read-only"));
    let of_one = read_only.get(&format!("/partition/{}/i/shown/o-1", home("o-1"))).await;
    assert!(of_one.status == 200 && !of_one.text.contains("method=\"post\""), "{}", of_one.text);
    // Without a decision about access, a request of unknown origin is refused.
    assert_eq!(Browser::of(console(&bed)).get("").await.status, 403);
    let basic = Browser::of(console(&bed).basic_auth("ada", "secret"));
    assert_eq!([basic.get("").await.status, basic.get("/partition/0").await.status], [401, 401]);
    bed.run_until_idle().await;
}

#[tokio::test]
async fn a_database_without_partitions_has_no_page_for_them() {
    let bed = TestBed::builder().only::<Shown>().data(Broken::new(false)).postgres().await;
    let browser = admin(&bed);
    for path in ["/find?key=o-1", "/partition/0"] {
        assert_eq!(browser.get(path).await.status, 404, "{path}");
    }
    for path in ["", "/instances", "/due"] {
        let page = browser.get(path).await.text;
        assert!(!page.to_lowercase().contains("partition"), "{path}: {page}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_open_first_page_is_updated_and_its_stream_ends_with_the_program() {
    let directory = Fresh::empty().await.unwrap();
    partitions::create(&Opening::to_act(directory.url()), 2, &[]).await.unwrap();
    let runtime = Runtime::builder().database(directory.url()).only::<Shown>().data(Broken::new(true)).start().await.unwrap();
    let mut updates = Browser::of(console(&runtime).authorize(|_| Access::Viewer.into())).updates("/live?page=").await;
    let first = updates.next().await.expect("the page as it is");
    assert!(first.contains("All 2 partitions are reachable") && !first.contains("/errors"), "{first}");
    runtime.machine::<Shown>().send("e-1", Pay::new("a note")).await.unwrap();
    let mut moved = String::new();
    while !moved.contains(&format!("/fsm/partition/{}/errors", partition_of("e-1", 2))) {
        moved.push_str(&updates.next().await.expect("an update"));
    }
    assert!(!moved.contains("\"id\":\"find\""), "only the sections that changed are sent: {moved}");
    let shutdown = tokio::spawn(runtime.shutdown());
    while updates.next().await.is_some() {}
    shutdown.await.unwrap().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_partition_whose_server_hangs_delays_neither_the_first_page_nor_the_other_partitions() {
    let Some(cluster) = own_cluster() else { return };
    let directory = Fresh::empty().await.unwrap();
    let urls = [directory.url().to_owned(), cluster.url()];
    let opening = Opening::to_act(&urls[0]);
    partitions::create(&opening, 2, &urls).await.unwrap();
    let runtime = Runtime::builder().database(&urls[0]).only::<Shown>().data(Broken::new(true)).start().await.unwrap();
    let key_in = |number: u32| key_in(number, 2, "o");
    for number in 0..2 {
        runtime.machine::<Shown>().send(key_in(number), Pay::new("a note")).await.unwrap();
        runtime.machine::<Shown>().settled(key_in(number)).within(LIMIT).await.unwrap();
    }
    let inside = Browser::of(console(&runtime).authorize(|_| Access::Admin.into()));
    let outside = Console::open(opening.clone()).partitions(partitions::list(&opening).await.unwrap());
    let outside = Browser::of(outside.authorize(|_| Access::Admin.into()));
    let ready = async || {
        let probes = Browser::of_router(fsm::probes(EngineAccess::from(&runtime)).router());
        probes.get("/readyz").await
    };
    for browser in [&inside, &outside] {
        assert!(browser.get("").await.text.contains("All 2 partitions are reachable."));
    }
    assert_eq!(ready().await.status, 200);

    let frozen = cluster.freeze().unwrap();
    for browser in [&inside, &outside] {
        let begin = Instant::now();
        let page = browser.get("").await.text;
        assert!(begin.elapsed() < Duration::from_secs(8), "the page took {:?}", begin.elapsed());
        assert!(page.contains("1 of 2 partitions cannot be reached"), "{page}");
        assert!(row(&page, 0).contains(" reachable") && row(&page, 1).contains("unreachable"), "{page}");
        let begin = Instant::now();
        let page = browser.get("/errors").await.text;
        assert!(begin.elapsed() < Duration::from_secs(8), "the page of errors took {:?}", begin.elapsed());
        assert!(page.contains("1 of 2 partitions cannot be read.") && page.contains(">partition 1</a>: "), "{page}");
        assert!(page.contains(&format!("/partition/0/i/shown/{}", key_in(0))), "the errors of the other one are shown: {page}");
        let other = browser.get(&format!("/partition/0/i/shown/{}", key_in(0))).await;
        assert_eq!(other.status, 200, "{}", other.text);
    }
    // The probes are about all partitions. The process goes on to serve the other one.
    let begin = Instant::now();
    while ready().await.text != "ready, but not on partition 1\n" {
        assert!(begin.elapsed() < LIMIT, "the probe does not show that a partition does not answer");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert_eq!(ready().await.status, 200);
    // The program observed that, and the page does not ask again.
    let begin = Instant::now();
    assert!(row(&inside.get("").await.text, 1).contains("unreachable"));
    assert!(begin.elapsed() < Duration::from_secs(1), "the page took {:?}", begin.elapsed());

    drop(frozen);
    let begin = Instant::now();
    while ready().await.status != 200 || !inside.get("").await.text.contains("All 2 partitions are reachable.") {
        assert!(begin.elapsed() < LIMIT, "the partition stays unreachable");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert!(outside.get(&format!("/partition/1/i/shown/{}", key_in(1))).await.status == 200);
    runtime.shutdown().await.unwrap();
}
