//! Every screen, light and dark, wide and narrow: nothing overflows, nothing is loaded from another origin, and no check of `accessible.js`
//! fails. With `FSM_SCREENSHOTS` set to a folder, the pictures are stored there.

use std::path::PathBuf;
use std::sync::atomic::Ordering;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use fsm::prelude::*;
use fsm::{Access, Handle, console};

use crate::accessible::defects;
use crate::chromium::{Chromium, LIMIT, Tab};
use crate::claims::*;
use crate::deliveries::deliveries;
use crate::site::{Charge, ODD, Ship, Site, serve};

/// The maximum height of a picture.
const HIGHEST: u64 = 1600;

/// A key and an error of the maximum accepted length.
fn long_key() -> String {
    format!("2026-11-22/warehouse-berlin-neukölln/{}", "order-of-a-customer-with-a-very-long-name/".repeat(5))
}

struct Screen {
    name: &'static str,
    url: String,
}

/// Orders in every status.
async fn orders(site: &Site) {
    for number in 1..=9 {
        site.order(&format!("order-{number:04}")).await;
    }
    let orders = site.orders();
    for key in ["order-0001", "order-0002", "order-0003"] {
        orders.send(key, Charge).await.expect("the event is accepted");
        orders.settled(key).within(LIMIT).await.expect("it comes to rest");
    }
    orders.send("order-0001", Ship { parcel: "parcel-1".to_owned() }).await.expect("the event is accepted");
    site.declined((10..=16).map(|number| format!("order-{number:04}"))).await;
    site.declined([long_key(), ODD.to_owned()].into_iter()).await;
    orders.retry("order-0010").reason("the customer called: the new card ends with 7711").actor("ada").await.expect("it is retried");
    orders.settled("order-0010").within(LIMIT).await.expect("it comes to rest");
    orders.cancel("order-0005", "ordered twice").await.expect("it is cancelled");
    orders.pause("order-0006").await.expect("it is paused");
    site.bank.is_away.store(true, Ordering::Relaxed);
    for key in ["order-0007", "order-0008"] {
        orders.send(key, Charge).await.expect("the event is accepted");
    }
    for key in ["order-0002", "order-0003"] {
        orders.send(key, Ship { parcel: "parcel-2".to_owned() }).await.expect("the event is accepted");
    }
    orders.send("order-0009", Charge).after(Duration::from_secs(3600)).await.expect("the event is accepted");
}

/// Claims in late states of the graph, and one whose letter failed a thousand times.
async fn claims(site: &Site) {
    let claims: Handle<Claim> = site.runtime.machine::<Claim>();
    for key in ["claim-1", "claim-2"] {
        claims.send(key, Report).await.expect("the event is accepted");
        claims.send(key, Register).await.expect("the event is accepted");
        claims.send(key, Assign).await.expect("the event is accepted");
    }
    claims.send("claim-1", Contact).await.expect("the event is accepted");
    claims.send("claim-1", Photograph).await.expect("the event is accepted");
    claims.send("claim-1", Inspect).await.expect("the event is accepted");
    claims.send("claim-2", SendLetter).await.expect("the event is accepted");
    let claim = claims.settled("claim-2").within(LIMIT * 3).await.expect("it comes to rest");
    assert_eq!(claim.status, Status::Error);
    assert_eq!(claims.attempts("claim-2").await.expect("they are listed").len(), 3 + 1000);
}

fn encoded(text: &str) -> String {
    text.bytes().map(|byte| format!("%{byte:02X}")).collect()
}

/// Every screen of the program, and the screens of an empty program.
fn screens(url: &str, empty: &str) -> Vec<Screen> {
    let screen = |name, path: &str| Screen { name, url: format!("{url}{path}") };
    let bare = |name, path: &str| Screen { name, url: format!("{empty}{path}") };
    vec![
        screen("overview", ""),
        screen("machine", "/m/order"),
        screen("machine-of-50-states", "/m/insurance_claim"),
        screen("instances", "/instances?machine=order"),
        screen("instance", "/i/order/order-0010"),
        screen("instance-in-error", "/i/order/order-0011"),
        screen("instance-retrying", "/i/order/order-0002"),
        screen("instance-completed", "/i/order/order-0001"),
        screen("instance-of-50-states", "/i/insurance_claim/claim-1"),
        screen("instance-of-1000-attempts", "/i/insurance_claim/claim-2"),
        screen("instance-of-a-long-key", &format!("/i/order/{}", encoded(&long_key()))),
        screen("instance-with-children", "/i/delivery/delivery-1"),
        screen("instance-with-a-parent", &format!("/i/parcel/{}", encoded("delivery-1/parcel-001"))),
        screen("errors", "/errors"),
        screen("due", "/due"),
        screen("workers", "/workers"),
        screen("simulator", "/simulator"),
        screen("audit", "/audit"),
        screen("not-found", "/i/order/unknown"),
        bare("empty-overview", ""),
        bare("empty-machine", "/m/order"),
        bare("empty-instances", "/instances?machine=order"),
        bare("empty-errors", "/errors"),
        bare("empty-due", "/due"),
        bare("empty-audit", "/audit"),
    ]
}

/// The folder for the pictures, if they are stored.
fn folder() -> Option<PathBuf> {
    let folder = PathBuf::from(std::env::var_os("FSM_SCREENSHOTS")?);
    std::fs::create_dir_all(&folder).expect("the folder can be made");
    Some(folder)
}

pub(crate) async fn keep(tab: &mut Tab, name: &str) {
    if let Some(folder) = folder() {
        let picture = tab.picture(HIGHEST).await;
        let bytes = BASE64_STANDARD.decode(picture).expect("a picture is base64");
        std::fs::write(folder.join(format!("{name}.png")), bytes).expect("the picture is written");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_screen_is_readable_light_and_dark_wide_and_narrow_and_loads_nothing_from_elsewhere() {
    let Some(chromium) = Chromium::start("screens") else { return };
    let site = Site::new("screens").await;
    orders(&site).await;
    claims(&site).await;
    deliveries(&site).await;
    let empty = Site::new("screens-empty").await;
    let mut tab = chromium.tab(1280).await;
    let mut wrong = Vec::new();
    for scheme in ["light", "dark"] {
        tab.prefer(scheme).await;
        let mut backs = std::collections::BTreeSet::new();
        for width in [1280, 390] {
            tab.resize(width).await;
            for Screen { name, url } in screens(&site.url, &empty.url) {
                let shown = format!("{name}-{scheme}-{width}");
                tab.goto(&url).await;
                if !url.contains("simulator") && name != "not-found" {
                    tab.until("document.getElementById('live').textContent === '● live'").await;
                }
                let overflow = "document.documentElement.scrollWidth - document.documentElement.clientWidth";
                let over = tab.eval(overflow).await.as_i64().unwrap_or(i64::MAX);
                if over > 0 {
                    wrong.push(format!("{shown} overflows by {over} pixels"));
                }
                wrong.extend(defects(&mut tab).await.into_iter().map(|defect| format!("{shown}: {defect}")));
                backs.insert(tab.eval("getComputedStyle(document.documentElement).backgroundColor").await.to_string());
                keep(&mut tab, &shown).await;
            }
        }
        let is_dark = backs.iter().all(|back| back.contains("rgb(20, 23, 26)"));
        assert_eq!((backs.len(), is_dark), (1, scheme == "dark"), "{backs:?}");
    }
    let own = [site.url.trim_end_matches("fsm"), empty.url.trim_end_matches("fsm"), "data:", "about:"];
    let elsewhere: Vec<_> = tab.requests().into_iter().filter(|url| !own.iter().any(|own| url.starts_with(own))).collect();
    assert!(tab.requests().len() > 200, "{} requests are not all of them", tab.requests().len());
    assert_eq!(elsewhere, Vec::<String>::new());
    // The page that is not found is an intentional error.
    let complaints: Vec<_> = tab.complaints().into_iter().filter(|complaint| !complaint.contains("404 (Not Found)")).collect();
    assert_eq!(complaints, Vec::<String>::new());
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    site.runtime.shutdown().await.expect("the runtime ends");
    empty.runtime.shutdown().await.expect("the runtime ends");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_database_without_machines_and_workers_says_what_to_do() {
    let Some(chromium) = Chromium::start("bare") else { return };
    let site = Site::new("bare").await;
    site.order("o-1").await;
    let database = site.database();
    site.runtime.shutdown().await.expect("the runtime ends");
    let client = Client::connect(database).await.expect("the database is there");
    let url = serve(console(&client).authorize(|_| Access::Viewer.into()).read_only()).await;
    let mut tab = chromium.tab(390).await;
    tab.goto(&url).await;
    tab.until("document.querySelector('#workers')?.innerText.includes('No worker is alive')").await;
    keep(&mut tab, "overview-without-workers-light-390").await;
    assert_eq!(defects(&mut tab).await, Vec::<String>::new());
}
