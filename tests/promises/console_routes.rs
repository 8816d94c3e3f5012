//! Every route of the web console with every access: one table defines who may do what, and no route is missing in it.

use std::collections::BTreeSet;

use axum::body::Body;
use axum::http::Request;
use fsm::testing::TestBed;
use fsm::{Access, console};

use crate::console::{Broken, Browser, ODD, ORIGIN, Pay, Shown, Site, pages};
use crate::support::promise_without_partitions;

/// A route as the console declares it, a request to it, and the statuses for a denied actor, a viewer, an operator and an admin.
struct Route {
    declared: &'static str,
    path: &'static str,
    form: Option<&'static str>,
    status: [u16; 4],
}

const fn read(declared: &'static str, path: &'static str, status: u16) -> Route {
    Route { declared, path, form: None, status: [403, status, status, status] }
}

const fn act(declared: &'static str, path: &'static str, form: &'static str, operator: u16, admin: u16) -> Route {
    Route { declared, path, form: Some(form), status: [403, 403, operator, admin] }
}

const ROUTES: [Route; 27] = [
    read("/", "", 200),
    read("/m/{machine}", "/m/shown", 200),
    read("/instances", "/instances?machine=shown", 200),
    read("/i/{machine}/{key}", "/i/shown/o-1", 200),
    act("/i/{machine}/{key}", "/i/shown/e-1", "action=pause", 303, 303),
    act("/i/{machine}/{key}", "/i/shown/e-1", "action=resume", 303, 303),
    act("/i/{machine}/{key}", "/i/shown/e-1", "action=retry", 303, 303),
    act("/i/{machine}/{key}", "/i/shown/e-2", "action=skip", 303, 409),
    act("/i/{machine}/{key}", "/i/shown/e-3", "action=cancel", 303, 303),
    // The instance has no open call whose policy could change.
    act("/i/{machine}/{key}", "/i/shown/o-1", "action=policy&min=5s", 409, 409),
    act("/i/{machine}/{key}", "/i/shown/o-1", "action=send&event=Ship&payload=null", 303, 409),
    read("/i/{machine}/{key}/json", "/i/shown/o-1/json", 200),
    read("/errors", "/errors", 200),
    read("/due", "/due", 200),
    act("/schedules", "/schedules", "action=pause&name=none", 404, 404),
    read("/workers", "/workers", 200),
    read("/simulator", "/simulator", 200),
    read("/audit", "/audit", 200),
    act("/bulk", "/bulk", "action=retry&machine=shown&status=error", 403, 200),
    act("/bulk", "/bulk", "action=cancel&machine=shown", 403, 200),
    act("/bulk/run", "/bulk/run", "action=pause&machine=shown&prefix=none&confirmed=0", 403, 303),
    read("/bulk/{id}", "/bulk/018f0000-0000-7000-8000-000000000000", 404),
    read("/live", "/live?page=%2Fi%2Fshown%2Fo-1", 200),
    read("/search", "/search?q=o-1", 303),
    read("/assets/{name}", "/assets/console.css", 404),
    read("/robots.txt", "/robots.txt", 200),
    // A denied actor cannot tell an unknown path from a route.
    read("", "/no-such-page", 404),
];

#[tokio::test(flavor = "multi_thread")]
async fn every_route_answers_each_access_as_the_table_says_and_none_is_left_out() {
    let source = include_str!("../../fsm-console/src/lib.rs");
    let declared: BTreeSet<&str> = source.split(".route(\"").skip(1).map(|rest| rest.split('"').next().unwrap()).collect();
    let listed: BTreeSet<&str> = ROUTES.iter().map(|route| route.declared).filter(|route| !route.is_empty()).collect();
    assert!(declared.len() > 15, "{declared:?} are not all of them");
    assert_eq!(declared, listed);

    let site = Site::new("console-routes").await;
    let all = [Access::Denied, Access::Viewer, Access::Operator, Access::Admin];
    for (place, access) in all.into_iter().enumerate() {
        // The token is known to everyone who may read; only the access decides.
        let console = site.console().authorize(move |parts| match parts.headers.get("x-reader") {
            Some(_) => Access::Admin.into(),
            None => access.named("ada"),
        });
        let browser = Browser::of(console);
        let reader = Request::get("/fsm/instances?machine=shown").header("x-reader", "1").body(Body::empty()).unwrap();
        let page = browser.ask(reader).await.text;
        let token = page.split_once("name=\"token\" value=\"").unwrap().1.split_once('"').unwrap().0;
        for route in &ROUTES {
            let Route { path, form, status, .. } = route;
            let answered = match form {
                Some(form) => browser.post(path, ORIGIN, &format!("token={token}&{form}")).await.status,
                None => browser.status_of(path).await,
            };
            assert_eq!(answered.as_u16(), status[place], "{path} {} as {access:?}", form.unwrap_or_default());
            // Neither another site nor an outdated page can act for an actor.
            if let Some(form) = form {
                for (origin, token) in [("https://evil.example", token), (ORIGIN, "0")] {
                    let refused = browser.post(path, origin, &format!("token={token}&{form}")).await;
                    assert_eq!(refused.status, 403, "{path} {form} from {origin} as {access:?}");
                }
            }
        }
        // The retried call fails again.
        site.settled("e-1").await;
    }
    site.shutdown().await;
}

promise_without_partitions! {
    /// The pages are the same on every database. `console_partitions` has the tests with partitions.
    async fn every_page_is_shown_on_each_database(bed in TestBed::builder().only::<Shown>().data(Broken::new(true))) {
        let browser = Browser::of(console(bed).authorize(|_| Access::Admin.named("ada")));
        for key in ["e-1", ODD] {
            bed.machine::<Shown>().send(key, Pay::new("a note")).await.unwrap();
        }
        bed.run_until_idle().await;
        bed.advance(std::time::Duration::from_secs(1)).await;
        for path in pages() {
            let answer = browser.get(&path).await;
            assert_eq!(answer.status, 200, "{path}: {}", answer.text);
        }
        let token = browser.token_of("shown").await;
        let acted = browser.post("/i/shown/e-1", ORIGIN, &format!("token={token}&action=pause&reason=why")).await;
        assert_eq!(acted.status, 303, "{}", acted.text);
        assert!(browser.get("/audit").await.text.contains("why"));
        let row = browser.get("/m/shown").await.text;
        assert!(row.contains("<td class=\"number error\">4</td>"), "each of two failed twice: {row}");
    }
}
