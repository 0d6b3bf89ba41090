//! The plan page: the estimate follows the settings.

use crate::support::home::Home;
use crate::support::window::Window;

/// Waits until the figures belong to another question than `before`, and returns micro-batch, peak
/// and the model's parameters as shown.
fn figures(window: &Window, before: &str) -> String {
    let script = format!(
        "const text = (id) => document.querySelector(id)?.textContent.trim() ?? '–'; \
         if (document.querySelector('.figures.stale') || text('#peak').startsWith('–')) return null; \
         const all = ['#micro-batch', '#peak', '#hint-model'].map(text).join(' | '); \
         return all === {before:?} ? null : all"
    );
    let shown = window.wait_for("an estimate", &script);
    shown.as_str().expect("text").to_owned()
}

#[test]
fn the_estimate_follows_the_settings() {
    let home = Home::new();
    let window = Window::open(&["app"], home.path());
    window.click("#open-sample");
    let suggested = figures(&window, "");
    window.screenshot("plan");
    window.set(&[("resolution", "224")]);
    let larger = figures(&window, &suggested);
    window.screenshot("plan-224");
    window.set(&[("model", "vit_micro")]);
    let other = figures(&window, &larger);
    window.screenshot("plan-vit");
    let parameters = |shown: &str| shown.rsplit(" | ").next().map(str::to_owned);
    assert_eq!(
        parameters(&suggested),
        parameters(&larger),
        "a ConvNet has as many at any size"
    );
    assert_ne!(
        parameters(&larger),
        parameters(&other),
        "{larger} / {other}"
    );
}
