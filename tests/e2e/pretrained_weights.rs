//! Pretrained weights in the window: chosen in the system's dialog or dropped on a plan, and
//! trained from. A model is not a dataset.

use crate::support::drag::drag;
use crate::support::home::Home;
use crate::support::window::Window;
use crate::support::{until, xdotool};
use crate::{SOON, sample};
use serde_json::json;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// A pretrained vision transformer, tiny and random, in the home of a test.
fn published(home: &Home) -> PathBuf {
    copied("vit", home.path().join("small-vit"))
}

/// A copy of a fixture.
fn copied(fixture: &str, to: PathBuf) -> PathBuf {
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("crates/models/tests/fixtures");
    let from = fixtures.join("published").join(fixture);
    std::fs::create_dir(&to).expect("it can be made");
    for entry in std::fs::read_dir(from).expect("the fixture is there") {
        let entry = entry.expect("it can be listed");
        std::fs::copy(entry.path(), to.join(entry.file_name())).expect("it can be copied");
    }
    to
}

/// Answers the dialog of this title: types a path, or nothing, and presses the key. Tries again if
/// the dialog did not react: a dialog that is still being drawn loses letters and complains about
/// the incomplete path, so that message is closed first.
fn answer(title: &str, path: &str, key: &str) {
    let dialog = xdotool::found(title);
    let named = format!("^{title}$");
    let is_open = || xdotool::xdotool(&["search", "--onlyvisible", "--name", &named]).is_some();
    let pause = || std::thread::sleep(Duration::from_millis(700));
    until("the dialog is answered", SOON, || {
        pause();
        match (xdotool::activate(&dialog), is_open()) {
            (_, false) => return Some(()),
            (false, true) => {
                let _ = xdotool::xdotool(&["key", "Return"]);
                return None;
            }
            (true, true) => {}
        }
        if !path.is_empty() {
            // Replaces what an earlier try left there.
            let _ = xdotool::xdotool(&["key", "ctrl+a"]);
            let _ = xdotool::xdotool(&["type", "--delay", "20", path]);
        }
        let _ = xdotool::xdotool(&["key", key]);
        pause();
        (!is_open()).then_some(())
    });
}

/// What the plan page shows: the starting weights, the model, and the number of trained parameters.
fn begins(window: &Window) -> [String; 4] {
    let shown = window.wait_for(
        "an estimate",
        "const text = (selector) => document.querySelector(selector)?.textContent.trim() ?? ''; \
         if (document.querySelector('.figures.stale') || text('#peak').startsWith('–') || !text('#peak')) return null; \
         const value = (id) => document.querySelector(id)?.selectedOptions?.[0].textContent ?? text(id); \
         return [value('#setting-from'), value('#setting-trains'), value('#setting-model'), text('#hint-model')]",
    );
    [0, 1, 2, 3].map(|i| shown[i].as_str().unwrap_or_default().to_owned())
}

const TITLE: &str = "Choose a folder of pretrained weights";

#[test]
fn a_training_starts_from_chosen_weights() {
    let home = Home::new();
    let weights = published(&home);
    let _manager = xdotool::manager();
    let window = Window::open(&["app", &sample().display().to_string()], home.path());
    let anew = begins(&window);
    assert_eq!(anew[..2], ["Random weights", ""], "all of it trains");
    window.set(&[("from", "…")]);
    window.click("#base-folder");
    answer(TITLE, "", "Escape");
    assert_eq!(begins(&window), anew, "who cancels changes nothing");
    window.click("#base-folder");
    answer(TITLE, &weights.display().to_string(), "Return");
    window.wait_for(
        "the plan of what was chosen",
        "return document.querySelector('#setting-from').selectedOptions[0].textContent === 'small-vit' || null",
    );
    let everything = begins(&window);
    assert_eq!(everything[..2], ["small-vit", "Everything"]);
    assert_eq!(everything[2], "ViT, 10,741 parameters");
    window.screenshot("weights");
    window.set(&[("trains", "head")]);
    window.wait_for(
        "the rate that suits a head",
        "return document.querySelector('#setting-learning-rate').value === '0.01' || null",
    );
    let head = begins(&window);
    assert_eq!(head[1], "Only a new head");
    assert_ne!(head[3], everything[3], "fewer numbers train");
    window.screenshot("weights-head");
    // Steps are fast, so many are needed.
    window.set(&[("epochs", "5000")]);
    window.click("#train");
    let run = window.run_id();
    until("it trains", SOON, || (home.step(&run) >= 3).then_some(()));
    window.click("#stop");
    window.wait_for_status("stopped");
    assert_eq!(home.events(&run)[0]["model"], json!("vit"));
    let config = std::fs::read_to_string(home.run(&run).join("config.toml")).expect("it has one");
    for line in ["model = \"vit\"", "train_only = \"head\"", "small-vit"] {
        assert!(config.contains(line), "{line}: {config}");
    }
    let read = |folder: &Path| std::fs::read(folder.join("model.safetensors")).expect("weights");
    let kept = home.run(&run).join("published");
    assert!(
        read(&kept) == read(&weights),
        "the run keeps what it began with"
    );
}

#[test]
fn a_model_dropped_on_a_plan_is_fine_tuned() {
    let home = Home::new();
    let weights = published(&home);
    let window = Window::open(&["app", &sample().display().to_string()], home.path());
    begins(&window);
    let dropped = || {
        window.wait_for(
            "the plan of what was dropped",
            "return document.querySelector('#setting-from').selectedOptions[0].textContent === 'small-vit' || null",
        );
    };
    drag(&weights, || window.wait_for_drag(), dropped);
    assert_eq!(begins(&window)[2], "ViT, 10,741 parameters");
    window.set(&[("from", "")]);
    window.wait_for(
        "the plan without it",
        "return document.querySelector('#setting-model').value === 'convnet' || null",
    );
    // The folder was changed meanwhile and is chosen again from the list.
    let (safe, pickled) = ("model.safetensors", "pytorch_model.bin");
    std::fs::rename(weights.join(safe), weights.join(pickled)).expect("it is there");
    window.set(&[("from", "weights-1")]);
    let refused = window.wait_for(
        "the refusal",
        "return document.querySelector('[role=alert] p')?.textContent ?? null",
    );
    let refused = refused.as_str().unwrap_or_default();
    assert!(refused.contains("could run any program"), "{refused}");
    assert_eq!(begins(&window)[0], "Random weights", "and the plan stays");
    window.screenshot("weights-pickled");
}

/// Conversations, and a tiny language model as a GGUF file.
fn chats_and_gguf(home: &Home) -> (PathBuf, PathBuf) {
    let model = copied("chat", home.path().join("small-chat"));
    let chats = home.path().join("chats.jsonl");
    let row = |n: u32| {
        let asked = json!({"role": "user", "content": format!("What is {n} plus 1?")});
        let answer = json!({"role": "assistant", "content": format!("It is {}.", n + 1)});
        json!({"messages": [asked, answer]}).to_string() + "\n"
    };
    std::fs::write(&chats, (0..60).map(row).collect::<String>()).expect("it can be written");
    let ebb = |args: &[&Path]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_ebb"));
        let output = command.args(args).env("EBB_HOME", home.path()).output();
        let output = output.expect("the binary runs");
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{text}");
    };
    let (exported, word) = (home.path().join("exported"), Path::new);
    ebb(&[
        word("train"),
        &chats,
        word("--from"),
        &model,
        word("--steps"),
        word("1"),
    ]);
    ebb(&[
        word("export"),
        word("chats.jsonl"),
        &exported,
        word("--format"),
        word("gguf"),
    ]);
    let files = std::fs::read_dir(&exported).expect("it can be listed");
    let mut files = files.map(|entry| entry.expect("it can be listed").path());
    let gguf = files.find(|path| path.extension().is_some_and(|it| it == "gguf"));
    (chats, gguf.expect("it was exported"))
}

#[test]
fn a_gguf_file_dropped_on_a_plan_of_conversations_is_fine_tuned() {
    let home = Home::new();
    let (chats, gguf) = chats_and_gguf(&home);
    let name = gguf.file_name().expect("it has one").to_string_lossy();
    let window = Window::open(&["app", &chats.display().to_string()], home.path());
    begins(&window);
    let chosen = format!(
        "return document.querySelector('#setting-from').selectedOptions[0].textContent === '{name}' || null"
    );
    let dropped = || {
        window.wait_for("the plan of what was dropped", &chosen);
    };
    drag(&gguf, || window.wait_for_drag(), dropped);
    let plan = begins(&window);
    assert!(plan[2].starts_with("Llama 3, "), "{plan:?}");
    window.screenshot("weights-gguf");
}

#[test]
fn a_gguf_file_is_not_a_dataset() {
    let home = Home::new();
    let (_, gguf) = chats_and_gguf(&home);
    let window = Window::open(&["app", &gguf.display().to_string()], home.path());
    window.wait_for(
        "a refusal",
        "return document.body.textContent.includes('is a language model (GGUF), not data') || null",
    );
    window.screenshot("weights-gguf-no-data");
}

#[test]
fn a_model_folder_is_not_a_dataset() {
    let home = Home::new();
    let weights = published(&home);
    let window = Window::open(&["app", &weights.display().to_string()], home.path());
    let output = window.wait_for(
        "a refusal",
        "return document.querySelector('.proposal .refusal')?.textContent ?? null",
    );
    let output = output.as_str().unwrap_or_default();
    assert!(output.contains("is a model, not data"), "{output}");
    window.screenshot("weights-no-data");
    window.run("location.hash = '#/'");
    window.click("#open-sample");
    begins(&window);
    window.set(&[("from", "weights-1")]);
    window.wait_for(
        "its plan, from the list",
        "return document.querySelector('#setting-from').selectedOptions[0].textContent === 'small-vit' || null",
    );
}
