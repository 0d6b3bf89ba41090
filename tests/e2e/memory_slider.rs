//! The slider "Leave to other apps": a running training follows it.

use crate::support::home::Home;
use crate::support::until;
use crate::{SOON, training};

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
