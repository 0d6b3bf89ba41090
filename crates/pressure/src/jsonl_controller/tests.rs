//! The JSON-lines controller on small simulated machines.

use super::*;
use crate::policy::PACKED_FRACTION;
use proptest::prelude::*;

const GB: u64 = 1 << 30;

/// A machine of 16 GB where a micro-batch of m samples needs 1 GB and m times 256 MB; each test
/// sets the use of others.
struct World {
    controller: JsonlController,
    at_ms: u64,
    own_bytes: u64,
}

impl World {
    fn new(policy: Policy) -> Self {
        World {
            controller: JsonlController::new(policy),
            at_ms: 0,
            own_bytes: GB,
        }
    }

    fn handle(&mut self, line: &Value) -> Vec<Value> {
        let answers = self
            .controller
            .handle_line(&line.to_string())
            .expect("a good line");
        answers
            .iter()
            .map(|answer| serde_json::from_str(answer).expect("an answer is JSON"))
            .collect()
    }

    fn sample(&mut self, others_bytes: u64) -> Vec<Value> {
        self.at_ms += 100;
        let available = (16 * GB).saturating_sub(others_bytes + self.own_bytes);
        self.handle(
            &json!({"kind": "sample", "at_ms": self.at_ms, "total_bytes": 16 * GB,
            "available_bytes": available, "own_bytes": self.own_bytes}),
        )
    }

    /// Asks, and runs the answer; returns the micro-batch, 0 for a wait.
    fn ask_and_run(&mut self, others_bytes: u64) -> u64 {
        let answers = self.handle(&json!({"kind": "ask", "remaining": 32}));
        assert_eq!(answers.len(), 1, "{answers:?}");
        let size = answers[0]["micro_batch"].as_u64().expect("a number");
        if answers[0]["action"] != "run" {
            self.sample(others_bytes);
            return 0;
        }
        self.own_bytes = GB + size * GB / 4;
        let peak_bytes = self.own_bytes;
        let mut outcome = "ok";
        for _ in 0..3 {
            if !self.sample(others_bytes).is_empty() {
                outcome = "cancelled";
                break;
            }
        }
        self.own_bytes = GB;
        self.handle(&json!({"kind": "micro_batch", "size": size, "peak_bytes": peak_bytes, "ms": 300, "outcome": outcome}));
        self.sample(others_bytes);
        size
    }
}

#[test]
fn it_shrinks_for_other_apps_and_grows_back() {
    let mut world = World::new(Policy::default());
    world.sample(4 * GB);
    let calm = (0..40).map(|_| world.ask_and_run(4 * GB)).last();
    assert_eq!(
        calm,
        Some(32),
        "the whole batch fits while other apps use 4 GB"
    );
    let pressed = (0..10).map(|_| world.ask_and_run(10 * GB)).last();
    assert!(pressed < Some(16), "{pressed:?}");
    // The margin for sudden growth covers a minute.
    let back = (0..200).map(|_| world.ask_and_run(4 * GB)).last();
    assert_eq!(back, Some(32));
}

#[test]
fn a_running_micro_batch_is_cancelled_once() {
    let mut world = World::new(Policy::default());
    world.sample(4 * GB);
    for _ in 0..40 {
        world.ask_and_run(4 * GB);
    }
    world.handle(&json!({"kind": "ask", "remaining": 32}));
    world.own_bytes = 9 * GB;
    let first = world.sample(7 * GB);
    assert_eq!(first.len(), 1, "{first:?}");
    assert_eq!(first[0]["kind"], "cancel");
    assert!(first[0]["reason"].as_str().is_some_and(|r| !r.is_empty()));
    assert_eq!(world.sample(7 * GB), Vec::<Value>::new());
}

#[test]
fn the_policy_of_the_caller_applies() {
    let fixed = Policy {
        fixed_micro_batch: Some(7),
        ..Policy::default()
    };
    let mut world = World::new(fixed);
    world.sample(4 * GB);
    assert_eq!(world.ask_and_run(4 * GB), 7);
    let capped = Policy {
        memory_cap_bytes: Some(3 * GB),
        ..Policy::default()
    };
    let mut world = World::new(capped);
    world.sample(4 * GB);
    let most = (0..40).map(|_| world.ask_and_run(4 * GB)).max();
    assert!(most <= Some(8) && most >= Some(6), "{most:?} within 3 GB");
}

/// A sample of a machine of 100 bytes.
fn sample_at(at_ms: i64) -> String {
    json!({"kind": "sample", "at_ms": at_ms, "total_bytes": 100, "available_bytes": 50, "own_bytes": 1}).to_string()
}

#[track_caller]
fn check_refused(lines: &[&str], expected: &str) {
    let mut controller = JsonlController::new(Policy::default());
    let (last, good) = lines.split_last().expect("at least one line");
    for line in good {
        controller.handle_line(line).expect("a good line");
    }
    let message = controller
        .handle_line(last)
        .expect_err("a bad line")
        .to_string();
    assert!(message.contains(expected), "{message}");
    assert!(
        message.starts_with(&format!("Line {}:", lines.len())),
        "{message}"
    );
}

#[test]
fn bad_lines_are_refused_with_their_number() {
    for (line, expected) in [
        ("", "the line is empty"),
        ("{", "not JSON (EOF while parsing an object at character 1)"),
        ("[1]", "not a JSON object"),
        ("{}", "\"kind\" is missing"),
        (r#"{"kind":"tea"}"#, "\"tea\" is unknown"),
        (
            r#"{"kind":"sample","at_ms":6000,"total_bytes":100,"available_bytes":50}"#,
            "no \"own_bytes\"",
        ),
        (
            r#"{"kind":"sample","at_ms":6000,"total_bytes":100,"available_bytes":101,"own_bytes":1}"#,
            "available_bytes is 101, more than total_bytes (100)",
        ),
        (
            r#"{"kind":"sample","at_ms":6000,"total_bytes":100,"available_bytes":50,"own_bytes":1,"stall_fraction":7}"#,
            "\"stall_fraction\" is 7; it must be from 0 to 1",
        ),
        (&sample_at(4999), "4999 ms follows 5000 ms"),
        (&sample_at(15001), "10001 ms passed without a memory sample"),
        (&sample_at(-1), "this line is not a valid sample"),
        (
            r#"{"kind":"micro_batch","size":0,"ms":1,"outcome":"ok"}"#,
            "at least one sample",
        ),
        (
            r#"{"kind":"micro_batch","size":1,"ms":-1,"outcome":"ok"}"#,
            "which is not a duration",
        ),
        (
            r#"{"kind":"micro_batch","size":1,"ms":1,"outcome":"lost"}"#,
            "this line is not a valid micro-batch",
        ),
        (
            &sample_at(i64::MAX),
            "\"at_ms\" is 9223372036854775807; the largest allowed number is 9007199254740992",
        ),
        (
            r#"{"kind":"sample","at_ms":5000,"total_bytes":18446744073709551615,"available_bytes":0,"own_bytes":1}"#,
            "\"total_bytes\" is 18446744073709551615",
        ),
        (
            r#"{"kind":"micro_batch","size":1,"ms":1e300,"outcome":"ok"}"#,
            "\"ms\" is 1e+300",
        ),
        (
            r#"{"kind":"micro_batch","size":1,"ms":1,"outcome":"ok","peak_bytes":18446744073709551615}"#,
            "\"peak_bytes\" is 18446744073709551615",
        ),
        (r#"{"kind":"ask","remaining":0}"#, "ask for 1 to"),
        (
            r#"{"kind":"ask","remaining":1,"and":2}"#,
            "this line is not a valid ask",
        ),
    ] {
        check_refused(&[&sample_at(5000), line], expected);
    }
    check_refused(&[r#"{"kind":"ask","remaining":8}"#], "no memory sample");
}

proptest! {
    #[test]
    fn no_line_causes_a_panic(line in ".{0,80}") {
        let mut controller = JsonlController::new(Policy::default());
        controller.handle_line(&sample_at(5000)).expect("a good line");
        let _ = controller.handle_line(&line);
    }

    #[test]
    fn every_question_gets_one_decision_within_the_rest(remaining in 1u64..200, available in 0u64..=100) {
        let mut controller = JsonlController::new(Policy::default());
        let sample = json!({"kind": "sample", "at_ms": 0, "total_bytes": 100, "available_bytes": available, "own_bytes": 1});
        controller.handle_line(&sample.to_string()).expect("a good line");
        let answers = controller.handle_line(&json!({"kind": "ask", "remaining": remaining}).to_string()).expect("a good line");
        prop_assert_eq!(answers.len(), 1);
        let decision: Value = serde_json::from_str(&answers[0]).expect("an answer is JSON");
        let size = decision["micro_batch"].as_u64().expect("a number");
        prop_assert!(size <= remaining && (decision["action"] != "run") == (size == 0));
    }
}

#[test]
fn the_former_name_of_a_micro_batch_line_is_accepted() {
    let mut controller = JsonlController::new(Policy::default());
    controller.handle_line(&sample_at(0)).expect("a good line");
    controller
        .handle_line(r#"{"kind":"ask","remaining":8}"#)
        .expect("a good line");
    let line = r#"{"kind":"piece","size":1,"ms":5,"outcome":"ok"}"#;
    assert_eq!(controller.handle_line(line).ok(), Some(Vec::new()));
}

/// The answer to a question with costs.
struct Packed {
    size: usize,
    cost: u64,
    predicted_bytes: u64,
    budget_bytes: u64,
}

/// Asks with costs, and runs the answer without a shortage.
fn ask_with_costs(world: &mut World, costs: &[u64]) -> Packed {
    let answers = world.handle(&json!({"kind": "ask", "costs": costs}));
    let number = |key: &str| answers[0][key].as_u64().expect("a number");
    let size = number("micro_batch") as usize;
    let cost: u64 = costs[..size].iter().sum();
    let packed = Packed {
        size,
        cost,
        predicted_bytes: number("predicted_peak_bytes"),
        budget_bytes: number("budget_bytes"),
    };
    world.own_bytes = world.own_bytes.max(GB + cost * (GB / 4_096));
    world.handle(&json!({"kind": "micro_batch", "size": size,
        "peak_bytes": GB + cost * (GB / 4_096), "ms": 90, "outcome": "ok"}));
    world.sample(4 * GB);
    packed
}

#[test]
fn samples_of_known_costs_are_packed_by_cost() {
    let mut world = World::new(Policy::default());
    world.sample(4 * GB);
    let even = [1_000; 64];
    let mut steady = 0;
    for _ in 0..200 {
        steady = ask_with_costs(&mut world, &even).cost;
    }
    let short: Vec<u64> = (0..64)
        .map(|i| if i % 2 == 0 { 300 } else { 500 })
        .collect();
    let packed = ask_with_costs(&mut world, &short);
    assert!(
        packed.size as u64 > steady / 1_000 && packed.cost <= steady,
        "{} samples",
        packed.size
    );
    let long: Vec<u64> = (0..64)
        .map(|i| if i == 0 { 9_000 } else { 1_000 })
        .collect();
    let packed = ask_with_costs(&mut world, &long);
    // Only memory keeps the size from 64, so the samples fill it up to the allowed fraction.
    let most = (PACKED_FRACTION * packed.budget_bytes as f64) as u64;
    let one_more = packed.predicted_bytes + 1_000 * (GB / 4_096);
    assert!(
        packed.predicted_bytes <= most && one_more > most,
        "{} samples of cost {}: {} bytes of {most}",
        packed.size,
        packed.cost,
        packed.predicted_bytes
    );
}

#[test]
fn the_costs_of_a_question_are_checked() {
    let sample = r#"{"kind":"sample","at_ms":0,"total_bytes":9,"available_bytes":5,"own_bytes":1}"#;
    for (line, problem) in [
        (r#"{"kind":"ask"}"#, "\"remaining\" is missing"),
        (r#"{"kind":"ask","costs":[]}"#, "ask for 1 to"),
        (r#"{"kind":"ask","costs":[5,0]}"#, "contains 0"),
        (r#"{"kind":"ask","costs":[9007199254740991]}"#, "from 1 to"),
        (r#"{"kind":"ask","costs":[-4]}"#, "not a valid ask"),
        (r#"{"kind":"ask","costs":[1.5]}"#, "not a valid ask"),
        (
            r#"{"kind":"ask","remaining":3,"costs":[1,2]}"#,
            "has 2 numbers",
        ),
    ] {
        check_refused(&[sample, line], problem);
    }
}

#[test]
fn lines_out_of_order_are_refused() {
    let sample = sample_at(5_000);
    let ask = r#"{"kind":"ask","remaining":8}"#;
    let ended = r#"{"kind":"micro_batch","size":1,"ms":5,"outcome":"ok"}"#;
    check_refused(&[&sample, ended], "no micro-batch is running");
    check_refused(&[ended], "no memory sample");
    check_refused(&[&sample, ask, ended, ended], "no micro-batch is running");
    check_refused(&[&sample, ask, ask], "has not ended");
}

#[test]
fn a_micro_batch_that_cannot_have_run_is_refused() {
    let (sample, later) = (sample_at(5_000), sample_at(6_000));
    let ask = r#"{"kind":"ask","remaining":8}"#;
    let ended = |size: u32, ms: f64| {
        json!({"kind": "micro_batch", "size": size, "ms": ms, "outcome": "ok"}).to_string()
    };
    check_refused(
        &[&sample, ask, &ended(9, 5.0)],
        "\"size\" is 9, but only 8 samples were left",
    );
    // The monitor stopped, or the duration is absurd.
    check_refused(
        &[&sample, ask, &later, &ended(1, 11_001.0)],
        "is from 1000 ms after the decision",
    );
    let mut controller = JsonlController::new(Policy::default());
    for line in [&sample, ask, &later, &ended(1, 11_000.0)] {
        controller.handle_line(line).expect("a good line");
    }
}

/// A monitor that stopped: each micro-batch is short enough, but all of them together ran for too
/// long without a sample.
#[test]
fn a_question_long_after_the_newest_sample_is_refused() {
    let ask = r#"{"kind":"ask","remaining":8}"#;
    let ended =
        |ms: u64| json!({"kind": "micro_batch", "size": 1, "ms": ms, "outcome": "ok"}).to_string();
    let (first, late) = (sample_at(5_000), sample_at(9_000));
    let (four_s, six_s, one_ms) = (ended(4_000), ended(6_000), ended(1));
    check_refused(
        &[&first, ask, &four_s, ask, &four_s, ask, &four_s, ask],
        "micro-batches ran for 12000 ms since the newest memory sample",
    );
    let ten_s = ended(10_000);
    check_refused(
        &[&first, ask, &ten_s, ask, &one_ms, ask],
        "ran for 10001 ms",
    );
    // A sample counts also if it comes while a micro-batch runs: the second one ends 4 s
    // after the first, 4 s after the sample.
    let lines: [&str; 10] = [
        &first, ask, &four_s, ask, &late, &four_s, ask, &six_s, ask, &one_ms,
    ];
    let mut controller = JsonlController::new(Policy::default());
    for line in lines {
        controller.handle_line(line).expect("a good line");
    }
    assert!(controller.handle_line(ask).is_err());
    controller
        .handle_line(&sample_at(19_000))
        .expect("a new sample");
    controller.handle_line(ask).expect("now it is known");
}

/// Limits may change at any time: the next decision uses the new ones.
#[test]
fn a_changed_amount_of_memory_is_answered() {
    let mut world = World::new(Policy::default());
    world.sample(4 * GB);
    for _ in 0..40 {
        world.ask_and_run(4 * GB);
    }
    world.at_ms += 100;
    let (at_ms, own_bytes) = (world.at_ms, world.own_bytes);
    world.handle(
        &json!({"kind": "sample", "at_ms": at_ms, "total_bytes": 8 * GB,
        "available_bytes": 4 * GB, "own_bytes": own_bytes}),
    );
    let answers = world.handle(&json!({"kind": "ask", "remaining": 32}));
    let size = answers[0]["micro_batch"].as_u64().expect("a number");
    assert!((1..=16).contains(&size), "{size} samples in 8 GB");
}

#[test]
fn the_controller_pauses_for_a_sample_that_does_not_fit() {
    let mut world = World::new(Policy::default());
    world.sample(4 * GB);
    for _ in 0..50 {
        ask_with_costs(&mut world, &[1_000; 64]);
    }
    // 1 GB and 12.2 GB beside the 4 GB of others.
    let answers = world.handle(&json!({"kind": "ask", "costs": [50_000, 1_000, 1_000]}));
    assert_eq!(answers[0]["action"], "pause", "{answers:?}");
    let reason = |answers: &[Value]| answers[0]["reason"].as_str().unwrap_or("").to_owned();
    let others = reason(&answers);
    assert!(others.starts_with("other apps need the memory"), "{others}");
    // 1 GB and 15.9 GB: the machine has 16 GB.
    let answers = world.handle(&json!({"kind": "ask", "costs": [65_000, 1_000]}));
    let alone = reason(&answers);
    assert!(
        alone.starts_with("one sample needs ") && alone.contains("too much for a machine with 16"),
        "{alone}"
    );
    let answers = world.handle(&json!({"kind": "ask", "costs": [1_000, 50_000, 1_000]}));
    assert_eq!(
        (&answers[0]["action"], &answers[0]["micro_batch"]),
        (&json!("run"), &json!(1))
    );
}
