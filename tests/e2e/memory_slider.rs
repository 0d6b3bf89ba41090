//! The slider "Leave to other apps": a running training follows it.

use crate::support::home::Home;
use crate::support::until;
use crate::support::window::Window;
use crate::{SOON, training};
use serde_json::json;

/// The newest budget of a run, in bytes.
fn budget_bytes(home: &Home, run: &str) -> Option<u64> {
    let events = home.events(run);
    let newest = events.iter().rev().find(|event| event["kind"] == "memory");
    newest?["budget_bytes"].as_u64()
}

#[test]
fn the_slider_changes_the_budget_of_a_running_training() {
    let home = Home::new();
    let (window, run, _) = training(&home);
    let before = until("it trains", SOON, || {
        budget_bytes(&home, &run).filter(|_| home.step(&run) >= 3)
    });
    window.click("nav[aria-label=Stage] a:not([aria-current])");
    let stand = "const bottom = (of) => document.querySelector(of)?.getBoundingClientRect().bottom; \
                 const apart = bottom('#leave-value b') - bottom('label[for=leave] b'); \
                 return Number.isFinite(apart) ? apart : null";
    let apart = window.wait_for("the slider is shown", stand);
    assert!(
        apart.as_f64().is_some_and(|px| px.abs() < 1.0),
        "the number stands {apart} px off its label"
    );
    window.screenshot("leave");
    // The leftmost position: half of all memory is left to other apps.
    window.run(
        "const e = document.querySelector('#leave'); e.value = e.min; \
         e.dispatchEvent(new Event('input', {bubbles: true})); e.dispatchEvent(new Event('change', {bubbles: true}))",
    );
    let after = until("the training follows", SOON, || {
        budget_bytes(&home, &run).filter(|now| *now < before - before / 4)
    });
    println!("budget {} MB, then {} MB", before >> 20, after >> 20);
    let shown = window.run("return document.querySelector('#leave-value').textContent");
    let shown: f64 = shown
        .as_str()
        .and_then(|text| text.trim_end_matches(" GB").parse().ok())
        .expect("a number of GB");
    assert!(shown > 1.0, "{shown} GB");
    let step = home.step(&run);
    until("it trains on", SOON, || {
        (home.step(&run) > step).then_some(())
    });
}

#[test]
fn a_memory_cap_set_while_training_lowers_the_budget_and_is_listed() {
    const GB: u64 = 1 << 30;
    let home = Home::new();
    let (window, run, _) = training(&home);
    until("it trains", SOON, || (home.step(&run) >= 3).then_some(()));
    window.click("#open-limits");
    let set_cap = |value: &str| {
        window.run(&format!(
            "const e = document.querySelector('#limit-cap'); e.value = {value:?}; \
             e.dispatchEvent(new Event('input', {{bubbles: true}})); e.dispatchEvent(new Event('change', {{bubbles: true}}))"
        ));
    };
    window.wait_for(
        "the limits",
        "return document.querySelector('#limit-cap')?.value === '' || null",
    );
    set_cap("2");
    let limits = until("it is recorded", SOON, || {
        let mut events = home.events(&run).into_iter();
        events.find(|event| event["kind"] == "memory_limits")
    });
    until("the budget follows", SOON, || {
        budget_bytes(&home, &run).filter(|now| *now <= 2 * GB)
    });
    window.screenshot("memory-limits");
    assert_eq!(limits["memory_cap_bytes"], json!(2 * GB));
    assert_eq!(limits["message"], json!("Memory cap set to 2.0 GB"));
    set_cap("0.1");
    window.wait_for(
        "a cap that is too small is refused",
        "return document.querySelector('#memory-limits [role=alert]').textContent.includes('is too small') \
           && document.querySelector('#limit-cap').value === '2' || null",
    );
    window.click("#open-changes");
    window.wait_for(
        "the change is listed",
        "return document.querySelector('#changes')?.textContent.includes('Memory cap set to 2.0 GB: by you') || null",
    );
    let step = home.step(&run);
    until("it trains on", SOON, || {
        (home.step(&run) > step).then_some(())
    });
}

/// Moves the slider to its smallest or largest value.
fn slide(window: &Window, end: &str) {
    window.run(&format!(
        "const e = document.querySelector('#leave'); e.value = e.{end}; \
         e.dispatchEvent(new Event('input', {{bubbles: true}})); e.dispatchEvent(new Event('change', {{bubbles: true}}))"
    ));
}

#[test]
fn a_plan_that_does_not_fit_cannot_be_started() {
    let home = Home::new();
    let script = home.path().join("memory");
    const GB: u64 = 1 << 30;
    let samples = (0..2000).map(|second| {
        let sample = json!({"at_ms": 1000 * second, "total_bytes": 4 * GB, "others_bytes": 2 * GB});
        format!("{sample}\n")
    });
    std::fs::write(&script, samples.collect::<String>()).expect("it can be written");
    let script = script.display().to_string();
    let window = Window::open(&["app", "--memory-script", &script], home.path());
    window.click("#open-sample");
    let fits = "return document.querySelector('#train:enabled') && !document.querySelector('.figures.stale') ? true : null";
    window.wait_for("a plan that fits", fits);
    slide(&window, "min");
    let refused = window.wait_for(
        "the plan does not fit",
        "return document.querySelector('#train:disabled') && document.querySelector('.basis.too-large')?.textContent || null",
    );
    let refused = refused.to_string();
    assert!(
        refused.contains("Does not fit: training needs")
            && refused.contains("Move the slider to the right, or close other apps"),
        "{refused}"
    );
    window.screenshot("does-not-fit");
    slide(&window, "max");
    window.wait_for("it fits again", fits);
}
