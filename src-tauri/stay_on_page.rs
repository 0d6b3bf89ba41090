//! Keeps the window on Ebb's own page: a link, a script or a dropped file cannot replace it by a
//! page that would have the window's commands.

use tauri::plugin::TauriPlugin;
use tauri::{Url, Wry};

/// A plugin that refuses to open any other page in the window.
pub fn plugin() -> TauriPlugin<Wry> {
    tauri::plugin::Builder::new("stay-on-page")
        .on_navigation(|_, url| is_own_page(url))
        .build()
}

/// Whether an address belongs to Ebb's page. WebKit begins each window with the blank page.
fn is_own_page(url: &Url) -> bool {
    (url.scheme() == "tauri" && url.host_str() == Some("localhost"))
        || url.as_str() == "about:blank"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_own_page_may_be_opened() {
        for (address, expected) in [
            ("tauri://localhost", true),
            (
                "tauri://localhost/index.html#/run/2026-11-20-1402-birds",
                true,
            ),
            ("about:blank", true),
            ("about:srcdoc", false),
            ("tauri://elsewhere/", false),
            ("https://localhost/", false),
            ("http://tauri.localhost/", false),
            ("https://example.org/", false),
            ("file:///etc/hostname", false),
            ("data:text/html,<p>Ebb</p>", false),
            ("javascript:alert(1)", false),
        ] {
            let url = Url::parse(address).expect("it is an address");
            assert_eq!(is_own_page(&url), expected, "{address}");
        }
    }
}
