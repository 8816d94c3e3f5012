//! The web console: every page for everyone with access, every act only for those who are allowed to do it, and no text of a user as
//! markup.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::Body;
use axum::extract::ConnectInfo;
use axum::http::{HeaderMap, Method, Request, StatusCode};
use fsm::prelude::*;
use fsm::{Access, Console, Handle, TraceContext, console};
use http_body_util::BodyExt;
use serde::{Deserialize, Serialize};
use tower::ServiceExt;

use crate::support::Folder;

/// A time limit that is long enough on a busy machine.
const LIMIT: Duration = Duration::from_secs(60);
/// A key with all characters that have a meaning in URLs and pages.
pub const ODD: &str = "a/b.c?d#é 😀 <script>alert(1)</script> \"x\" 'y'";
const MARKUP: &str = "<script>alert(1)</script>";

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Pay {
    note: String,
}
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Ship;

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Kept {
    note: String,
}

impl Pay {
    pub fn new(note: &str) -> Pay {
        Pay { note: note.to_owned() }
    }
}

/// True if the verb fails.
pub struct Broken(AtomicBool);

impl Broken {
    pub fn new(is_broken: bool) -> Arc<Broken> {
        Arc::new(Broken(AtomicBool::new(is_broken)))
    }

    pub fn break_down(&self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[verb]
#[retry(1, "1ms")]
async fn paid(record: &mut Kept, broken: Data<Arc<Broken>>, event: Pay) -> Result {
    record.note = event.note;
    if broken.0.load(Ordering::Relaxed) { Err(Failure::new(format!("gateway 17 is down {MARKUP}"))) } else { Ok(()) }
}

#[verb]
async fn shipped(_event: Ship) -> Result {
    Ok(())
}

fsm! {
    /// An order that a console shows.
    pub machine Shown = "shown" {
        keeps Kept;
        start paid;
        paid -> shipped;
        end shipped;
    }
}

/// A runtime with one instance at rest, one with an odd key, and three in error.
pub struct Site {
    runtime: Runtime,
    broken: Arc<Broken>,
    _folder: Folder,
}

impl Site {
    pub async fn new(name: &str) -> Site {
        let folder = Folder::new(name);
        let broken = Broken::new(false);
        let builder = Runtime::builder().database(folder.url("fsm.db")).only::<Shown>().data(Arc::clone(&broken));
        let site = Site { runtime: builder.start().await.unwrap(), broken, _folder: folder };
        for key in ["o-1", ODD] {
            site.pay(key).await;
        }
        site.broken.0.store(true, Ordering::Relaxed);
        for key in ["e-1", "e-2", "e-3"] {
            site.pay(key).await;
        }
        site
    }

    fn orders(&self) -> Handle<Shown> {
        self.runtime.machine::<Shown>()
    }

    async fn pay(&self, key: &str) {
        self.orders().send(key, Pay { note: MARKUP.to_owned() }).await.unwrap();
        self.orders().settled(key).within(LIMIT).await.unwrap();
    }

    pub async fn settled(&self, key: &str) {
        self.orders().settled(key).within(LIMIT).await.unwrap();
    }

    pub async fn shutdown(self) {
        self.runtime.shutdown().await.unwrap();
    }

    pub fn console(&self) -> Console {
        console(&self.runtime)
    }

    fn as_actor(&self, access: Access) -> Browser {
        Browser::of(self.console().authorize(move |_| access.named("ada")))
    }
}

/// A browser in front of a console that is nested at `/fsm`.
pub struct Browser(Router);

pub struct Answer {
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub text: String,
}

impl Browser {
    pub fn of(console: Console) -> Browser {
        Browser::of_router(console.router())
    }

    pub fn of_router(router: Router) -> Browser {
        Browser(Router::new().nest("/fsm", router))
    }

    pub async fn ask(&self, request: Request<Body>) -> Answer {
        let (parts, body) = self.0.clone().oneshot(request).await.unwrap().into_parts();
        let bytes = body.collect().await.unwrap().to_bytes();
        Answer { status: parts.status, headers: parts.headers, text: String::from_utf8(bytes.to_vec()).unwrap() }
    }

    pub async fn get(&self, path: &str) -> Answer {
        self.ask(Request::get(format!("/fsm{path}")).body(Body::empty()).unwrap()).await
    }

    /// Opens the stream of updates of a page.
    pub async fn updates(&self, path: &str) -> Updates {
        let request = Request::get(format!("/fsm{path}")).body(Body::empty()).unwrap();
        Updates(self.0.clone().oneshot(request).await.unwrap().into_body())
    }

    /// Returns the status of an answer whose body may be a stream.
    pub async fn status_of(&self, path: &str) -> StatusCode {
        let request = Request::get(format!("/fsm{path}")).body(Body::empty()).unwrap();
        self.0.clone().oneshot(request).await.unwrap().status()
    }

    pub async fn post(&self, path: &str, origin: &str, form: &str) -> Answer {
        let request = Request::post(format!("/fsm{path}")).header("host", "ops.example").header("origin", origin);
        let request = request.header("content-type", "application/x-www-form-urlencoded");
        self.ask(request.body(Body::from(form.to_owned())).unwrap()).await
    }

    /// Returns the token of the forms of a page.
    async fn token(&self) -> String {
        self.token_of("shown").await
    }

    /// Returns the token from the list of a machine.
    pub async fn token_of(&self, machine: &str) -> String {
        let page = self.get(&format!("/instances?machine={machine}")).await.text;
        let (_, rest) = page.split_once("name=\"token\" value=\"").expect("the page has a form");
        rest.split_once('"').unwrap().0.to_owned()
    }
}

/// The stream of updates of an open page.
pub struct Updates(Body);

impl Updates {
    /// The text of the next update; `None` after the end of the stream.
    pub async fn next(&mut self) -> Option<String> {
        let mut text = String::new();
        loop {
            let frame = tokio::time::timeout(LIMIT, self.0.frame()).await.expect("the stream does not hang")?;
            text.push_str(std::str::from_utf8(frame.unwrap().data_ref()?).unwrap());
            if text.contains("event: patch") && text.ends_with("\n\n") {
                return Some(text);
            }
        }
    }
}

pub const ORIGIN: &str = "https://ops.example";

pub fn encoded(text: &str) -> String {
    text.bytes().map(|byte| format!("%{byte:02X}")).collect()
}

pub fn pages() -> Vec<String> {
    let odd = format!("/i/shown/{}", encoded(ODD));
    let fixed = [
        "",
        "/m/shown",
        "/instances?machine=shown",
        "/instances?machine=shown&status=error&error=gateway",
        "/i/shown/e-1",
        "/errors",
        "/due",
    ];
    let rest = ["/workers", "/simulator", "/simulator?retries=3&min=1m&max=1h&backoff=3&jitter=0&within=&outage=1h", "/audit"];
    fixed.iter().chain(&rest).map(|path| (*path).to_owned()).chain([odd]).collect()
}

#[cfg(feature = "sqlite")]
#[tokio::test(flavor = "multi_thread")]
async fn every_page_shows_what_is_and_no_text_of_a_user_is_markup() {
    let site = Site::new("console-pages").await;
    site.orders().retry("e-1").reason(MARKUP).actor(MARKUP).await.unwrap();
    site.orders().settled("e-1").within(LIMIT).await.unwrap();
    let browser = site.as_actor(Access::Admin);
    for path in pages() {
        let answer = browser.get(&path).await;
        assert_eq!(answer.status, StatusCode::OK, "{path}: {}", answer.text);
        assert!(!answer.text.contains(MARKUP), "{path}");
        assert!(
            !answer.text.contains("style=\"") && !answer.text.contains("onclick"),
            "{path}: the policy forbids inline style and script"
        );
        for (place, _) in answer.text.match_indices("http") {
            let is_namespace = answer.text[place..].starts_with("http://www.w3.org/2000/svg");
            assert!(is_namespace, "{path} names something elsewhere: {}", &answer.text[place..(place + 40).min(answer.text.len())]);
        }
        let headers = &answer.headers;
        assert!(headers["content-security-policy"].to_str().unwrap().starts_with("default-src 'none'; script-src 'self'"), "{path}");
        assert_eq!(
            (&headers["x-content-type-options"], &headers["x-frame-options"]),
            (&"nosniff".parse().unwrap(), &"DENY".parse().unwrap())
        );
    }
    let page = |path: &'static str| {
        let browser = &browser;
        async move { browser.get(path).await.text }
    };
    assert!(page("").await.contains("gateway # is down"), "the overview groups errors");
    let machine = page("/m/shown").await;
    assert!(machine.contains("2 running"), "the diagram counts those at rest: {machine}");
    assert!(machine.contains("no state yet") && machine.contains(">3</a>"), "{machine}");
    let instance = page("/i/shown/e-1").await;
    for part in [
        "class=\"state target retrying\"",
        "attempt 2 of",
        "exhausted after 2 attempts",
        "retried by",
        "status error",
        "gateway 17 is down",
    ] {
        assert!(instance.contains(part) || part.starts_with("class="), "{part}");
    }
    assert!(page("/errors").await.contains(">3</a>"));
    assert!(page("/audit").await.contains("retried"));
    assert!(page("/workers").await.contains("1 worker alive"));
    assert!(page("/simulator").await.contains("survives an outage of 30m"));
    for (path, status) in [("/nothing", 404), ("/m/unknown", 404), ("/i/shown/unknown", 404), ("/instances?machine=unknown", 404)] {
        assert_eq!(browser.get(path).await.status, status, "{path}");
    }
    let json: serde_json::Value = serde_json::from_str(&page("/i/shown/e-1/json").await).unwrap();
    assert_eq!((json["state"].as_str(), json["status"].as_str()), (None, Some("error")));
    site.runtime.shutdown().await.unwrap();
}

#[cfg(feature = "sqlite")]
#[tokio::test(flavor = "multi_thread")]
async fn a_key_of_any_characters_has_a_page_and_is_found() {
    let site = Site::new("console-keys").await;
    let browser = site.as_actor(Access::Viewer);
    let list = browser.get("/instances?machine=shown").await.text;
    let link = list.split('"').find(|part| part.starts_with("/fsm/i/shown/a%2Fb")).expect("the list links to it").to_owned();
    let found = browser.get(&format!("/search?q={}", encoded(ODD))).await;
    assert_eq!((found.status, found.headers["location"].to_str().unwrap()), (StatusCode::SEE_OTHER, link.as_str()));
    assert_eq!(browser.get(link.strip_prefix("/fsm").unwrap()).await.status, StatusCode::OK);
    site.runtime.shutdown().await.unwrap();
}

#[cfg(feature = "sqlite")]
#[tokio::test(flavor = "multi_thread")]
async fn a_viewer_reads_an_operator_acts_on_one_instance_an_admin_on_many_and_others_see_nothing() {
    let site = Site::new("console-rights").await;
    for path in pages() {
        for (access, status) in [(Access::Denied, 403), (Access::Viewer, 200), (Access::Operator, 200), (Access::Admin, 200)] {
            assert_eq!(site.as_actor(access).get(&path).await.status, status, "{path} as {access:?}");
        }
    }
    let one = "/i/shown/e-1";
    // A viewer's pages have no form that writes. An operator's list has no form for bulk acts.
    let viewer = site.as_actor(Access::Viewer);
    assert!(!viewer.get(one).await.text.contains("method=\"post\"") && !viewer.get("/errors").await.text.contains("method=\"post\""));
    let operator = site.as_actor(Access::Operator);
    assert!(operator.get(one).await.text.contains("retry now") && !operator.get("/instances?machine=shown").await.text.contains("retry…"));

    for (access, of_one, of_many) in
        [(Access::Denied, 403, 403), (Access::Viewer, 403, 403), (Access::Operator, 303, 403), (Access::Admin, 303, 200)]
    {
        let router = site.console().authorize(move |parts| match parts.headers.get("x-reader") {
            Some(_) => Access::Admin.into(),
            None => access.into(),
        });
        let browser = Browser::of(router);
        let reader = Request::get("/fsm/instances?machine=shown").header("x-reader", "1").body(Body::empty()).unwrap();
        let page = browser.ask(reader).await.text;
        let token = page.split_once("name=\"token\" value=\"").unwrap().1.split_once('"').unwrap().0;
        let acted = browser.post(one, ORIGIN, &format!("token={token}&action=pause")).await;
        assert_eq!(acted.status, of_one, "{access:?}: {}", acted.text);
        let planned = browser.post("/bulk", ORIGIN, &format!("token={token}&action=retry&machine=shown&status=error")).await;
        assert_eq!(planned.status, of_many, "{access:?}: {}", planned.text);
        if of_one == 303 {
            browser.post(one, ORIGIN, &format!("token={token}&action=resume")).await;
        }
    }
    site.runtime.shutdown().await.unwrap();
}

#[cfg(feature = "sqlite")]
#[tokio::test(flavor = "multi_thread")]
async fn a_form_that_is_not_ours_changes_nothing() {
    let site = Site::new("console-forms").await;
    let browser = site.as_actor(Access::Admin);
    let token = browser.token().await;
    let good = format!("token={token}&action=pause");
    for (origin, form, why) in [
        ("https://evil.example", good.as_str(), "another origin"),
        ("null", good.as_str(), "no origin"),
        (ORIGIN, "action=pause", "no token"),
        (ORIGIN, "token=0123&action=pause", "a wrong token"),
    ] {
        assert_eq!(browser.post("/i/shown/o-1", origin, form).await.status, StatusCode::FORBIDDEN, "{why}");
    }
    let no_form =
        Request::post("/fsm/i/shown/o-1").header("host", "ops.example").header("origin", ORIGIN).header("content-type", "text/plain");
    assert_eq!(browser.ask(no_form.body(Body::from(good.clone())).unwrap()).await.status, StatusCode::UNSUPPORTED_MEDIA_TYPE);
    let large = format!("token={token}&action=send&payload={}", "x".repeat(2 * 1024 * 1024));
    assert_eq!(browser.post("/i/shown/o-1", ORIGIN, &large).await.status, StatusCode::PAYLOAD_TOO_LARGE);
    let put = Request::builder().method(Method::PUT).uri("/fsm/i/shown/o-1").body(Body::empty()).unwrap();
    assert_eq!(browser.ask(put).await.status, StatusCode::METHOD_NOT_ALLOWED);
    let read_only = Browser::of(site.console().authorize(|_| Access::Admin.into()).read_only());
    assert_eq!(read_only.post("/i/shown/o-1", ORIGIN, &good).await.status, StatusCode::FORBIDDEN);
    assert!(!read_only.get("/i/shown/e-1").await.text.contains("method=\"post\""));
    let order = site.orders().get("o-1").await.unwrap().unwrap();
    assert!(!order.paused, "none of them was carried out");

    assert_eq!(browser.post("/i/shown/o-1", ORIGIN, &good).await.status, StatusCode::SEE_OTHER);
    assert!(site.orders().get("o-1").await.unwrap().unwrap().paused);
    site.runtime.shutdown().await.unwrap();
}

#[cfg(feature = "sqlite")]
#[tokio::test(flavor = "multi_thread")]
async fn an_act_is_carried_out_in_the_name_of_who_asks_and_a_bulk_act_on_those_that_were_confirmed() {
    let site = Site::new("console-acts").await;
    let browser = site.as_actor(Access::Admin);
    let token = browser.token().await;
    site.broken.0.store(false, Ordering::Relaxed);

    let retried = browser.post("/i/shown/e-1", ORIGIN, &format!("token={token}&action=retry&reason=the+gateway+is+back")).await;
    assert_eq!(retried.status, StatusCode::SEE_OTHER, "{}", retried.text);
    assert!(retried.headers["location"].to_str().unwrap().starts_with("/fsm/i/shown/e-1?done="));
    let order = site.orders().settled("e-1").within(LIMIT).await.unwrap();
    assert_eq!((order.status, order.state), (Status::Running, Some(ShownState::Paid)));
    let history = site.orders().history("e-1").await.unwrap().iter().map(ToString::to_string).collect::<Vec<_>>().join("\n");
    assert!(history.contains("retried by ada: the gateway is back"), "{history}");

    // An act that does not apply is refused with a reason, and an event that does not fit with the events that do.
    let refused = browser.post("/i/shown/e-1", ORIGIN, &format!("token={token}&action=retry")).await;
    assert_eq!(refused.status, StatusCode::CONFLICT);
    assert!(refused.text.contains("succeeded"), "{}", refused.text);
    let sent = browser.post("/i/shown/e-1", ORIGIN, &format!("token={token}&action=send&event=Ship&payload=null")).await;
    assert_eq!(sent.status, StatusCode::SEE_OTHER, "{}", sent.text);
    assert_eq!(site.orders().settled("e-1").within(LIMIT).await.unwrap().state, Some(ShownState::Shipped));

    let filter = format!("token={token}&action=retry&machine=shown&status=error&reason=all");
    let plan = browser.post("/bulk", ORIGIN, &filter).await.text;
    assert!(plan.contains("<strong>2</strong> instances") && plan.contains(">e-2<") && plan.contains(">e-3<"), "{plan}");
    assert_eq!(browser.post("/bulk/run", ORIGIN, &format!("{filter}&confirmed=3")).await.status, StatusCode::CONFLICT);
    assert_eq!(site.orders().get("e-2").await.unwrap().unwrap().status, Status::Error, "nothing was done");
    let run = browser.post("/bulk/run", ORIGIN, &format!("{filter}&confirmed=2")).await;
    assert_eq!(run.status, StatusCode::SEE_OTHER, "{}", run.text);
    for key in ["e-2", "e-3"] {
        let begin = Instant::now();
        while site.orders().get(key).await.unwrap().unwrap().status == Status::Error {
            assert!(begin.elapsed() < LIMIT);
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
    let path = run.headers["location"].to_str().unwrap().strip_prefix("/fsm").unwrap().to_owned();
    assert!(browser.get(&path).await.text.contains("of 2 done, 0 refused"));
    site.runtime.shutdown().await.unwrap();
}

#[cfg(feature = "sqlite")]
#[tokio::test(flavor = "multi_thread")]
async fn a_bulk_act_on_selected_instances_goes_to_no_other() {
    let site = Site::new("console-selected").await;
    let browser = site.as_actor(Access::Admin);
    let token = browser.token().await;
    site.broken.0.store(false, Ordering::Relaxed);
    let list = browser.get("/instances?machine=shown&status=error").await.text;
    assert!(list.contains("type=\"checkbox\"") && list.contains("value=\"e-2\""), "{list}");

    let form = format!("token={token}&action=retry&machine=shown&only=selected&reason=these");
    let nothing = browser.post("/bulk", ORIGIN, &form).await;
    assert_eq!(nothing.status, StatusCode::BAD_REQUEST);
    assert!(nothing.text.contains("no instance is selected: nothing was done"), "{}", nothing.text);
    // A key is percent-encoded in the form, and its `%` once more as that of any form.
    let chosen = format!("{form}&key=e%252D2&key=a%252Fb%2520c");
    let plan = browser.post("/bulk", ORIGIN, &chosen).await.text;
    assert!(plan.contains("<strong>2</strong> instances of <code>shown</code> are selected"), "{plan}");
    assert!(
        plan.contains(">e-2</a>") && plan.contains(">a/b c</a>") && !plan.contains(">e-3<") && !plan.contains("value=\"e-3\""),
        "{plan}"
    );
    let run = browser.post("/bulk/run", ORIGIN, &format!("{chosen}&confirmed=2")).await;
    assert_eq!(run.status, StatusCode::SEE_OTHER, "{}", run.text);
    let path = run.headers["location"].to_str().unwrap().strip_prefix("/fsm").unwrap().to_owned();
    let begin = Instant::now();
    let ended = loop {
        let page = browser.get(&path).await.text;
        if page.contains("2 of 2 done") {
            break page;
        }
        assert!(begin.elapsed() < LIMIT, "{page}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    };
    assert!(ended.contains("1 refused") && ended.contains("a/b c"), "{ended}");
    assert_eq!(site.orders().settled("e-2").within(LIMIT).await.unwrap().status, Status::Running);
    assert_eq!(site.orders().get("e-3").await.unwrap().unwrap().status, Status::Error);
    site.runtime.shutdown().await.unwrap();
}

#[cfg(feature = "sqlite")]
#[tokio::test(flavor = "multi_thread")]
async fn instances_are_listed_by_the_time_for_which_they_have_not_changed() {
    let site = Site::new("console-unchanged").await;
    let browser = site.as_actor(Access::Viewer);
    tokio::time::sleep(Duration::from_millis(20)).await;
    assert!(browser.get("/instances?machine=shown&unchanged=10ms").await.text.contains(">e-1</a>"));
    let stale = browser.get("/instances?machine=shown&unchanged=1h").await.text;
    assert!(stale.contains("No instance matches.") && !stale.contains(">e-1</a>"), "{stale}");
    site.runtime.shutdown().await.unwrap();
}

#[cfg(feature = "sqlite")]
#[tokio::test(flavor = "multi_thread")]
async fn an_open_page_moves_when_its_instance_does_and_its_stream_ends_with_the_process() {
    let site = Site::new("console-live").await;
    let browser = site.as_actor(Access::Viewer);
    let mut updates = browser.updates("/live?page=%2Fi%2Fshown%2Fo-1").await;
    let first = updates.next().await.expect("the page as it is");
    assert!(first.contains("\\\"state here\\\"") && first.contains("timeline"), "{first}");
    site.orders().send("o-1", Ship).await.unwrap();
    let mut moved = String::new();
    while !moved.contains("shipped</code>") {
        moved.push_str(&updates.next().await.expect("an update"));
    }
    assert!(!moved.contains("\"id\":\"side\""), "only the sections that changed are sent: {moved}");
    let shutdown = tokio::spawn(site.runtime.shutdown());
    while updates.next().await.is_some() {}
    shutdown.await.unwrap().unwrap();
}

#[cfg(feature = "sqlite")]
#[tokio::test(flavor = "multi_thread")]
async fn without_authentication_only_this_machine_is_answered() {
    let site = Site::new("console-loopback").await;
    let browser = Browser::of(site.console());
    let from = |address: Option<&str>| {
        let mut request = Request::get("/fsm").body(Body::empty()).unwrap();
        if let Some(address) = address {
            request.extensions_mut().insert(ConnectInfo(address.parse::<SocketAddr>().unwrap()));
        }
        browser.ask(request)
    };
    assert_eq!(from(Some("127.0.0.1:1")).await.status, StatusCode::OK);
    assert_eq!(from(Some("[::1]:1")).await.status, StatusCode::OK);
    assert_eq!(from(Some("192.0.2.7:1")).await.status, StatusCode::FORBIDDEN);
    assert_eq!(from(None).await.status, StatusCode::FORBIDDEN);
    let error = site.console().serve("0.0.0.0:0".parse().unwrap(), async {}).await.unwrap_err();
    assert!(error.to_string().contains("is reachable from other machines"), "{error}");

    let browser = Browser::of(site.console().basic_auth("ada", "secret"));
    let with = |credentials: &str| browser.ask(Request::get("/fsm").header("authorization", credentials).body(Body::empty()).unwrap());
    assert_eq!(with("Basic YWRhOnNlY3JldA==").await.status, StatusCode::OK);
    let refused = with("Basic YWRhOndyb25n").await;
    assert_eq!(refused.status, StatusCode::UNAUTHORIZED);
    assert!(refused.headers["www-authenticate"].to_str().unwrap().starts_with("Basic "));
    site.runtime.shutdown().await.unwrap();
}

#[cfg(feature = "sqlite")]
#[tokio::test(flavor = "multi_thread")]
async fn hidden_payloads_are_on_no_page() {
    let site = Site::new("console-hidden").await;
    let secret = "4242-4242";
    site.broken.0.store(false, Ordering::Relaxed);
    site.orders().send("s-1", Pay { note: secret.to_owned() }).await.unwrap();
    site.orders().settled("s-1").within(LIMIT).await.unwrap();
    assert!(site.as_actor(Access::Viewer).get("/i/shown/s-1").await.text.contains(secret));
    let browser = Browser::of(site.console().authorize(|_| Access::Viewer.into()).hide_payloads());
    for path in ["/i/shown/s-1", "/i/shown/s-1/json", "/instances?machine=shown"] {
        assert!(!browser.get(path).await.text.contains(secret), "{path}");
    }
    site.runtime.shutdown().await.unwrap();
}

#[cfg(feature = "sqlite")]
#[tokio::test(flavor = "multi_thread")]
async fn the_page_of_an_instance_names_its_trace_and_links_it_if_the_console_knows_where_traces_are() {
    let site = Site::new("console-traces").await;
    let trace = TraceContext::new("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", None).unwrap();
    site.orders().send("traced", Pay::new("traced")).trace(trace).await.unwrap();
    let page = "/i/shown/traced";
    let plain = Browser::of(site.console().authorize(|_| Access::Viewer.named("ada"))).get(page).await.text;
    assert!(plain.contains("trace <code title=\"4bf92f3577b34da6a3ce929d0e0e4736\">4bf92f35</code>"), "{plain}");
    let linked = site.console().trace_url("https://traces.example.com/trace/{trace_id}").authorize(|_| Access::Viewer.named("ada"));
    let linked = Browser::of(linked).get(page).await.text;
    assert!(linked.contains("<a href=\"https://traces.example.com/trace/4bf92f3577b34da6a3ce929d0e0e4736\""), "{linked}");
    assert!(!Browser::of(site.console().authorize(|_| Access::Viewer.named("ada"))).get("/i/shown/o-1").await.text.contains("trace <"));
    site.shutdown().await;
}
