//! The page stays in its window, and may only call the listed commands.

use crate::support::home::Home;
use crate::support::window::Window;
use serde_json::json;
use std::time::Duration;

#[test]
fn the_window_stays_on_its_page() {
    let home = Home::new();
    let window = Window::open(&["app"], home.path());
    let address = window.run("return location.href");
    for foreign in ["https://example.invalid/", "data:text/html,<p>Ebb</p>"] {
        let _ = window.try_run(&format!("location.href = '{foreign}'"));
        std::thread::sleep(Duration::from_millis(500));
        assert_eq!(window.run("return location.href"), address, "{foreign}");
    }
    window.run("document.body.innerHTML = '<a href=\"https://example.invalid/\">link</a>'");
    let _ = window.try_run("document.querySelector('a').click()");
    std::thread::sleep(Duration::from_millis(500));
    assert_eq!(window.run("return location.href"), address);
}

#[test]
fn commands_outside_the_capabilities_are_refused() {
    let home = Home::new();
    let window = Window::open(&["app"], home.path());
    for (command, args) in [
        (
            "plugin:event|emit",
            json!({"event": "show", "payload": null}),
        ),
        ("plugin:window|close", json!({"label": "main"})),
        (
            "plugin:webview|create_webview_window",
            json!({"options": {"label": "other", "url": "https://example.org"}}),
        ),
        ("plugin:dialog|open", json!({"options": {}})),
        ("plugin:path|resolve_directory", json!({"directory": 1})),
    ] {
        let refused = window
            .invoke(command, &args)
            .expect_err(command)
            .to_string();
        assert!(
            refused.contains("not allowed") || refused.contains("not found"),
            "{command}: {refused}"
        );
    }
    for id in ["../../etc", "/etc", ""] {
        let query = json!({"run": id, "fromMs": 0, "toMs": 1, "columns": 4, "seen": 0});
        assert_eq!(
            window.invoke("pull", &query).expect_err(id)["code"],
            "unknown_id"
        );
        assert_eq!(
            window
                .invoke("inspection", &json!({"id": id, "seen": 0}))
                .expect_err(id)["code"],
            "unknown_id"
        );
    }
}
