//! Looks at the page as people do: in headless Chromium, at the widths of a phone and of a desk, light and dark, with and without
//! its script. `browser URL DIRECTORY` checks each look, keeps a picture and the page's tree of elements in the directory, prints a
//! line for each check, and exits with 1 if one failed. It speaks to Chromium through pipes: no driver is needed.
#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, reason = "a test ends where something unexpected happens")]

use serde_json::{Value, json};
use std::collections::VecDeque;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

/// What hangs is a failure.
const PATIENCE: Duration = Duration::from_secs(60);

/// Pictures are no higher.
const MOST: f64 = 12_000.0;

/// A look: its name, the width and height of the screen, and how the page is shown.
struct Look {
    name: &'static str,
    width: u32,
    height: u32,
    is_phone: bool,
    scheme: &'static str,
    has_script: bool,
}

const LOOKS: [Look; 5] = [
    Look { name: "phone-light", width: 360, height: 800, is_phone: true, scheme: "light", has_script: true },
    Look { name: "phone-dark", width: 360, height: 800, is_phone: true, scheme: "dark", has_script: true },
    Look { name: "desk-light", width: 1280, height: 900, is_phone: false, scheme: "light", has_script: true },
    Look { name: "desk-dark", width: 1280, height: 900, is_phone: false, scheme: "dark", has_script: true },
    Look { name: "desk-without-script", width: 1280, height: 900, is_phone: false, scheme: "light", has_script: false },
];

/// What must hold of the page: each expression gives an empty text, or what is wrong.
const CHECKS: [(&str, &str); 7] = [
    (
        "nothing is wider than the screen",
        "(() => { const { scrollWidth, clientWidth } = document.documentElement; const wide = scrollWidth > clientWidth \
         ? [...document.querySelectorAll('body *')].filter(e => e.getBoundingClientRect().right > clientWidth + 1) \
           .map(e => e.tagName + '.' + (e.className.baseVal ?? e.className)) : []; return wide.slice(0, 5).join(' '); })()",
    ),
    (
        "the style is there",
        "getComputedStyle(document.querySelector('.group')).borderTopStyle === 'solid' ? '' : 'no border'",
    ),
    (
        "headings are in order",
        "(() => { let last = 0; for (const h of document.querySelectorAll('h1,h2,h3,h4')) { const level = +h.tagName[1]; \
         if (level > last + 1) return h.textContent; last = level; } \
         return document.querySelectorAll('h1').length === 1 ? '' : 'not one h1'; })()",
    ),
    (
        "tables have headings, pictures have words",
        "[...document.querySelectorAll('table')].some(t => !t.querySelector('thead th[scope=col]')) ? 'a table' : \
         [...document.querySelectorAll('svg')].some(s => !document.getElementById(s.getAttribute('aria-labelledby'))?.textContent.trim() \
         || !s.querySelector('title')?.textContent.trim()) ? 'a picture' : ''",
    ),
    (
        "identifiers are unique",
        "(() => { const ids = [...document.querySelectorAll('[id]')].map(e => e.id); \
         return ids.filter((id, at) => ids.indexOf(id) !== at).join(' '); })()",
    ),
    (
        "text can be told from its ground",
        "(() => { const rgb = c => (c.match(/[\\d.]+/g) ?? []).map(Number); \
         const light = c => { const [r, g, b] = rgb(c).map(v => { v /= 255; return v <= .03928 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4; }); \
           return .2126 * r + .7152 * g + .0722 * b; }; \
         const ground = e => { for (; e; e = e.parentElement) { const c = getComputedStyle(e).backgroundColor; \
           if (!c.startsWith('rgba(0, 0, 0, 0')) return c; } return 'rgb(255, 255, 255)'; }; \
         const bad = []; for (const e of document.querySelectorAll('body *')) { \
           if (e instanceof SVGElement || ![...e.childNodes].some(n => n.nodeType === 3 && n.data.trim())) continue; \
           const [a, b] = [light(getComputedStyle(e).color), light(ground(e))].sort((x, y) => y - x); \
           if ((a + .05) / (b + .05) < 4.5) bad.push(e.tagName + '.' + e.className); } return bad.slice(0, 5).join(' '); })()",
    ),
    (
        "nothing of it came from names",
        "document.querySelectorAll('main img, main script, main iframe, main style, main [onerror], main [onload], main [style]').length \
         || window.alerted ? 'markup' : ''",
    ),
];

struct Browser {
    process: Child,
    to: ChildStdin,
    from: Receiver<Value>,
    /// What came while an answer was waited for.
    events: VecDeque<Value>,
    session: Option<String>,
    last: u64,
}

impl Browser {
    fn start(profile: &Path) -> Browser {
        // Descriptors 3 and 4 are where it reads and writes.
        let line = "exec chromium --headless --no-sandbox --disable-gpu --disable-dev-shm-usage --no-first-run --disable-extensions \
                    --disable-background-networking --disable-component-update --disable-sync --remote-debugging-pipe \
                    --user-data-dir=\"$0\" about:blank 3<&0 4>&1 </dev/null >/dev/null 2>\"$0/log\"";
        let mut process = Command::new("sh")
            .args(["-c", line])
            .arg(profile)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let (to, from) = (process.stdin.take().unwrap(), process.stdout.take().unwrap());
        let (say, hear) = channel();
        std::thread::spawn(move || {
            let parts = BufReader::new(from).split(0);
            for message in parts.map_while(Result::ok).filter_map(|part| serde_json::from_slice(&part).ok()) {
                if say.send(message).is_err() {
                    break;
                }
            }
        });
        Browser { process, to, from: hear, events: VecDeque::new(), session: None, last: 0 }
    }

    fn ask(&mut self, method: &str, params: &Value) -> Value {
        self.last += 1;
        let mut message = json!({ "id": self.last, "method": method, "params": params });
        if let Some(session) = &self.session {
            message["sessionId"] = json!(session);
        }
        self.to.write_all(message.to_string().as_bytes()).unwrap();
        self.to.write_all(&[0]).unwrap();
        loop {
            let heard =
                self.from.recv_timeout(PATIENCE).unwrap_or_else(|e| panic!("{method}: Chromium does not answer: {e}"));
            if heard["id"] == self.last {
                assert!(heard["error"].is_null(), "{method}: {}", heard["error"]);
                return heard["result"].clone();
            }
            self.events.push_back(heard);
        }
    }

    /// Waits until that happens.
    fn wait(&mut self, event: &str) {
        let is_it = |heard: &Value| heard["method"] == event;
        while !self.events.iter().any(is_it) {
            let heard = self.from.recv_timeout(PATIENCE).unwrap_or_else(|e| panic!("{event} did not happen: {e}"));
            self.events.push_back(heard);
        }
    }

    /// A page of its own.
    fn open(&mut self) {
        self.session = None;
        let target = self.ask("Target.createTarget", &json!({ "url": "about:blank" }))["targetId"].clone();
        let attached = self.ask("Target.attachToTarget", &json!({ "targetId": target, "flatten": true }));
        self.session = attached["sessionId"].as_str().map(str::to_owned);
        self.events.clear();
        for domain in ["Page.enable", "Runtime.enable", "Network.enable", "Log.enable"] {
            self.ask(domain, &json!({}));
        }
    }

    fn evaluate(&mut self, expression: &str) -> Value {
        let params = json!({ "expression": expression, "returnByValue": true, "awaitPromise": true });
        let told = self.ask("Runtime.evaluate", &params);
        assert!(told["exceptionDetails"].is_null(), "{expression}: {told}");
        told["result"]["value"].clone()
    }

    /// What the console said, and addresses that were asked for and are not below `url`.
    fn complaints(&self, url: &str) -> Vec<String> {
        let complaint = |event: &Value| {
            let params = &event["params"];
            match event["method"].as_str()? {
                "Runtime.exceptionThrown" => Some(params["exceptionDetails"].to_string()),
                "Runtime.consoleAPICalled" => Some(params["args"].to_string()),
                "Log.entryAdded" => Some(params["entry"].to_string()),
                "Network.loadingFailed" => Some(params.to_string()),
                "Network.requestWillBeSent" => {
                    let asked = params["request"]["url"].as_str().unwrap_or_default();
                    (!asked.starts_with(url)).then(|| format!("it asked for {asked}"))
                }
                _ => None,
            }
        };
        self.events.iter().filter_map(complaint).collect()
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        let _may_have_ended = self.process.kill();
        let _reaped = self.process.wait();
    }
}

struct Checks {
    failed: u32,
}

impl Checks {
    fn check(&mut self, look: &str, name: &str, wrong: &str) {
        if wrong.is_empty() {
            println!("ok: {look}: {name}");
        } else {
            println!("FAILED: {look}: {name}: {wrong}");
            self.failed += 1;
        }
    }
}

fn decoded(base64: &str) -> Vec<u8> {
    let value = |c: u8| match c {
        b'A'..=b'Z' => u32::from(c - b'A'),
        b'a'..=b'z' => u32::from(c - b'a') + 26,
        b'0'..=b'9' => u32::from(c - b'0') + 52,
        b'+' => 62,
        _ => 63,
    };
    let mut bytes = Vec::new();
    for four in base64.trim_end_matches('=').as_bytes().chunks(4) {
        let bits = four.iter().fold(0, |bits, c| bits << 6 | value(*c)) << (6 * (4 - four.len()));
        bytes.extend(&bits.to_be_bytes()[1..four.len()]);
    }
    bytes
}

fn look(browser: &mut Browser, look: &Look, url: &str, out: &Path, checks: &mut Checks) {
    browser.open();
    let screen = json!({ "width": look.width, "height": look.height, "deviceScaleFactor": 1, "mobile": look.is_phone });
    browser.ask("Emulation.setDeviceMetricsOverride", &screen);
    let scheme = json!({ "features": [{ "name": "prefers-color-scheme", "value": look.scheme }] });
    browser.ask("Emulation.setEmulatedMedia", &scheme);
    browser.ask(
        "Page.addScriptToEvaluateOnNewDocument",
        &json!({ "source": "window.alert = () => { window.alerted = true; };" }),
    );
    browser.ask("Emulation.setScriptExecutionDisabled", &json!({ "value": !look.has_script }));
    browser.ask("Page.navigate", &json!({ "url": url }));
    browser.wait("Page.loadEventFired");
    for (name, expression) in CHECKS {
        let wrong = browser.evaluate(expression);
        checks.check(look.name, name, wrong.as_str().unwrap_or("no answer"));
    }
    if look.has_script {
        // Brought up to date, it is the same page, and what was closed stays closed.
        let close = "document.querySelector('details') && (document.querySelector('details').open = false); \
                     document.getElementById('all').firstElementChild.remove(); \
                     document.dispatchEvent(new Event('visibilitychange')); \
                     new Promise(done => { const look = () => document.querySelector('h1') ? done('') : setTimeout(look, 50); look(); \
                     setTimeout(() => done('it stays as it was'), 20000); })";
        let wrong = browser.evaluate(close);
        checks.check(look.name, "it is brought up to date", wrong.as_str().unwrap_or("no answer"));
        let closed = browser.evaluate("document.querySelector('details')?.open ? 'it opened' : ''");
        checks.check(look.name, "what was closed stays closed", closed.as_str().unwrap_or("no answer"));
        browser.evaluate("document.querySelector('details') && (document.querySelector('details').open = true); ''");
    }
    let complaints = browser.complaints(url);
    checks.check(look.name, "nothing complains, and nothing is asked of others", &complaints.join("; "));
    let tree = browser.evaluate("document.documentElement.outerHTML");
    fs::write(out.join(format!("{}.html", look.name)), tree.as_str().unwrap()).unwrap();
    let params = json!({ "captureBeyondViewport": true, "format": "png", "clip": clip(browser) });
    let picture = browser.ask("Page.captureScreenshot", &params);
    fs::write(out.join(format!("{}.png", look.name)), decoded(picture["data"].as_str().unwrap())).unwrap();
}

/// The whole page, as far as a picture of it can be looked at.
fn clip(browser: &mut Browser) -> Value {
    let size = browser.ask("Page.getLayoutMetrics", &json!({}))["cssContentSize"].clone();
    json!({ "x": 0, "y": 0, "width": size["width"], "height": size["height"].as_f64().unwrap().min(MOST), "scale": 1 })
}

fn main() {
    let mut words = std::env::args().skip(1);
    let (Some(url), Some(out)) = (words.next(), words.next().map(PathBuf::from)) else {
        eprintln!("usage: browser URL DIRECTORY");
        std::process::exit(2);
    };
    fs::create_dir_all(&out).unwrap();
    let profile = std::env::temp_dir().join(format!("rowen-browser-{}", std::process::id()));
    fs::create_dir_all(&profile).unwrap();
    let mut checks = Checks { failed: 0 };
    {
        let mut browser = Browser::start(&profile);
        for one in &LOOKS {
            look(&mut browser, one, &url, &out, &mut checks);
        }
    }
    let _left = fs::remove_dir_all(&profile);
    std::process::exit(i32::from(checks.failed > 0));
}
