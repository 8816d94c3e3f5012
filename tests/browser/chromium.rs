//! A real headless Chromium, controlled over the DevTools protocol.

use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use futures_util::{SinkExt, StreamExt};
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::{MaybeTlsStream, WebSocketStream, connect_async};

/// A time limit that is long enough on a busy machine.
pub const LIMIT: Duration = Duration::from_secs(60);
/// The names under which systems install Chromium.
const PROGRAMS: [&str; 4] = ["chromium", "chromium-browser", "google-chrome", "chrome"];
const OPTIONS: [&str; 9] = [
    "--headless",
    // In a container the tests run as root, where Chromium has no sandbox.
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--disable-component-update",
    "--no-first-run",
    "--hide-scrollbars",
    "--remote-debugging-port=0",
];

type Socket = WebSocketStream<MaybeTlsStream<TcpStream>>;

/// The browser process of one test. It ends when the value is dropped.
pub struct Chromium {
    process: Child,
    /// The address of its protocol, as `host:port`.
    address: String,
    browser: String,
    profile: PathBuf,
}

impl Chromium {
    /// Starts the installed Chromium. Without one the test prints that it did not run; in CI that is a failure. `cargo xtask test` installs
    /// it if the system's package manager can.
    pub fn start(name: &str) -> Option<Chromium> {
        let is_there = |program: &&str| Command::new(program).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok();
        let Some(program) = PROGRAMS.into_iter().find(is_there) else {
            assert!(std::env::var_os("CI").is_none(), "NOT TESTED: Chromium is not installed, and CI has to test the console in it");
            eprintln!("NOT TESTED: Chromium is not installed");
            return None;
        };
        let profile = std::env::temp_dir().join(format!("fsm-chromium-{name}-{}", std::process::id()));
        let folder = format!("--user-data-dir={}", profile.display());
        let mut process = Command::new(program)
            .args(OPTIONS)
            .args([&folder, "about:blank"])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .expect("Chromium starts");
        let mut lines = BufReader::new(process.stderr.take().expect("its errors are piped")).lines();
        let mut said = Vec::new();
        let found = lines.by_ref().map_while(Result::ok).find_map(|line| {
            let url = line.strip_prefix("DevTools listening on ws://").map(str::to_owned);
            said.push(line);
            url
        });
        let url = found.unwrap_or_else(|| panic!("Chromium does not offer its protocol:\n{}", said.join("\n")));
        // A full pipe would block the browser.
        std::thread::spawn(move || lines.for_each(drop));
        let (address, _) = url.split_once('/').expect("the URL has a path");
        Some(Chromium { process, address: address.to_owned(), browser: format!("ws://{url}"), profile })
    }

    /// Opens a page of that width.
    pub async fn tab(&self, width: u32) -> Tab {
        let mut browser = Tab::connect(&self.browser).await;
        let target = browser.call("Target.createTarget", json!({ "url": "about:blank" })).await;
        let id = target["targetId"].as_str().expect("a page has an id");
        let mut tab = Tab::connect(&format!("ws://{}/devtools/page/{id}", self.address)).await;
        for domain in ["Page", "Runtime", "Log", "Network"] {
            tab.call(&format!("{domain}.enable"), json!({})).await;
        }
        tab.resize(width).await;
        tab
    }
}

impl Drop for Chromium {
    fn drop(&mut self) {
        // It is fine if the process has ended already.
        let _ = self.process.kill();
        let _ = self.process.wait();
        // Its child processes end a moment later, and write to the folder until then.
        let is_gone = || std::fs::remove_dir_all(&self.profile).is_ok() || !self.profile.exists();
        for _ in 0..100 {
            if is_gone() {
                return;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        eprintln!("{} was not removed", self.profile.display());
    }
}

/// One page of the browser.
pub struct Tab {
    socket: Socket,
    last: u64,
    /// The events that arrived between the answers.
    pub events: Vec<Value>,
}

impl Tab {
    async fn connect(url: &str) -> Tab {
        let (socket, _) = connect_async(url).await.expect("the protocol answers");
        Tab { socket, last: 0, events: Vec::new() }
    }

    /// Calls a method of the protocol. `Err` has the browser's error.
    async fn try_call(&mut self, method: &str, parameters: Value) -> Result<Value, String> {
        self.last += 1;
        let request = json!({ "id": self.last, "method": method, "params": parameters });
        self.socket.send(Message::text(request.to_string())).await.expect("the browser reads");
        loop {
            let next = tokio::time::timeout(LIMIT, self.socket.next()).await.unwrap_or_else(|_| panic!("{method} is not answered"));
            let Message::Text(text) = next.expect("the browser is there").expect("the browser answers") else { continue };
            let mut answer: Value = serde_json::from_str(&text).expect("the protocol is JSON");
            if answer.get("id").is_none() {
                self.events.push(answer);
            } else if answer["id"] == self.last {
                return match answer.get("error") {
                    Some(error) => Err(error.to_string()),
                    None => Ok(answer["result"].take()),
                };
            }
        }
    }

    pub async fn call(&mut self, method: &str, parameters: Value) -> Value {
        self.try_call(method, parameters).await.unwrap_or_else(|error| panic!("{method}: {error}"))
    }

    async fn try_eval(&mut self, script: &str) -> Result<Value, String> {
        let parameters = json!({ "expression": script, "returnByValue": true, "awaitPromise": true });
        let mut answer = self.try_call("Runtime.evaluate", parameters).await?;
        match answer.get("exceptionDetails") {
            Some(thrown) => Err(thrown["exception"]["description"].to_string()),
            None => Ok(answer["result"]["value"].take()),
        }
    }

    /// Returns the value of an expression in the page.
    pub async fn eval(&mut self, script: &str) -> Value {
        self.try_eval(script).await.unwrap_or_else(|error| panic!("{script}: {error}"))
    }

    /// Waits for the first element that a selector finds, and returns its text.
    pub async fn text(&mut self, selector: &str) -> String {
        self.until(&format!("document.querySelector({})", json!(selector))).await;
        let text = self.eval(&format!("document.querySelector({})?.innerText", json!(selector))).await;
        text.as_str().unwrap_or_else(|| panic!("there is no `{selector}`")).to_owned()
    }

    /// Waits until an expression is true. If the page is being replaced by another one, it is evaluated again.
    pub async fn until(&mut self, script: &str) {
        let (begun, wanted) = (Instant::now(), format!("!!({script})"));
        while self.try_eval(&wanted).await != Ok(Value::Bool(true)) {
            if begun.elapsed() > LIMIT {
                let page = self.eval("location.href + '\\n' + document.body.innerText").await;
                panic!("`{script}` did not become true on {}", page.as_str().unwrap_or_default());
            }
            tokio::time::sleep(Duration::from_millis(30)).await;
        }
    }

    pub async fn goto(&mut self, url: &str) {
        let gone = self.call("Page.navigate", json!({ "url": url })).await;
        assert!(gone.get("errorText").is_none(), "{url}: {gone}");
        self.until("location.href !== 'about:blank' && document.readyState === 'complete'").await;
    }

    /// Clicks on the middle of the first element that a selector finds.
    pub async fn click(&mut self, selector: &str) {
        let script = format!(
            "(() => {{ const found = document.querySelector({}); found.scrollIntoView({{ block: 'center', behavior: 'instant' }}); \
             const box = found.getBoundingClientRect(); return [box.x + box.width / 2, box.y + box.height / 2]; }})()",
            json!(selector)
        );
        let place = self.eval(&script).await;
        for kind in ["mousePressed", "mouseReleased"] {
            let press = json!({ "type": kind, "x": place[0], "y": place[1], "button": "left", "clickCount": 1 });
            self.call("Input.dispatchMouseEvent", press).await;
        }
    }

    /// Replaces the value of a field by typing.
    pub async fn fill(&mut self, selector: &str, text: &str) {
        self.click(selector).await;
        self.eval(&format!("document.querySelector({}).select()", json!(selector))).await;
        self.write(text).await;
    }

    /// Types into the element that has the focus.
    pub async fn write(&mut self, text: &str) {
        self.call("Input.insertText", json!({ "text": text })).await;
    }

    pub async fn press(&mut self, key: &str) {
        let code = match key {
            "Tab" => 9,
            "Enter" => 13,
            _ => 0,
        };
        let text = match key {
            "Enter" => "\r",
            "Tab" => "",
            key => key,
        };
        let down = json!({ "type": "keyDown", "key": key, "text": text, "windowsVirtualKeyCode": code });
        self.call("Input.dispatchKeyEvent", down).await;
        self.call("Input.dispatchKeyEvent", json!({ "type": "keyUp", "key": key, "windowsVirtualKeyCode": code })).await;
    }

    pub async fn resize(&mut self, width: u32) {
        let size = json!({ "width": width, "height": 900, "deviceScaleFactor": 1, "mobile": false });
        self.call("Emulation.setDeviceMetricsOverride", size).await;
    }

    /// Sets the preferences of the user: a dark or a light page, and reduced motion, so that two pictures of a page are equal.
    pub async fn prefer(&mut self, scheme: &str) {
        let features =
            json!([{ "name": "prefers-color-scheme", "value": scheme }, { "name": "prefers-reduced-motion", "value": "reduce" }]);
        self.call("Emulation.setEmulatedMedia", json!({ "features": features })).await;
    }

    pub async fn without_javascript(&mut self) {
        self.call("Emulation.setScriptExecutionDisabled", json!({ "value": true })).await;
    }

    /// Returns the URLs of all requests.
    pub fn requests(&self) -> Vec<String> {
        let sent = self.events.iter().filter(|event| event["method"] == "Network.requestWillBeSent");
        sent.filter_map(|event| Some(event["params"]["request"]["url"].as_str()?.to_owned())).collect()
    }

    /// Returns the errors that the browser reports: errors of scripts, and violations of the content security policy.
    pub fn complaints(&self) -> Vec<String> {
        let is_complaint = |event: &&Value| match event["method"].as_str() {
            Some("Runtime.exceptionThrown") => true,
            Some("Log.entryAdded") => event["params"]["entry"]["level"] == "error",
            _ => false,
        };
        self.events.iter().filter(is_complaint).map(|event| event["params"].to_string()).collect()
    }

    /// Returns a picture of the page up to a maximum height, as PNG in base64.
    pub async fn picture(&mut self, highest: u64) -> String {
        let size = self.eval("[document.documentElement.clientWidth, Math.ceil(document.body.getBoundingClientRect().height)]").await;
        let (width, height) = (size[0].as_u64().unwrap_or(0), size[1].as_u64().unwrap_or(0).min(highest));
        let clip = json!({ "x": 0, "y": 0, "width": width, "height": height, "scale": 1 });
        let picture = json!({ "format": "png", "captureBeyondViewport": true, "clip": clip });
        let mut answer = self.call("Page.captureScreenshot", picture).await;
        match answer["data"].take() {
            Value::String(data) => data,
            other => panic!("a picture is a text, and not {other}"),
        }
    }
}
