//! WebKitGTK tells when its web process ended and leaves the rest to the app.

use tauri::WebviewWindow;
use webkit2gtk::WebViewExt;

/// Loads the page anew whenever its process ends on its own.
pub fn load_anew_when_killed(window: &WebviewWindow) -> tauri::Result<()> {
    window.with_webview(|webview| {
        let page = webview.inner();
        page.connect_web_process_terminated(|page, _| page.reload());
    })
}
