//! WebKitGTK reports that its web process ended and leaves the rest to the app. Without a GPU it
//! draws through a software renderer that takes ten times the memory of the page itself.

use std::path::Path;
use tauri::WebviewWindow;
use webkit2gtk::WebViewExt;

/// Makes WebKitGTK draw without buffers that are shared with a GPU. Measured without a GPU, after
/// the charts ran for a minute: 67 MB instead of 340 MB and rising.
const PLAIN_BUFFERS: &str = "WEBKIT_DISABLE_DMABUF_RENDERER";
/// Folder in which the kernel lists its GPUs.
const GPUS: &str = "/dev/dri";

/// Why there is no display to open a window on, if there is none: the toolkit would panic.
pub fn missing_display() -> Option<&'static str> {
    let named = |name| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    let missing = !named("DISPLAY") && !named("WAYLAND_DISPLAY");
    missing.then_some("there is no display (neither DISPLAY nor WAYLAND_DISPLAY is set)")
}

/// Chooses how pages are drawn. Call this before any thread starts.
pub fn prepare() {
    let gpu = Path::new(GPUS)
        .read_dir()
        .is_ok_and(|mut entries| entries.next().is_some());
    if !gpu && std::env::var_os(PLAIN_BUFFERS).is_none() {
        // SAFETY: no other thread exists yet that could read the environment.
        unsafe { std::env::set_var(PLAIN_BUFFERS, "1") };
    }
}

/// Reloads the page whenever its process ends unexpectedly.
pub fn load_anew_when_killed(window: &WebviewWindow) -> tauri::Result<()> {
    window.with_webview(|webview| {
        let page = webview.inner();
        page.connect_web_process_terminated(|page, _| page.reload());
    })
}
