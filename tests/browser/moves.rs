//! An open page updates itself without a reload.

use std::sync::atomic::Ordering;

use crate::chromium::Chromium;
use crate::site::{Charge, Ship, Site};

/// A mark that a page loses when it is reloaded.
const MARK: &str = "window.isTheSame = true";
const HERE: &str = ".diagram .state.here";

#[tokio::test(flavor = "multi_thread")]
async fn the_diagram_moves_when_an_event_is_sent() {
    let Some(chromium) = Chromium::start("diagram") else { return };
    let site = Site::new("diagram").await;
    site.order("o-1").await;
    let mut tab = chromium.tab(1280).await;
    tab.goto(&format!("{}/i/order/o-1", site.url)).await;
    tab.eval(MARK).await;
    tab.until("document.getElementById('live').textContent === '● live'").await;
    assert_eq!(tab.eval(&format!("document.querySelector('{HERE}').dataset.state")).await, "created");

    site.orders().send("o-1", Charge).await.expect("the event is accepted");
    tab.until(&format!("document.querySelector('{HERE}')?.dataset.state === 'charged'")).await;
    tab.until("document.querySelector('.diagram .edge.taken[data-from=created][data-to=charged]')").await;
    tab.until("document.querySelector('.diagram .state.visited[data-state=created]')").await;
    site.orders().send("o-1", Ship { parcel: "p-1".to_owned() }).await.expect("the event is accepted");
    tab.until(&format!("document.querySelector('{HERE}')?.dataset.state === 'shipped'")).await;
    tab.until("document.querySelector('.status')?.innerText.includes('completed')").await;
    assert_eq!(tab.eval("window.isTheSame").await, true, "the page was never loaded again");
    assert_eq!(tab.complaints(), Vec::<String>::new());

    site.runtime.shutdown().await.expect("the runtime ends");
    tab.until("document.getElementById('live').textContent === 'reconnecting…'").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_countdown_ends_and_the_attempt_appears() {
    let Some(chromium) = Chromium::start("countdown") else { return };
    let site = Site::new("countdown").await;
    site.order("o-1").await;
    let mut tab = chromium.tab(1280).await;
    tab.goto(&format!("{}/i/order/o-1", site.url)).await;
    tab.eval(MARK).await;
    tab.until("document.getElementById('live').textContent === '● live'").await;
    site.bank.is_away.store(true, Ordering::Relaxed);
    site.orders().send("o-1", Charge).await.expect("the event is accepted");
    tab.until("document.querySelector('.countdown time')?.textContent === 'in 2s'").await;
    tab.until("document.querySelector('.diagram .state.target.retrying[data-state=charged]')").await;
    tab.until("document.querySelector('.countdown time')?.textContent === 'in 1s'").await;
    tab.until("document.getElementById('timeline').innerText.includes('attempt 2 of charged: error')").await;
    tab.until("document.getElementById('head').innerText.includes('the bank does not answer')").await;

    site.bank.is_away.store(false, Ordering::Relaxed);
    tab.until(&format!("document.querySelector('{HERE}')?.dataset.state === 'charged'")).await;
    tab.until("!document.querySelector('.countdown')").await;
    assert_eq!(tab.eval("window.isTheSame").await, true, "the page was never loaded again");
    site.runtime.shutdown().await.expect("the runtime ends");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_somebody_types_is_not_taken_away_by_an_update() {
    let Some(chromium) = Chromium::start("typing") else { return };
    let site = Site::new("typing").await;
    site.order("o-1").await;
    let mut tab = chromium.tab(1280).await;
    tab.goto(&format!("{}/i/order/o-1", site.url)).await;
    tab.until("document.getElementById('live').textContent === '● live'").await;
    tab.fill("#acts input[name=reason]", "the customer called").await;
    site.orders().send("o-1", Charge).await.expect("the event is accepted");
    tab.until(&format!("document.querySelector('{HERE}')?.dataset.state === 'charged'")).await;
    assert_eq!(tab.eval("document.querySelector('#acts input[name=reason]').value").await, "the customer called");
    assert_eq!(tab.eval("document.activeElement.name").await, "reason");
    // The events that fit are updated as soon as the field loses the focus.
    tab.eval("document.activeElement.blur()").await;
    tab.until("document.querySelector('#acts select[name=event] option:not([disabled])')?.value === 'Ship'").await;
    assert_eq!(tab.eval("document.querySelector('#acts input[name=reason]').value").await, "the customer called");
    site.runtime.shutdown().await.expect("the runtime ends");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slider_of_the_simulator_changes_the_outcome() {
    let Some(chromium) = Chromium::start("sliders") else { return };
    let site = Site::new("sliders").await;
    let mut tab = chromium.tab(1280).await;
    tab.goto(&format!("{}/simulator", site.url)).await;
    tab.eval(MARK).await;
    tab.until("document.getElementById('attempts').innerText.includes('It survives an outage of 30m')").await;
    let slider = |name: &str| format!("document.querySelector('input[name={name}] + input[type=range]')");
    let slid = |name: &str, step: u32| {
        format!(
            "{{ const slider = {}; slider.value = {step}; slider.dispatchEvent(new Event('input', {{ bubbles: true }})) }}",
            slider(name)
        )
    };
    assert_eq!(tab.eval(&format!("{}.value", slider("retries"))).await, "8", "it stands at ten retries");
    tab.eval(&slid("retries", 2)).await;
    assert_eq!(tab.eval("document.querySelector('input[name=retries]').value").await, "2");
    tab.until("document.getElementById('attempts').innerText.includes('It does not survive an outage of 30m')").await;
    tab.eval(&slid("outage", 3)).await;
    tab.until("document.getElementById('attempts').innerText.includes('It survives an outage of 5s')").await;
    tab.until("location.search.includes('retries=2') && location.search.includes('outage=5s')").await;
    // What is typed moves the slider.
    tab.fill("input[name=retries]", "10").await;
    tab.until(&format!("{}.value === '8'", slider("retries"))).await;
    assert_eq!(tab.eval("window.isTheSame").await, true, "the page was never loaded again");
    assert_eq!(tab.complaints(), Vec::<String>::new());
    site.runtime.shutdown().await.expect("the runtime ends");
}

/// An event replaces the section of the acts, with the button that has the focus.
#[tokio::test(flavor = "multi_thread")]
async fn the_focus_stays_where_it_is_when_its_section_is_replaced() {
    let Some(chromium) = Chromium::start("focus") else { return };
    let site = Site::new("focus").await;
    site.order("o-1").await;
    let mut tab = chromium.tab(1280).await;
    tab.goto(&format!("{}/i/order/o-1", site.url)).await;
    tab.until("document.getElementById('live').textContent === '● live'").await;
    tab.eval(
        "window.focused = [...document.querySelectorAll('#acts button')].filter((one) => !one.disabled).at(-1); window.focused.focus()",
    )
    .await;
    let text = tab.eval("window.focused.textContent").await;
    site.orders().send("o-1", Charge).await.expect("the event is accepted");
    tab.until(&format!("document.querySelector('{HERE}')?.dataset.state === 'charged'")).await;
    tab.until("!document.contains(window.focused)").await;
    assert_eq!(tab.eval("document.activeElement.textContent").await, text);
    assert_eq!(tab.eval("document.activeElement.tagName").await, "BUTTON");
    site.runtime.shutdown().await.expect("the runtime ends");
}
