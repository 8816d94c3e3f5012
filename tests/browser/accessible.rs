//! The checks that each screen must pass, with proof that each check can fail.

use serde_json::Value;

use crate::chromium::{Chromium, Tab};
use crate::site::Site;

const CHECKS: &str = include_str!("accessible.js");

/// Returns the failed checks of the page that is shown.
pub async fn defects(tab: &mut Tab) -> Vec<String> {
    let Value::Array(found) = tab.eval(CHECKS).await else { panic!("the checks end with a list") };
    found.iter().map(|defect| defect.as_str().unwrap_or_default().to_owned()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn every_check_finds_its_defect() {
    let Some(chromium) = Chromium::start("checks") else { return };
    let mut tab = chromium.tab(1280).await;
    let good = "<h1>A</h1><main><p>text</p></main>";
    let pages = [
        ("the page has no language", "<title>t</title><h1>A</h1><main></main>"),
        ("the page has no title", good),
        ("there is not one main part", "<h1>A</h1>"),
        ("a navigation without a name", "<h1>A</h1><main><nav></nav></main>"),
        ("a heading of level 3 after level 1", "<h1>A</h1><main><h3>B</h3></main>"),
        ("an empty heading", "<h1>A</h1><main><h2></h2></main>"),
        ("there is not one heading of level 1", "<main></main>"),
        ("a field without a label", "<h1>A</h1><main><input></main>"),
        ("a control without a name", "<h1>A</h1><main><button></button></main>"),
        ("a table without headers", "<h1>A</h1><main><table><tbody><tr><td>1</td></tr></tbody></table></main>"),
        ("an empty header", "<h1>A</h1><main><table><thead><tr><th></th></tr></thead></table></main>"),
        (
            "a row with other cells than headers",
            "<h1>A</h1><main><table><thead><tr><th>a</th></tr></thead><tr><td>1</td><td>2</td></tr></table></main>",
        ),
        ("a picture without a text", "<h1>A</h1><main><svg width=5 height=5></svg></main>"),
        ("an order of its own", "<h1>A</h1><main><a href=x tabindex=2>b</a></main>"),
        ("the id x twice", "<h1>A</h1><main><p id=x></p><p id=x></p></main>"),
        ("a status by its colour alone", "<h1>A</h1><main><span class=status>error</span></main>"),
        ("a contrast of 2.32", "<h1>A</h1><main><p style='color: #aaa; background: #fff'>text</p></main>"),
        ("a contrast of 3.58", "<h1>A</h1><main><p style='opacity: .5; color: #000; background: #ccc'>text</p></main>"),
    ];
    for (wanted, page) in pages {
        let language = if wanted.contains("language") { "" } else { " lang=en" };
        let title = if wanted.contains("title") { "" } else { "<title>t</title>" };
        let script = format!("document.open(); document.write({:?}); document.close()", format!("<html{language}>{title}{page}</html>"));
        tab.eval(&script).await;
        let found = defects(&mut tab).await;
        assert!(found.iter().any(|defect| defect.starts_with(wanted)), "`{wanted}` is not among {found:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_keyboard_reaches_everything_in_the_order_of_the_page() {
    let Some(chromium) = Chromium::start("keyboard") else { return };
    let site = Site::new("keyboard").await;
    site.declined(["o-1".to_owned()].into_iter()).await;
    let mut tab = chromium.tab(1280).await;
    for path in ["", "/i/order/o-1", "/instances?machine=order", "/errors"] {
        tab.goto(&format!("{}{path}", site.url)).await;
        let controls = "[...document.querySelectorAll('a[href], button, input, select, textarea, summary')]\
             .filter((one) => one.checkVisibility() && !one.disabled && one.type !== 'hidden')";
        let count = tab.eval(&format!("{controls}.length")).await.as_u64().expect("a number");
        let (mut last, mut reached) = (-1, 0);
        // Scrollable parts can have the focus too, so there are more tab stops than controls.
        for _ in 0..count + 20 {
            tab.press("Tab").await;
            let place = tab.eval(&format!("{controls}.indexOf(document.activeElement)")).await.as_i64().expect("a number");
            if place < 0 {
                continue;
            }
            assert_eq!(place, last + 1, "{path}: the focus goes in the order of the page");
            let is_seen = "(() => { const one = document.activeElement, style = getComputedStyle(one); \
                 return style.outlineStyle !== 'none' && parseFloat(style.outlineWidth) >= 2 && one.getBoundingClientRect().width > 0; })()";
            assert_eq!(tab.eval(is_seen).await, true, "{path}: the focus is seen on control {place}");
            (last, reached) = (place, reached + 1);
            if reached == count {
                break;
            }
        }
        assert_eq!(reached, count, "{path}");
    }
    // The first tab stop is the link that skips the navigation.
    tab.goto(&site.url).await;
    tab.press("Tab").await;
    assert_eq!(tab.eval("document.activeElement.getAttribute('href')").await, "#main");
    // The list of keyboard shortcuts is a dialog that the keyboard opens and closes.
    tab.press("?").await;
    tab.until("document.getElementById('keys').open").await;
    tab.press("Enter").await;
    tab.until("!document.getElementById('keys').open").await;
    site.runtime.shutdown().await.expect("the runtime ends");
}
