//! An invalid setting is reported at its field, is never sent, and the error disappears when the
//! setting is corrected.

use crate::support::home::Home;
use crate::support::window::Window;
use serde_json::{Value, json};

const FIGURES: &str = "const peak = document.querySelector('#peak')?.textContent.trim() ?? '–'; \
                       return document.querySelector('.figures.stale') || peak.startsWith('–') ? null : peak";

/// The sample's plan with its estimate. The page records every banner that it shows from then on.
fn planned(home: &Home) -> Window {
    let window = Window::open(&["app"], home.path());
    window.click("#open-sample");
    window.wait_for("an estimate", FIGURES);
    window.run(
        "window.banners = []; new MutationObserver(() => { const message = document.querySelector('[role=alert] p')?.textContent; \
         if (message) window.banners.push(message) }).observe(document.body, {subtree: true, childList: true, characterData: true})",
    );
    window
}

/// Waits until the page has sent all its requests: an estimate of the test's own returns.
fn estimate_comes_back(window: &Window) {
    let view = window.invoke("inspection", &json!({"id": "folder-1", "seen": 0}));
    let settings = view.expect("it is open")["plans"][0]["settings"].clone();
    let asked = json!({"inspection": "folder-1", "settings": settings});
    window.invoke("estimate", &asked).expect("it is estimated");
}

#[test]
fn an_invalid_value_is_reported_at_its_field_only() {
    let home = Home::new();
    let window = planned(&home);
    for (field, wrong, right) in [
        ("learning-rate", "abc", "0.001"),
        ("learning-rate", "1e-12", "0.002"),
        ("seed", "abc", "7"),
        ("epochs", "1.5", "3"),
        ("effective-batch", "99999999", "16"),
    ] {
        window.set(&[(field, wrong)]);
        let objection = format!(
            "return document.querySelector('#hint-{field}.wrong') && document.querySelector('#train').disabled || null"
        );
        window.wait_for("a word at the field", &objection);
        estimate_comes_back(&window);
        assert_eq!(window.run("return window.banners"), json!([]), "{field}");
        if field == "learning-rate" {
            window.screenshot("wrong-learning-rate");
        }
        window.set(&[(field, right)]);
        window.wait_for(
            "the word goes",
            "return document.querySelector('.wrong') ? null : true",
        );
        window.wait_for("the estimate stands", FIGURES);
        let ready = window.run("return !document.querySelector('#train').disabled");
        assert_eq!(ready, json!(true), "{field}");
    }
}

#[test]
fn a_refused_plan_disables_train_and_clears_its_figures() {
    let home = Home::new();
    let window = planned(&home);
    window.run(
        "const option = document.createElement('option'); option.value = 'planted'; document.querySelector('#setting-model').append(option)",
    );
    window.set(&[("model", "planted")]);
    let refused = window.wait_for(
        "the refusal",
        "return document.querySelector('.basis.wrong')?.textContent ?? null",
    );
    assert!(refused.to_string().contains("planted"), "{refused}");
    let left = window.run(
        "return [document.querySelector('#train').disabled, document.querySelector('#peak').textContent.trim()]",
    );
    assert_eq!(left, json!([true, "–"]));
    window.screenshot("refused-plan");
    window.set(&[("model", "convnet")]);
    window.wait_for("the estimate is back", FIGURES);
    let left = window.run("return [document.querySelector('#train').disabled, document.querySelector('.basis.wrong')]");
    assert_eq!(left, json!([false, Value::Null]));
}
