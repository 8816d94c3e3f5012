//! The work of an operator in the browser: find, read, retry, confirm.

use fsm::prelude::*;

use crate::chromium::{Chromium, LIMIT};
use crate::site::{ODD, OrderState, Site};

#[tokio::test(flavor = "multi_thread")]
async fn a_failed_instance_is_found_read_and_retried_by_hand() {
    let Some(chromium) = Chromium::start("retry") else { return };
    let site = Site::new("retry").await;
    site.order("o-1").await;
    site.declined(["o-2".to_owned()].into_iter()).await;
    let mut tab = chromium.tab(1280).await;
    tab.goto(&site.url).await;
    assert!(tab.text("#problems").await.contains("was declined by the bank"));
    tab.click("#problems td.key a").await;
    tab.until("location.pathname.endsWith('/i/order/o-2') && document.querySelector('#acts button[value=retry]')").await;
    assert!(tab.text("#head .notice.bad").await.contains("card 4242 was declined by the bank"));
    tab.press("r").await;
    tab.write("the customer has a new card").await;
    tab.click("#acts button[value=retry]").await;
    tab.until("location.search.startsWith('?done=') && document.querySelector('.diagram .state.here')?.dataset.state === 'charged'").await;
    let timeline = tab.text("#timeline").await;
    assert!(timeline.contains("retried by ada: the customer has a new card"), "{timeline}");
    assert_eq!(site.orders().settled("o-2").within(LIMIT).await.expect("it is there").state, Some(OrderState::Charged));

    // The form for sending offers the events that fit, and returns to the same page.
    tab.fill("#acts textarea", r#"{ "parcel": "p-7" }"#).await;
    tab.eval("document.activeElement.blur()").await;
    tab.press("s").await;
    assert_eq!(tab.eval("document.activeElement.name").await, "event");
    tab.eval("document.activeElement.value = 'Ship'").await;
    tab.click("#acts form:nth-of-type(2) button").await;
    tab.until("document.querySelector('.diagram .state.here')?.dataset.state === 'shipped'").await;
    assert!(tab.text("#side").await.contains("p-7"));
    tab.until("[...document.querySelectorAll('#acts button[name=action]')].every((button) => button.disabled && button.title)").await;
    site.runtime.shutdown().await.expect("the runtime ends");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bulk_retry_asks_for_the_number_and_shows_its_progress() {
    let Some(chromium) = Chromium::start("bulk") else { return };
    let site = Site::new("bulk").await;
    site.declined((0..120).map(|number| format!("o-{number:03}"))).await;
    let mut tab = chromium.tab(1280).await;
    tab.goto(&format!("{}/errors", site.url)).await;
    tab.click("#groups form button").await;
    tab.until("document.getElementById('plan')").await;
    assert!(tab.text("#plan").await.contains("120 instances of order match. Nothing has happened yet."));
    // Neither an empty nor a wrong number starts the act.
    tab.fill("#plan input[name=reason]", "the bank is back").await;
    tab.click("#plan form button").await;
    assert_eq!(tab.eval("document.querySelector('#plan input[name=confirmed]').validity.valueMissing").await, true);
    tab.fill("#plan input[name=confirmed]", "12").await;
    tab.click("#plan form button").await;
    tab.until("document.getElementById('said')").await;
    assert!(tab.text("#said").await.contains("nothing was done"));
    let in_error = site.orders().list(Filter::default().status(Status::Error).limit(500)).await.expect("they are listed").items.len();
    assert_eq!(in_error, 120);

    tab.goto(&format!("{}/errors", site.url)).await;
    tab.click("#groups form button").await;
    tab.until("document.getElementById('plan')").await;
    tab.fill("#plan input[name=reason]", "the bank is back").await;
    tab.fill("#plan input[name=confirmed]", "120").await;
    tab.click("#plan form button").await;
    tab.until("document.querySelector('#progress progress')?.value === 120").await;
    assert!(tab.text("#progress").await.contains("120 of 120 done, 0 refused"));
    assert_eq!(site.orders().settled("o-119").within(LIMIT).await.expect("it is there").state, Some(OrderState::Charged));
    site.runtime.shutdown().await.expect("the runtime ends");
}

#[tokio::test(flavor = "multi_thread")]
async fn selected_instances_stay_selected_while_the_list_moves() {
    let Some(chromium) = Chromium::start("selected") else { return };
    let site = Site::new("selected").await;
    site.declined((0..3).map(|number| format!("o-{number}"))).await;
    let mut tab = chromium.tab(1280).await;
    tab.goto(&format!("{}/instances?machine=order", site.url)).await;
    tab.until("document.getElementById('live').textContent === '● live'").await;
    tab.click("#rows input[value='o-1']").await;
    // The keyboard selects, too.
    tab.eval("document.querySelector(\"#rows a[href$='/o-2']\").focus()").await;
    tab.press("x").await;
    site.order("o-9").await;
    tab.until("document.querySelector(\"#rows a[href$='/o-9']\")").await;
    assert_eq!(tab.eval("[...document.querySelectorAll('#rows input:checked')].map((box) => box.value).sort().join(' ')").await, "o-1 o-2");
    tab.click("#selected button[value=cancel]").await;
    tab.until("document.getElementById('plan')").await;
    assert!(tab.text("#plan").await.contains("2 instances of order are selected."));
    tab.fill("#plan input[name=reason]", "they were tests").await;
    tab.click("#plan form button").await;
    tab.until("document.querySelector('#progress progress')?.value === 2").await;
    for (key, status) in [("o-0", Status::Error), ("o-1", Status::Cancelled), ("o-2", Status::Cancelled)] {
        assert_eq!(site.orders().get(key).await.expect("it is read").expect("it is there").status, status, "{key}");
    }
    site.runtime.shutdown().await.expect("the runtime ends");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_search_finds_a_key_of_odd_characters() {
    let Some(chromium) = Chromium::start("search") else { return };
    let site = Site::new("search").await;
    site.order(ODD).await;
    site.order("o-1").await;
    let mut tab = chromium.tab(1280).await;
    tab.goto(&site.url).await;
    tab.press("/").await;
    tab.write(ODD).await;
    tab.press("Enter").await;
    tab.until("document.querySelector('.diagram .state.here')").await;
    assert_eq!(tab.text("h1").await, ODD);
    assert!(
        tab.eval("location.pathname").await.as_str().is_some_and(|path| path.ends_with("/i/order/a%2Fb.c%3Fd%23%C3%A9%20%F0%9F%98%80"))
    );
    tab.until("document.getElementById('live').textContent === '● live'").await;
    // The page and its updates belong to this instance, and so does the list's link to it.
    site.orders().pause(ODD).await.expect("it is paused");
    tab.until("document.querySelector('#head .status')?.innerText.includes('paused')").await;
    tab.goto(&format!("{}/instances?machine=order&status=paused", site.url)).await;
    tab.press("j").await;
    tab.press("Enter").await;
    tab.until(&format!("document.querySelector('#head') && document.querySelector('h1').innerText === {:?}", ODD)).await;
    site.runtime.shutdown().await.expect("the runtime ends");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_read_only_console_shows_no_action() {
    let Some(chromium) = Chromium::start("read-only") else { return };
    let site = Site::with("read-only", |console| console.read_only()).await;
    site.declined(["o-1".to_owned()].into_iter()).await;
    let mut tab = chromium.tab(1280).await;
    for path in ["", "/i/order/o-1", "/instances?machine=order", "/errors", "/m/order", "/due", "/workers", "/audit"] {
        tab.goto(&format!("{}{path}", site.url)).await;
        assert_eq!(tab.eval("document.querySelectorAll('form[method=post], button[name=action]').length").await, 0, "{path}");
        assert!(tab.text(".top").await.contains("read-only"), "{path}");
    }
    site.runtime.shutdown().await.expect("the runtime ends");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_operator_works_without_javascript() {
    let Some(chromium) = Chromium::start("plain") else { return };
    let site = Site::new("plain").await;
    site.declined(["o-1".to_owned()].into_iter()).await;
    let mut tab = chromium.tab(1280).await;
    tab.without_javascript().await;
    tab.goto(&site.url).await;
    tab.click("#problems td.key a").await;
    tab.until("document.querySelector('#acts')").await;
    assert_eq!(tab.text("#live").await, "", "the script does not run");
    assert!(tab.text("#head .notice.bad").await.contains("was declined"));
    tab.fill("#acts input[name=reason]", "by hand").await;
    tab.click("#acts button[value=retry]").await;
    tab.until("location.search.startsWith('?done=')").await;
    site.orders().settled("o-1").within(LIMIT).await.expect("it comes to rest");
    tab.goto(&format!("{}/i/order/o-1", site.url)).await;
    assert_eq!(tab.eval("document.querySelector('.diagram .state.here').dataset.state").await, "charged");
    let time = tab.text("#timeline time").await;
    assert!(time == "just now" || time.ends_with(" ago"), "{time}");
    tab.goto(&format!("{}/instances?machine=order", site.url)).await;
    tab.eval("document.querySelector('select[name=status]').value = 'completed'").await;
    tab.click("#facets button").await;
    tab.until("location.search.includes('status=completed')").await;
    assert!(tab.text("#rows").await.contains("No instance matches."));
    assert_eq!(tab.eval("document.querySelectorAll('#acts button').length").await, 0, "there is nothing to act on");
    site.runtime.shutdown().await.expect("the runtime ends");
}
