//! Ebb's window as a user has it: look, click, wait. Elements are found by the ids of the page.

use super::driver::{Driver, SmallDisk};
use super::until;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// Longest wait for anything on the page.
const PATIENCE: Duration = Duration::from_secs(60);

/// An open window.
pub struct Window {
    driver: Driver,
}

impl Window {
    /// Opens the built app and waits until its page is ready.
    pub fn open(args: &[&str], home: &Path) -> Window {
        let app = Path::new(env!("CARGO_BIN_EXE_ebb"));
        Window::with_driver(Driver::start(app, args, home))
    }

    /// As [`Window::open`], with the folder that contains the user's trash.
    pub fn open_with_trash(args: &[&str], home: &Path, data: &Path) -> Window {
        let app = Path::new(env!("CARGO_BIN_EXE_ebb"));
        Window::with_driver(Driver::start_with_trash(app, args, home, data))
    }

    /// As [`Window::open`], with the home on a disk that only the app sees.
    pub fn open_on(disk: &SmallDisk, args: &[&str], home: &Path) -> Window {
        let app = Path::new(env!("CARGO_BIN_EXE_ebb"));
        Window::with_driver(Driver::start_on(disk, app, args, home))
    }

    /// As [`Window::open`], for an app that obeys permissions even if the tests run as root.
    pub fn open_obeying_permissions(args: &[&str], home: &Path) -> Window {
        let app = Path::new(env!("CARGO_BIN_EXE_ebb"));
        Window::with_driver(Driver::start_obeying_permissions(app, args, home))
    }

    fn with_driver(driver: Driver) -> Window {
        let window = Window { driver };
        window.wait_for(
            "the page is ready",
            "return document.body?.dataset.ready === '1' || null",
        );
        window
    }

    /// Where others find a path of the app, which may have mounted a disk there.
    pub fn path_inside(&self, path: &Path) -> PathBuf {
        let root = PathBuf::from(format!("/proc/{}/root", self.driver.group()));
        root.join(path.strip_prefix("/").expect("an absolute path"))
    }

    /// Runs a function body in the page.
    pub fn try_run(&self, script: &str) -> Result<Value, String> {
        self.driver.call(
            "POST",
            "/execute/sync",
            Some(&json!({"script": script, "args": []})),
        )
    }

    /// Runs a function body that must not fail.
    pub fn run(&self, script: &str) -> Value {
        self.try_run(script)
            .unwrap_or_else(|error| panic!("{script}: {error}"))
    }

    /// Runs a function body that calls its last argument with the answer.
    pub fn run_async(&self, script: &str, args: &Value) -> Value {
        let body = json!({"script": script, "args": args});
        self.driver
            .call("POST", "/execute/async", Some(&body))
            .expect("the page answers")
    }

    /// The result of a command: `Ok` with its value, or `Err` with its error.
    pub fn invoke(&self, command: &str, args: &Value) -> Result<Value, Value> {
        let script = "const [command, args, done] = arguments; \
            window.__TAURI_INTERNALS__.invoke(command, args).then((ok) => done({ok}), (refused) => done({refused}));";
        let mut answer = self.run_async(script, &json!([command, args]));
        match answer.get_mut("refused") {
            Some(refused) => Err(refused.take()),
            None => Ok(answer["ok"].take()),
        }
    }

    /// Waits until the script returns a value.
    pub fn wait_for(&self, what: &str, script: &str) -> Value {
        until(what, PATIENCE, || {
            self.try_run(script).ok().filter(|value| !value.is_null())
        })
    }

    /// Waits for an element that can be clicked and has come to rest, then clicks it. If a part
    /// that was loaded meanwhile has pushed it away, so that something else was clicked, it is
    /// clicked again.
    pub fn click(&self, selector: &str) {
        until(&format!("a click on {selector}"), PATIENCE, || {
            self.wait_until_at_rest(selector);
            self.try_run(&format!(
                "window.ebbClicked = false; addEventListener('click', \
                 ({{target}}) => (window.ebbClicked = Boolean(target.closest?.({selector:?}))), {{capture: true, once: true}})"
            ))
            .ok()?;
            if let Err(error) = self.click_once(selector) {
                println!("{selector} was not clicked: {error}");
                return None;
            }
            // After the click there may be another page, or no window.
            let arrived = self.try_run("return window.ebbClicked !== false");
            (arrived != Ok(json!(false))).then_some(())
        });
    }

    /// Waits until an element can be clicked and is twice at the same place.
    fn wait_until_at_rest(&self, selector: &str) {
        let script = format!(
            "const e = document.querySelector({selector:?}); if (!e || e.disabled) return null; \
             const {{x, y, width, height}} = e.getBoundingClientRect(); return [x, y, width, height]"
        );
        let mut before = Value::Null;
        until(selector, PATIENCE, || {
            let now = self.try_run(&script).unwrap_or_default();
            let is_at_rest = !now.is_null() && now == before;
            before = now;
            is_at_rest.then_some(())
        });
    }

    /// Moves the mouse to where an element is, and presses the button there.
    fn click_once(&self, selector: &str) -> Result<Value, String> {
        let query = json!({"using": "css selector", "value": selector});
        let element = self.driver.call("POST", "/element", Some(&query))?;
        let id = element
            .as_object()
            .and_then(|element| element.values().next()?.as_str());
        let path = format!("/element/{}/click", id.ok_or("an element without an id")?);
        self.driver.call("POST", &path, Some(&json!({})))
    }

    /// Waits until the page knows that something is dragged over it, so that it accepts the drop.
    pub fn wait_for_drag(&self) {
        self.wait_for(
            "the page knows of the drag",
            "return document.querySelector('main.dragged, #drop-zone.over, #try-it .over') ? true : null",
        );
    }

    /// Sets fields of the plan by their names, as a user would by choosing or typing.
    pub fn set(&self, fields: &[(&str, &str)]) {
        let fields = json!(fields);
        self.run(&format!(
            "for (const [id, value] of {fields}) {{ const e = document.querySelector('#setting-' + id); e.value = value; \
             e.dispatchEvent(new Event('input', {{bubbles: true}})); e.dispatchEvent(new Event('change', {{bubbles: true}})) }}"
        ));
    }

    /// Waits until the page shows a run in this state.
    pub fn wait_for_status(&self, status: &str) {
        self.wait_for(
            status,
            &format!("return document.body.dataset.status === {status:?} || null"),
        );
    }

    /// The id of the run shown.
    pub fn run_id(&self) -> String {
        let id = self.wait_for("a run is shown", "const [, kind, id] = location.hash.split('/'); return kind === 'run' ? decodeURIComponent(id) : null");
        id.as_str().expect("an id is text").to_owned()
    }

    /// Reloads the page and waits until it is ready.
    pub fn reload(&self) {
        self.driver
            .call("POST", "/refresh", Some(&json!({})))
            .expect("the page can be reloaded");
        self.wait_for(
            "the page is ready",
            "return document.body?.dataset.ready === '1' || null",
        );
    }

    /// Saves a screenshot in `target/screenshots`, to be looked at, if the environment variable
    /// `EBB_SCREENSHOTS` is set. No test reads one, and each takes a part of a second.
    pub fn screenshot(&self, name: &str) {
        if std::env::var_os("EBB_SCREENSHOTS").is_none() {
            return;
        }
        let settled = "const [done] = arguments; Promise.all(document.getAnimations().map((a) => a.finished.catch(() => {}))) \
            .then(() => requestAnimationFrame(() => requestAnimationFrame(() => setTimeout(() => done(1), 50))))";
        self.run_async(settled, &json!([]));
        // The driver waits for the next frame, and a page at rest draws none.
        self.run(
            "const dot = document.createElement('i'); \
             Object.assign(dot.style, { position: 'fixed', right: 0, bottom: 0, width: '1px', height: '1px' }); \
             document.body.append(dot); \
             let frames = 0; \
             const timer = setInterval(() => { \
               dot.style.opacity = frames % 2 ? 0.01 : 0.02; \
               if (++frames > 100) { clearInterval(timer); dot.remove(); } \
             }, 50); \
             return 1",
        );
        let answer = self
            .driver
            .call("GET", "/screenshot", None)
            .expect("a screenshot");
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR"))
            .parent()
            .expect("it lies in target")
            .join("screenshots");
        std::fs::create_dir_all(&folder).expect("it can be made");
        let path = folder.join(format!("{name}.png"));
        let png = decoded(answer.as_str().expect("a screenshot is text"));
        std::fs::write(&path, png).expect("it can be written");
    }

    /// Resizes the window, in pixels.
    pub fn resize(&self, width: u32, height: u32) {
        let size = json!({"width": width, "height": height});
        self.driver
            .call("POST", "/window/rect", Some(&size))
            .expect("a window can be resized");
        self.wait_for(
            "the page has that width",
            &format!("return innerWidth === {width} || null"),
        );
    }

    /// Processes of the window whose names start with this text.
    pub fn processes(&self, name: &str) -> Vec<String> {
        let asked = Command::new("pgrep")
            .args(["-g", &self.driver.group().to_string(), name])
            .output();
        let listed = asked.expect("pgrep is missing: install procps").stdout;
        String::from_utf8_lossy(&listed)
            .lines()
            .map(str::to_owned)
            .collect()
    }
}

/// Plain base64.
fn decoded(text: &str) -> Vec<u8> {
    let six = |c: u8| match c {
        b'A'..=b'Z' => c - b'A',
        b'a'..=b'z' => c - b'a' + 26,
        b'0'..=b'9' => c - b'0' + 52,
        b'+' => 62,
        _ => 63,
    };
    let (mut bytes, mut bits, mut count) = (Vec::new(), 0_u32, 0);
    for c in text.bytes().filter(|c| *c != b'=') {
        (bits, count) = ((bits << 6) | u32::from(six(c)), count + 6);
        if count >= 8 {
            count -= 8;
            bytes.push((bits >> count) as u8);
        }
    }
    bytes
}
