//! The button for the stress test: takes memory during a run, shows this, and gives it back.

use crate::support::home::Home;
use crate::support::until;
use crate::{SOON, training};
use serde_json::json;

#[test]
fn the_button_starts_and_ends_a_stress_test() {
    let home = Home::new();
    let (window, run, _) = training(&home);
    until("it trains", SOON, || (home.step(&run) >= 2).then_some(()));
    let alone = window.processes("ebb").len();
    window.click("#stress-test");
    window.wait_for(
        "the button offers to give memory back",
        "return /^End the test and free /.test(document.querySelector('#stress-test').textContent.trim()) || null",
    );
    assert_eq!(
        window.processes("ebb").len(),
        alone + 1,
        "a process of its own takes it"
    );
    window.screenshot("drill");
    let again = window.invoke("drill", &json!({"request": "begin"}));
    let again = again.expect("asking twice is no error");
    assert!(again["bytes"].as_u64() > Some(0), "{again}");
    assert_eq!(
        window.processes("ebb").len(),
        alone + 1,
        "there is one stress test"
    );
    window.click("#stress-test");
    window.wait_for(
        "the button offers a stress test",
        "return document.querySelector('#stress-test').textContent.trim() === 'Stress test' || null",
    );
    until("its process has ended", SOON, || {
        (window.processes("ebb").len() == alone).then_some(())
    });
    let reported = window.wait_for(
        "what the training did meanwhile",
        "const reported = document.querySelector('#stress-result').textContent; return reported.startsWith('The test freed ') ? reported : null",
    );
    let reported = reported.as_str().unwrap_or_default();
    let reactions = ["had enough memory", "reduced the micro-batch", "waited for"];
    assert!(
        reactions.iter().any(|reaction| reported.contains(reaction)),
        "{reported}"
    );
    assert!(home.step(&run) >= 2, "and the training went on");
    // Begin and end are in the run, so that its charts show them, also later.
    let tests = until("begin and end are recorded", SOON, || {
        let events = home.events(&run).into_iter();
        let of_test = events.filter(|event| event["kind"] == "stress_test");
        let bytes: Vec<u64> = of_test
            .filter_map(|event| event["bytes"].as_u64())
            .collect();
        (bytes.len() >= 2).then_some(bytes)
    });
    assert!(tests[0] > 0 && tests.last() == Some(&0), "{tests:?}");
}
