//! A browser: headless Chromium behind chromedriver, both ended with the test.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Duration;

use fantoccini::wd::WebDriverCompatibleCommand;
use fantoccini::{Client, ClientBuilder, Locator};
use http::Method;
use serde_json::{Value, json};
use tempfile::TempDir;
use url::Url;

/// As long as a slow machine may take.
const PATIENCE: Duration = Duration::from_secs(60);

/// As many as are tried in turn until one finds a port.
const CHROMEDRIVERS: usize = 20;

pub(crate) struct Browser {
    pub(crate) client: Client,
    axe: String,
    _driver: Driver,
}

/// Ends it, and the browser and its files with it, even if the test fails.
struct Driver {
    process: Child,
    /// Where it listens, once it does.
    port: Option<u16>,
    /// What it and the browser leave behind.
    _folder: TempDir,
}

impl Drop for Driver {
    fn drop(&mut self) {
        // Killed, it would leave a browser of a test that failed.
        if let Some(port) = self.port.filter(|port| shut_down(*port).is_err()) {
            eprintln!("chromedriver at {port} did not end by itself: it may leave a browser");
        }
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Asks a chromedriver to end with all of its browsers, and waits until it has.
fn shut_down(port: u16) -> std::io::Result<()> {
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
    stream.set_read_timeout(Some(Duration::from_secs(10)))?;
    let host = format!("127.0.0.1:{port}");
    write!(
        stream,
        "GET /shutdown HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n\r\n"
    )?;
    stream.read_to_end(&mut Vec::new()).map(drop)
}

fn named(variable: &str, script: &str) -> PathBuf {
    let found = std::env::var_os(variable).filter(|path| !path.is_empty());
    let found = found.map(PathBuf::from);
    found.unwrap_or_else(|| panic!("run scripts/test, or set {variable} to what {script} prints"))
}

/// What the console says, as chromedriver tells.
#[derive(Debug)]
struct Console;

impl WebDriverCompatibleCommand for Console {
    fn endpoint(&self, base: &Url, session: Option<&str>) -> Result<Url, url::ParseError> {
        base.join(&format!("session/{}/se/log", session.unwrap_or_default()))
    }

    fn method_and_body(&self, _: &Url) -> (Method, Option<String>) {
        (Method::POST, Some(json!({"type": "browser"}).to_string()))
    }
}

/// What a browser is told to pretend, in the words of its own protocol.
#[derive(Debug)]
struct Pretend(&'static str, Value);

impl WebDriverCompatibleCommand for Pretend {
    fn endpoint(&self, base: &Url, session: Option<&str>) -> Result<Url, url::ParseError> {
        let session = session.unwrap_or_default();
        base.join(&format!("session/{session}/goog/cdp/execute"))
    }

    fn method_and_body(&self, _: &Url) -> (Method, Option<String>) {
        let Self(what, how) = self;
        let pretend = json!({"cmd": format!("Emulation.{what}"), "params": how});
        (Method::POST, Some(pretend.to_string()))
    }
}

impl Browser {
    /// From now on on a phone.
    pub(crate) async fn be_a_phone(&self) {
        let screen = json!({"width": 390, "height": 844, "deviceScaleFactor": 1, "mobile": true});
        let screen = Pretend("setDeviceMetricsOverride", screen);
        self.client.issue_cmd(screen).await.unwrap();
    }

    /// From now on by day or by night. Nothing moves, so that a colour is what it comes to.
    async fn be(&self, scheme: &str) {
        let features = json!([
            {"name": "prefers-color-scheme", "value": scheme},
            {"name": "prefers-reduced-motion", "value": "reduce"},
        ]);
        let media = Pretend("setEmulatedMedia", json!({"features": features}));
        self.client.issue_cmd(media).await.unwrap();
        let script = "return matchMedia(`(prefers-color-scheme: ${arguments[0]})`).matches";
        let is_so = self.client.execute(script, vec![json!(scheme)]);
        assert_eq!(is_so.await.unwrap(), true, "{scheme}");
    }

    /// On a port that chromedriver finds free.
    pub(crate) async fn start() -> Self {
        let folder = named("PACELINE_TEST_CHROMIUM", "scripts/chromium");
        let axe = named("PACELINE_TEST_AXE", "scripts/tool axe");
        let (driver, port) = listening(&folder.join("chromedriver"));
        let options = json!({
            "binary": folder.join("chromium"),
            // In containers there is no sandbox to be had, and little of /dev/shm.
            "args": ["--headless=new", "--no-sandbox", "--disable-dev-shm-usage",
                "--disable-gpu", "--hide-scrollbars", "--window-size=1120,800"],
        });
        let wanted = json!({
            "goog:chromeOptions": options,
            "goog:loggingPrefs": {"browser": "ALL"},
        });
        let client = ClientBuilder::new(hyper_util::client::legacy::connect::HttpConnector::new())
            .capabilities(wanted.as_object().unwrap().clone())
            .connect(&format!("http://127.0.0.1:{port}"))
            .await
            .expect("chromedriver gives a session");
        Self {
            client,
            axe: std::fs::read_to_string(axe).unwrap(),
            _driver: driver,
        }
    }

    pub(crate) async fn end(self) {
        self.client.close().await.unwrap();
    }

    pub(crate) async fn click(&self, css: &str) {
        let element = self.client.wait().at_most(PATIENCE);
        let element = element.for_element(Locator::Css(css)).await;
        element
            .unwrap_or_else(|error| panic!("{css}: {error}"))
            .click()
            .await
            .unwrap();
    }

    pub(crate) async fn fill(&self, css: &str, text: &str) {
        let element = self.client.wait().at_most(PATIENCE);
        let element = element.for_element(Locator::Css(css)).await.unwrap();
        element.clear().await.unwrap();
        element.send_keys(text).await.unwrap();
    }

    /// Waits until the text of an element is as wanted, looking every so often.
    pub(crate) async fn until(&self, css: &str, wanted: impl Fn(&str) -> bool) -> String {
        let began = tokio::time::Instant::now();
        let mut seen = String::new();
        while began.elapsed() < PATIENCE {
            let script = "const e = document.querySelector(arguments[0]); \
                 return e ? e.textContent : null";
            let found = self.client.execute(script, vec![json!(css)]).await.unwrap();
            if let Some(text) = found.as_str() {
                seen = text.trim().to_owned();
                if wanted(&seen) {
                    return seen;
                }
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        let page = "return location.pathname + ': ' + document.body.innerText";
        let page = self.client.execute(page, vec![]).await;
        panic!("{css} says {seen:?} on {page:?}");
    }

    /// Since the last look the console has named one page that was refused so.
    pub(crate) async fn was_refused(&self, status: &str) {
        let severe = self.severe().await;
        let [one] = &severe[..] else {
            panic!("{severe:?}")
        };
        assert!(one["message"].as_str().unwrap().contains(status), "{one}");
    }

    /// No errors in the console since the last look.
    #[track_caller]
    pub(crate) fn is_quiet(&self) -> impl Future<Output = ()> + '_ {
        let caller = std::panic::Location::caller();
        async move {
            let severe = self.severe().await;
            assert!(severe.is_empty(), "{caller}: {severe:?}");
        }
    }

    /// The console's errors since the last look.
    async fn severe(&self) -> Vec<Value> {
        let said = self.client.issue_cmd(Console).await.unwrap();
        let severe = said.as_array().unwrap().iter();
        severe
            .filter(|one| one["level"] == "SEVERE")
            .cloned()
            .collect()
    }

    /// Opens all that is folded up.
    pub(crate) async fn unfold(&self) {
        let script = "document.querySelectorAll('details').forEach(one => { one.open = true; })";
        self.client.execute(script, vec![]).await.unwrap();
    }

    /// axe-core finds nothing serious, with the colours of the day and those of the night.
    pub(crate) async fn is_accessible(&self, name: &str) {
        self.client.execute(&self.axe, vec![]).await.unwrap();
        for scheme in ["dark", "light"] {
            self.be(scheme).await;
            let script = "const done = arguments[arguments.length - 1]; \
                 axe.run().then(r => done(r.violations), e => done(String(e)))";
            let found = self.client.execute_async(script, vec![]).await.unwrap();
            let found = found
                .as_array()
                .unwrap_or_else(|| panic!("{name}: axe: {found}"));
            let serious = found.iter().filter(|one| {
                ["serious", "critical"]
                    .iter()
                    .any(|impact| one["impact"] == *impact)
            });
            let told: Vec<String> = serious
                .map(|one| format!("{}: {}", one["id"], one["nodes"][0]["html"]))
                .collect();
            assert!(told.is_empty(), "{name}, {scheme}: {told:#?}");
        }
    }

    /// With the Tab key alone, everything that can be used is reached, in sight.
    pub(crate) async fn is_walked_by_keyboard(&self, name: &str) {
        const TAB: &str = "\u{E004}";
        let usable = "document.activeElement.blur();
             window.usable = [...document.querySelectorAll(
                 'a[href], button, input:not([type=hidden]), select, textarea, summary, [tabindex=\"0\"]'
             )].filter(e => !e.disabled && e.checkVisibility({visibilityProperty: true}));
             return window.usable.length";
        let usable = self.client.execute(usable, vec![]).await.unwrap();
        let usable = usize::try_from(usable.as_u64().unwrap()).unwrap();
        let at = "const e = document.activeElement;
             const outline = getComputedStyle(e).outlineStyle;
             return [window.usable.indexOf(e), outline !== 'none', e.outerHTML.slice(0, 200)]";
        let mut reached = vec![false; usable];
        // What scrolls may take a turn of its own.
        for _ in 0..usable + 5 {
            let focused = self.client.active_element().await.unwrap();
            focused.send_keys(TAB).await.unwrap();
            let found = self.client.execute(at, vec![]).await.unwrap();
            let place = found[0]
                .as_u64()
                .and_then(|place| usize::try_from(place).ok());
            if let Some(place) = place {
                assert_eq!(found[1], true, "{name}: no focus to be seen: {found}");
                reached[place] = true;
            }
        }
        let missed: Vec<usize> = (0..usable).filter(|place| !reached[*place]).collect();
        let told = "return arguments[0].map(i => window.usable[i].outerHTML.slice(0, 200))";
        let told = self
            .client
            .execute(told, vec![json!(missed)])
            .await
            .unwrap();
        assert!(missed.is_empty(), "{name}: not reached: {told:#}");
    }

    /// No wider than a phone is, with all that is folded up; in a window that is as narrow.
    pub(crate) async fn fits_a_phone(&self, name: &str) {
        self.unfold().await;
        let script = "const wide = document.documentElement.scrollWidth;
            const of = [...document.querySelectorAll('main *, header *')].filter(e =>
                !e.closest('.scroll') && e.getBoundingClientRect().right > 391);
            return wide > 390 ? [wide, ...of.slice(0, 3).map(e => e.outerHTML.slice(0, 90))] : null";
        let over = self.client.execute(script, vec![]).await.unwrap();
        assert!(over.is_null(), "{name} is wider than 390 px: {over:#}");
    }

    /// A picture of the page, where pictures are wanted.
    pub(crate) async fn picture(&self, name: &str) {
        let Some(folder) = pictures() else {
            return;
        };
        let png = self.client.screenshot().await.unwrap();
        std::fs::write(folder.join(format!("dashboard-{name}.png")), png).unwrap();
    }
}

/// Where pictures are left, if they are wanted.
pub(crate) fn pictures() -> Option<PathBuf> {
    std::env::var_os("PACELINE_SCREENSHOTS").map(PathBuf::from)
}

/// A chromedriver and its port. It takes a free port of IPv6 and ends where another
/// program has the same one of IPv4: that is no fault of the page, so another is tried.
fn listening(program: &Path) -> (Driver, u16) {
    let mut last_words = Vec::new();
    for _ in 0..CHROMEDRIVERS {
        let folder = tempfile::tempdir().unwrap();
        let started = Command::new(program)
            .args(["--port=0"])
            .env("TMPDIR", folder.path())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn();
        let mut driver = Driver {
            process: started.expect("chromedriver starts"),
            port: None,
            _folder: folder,
        };
        match port(driver.process.stdout.take().unwrap()) {
            Ok(port) => {
                driver.port = Some(port);
                return (driver, port);
            }
            Err(said) => last_words.push(said),
        }
    }
    panic!("{CHROMEDRIVERS} times chromedriver did not listen: {last_words:?}");
}

/// The port that it says once it listens, or all that it said before it ended.
fn port(stdout: ChildStdout) -> Result<u16, String> {
    let mut lines = BufReader::new(stdout).lines();
    let mut said = Vec::new();
    for line in lines.by_ref().map_while(Result::ok) {
        let port = line.split_once("started successfully on port ");
        if let Some(port) = port.and_then(|(_, rest)| rest.trim_end_matches('.').parse().ok()) {
            // It goes on writing, and must not meet a closed pipe.
            std::thread::spawn(move || lines.for_each(drop));
            return Ok(port);
        }
        said.push(line);
    }
    Err(said.join("; "))
}
