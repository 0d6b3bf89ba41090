//! The page of a run that is paused or has ended, in the smallest window.

use crate::support::home::Home;
use crate::support::until;
use crate::{SOON, training};
use serde_json::Value;

#[test]
fn a_manual_pause_waits_and_a_stopped_run_has_ended() {
    let home = Home::new();
    let (window, run, _) = training(&home);
    until("it trains", SOON, || (home.step(&run) >= 2).then_some(()));
    window.resize(1080, 700);
    let gap = window.run(
        "const rect = (of) => document.querySelector(of).getBoundingClientRect(); \
         return rect('#checkpoint').left - rect('nav[aria-label=Stage]').right",
    );
    assert!(gap.as_f64() >= Some(8.0), "{gap} px beside the stages");
    window.screenshot("training-small");
    window.click("button#pause");
    window.wait_for_status("paused");
    let output = window.wait_for(
        "the pause is told",
        "const said = document.querySelector('#status-line').textContent; return said.includes('Paused') ? said : null",
    );
    let output = output.to_string();
    assert!(
        output.contains("Choose Continue to resume at step") && !output.contains("by itself"),
        "{output}"
    );
    window.screenshot("paused");
    window.click("#stop");
    window.wait_for_status("stopped");
    let messages = window.run(
        "const text = (of) => document.querySelector(of)?.textContent ?? null; return [text('#ago'), text('#follow'), text('.clock')]",
    );
    let text = |i: usize| messages[i].as_str().unwrap_or_default().to_owned();
    assert!(
        text(0).starts_with("ended ") && !text(0).contains("ago"),
        "{messages}"
    );
    assert_eq!(messages[1], Value::Null, "nothing is live");
    assert!(text(2).starts_with("end "), "{messages}");
    window.screenshot("ended");
}
