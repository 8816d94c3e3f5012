//! The pages about all partitions, while two of four cannot be reached: light and dark, wide and narrow.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use fsm::prelude::*;
use fsm::{Access, Console, Handle};
use fsm_runtime::admin::{Opening, partitions};
use fsm_store::testing::Fresh;
use fsm_store::testing::cluster::{self, ClusterError};

use crate::accessible::defects;
use crate::chromium::{Chromium, LIMIT};
use crate::screens::keep;
use crate::site::{Bank, Charge, Checkout, Order, serve};

#[tokio::test(flavor = "multi_thread")]
async fn the_pages_about_all_partitions_name_those_that_cannot_be_reached() {
    let Some(chromium) = Chromium::start("partitions") else { return };
    let mut second = match cluster::start_own() {
        Err(error @ ClusterError::NotInstalled) => {
            assert!(std::env::var_os("CI").is_none(), "{error}");
            return eprintln!("not tested: {error}");
        }
        started => started.expect("the second server starts"),
    };
    let directory = Fresh::empty().await.expect("a database is free");
    let urls = [directory.url().to_owned(), second.url()];
    let opening = Opening::to_act(&urls[0]);
    partitions::create(&opening, 4, &urls).await.expect("the partitions are created");
    let bank = Arc::new(Bank::default());
    let builder = Runtime::builder().database(&urls[0]).only::<Order>().data(Arc::clone(&bank));
    let runtime = builder.start().await.expect("the runtime starts");
    let orders: Handle<Order> = runtime.machine::<Order>();
    for number in 1..=12 {
        let key = format!("order-{number:04}");
        bank.declines.store(number > 8, Ordering::Relaxed);
        bank.is_away.store(number > 4, Ordering::Relaxed);
        let card = "4242-4242".to_owned();
        orders.send(&key, Checkout { cents: 12_99, card }).await.expect("the order is accepted");
        orders.settled(&key).within(LIMIT).await.expect("it comes to rest");
        orders.send(&key, Charge).await.expect("the charge is accepted");
        if !(5..=8).contains(&number) {
            orders.settled(&key).within(LIMIT).await.expect("it comes to rest");
        }
    }
    runtime.shutdown().await.expect("the runtime ends");
    second.stop().expect("the second server stops");

    let all = partitions::list(&opening).await.expect("the directory is read");
    let url = serve(Console::open(opening).partitions(all).authorize(|_| Access::Admin.named("ada"))).await;
    let mut tab = chromium.tab(1280).await;
    let mut wrong = Vec::new();
    for scheme in ["light", "dark"] {
        tab.prefer(scheme).await;
        for width in [1280, 390] {
            tab.resize(width).await;
            for (name, path, says) in [
                ("partitions", "", "2 of 4 partitions cannot be reached"),
                ("errors-of-all", "/errors", "2 of 4 partitions cannot be read"),
            ] {
                let shown = format!("{name}-{scheme}-{width}");
                tab.goto(&format!("{url}{path}")).await;
                tab.until("document.getElementById('live').textContent === '● live'").await;
                let text = tab.text("main").await;
                assert!(text.contains(says) && text.contains("partition 1") && text.contains("partition 3"), "{shown}: {text}");
                let overflow = "document.documentElement.scrollWidth - document.documentElement.clientWidth";
                if let Some(over @ 1..) = tab.eval(overflow).await.as_i64() {
                    wrong.push(format!("{shown} overflows by {over} pixels"));
                }
                wrong.extend(defects(&mut tab).await.into_iter().map(|defect| format!("{shown}: {defect}")));
                keep(&mut tab, &shown).await;
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert_eq!(tab.complaints(), Vec::<String>::new());
    // A link leads to the instances of one partition.
    tab.click("#groups td a[data-row]").await;
    tab.until("location.pathname.endsWith('/instances') && document.querySelector('main').innerText.includes('order-00')").await;
}
