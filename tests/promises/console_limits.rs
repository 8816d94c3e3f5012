//! The limits of the web console: hostile texts, large requests, slow and many browsers, ten thousand instances at once, and a shutdown.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use axum::http::StatusCode;
use fsm::prelude::*;
use fsm::{Access, Console, Handle, console};
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::console::{Browser, ORIGIN, encoded};
use crate::support::Folder;

/// A time limit that is long enough on a busy machine.
const LIMIT: Duration = Duration::from_secs(120);
/// Texts that every page must escape: markup, an attribute, a script's end, a terminal escape, a reversed text, a null.
const HOSTILE: [&str; 6] = [
    "<img src=x onerror=alert(1)>",
    "\" autofocus onfocus=alert(1) x=\"",
    "</script><script>alert(1)</script>",
    "\u{1b}[31mred\u{1b}]0;title\u{7}",
    "\u{202e}txet desrever\u{2066}",
    "' or 1=1 --",
];

#[derive(Debug, Clone, Serialize, Deserialize)]
struct Go {
    note: String,
}
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Again;

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
struct Noted {
    note: String,
}

struct Works(AtomicBool);

/// Fails with the note until it works.
#[verb]
#[retry(none)]
async fn gone(record: &mut Noted, works: Data<Arc<Works>>, event: Go) -> Result {
    record.note.clone_from(&event.note);
    if works.0.load(Ordering::Relaxed) { Ok(()) } else { Err(Failure::permanent(event.note)) }
}

/// Fails, and is retried an hour later.
#[verb]
#[retry(3, "1h", give_up_on(Fatal))]
async fn tried(_event: Again) -> Result {
    Err(Failure::new("not yet"))
}

#[derive(Debug)]
struct Fatal;
impl std::fmt::Display for Fatal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("fatal")
    }
}
impl std::error::Error for Fatal {}

fsm! {
    machine Limited = "limited" {
        keeps Noted;
        start gone;
        gone -> tried;
        end tried;
    }
}

struct Program {
    runtime: Runtime,
    works: Arc<Works>,
    _folder: Folder,
}

impl Program {
    async fn new(name: &str) -> Program {
        let folder = Folder::new(name);
        let works = Arc::new(Works(AtomicBool::new(false)));
        let builder = Runtime::builder().database(folder.url("fsm.db")).only::<Limited>().data(Arc::clone(&works));
        Program { runtime: builder.start().await.unwrap(), works, _folder: folder }
    }

    fn handle(&self) -> Handle<Limited> {
        self.runtime.machine::<Limited>()
    }

    fn console(&self) -> Console {
        console(&self.runtime).authorize(|_| Access::Admin.named("ada"))
    }

    /// Serves the console on a port of this machine.
    async fn served(&self) -> SocketAddr {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let router = axum::Router::new().nest("/fsm", self.console().router());
        tokio::spawn(async move { axum::serve(listener, router).await });
        address
    }

    async fn run(&self, key: &str, note: &str) {
        self.handle().send(key, Go { note: note.to_owned() }).await.unwrap();
        self.handle().settled(key).within(LIMIT).await.unwrap();
    }
}

async fn asked(address: SocketAddr, path: &str) -> TcpStream {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let request = format!("GET /fsm{path} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    stream
}

#[tokio::test(flavor = "multi_thread")]
async fn hostile_texts_are_escaped_on_every_page() {
    let program = Program::new("console-hostile").await;
    for (number, text) in HOSTILE.iter().enumerate() {
        let key = format!("k-{number}-{text}");
        program.run(&key, text).await;
        program.handle().pause(&key).reason(*text).actor(*text).await.unwrap();
    }
    let browser = Browser::of(program.console());
    let mut paths: Vec<String> =
        ["", "/m/limited", "/instances?machine=limited", "/errors", "/due", "/workers", "/audit"].map(str::to_owned).to_vec();
    for (number, text) in HOSTILE.iter().enumerate() {
        let path = format!("/i/limited/{}", encoded(&format!("k-{number}-{text}")));
        paths.extend([
            path.clone(),
            format!("{path}?done={}", encoded(text)),
            format!("/instances?machine=limited&error={}", encoded(text)),
        ]);
        paths.push(format!("/search?q={}", encoded(&format!("no such {text}"))));
        paths.push(format!("/simulator?retries={}&outage={}", encoded(text), encoded(text)));
    }
    for path in paths {
        let answer = browser.get(&path).await;
        assert!(
            answer.status.is_success() || answer.status.is_redirection() || answer.status.is_client_error(),
            "{path}: {}",
            answer.status
        );
        for raw in ["<img", "<script>", "\" autofocus", "\u{1b}", "\u{7}", "\u{202e}", "\u{2066}"] {
            assert!(!answer.text.contains(raw), "{path} contains {raw:?}");
        }
    }
    // The data is JSON, which may contain any text. A browser must not interpret it as a page.
    let json = browser.get(&format!("/i/limited/{}/json", encoded(&format!("k-0-{}", HOSTILE[0])))).await;
    assert_eq!(json.headers["content-type"], "application/json");
    assert_eq!(json.headers["x-content-type-options"], "nosniff");
    program.runtime.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn an_oversized_or_broken_request_is_refused_and_changes_nothing() {
    let program = Program::new("console-oversized").await;
    program.works.0.store(true, Ordering::Relaxed);
    program.run("k-1", "x").await;
    let browser = Browser::of(program.console());
    let token = browser.token_of("limited").await;
    let long = "x".repeat(300_000);
    for (path, form, status) in [
        ("/i/limited/k-1", format!("token={token}&action=pause&reason={}", "r".repeat(9_000)), StatusCode::BAD_REQUEST),
        ("/i/limited/k-1", format!("token={token}&action=send&event=Again&payload=%22{long}%22"), StatusCode::BAD_REQUEST),
        ("/i/limited/k-1", format!("token={token}&action=send&event=Nothing&payload=null"), StatusCode::CONFLICT),
        ("/i/limited/k-1", format!("token={token}&action=send&event=Again&payload=%7B"), StatusCode::BAD_REQUEST),
        ("/i/limited/k-1", format!("token={token}&action=explode"), StatusCode::BAD_REQUEST),
        ("/i/limited/k-1", format!("token={token}&action=policy&min=soon"), StatusCode::BAD_REQUEST),
        ("/i/limited/k-1", format!("token={token}&action=policy&min=2h&max=1h"), StatusCode::BAD_REQUEST),
        ("/bulk/run", format!("token={token}&action=explode&machine=limited"), StatusCode::BAD_REQUEST),
        ("/bulk", format!("token={token}&action=explode&machine=limited"), StatusCode::BAD_REQUEST),
        ("/bulk", format!("token={token}&action=retry&machine=unknown"), StatusCode::NOT_FOUND),
        ("/i/limited/unknown", format!("token={token}&action=pause"), StatusCode::NOT_FOUND),
    ] {
        let answer = browser.post(path, ORIGIN, &form).await;
        assert_eq!(answer.status, status, "{path} {}: {}", &form[..form.len().min(120)], answer.text);
    }
    for path in [
        format!("/i/limited/{}", "k".repeat(300)),
        format!("/search?q={}", "k".repeat(5_000)),
        "/audit?before=soon".to_owned(),
        "/live".to_owned(),
        "/bulk/7".to_owned(),
        "/assets/..%2F..%2FCargo.toml".to_owned(),
        "/i/limited/%FF%FE".to_owned(),
    ] {
        let status = browser.get(&path).await.status;
        assert!(status.is_client_error() || status.is_redirection(), "{path}: {status}");
    }
    let instance = program.handle().get("k-1").await.unwrap().unwrap();
    assert!(!instance.paused && instance.version == 1, "{instance:?}");
    program.runtime.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn an_operator_changes_the_policy_of_an_open_call_and_the_history_says_why() {
    let program = Program::new("console-policy").await;
    program.works.0.store(true, Ordering::Relaxed);
    program.run("k-1", "x").await;
    program.handle().send("k-1", Again).await.unwrap();
    let begun = Instant::now();
    while program.handle().get("k-1").await.unwrap().unwrap().call.is_none_or(|call| call.attempt < 2) {
        assert!(begun.elapsed() < LIMIT);
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let browser = Browser::of(program.console());
    let token = browser.token_of("limited").await;
    let machine = browser.get("/m/limited").await.text;
    assert!(machine.contains("class=\"state has-retries\" data-state=\"gone\"") && machine.contains(">1 retrying<"), "{machine}");
    let page = browser.get("/i/limited/k-1").await.text;
    assert!(page.contains("Now: 3 retries, every 1h") && page.contains("name=\"retries\" value=\"3\""), "{page}");
    let form = format!("token={token}&action=policy&retries=7&min=2h&max=4h&backoff=2&jitter=0&within=&reason=slow+partner");
    let changed = browser.post("/i/limited/k-1", ORIGIN, &form).await;
    assert_eq!(changed.status, StatusCode::SEE_OTHER, "{}", changed.text);
    let page = browser.get("/i/limited/k-1").await.text;
    assert!(page.contains("Now: 7 retries, 2h to 4h, × 2"), "{page}");
    assert!(page.contains("rescheduled by ada: slow partner"), "{page}");
    // The plan follows the call's own policy: seven retries, of which one was used.
    assert!(page.contains("<li value=\"3\">") && page.contains("<li value=\"8\">") && page.contains("Then it gives up."), "{page}");
    assert!(!page.contains("<li value=\"9\">"), "{page}");
    let call = program.handle().get("k-1").await.unwrap().unwrap().call.unwrap();
    assert_eq!((call.attempt, call.max_attempts), (2, Some(8)));
    // The typed policy keeps the errors that are not retried.
    let policy = program.runtime_policy("k-1").await;
    assert!(policy.contains("Fatal") && policy.contains("7200"), "{policy}");
    assert!(browser.get("/audit").await.text.contains("slow partner"));
    program.runtime.shutdown().await.unwrap();
}

impl Program {
    /// The stored policy of the newest attempt.
    async fn runtime_policy(&self, key: &str) -> String {
        use sqlx::Connection;
        let mut conn = sqlx::SqliteConnection::connect(&self._folder.url("fsm.db")).await.unwrap();
        let text = "select cast(c.retry as text) from fsm_attempts c join fsm_instances i on i.instance_id = c.instance_id \
                    where i.key = ? order by c.call_id desc, c.attempt desc limit 1";
        sqlx::query_scalar(text).bind(key).fetch_one(&mut conn).await.unwrap()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_machine_page_counts_the_outcomes_of_each_verb() {
    let program = Program::new("console-outcomes").await;
    program.run("k-1", "no").await;
    program.run("k-2", "no").await;
    program.works.0.store(true, Ordering::Relaxed);
    program.run("k-3", "yes").await;
    let page = Browser::of(program.console()).get("/m/limited").await.text;
    let row =
        page.split("<tr>").find(|row| row.contains("<code>gone</code>") && row.contains("<code>Go</code>")).expect("the verb has a row");
    assert!(row.contains("<td class=\"number\">1</td><td class=\"number error\">2</td>"), "{row}");
    let other = page.split("<tr>").find(|row| row.contains("<code>tried</code>") && row.contains("<code>Again</code>")).unwrap();
    assert!(other.contains("<td class=\"number\">–</td><td class=\"number\">–</td>"), "{other}");
    program.runtime.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn browsers_that_do_not_read_hold_up_neither_the_engine_nor_other_pages() {
    let program = Program::new("console-slow").await;
    program.works.0.store(true, Ordering::Relaxed);
    program.run("k-1", &"large ".repeat(20_000)).await;
    let address = program.served().await;
    // Each connection asks for a large page or for its updates, and reads nothing.
    let mut silent = Vec::new();
    for number in 0..60 {
        let path = if number % 2 == 0 { "/i/limited/k-1" } else { "/live?page=%2Fi%2Flimited%2Fk-1" };
        silent.push(asked(address, path).await);
    }
    let begun = Instant::now();
    for number in 0..50 {
        program.run(&format!("n-{number}"), "x").await;
    }
    let mut page = String::new();
    let mut stream = asked(address, "/i/limited/n-49").await;
    tokio::time::timeout(LIMIT, stream.read_to_string(&mut page)).await.expect("a page is shown").unwrap();
    assert!(page.starts_with("HTTP/1.1 200"), "{page}");
    assert!(begun.elapsed() < LIMIT / 2, "{:?}", begun.elapsed());
    drop(silent);
    program.runtime.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn every_open_stream_ends_when_the_program_does() {
    let program = Program::new("console-streams").await;
    program.works.0.store(true, Ordering::Relaxed);
    program.run("k-1", "x").await;
    let address = program.served().await;
    let mut streams = Vec::new();
    for page in ["", "%2Fi%2Flimited%2Fk-1", "%2Ferrors", "%2Fm%2Flimited", "%2Finstances%3Fmachine%3Dlimited", "%2Fworkers"] {
        let mut stream = asked(address, &format!("/live?page={page}")).await;
        let mut first = [0; 4096];
        let read = tokio::time::timeout(LIMIT, stream.read(&mut first)).await.expect("the stream begins").unwrap();
        assert!(read > 0, "{page}");
        streams.push(stream);
    }
    program.runtime.shutdown().await.unwrap();
    for mut stream in streams {
        let mut rest = Vec::new();
        // The server ends the answer and then the connection.
        tokio::time::timeout(LIMIT, stream.read_to_end(&mut rest)).await.expect("the stream ends").unwrap();
        assert!(rest.ends_with(b"0\r\n\r\n"), "{}", String::from_utf8_lossy(&rest));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bulk_retry_of_ten_thousand_shows_its_progress_and_leaves_none_out() {
    const ALL: usize = 10_000;
    let program = Program::new("console-bulk").await;
    let handle = program.handle();
    let items = (0..ALL).map(|number| (format!("k-{number:05}"), Go { note: "the bank is away".to_owned() }));
    let sent = handle.send_many(items).collect().await.unwrap();
    assert!(sent.iter().all(Result::is_ok));
    let in_error =
        async || handle.counts().await.unwrap().iter().filter(|count| count.status == Status::Error).map(|count| count.count).sum::<u64>();
    let begun = Instant::now();
    while in_error().await < ALL as u64 {
        assert!(begun.elapsed() < LIMIT, "{} of them failed", in_error().await);
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    program.works.0.store(true, Ordering::Relaxed);
    let browser = Browser::of(program.console());
    let token = browser.token_of("limited").await;
    let filter = format!("token={token}&action=retry&machine=limited&status=error&reason=the+bank+is+back");
    let plan = browser.post("/bulk", ORIGIN, &filter).await.text;
    assert!(plan.contains("<strong>10\u{202f}000</strong> instances") && plan.contains("type 10000 to confirm"), "{plan}");
    let run = browser.post("/bulk/run", ORIGIN, &format!("{filter}&confirmed={ALL}")).await;
    assert_eq!(run.status, StatusCode::SEE_OTHER, "{}", run.text);
    let path = run.headers["location"].to_str().unwrap().strip_prefix("/fsm").unwrap().to_owned();
    let mut seen = Vec::new();
    let begun = Instant::now();
    while seen.last() != Some(&ALL) {
        assert!(begun.elapsed() < LIMIT, "{seen:?}");
        let page = browser.get(&path).await.text;
        let done = page.split_once("value=\"").and_then(|(_, rest)| rest.split_once('"')).expect("there is a progress bar").0;
        seen.push(done.parse().unwrap());
        assert!(page.contains(" 0 refused"), "{page}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert!(seen.is_sorted() && seen.len() > 3, "the progress is seen: {seen:?}");
    let begun = Instant::now();
    while in_error().await > 0 {
        assert!(begun.elapsed() < LIMIT);
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    program.runtime.shutdown().await.unwrap();
}
