//! A real browser: chromium without a window, driven as a person drives it, with a mouse, keys and patience.
//!
//! Invariant: one process serves all tests that run at the same time, and ends with the last of them; each test has cookies
//! of its own. A wait is bounded and says what it waited for, and what the page showed instead. Where there is no browser,
//! [`Browser::available_or_explain`] says so; with `BOSUN_REQUIRE` that is a failure.

use std::io;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tempfile::TempDir;

use super::cdp::{BROWSER_MAX, Cdp};
use super::{all_required, say};

/// Where Debian puts it, and what else it is called.
const PROGRAMS: [&str; 4] =
    ["/usr/bin/chromium", "/usr/bin/chromium-browser", "/usr/bin/google-chrome", "/opt/google/chrome/chrome"];
/// Between two looks at a page.
const LOOK_EVERY: Duration = Duration::from_millis(25);

static SHARED: Mutex<Weak<Browser>> = Mutex::new(Weak::new());

/// A browser process, ended on drop.
#[derive(Debug)]
pub struct Browser {
    cdp: Cdp,
    process: Child,
    _profile: TempDir,
}

impl Browser {
    /// The browser of the tests that run now. `None`: there is none, which was said.
    pub fn available_or_explain() -> Option<Arc<Browser>> {
        let mut shared = SHARED.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(running) = shared.upgrade() {
            return Some(running);
        }
        let Some(program) = PROGRAMS.iter().find(|program| Path::new(program).exists()) else {
            assert!(!all_required(), "chromium is needed and not installed");
            say("SKIPPED: pages are not tested in a browser: chromium is not installed");
            return None;
        };
        let started = Browser::start(program).unwrap_or_else(|why| panic!("{program} does not start: {why}"));
        let started = Arc::new(started);
        *shared = Arc::downgrade(&started);
        Some(started)
    }

    fn start(program: &str) -> io::Result<Browser> {
        let profile = tempfile::tempdir()?;
        // The browser reads from handle 3 and writes to handle 4: a shell puts its pipes there.
        let mut command = Command::new("/bin/sh");
        command.args(["-c", "exec \"$0\" \"$@\" 3<&0 4>&1 0</dev/null 1>/dev/null 2>&1", program]);
        command.args(["--headless=new", "--no-sandbox", "--disable-gpu", "--remote-debugging-pipe", "--no-first-run"]);
        command.args(["--disable-dev-shm-usage", "--disable-extensions", "--disable-background-networking"]);
        command.args(["--disable-component-update", "--disable-sync", "--no-default-browser-check", "--mute-audio"]);
        command.arg(format!("--user-data-dir={}", profile.path().display())).arg("about:blank");
        command.env("HOME", profile.path()).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut process = command.spawn()?;
        let pipes = process.stdin.take().zip(process.stdout.take());
        let (into, from) = pipes.ok_or_else(|| io::Error::other("it has no pipes"))?;
        let browser = Browser { cdp: Cdp::new(into, from), process, _profile: profile };
        browser.cdp.call(None, "Browser.getVersion", json!({}))?;
        Ok(browser)
    }

    /// An empty tab in a session of its own, with cookies of its own.
    pub fn page(self: &Arc<Self>) -> Page {
        let made = self.cdp.call(None, "Target.createBrowserContext", json!({}));
        let context = made.map(|made| text_of(&made["browserContextId"])).unwrap_or_else(|why| panic!("{why}"));
        let context = Arc::new(Context { browser: self.clone(), id: context });
        Page::new(context).unwrap_or_else(|why| panic!("{why}"))
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // It ends its own children, and then itself.
        let _ = self.cdp.call(None, "Browser.close", json!({}));
        let until = Instant::now() + Duration::from_secs(3);
        while Instant::now() < until && matches!(self.process.try_wait(), Ok(None)) {
            std::thread::sleep(Duration::from_millis(10));
        }
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Cookies and tabs that belong together, closed on drop.
#[derive(Debug)]
struct Context {
    browser: Arc<Browser>,
    id: String,
}

impl Drop for Context {
    fn drop(&mut self) {
        let _ = self.browser.cdp.call(None, "Target.disposeBrowserContext", json!({ "browserContextId": self.id }));
    }
}

/// A tab. What fails in it fails the test, with what it showed.
#[derive(Debug)]
pub struct Page {
    context: Arc<Context>,
    session: String,
}

/// A text as JavaScript.
fn quoted(text: &str) -> String {
    Value::from(text).to_string()
}

fn text_of(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

impl Page {
    fn new(context: Arc<Context>) -> io::Result<Page> {
        let cdp = &context.browser.cdp;
        let made = json!({ "url": "about:blank", "browserContextId": context.id });
        let target = cdp.call(None, "Target.createTarget", made)?;
        let attached =
            cdp.call(None, "Target.attachToTarget", json!({ "targetId": target["targetId"], "flatten": true }))?;
        let session = text_of(&attached["sessionId"]);
        for domain in ["Page.enable", "Runtime.enable", "Log.enable", "Network.enable"] {
            cdp.call(Some(&session), domain, json!({}))?;
        }
        let page = Page { session, context: context.clone() };
        page.call("Emulation.setFocusEmulationEnabled", json!({ "enabled": true }))?;
        page.call("Emulation.setDeviceMetricsOverride", metrics(1280))?;
        Ok(page)
    }

    /// Another tab with the same cookies.
    pub fn beside(&self) -> Page {
        Page::new(self.context.clone()).unwrap_or_else(|why| panic!("{why}"))
    }

    pub fn call(&self, method: &str, parameters: Value) -> io::Result<Value> {
        self.context.browser.cdp.call(Some(&self.session), method, parameters)
    }

    #[track_caller]
    fn must(&self, method: &str, parameters: Value) -> Value {
        self.call(method, parameters).unwrap_or_else(|why| panic!("{why}"))
    }

    /// Goes to an address and waits until the page has loaded.
    #[track_caller]
    pub fn go_to(&self, address: &str) {
        let gone = self.must("Page.navigate", json!({ "url": address }));
        assert!(gone["errorText"].is_null(), "{address}: {}", gone["errorText"]);
        self.loaded();
    }

    #[track_caller]
    pub fn reload(&self) {
        self.js("window.beforeReload = true");
        self.must("Page.reload", json!({}));
        self.until("the page is loaded again", "window.beforeReload === undefined");
        self.loaded();
    }

    #[track_caller]
    pub fn loaded(&self) {
        self.until("the page is loaded", "document.readyState === 'complete' && location.href !== 'about:blank'");
    }

    /// The value of an expression; promises are waited for.
    pub fn try_js(&self, expression: &str) -> io::Result<Value> {
        let asked =
            json!({ "expression": expression, "returnByValue": true, "awaitPromise": true, "userGesture": true });
        let answer = self.call("Runtime.evaluate", asked)?;
        match &answer["exceptionDetails"] {
            Value::Null => Ok(answer["result"]["value"].clone()),
            why => Err(io::Error::other(format!("{expression}: {}", why["exception"]["description"]))),
        }
    }

    #[track_caller]
    pub fn js(&self, expression: &str) -> Value {
        self.try_js(expression).unwrap_or_else(|why| panic!("{why}"))
    }

    /// Waits until an expression holds. While a page is exchanged for the next one there is nobody to ask.
    #[track_caller]
    pub fn until(&self, what: &str, expression: &str) {
        self.until_within(BROWSER_MAX, what, expression);
    }

    #[track_caller]
    pub fn until_within(&self, patience: Duration, what: &str, expression: &str) {
        let until = Instant::now() + patience;
        loop {
            let seen = self.try_js(expression);
            match &seen {
                Ok(Value::Null | Value::Bool(false)) | Err(_) if Instant::now() < until => {
                    std::thread::sleep(LOOK_EVERY);
                }
                Ok(Value::Null | Value::Bool(false)) | Err(_) => {
                    panic!("it never came to this: {what} ({expression}: {seen:?})\n{}", self.shows())
                }
                Ok(_) => return,
            }
        }
    }

    /// Waits until a text is to be read.
    #[track_caller]
    pub fn until_says(&self, text: &str) {
        self.until(&format!("the page says {text:?}"), &format!("document.body.innerText.includes({})", quoted(text)));
    }

    /// Where it is, and what is to be read there.
    pub fn shows(&self) -> String {
        self.try_js("location.href + '\\n' + document.body.innerText.slice(0, 3000)")
            .map_or_else(|why| why.to_string(), |shown| text_of(&shown))
    }

    pub fn address(&self) -> String {
        text_of(&self.js("location.pathname + location.search"))
    }

    #[track_caller]
    pub fn text(&self, selector: &str) -> String {
        text_of(&self.js(&format!("document.querySelector({}).innerText", quoted(selector))))
    }

    /// Clicks with the mouse on what a selector finds first, which must be there, be seen, and not lie under something else.
    #[track_caller]
    pub fn click(&self, selector: &str) {
        let found = format!(
            "(() => {{ const one = document.querySelector({}); if (!one) return null;
               one.scrollIntoView({{ block: 'center', inline: 'center' }});
               const box = one.getClientRects()[0]; if (!box) return null;
               const x = box.x + box.width / 2, y = box.y + box.height / 2, top = document.elementFromPoint(x, y);
               return top && (one.contains(top) || top.contains(one)) ? [x, y] : null; }})()",
            quoted(selector)
        );
        self.until(&format!("{selector} can be clicked"), &found);
        let at = self.js(&found);
        let (x, y) = (&at[0], &at[1]);
        for kind in ["mouseMoved", "mousePressed", "mouseReleased"] {
            let button = if kind == "mouseMoved" { "none" } else { "left" };
            let event = json!({ "type": kind, "x": x, "y": y, "button": button, "clickCount": 1 });
            self.must("Input.dispatchMouseEvent", event);
        }
    }

    /// Clicks, and waits for the page that this leads to.
    #[track_caller]
    pub fn click_to_leave(&self, selector: &str) {
        self.js("window.beforeLeaving = true");
        self.click(selector);
        self.until(&format!("{selector} leads to another page"), "window.beforeLeaving === undefined");
        self.loaded();
    }

    /// Writes into a field, in place of what stands there.
    #[track_caller]
    pub fn fill(&self, selector: &str, text: &str) {
        self.click(selector);
        self.js(&format!("document.querySelector({}).select()", quoted(selector)));
        self.must("Input.insertText", json!({ "text": text }));
    }

    /// Presses a key: a character, or `Enter`, `Tab`, `Escape`.
    #[track_caller]
    pub fn press(&self, key: &str) {
        let (text, code) = match key {
            "Enter" => ("\r", 13),
            "Tab" => ("", 9),
            "Escape" => ("", 27),
            "ArrowRight" => ("", 39),
            "ArrowLeft" => ("", 37),
            _ => (key, 0),
        };
        self.until("the page hears keys", "document.hasFocus()");
        let name = if code == 0 { String::new() } else { key.to_owned() };
        let down = if text.is_empty() { "rawKeyDown" } else { "keyDown" };
        let event = |kind: &str, text: &str| json!({ "type": kind, "key": key, "code": name, "text": text, "windowsVirtualKeyCode": code });
        self.must("Input.dispatchKeyEvent", event(down, text));
        self.must("Input.dispatchKeyEvent", event("keyUp", ""));
    }

    /// The colours that the system asks for.
    #[track_caller]
    pub fn prefers(&self, scheme: &str) {
        let features = json!([{ "name": "prefers-color-scheme", "value": scheme }]);
        self.must("Emulation.setEmulatedMedia", json!({ "features": features }));
    }

    /// Whether it is in front, as every tab here is as long as nobody says otherwise: a tab in the back draws and focuses nothing.
    #[track_caller]
    pub fn looked_at(&self, looked_at: bool) {
        self.must("Emulation.setFocusEmulationEnabled", json!({ "enabled": looked_at }));
        if looked_at {
            self.must("Page.bringToFront", json!({}));
        }
    }

    #[track_caller]
    pub fn width(&self, width: u32) {
        self.must("Emulation.setDeviceMetricsOverride", metrics(width));
    }

    /// Whether scripts of pages run; takes effect with the next page.
    #[track_caller]
    pub fn scripts(&self, run: bool) {
        self.must("Emulation.setScriptExecutionDisabled", json!({ "value": !run }));
    }

    /// Its cookies, as the browser keeps them.
    #[track_caller]
    pub fn cookies(&self) -> Vec<Value> {
        self.must("Network.getCookies", json!({}))["cookies"].as_array().cloned().unwrap_or_default()
    }

    /// What it has complained about since it was asked last: exceptions, errors on the console, what could not be loaded.
    pub fn complaints(&self) -> Vec<String> {
        self.context.browser.cdp.complaints(&self.session)
    }

    /// A picture of it as PNG in base64, for whoever looks for the reason of a failure.
    pub fn screenshot(&self) -> io::Result<String> {
        Ok(text_of(&self.call("Page.captureScreenshot", json!({ "format": "png" }))?["data"]))
    }
}

fn metrics(width: u32) -> Value {
    json!({ "width": width, "height": 900, "deviceScaleFactor": 1, "mobile": false })
}
