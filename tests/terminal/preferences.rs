//! Preferences fine-tune a language model by direct preference optimization: they are inspected,
//! trained, resumed and evaluated, and the model prefers the chosen answers afterwards.

use crate::conversations::{chats, check_exact_resume};
use crate::support::{self, TestHome, evaluated, losses};
use runlog::RunEvent;
use serde_json::json;

/// A tiny random Llama with a chat template, and questions with a good and a bad answer.
fn preferences() -> TestHome {
    let home = chats();
    home.file("prefs.jsonl", (0..80).map(row).collect::<String>());
    home
}

/// A preference: texts in half of the rows, and messages in the others.
fn row(n: usize) -> String {
    let (a, b) = (n % 9, n / 9);
    let prompt = format!("What is {a} plus {b}?");
    let chosen = format!("It is {}.", a + b);
    let rejected = "No idea.";
    let row = if n.is_multiple_of(2) {
        json!({"prompt": prompt, "chosen": chosen, "rejected": rejected})
    } else {
        let messages = |answer: &str| {
            let asked = json!({"role": "user", "content": prompt});
            json!([asked, {"role": "assistant", "content": answer}])
        };
        json!({"prompt": prompt, "chosen": messages(&chosen), "rejected": messages(rejected)})
    };
    row.to_string() + "\n"
}

const TRAINED: &str =
    "{prefs.jsonl} --from {model} --adapter 4 --beta 0.5 --learning-rate 0.01 --effective-batch 8";

/// The metric of every step.
fn of_steps(events: &[RunEvent], name: &str) -> Vec<f64> {
    let metric = |event: &RunEvent| match event {
        RunEvent::Step { metrics, .. } => metrics.get(name).copied(),
        _ => None,
    };
    events.iter().filter_map(metric).collect()
}

#[test]
fn a_model_learns_to_prefer_the_chosen_answers() {
    let home = preferences();
    let shown = home
        .run("inspect {prefs.jsonl} --from {model}")
        .expect_code(0)
        .out;
    for part in [
        "prefs.jsonl: 80 preferences",
        "is better than the one in \"rejected\"",
        "⟦It is ",
        "The rejected answer:",
        "No idea.",
    ] {
        assert!(shown.contains(part), "{part}: {shown}");
    }
    let found = support::json(&home.run("inspect {prefs.jsonl} --json").expect_code(0).out);
    assert!(found["conversations"][0]["rejected"]["learned_tokens"].as_u64() > Some(0));

    let run = home.train(&format!("{TRAINED} --steps 64")).expect_code(0);
    let events = run.events();
    // The model begins as its own reference: both rewards are 0, and the loss is ln 2.
    assert!((losses(&events)[0] - std::f64::consts::LN_2).abs() < 1e-6);
    let accuracies = of_steps(&events, "preference_accuracy");
    assert_eq!(accuracies[0], 0.5);
    let last: f64 = accuracies[56..].iter().sum::<f64>() / 8.0;
    assert!(last > 0.9, "{accuracies:?}");
    let margins = of_steps(&events, "reward_margin");
    assert!(margins[0] == 0.0 && margins[63] > 0.2, "{margins:?}");
    let held_out = evaluated(&events, "preference_accuracy");
    assert!(held_out.last() >= Some(&0.9), "{held_out:?}");
    for name in ["chosen_log_probability", "rejected_log_probability"] {
        let values = of_steps(&events, name);
        assert!(values.len() == 64 && values.iter().all(|value| *value < 0.0));
    }

    let found = "evaluate prefs.jsonl {prefs.jsonl} --json";
    let found = support::json(&home.run(found).expect_code(0).out);
    assert!(
        found["preference_accuracy"].as_f64() >= Some(0.9),
        "{found}"
    );
    let words = home
        .run("evaluate prefs.jsonl {prefs.jsonl}")
        .expect_code(0);
    assert!(words.out.contains("preference accuracy"), "{}", words.out);
    let error = home
        .run("evaluate prefs.jsonl {chats.jsonl}")
        .expect_code(1);
    assert!(error.err.contains("learned preferences"), "{}", error.err);
    home.run("export prefs.jsonl {adapters} --format adapters")
        .expect_code(0);
}

#[test]
fn no_split_of_a_step_changes_the_gradient_of_preferences() {
    let home = preferences();
    let line = format!("{TRAINED} --adapter-dropout 0.25 --steps 4");
    home.train(&line).expect_code(0);
    let checked = home.run("verify-split prefs.jsonl --double --json");
    let checked = support::json(&checked.expect_code(0).out);
    assert_eq!(checked["holds"], true, "{checked}");
}

#[test]
fn a_stopped_run_of_preferences_continues_with_the_same_losses() {
    check_exact_resume(&preferences(), TRAINED, "prefs.jsonl");
}

#[test]
fn preferences_are_refused_with_settings_that_do_not_work() {
    let home = preferences();
    for (line, part) in [
        ("{prefs.jsonl} --from {model}", "add --adapter RANK"),
        ("{prefs.jsonl}", "add --from MODEL --adapter RANK"),
        (
            "{prefs.jsonl} --from {model} --adapter 4 --beta 0",
            "a number from 0.0001 to 100",
        ),
        (
            "{prefs.jsonl} --from {model} --adapter 4 --loss-on all",
            "compare only the answers",
        ),
        (
            "{prefs.jsonl} --from {model} --adapter 4 --packing on",
            "cannot be packed",
        ),
        (
            "{chats.jsonl} --from {model} --adapter 4 --beta 0.2",
            "for data with chosen and rejected answers",
        ),
    ] {
        let error = home.run(&format!("train {line} --steps 1")).expect_code(2);
        assert!(error.err.contains(part), "{line}: {}", error.err);
    }
}

#[test]
fn rows_that_are_no_preferences_are_named() {
    let home = preferences();
    let same = json!({"prompt": "Why?", "chosen": "So.", "rejected": "So."});
    let half = json!({"prompt": "Why?", "chosen": "So."});
    let rows: String = (0..80).map(row).collect();
    home.file("prefs.jsonl", format!("{rows}{same}\n{half}\n"));
    let shown = home.run("inspect {prefs.jsonl}").expect_code(0).out;
    for part in [
        "prefs.jsonl: 80 preferences",
        "the chosen and the rejected answer are the same",
        "the row has no rejected answer",
    ] {
        assert!(shown.contains(part), "{part}: {shown}");
    }
}
