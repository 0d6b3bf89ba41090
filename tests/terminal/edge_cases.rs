//! Edge cases: larger models, a deleted run folder, interrupted searches, other file types,
//! terminal escapes, a full disk and a missing display.

use crate::support::{TestHome, draw_classes, losses, run_command};
use runlog::RunEvent;
use std::fs;
use std::process::{Command, Stdio};
use std::time::Duration;

fn birds() -> TestHome {
    let home = TestHome::new();
    draw_classes(&home.path("birds"), &["jay", "owl"], 6);
    home
}

#[test]
fn larger_models_can_be_trained() {
    for model in ["resnet18", "vit_tiny"] {
        let home = birds();
        let line =
            format!("{{birds}} --model {model} --image-size 32 --steps 1 --effective-batch 2");
        let events = home.train(&line).expect_code(0).events();
        let stepped = |event: &RunEvent| matches!(event, RunEvent::Step { step: 1, .. });
        assert!(events.iter().any(stepped), "{model}: {events:?}");
    }
}

#[test]
fn a_config_is_read_from_standard_input() {
    let home = birds();
    let config = home.file("piped", "steps = 2\nimage_size = 16\nseed = 31\n");
    let run = |command: &str, config_name: &str| {
        let birds = home.path("birds");
        let folder = birds.to_str().expect("a UTF-8 path");
        let mut command = home.ebb([command, folder, "--config", config_name, "--device", "cpu"]);
        command.stdin(fs::File::open(&config).expect("it can be read"));
        run_command(&mut command)
    };
    for name in ["-", "/dev/stdin"] {
        run("train", name).expect_code(0);
    }
    for run in home.runs() {
        let config = run.config().expect("a config");
        assert_eq!((config.steps, config.seed), (Some(2), Some(31)));
    }
    assert_eq!(home.runs().len(), 2);
    let refused = run("sweep-batch", "-").expect_code(2).err;
    assert!(refused.contains("write the config to a file"), "{refused}");
    home.file("piped", "steps = 2\nstepps = 3\n");
    let refused = run("train", "-").expect_code(2).err;
    assert!(refused.contains("standard input, line 2"), "{refused}");
}

#[test]
fn a_deleted_run_folder_ends_the_run_and_stays_deleted() {
    let home = birds();
    let mut training =
        home.start("train {birds} --image-size 16 --steps 100000 --effective-batch 4");
    training.until(|event| matches!(event, RunEvent::Step { step: 3, .. }));
    let run = home.only_run().path;
    fs::remove_dir_all(&run).expect("the folder can be removed");
    training.signal("INT");
    assert_eq!(training.wait(), Some(1));
    let output = fs::read_to_string(home.path("stderr")).expect("stderr was saved");
    assert!(output.contains("is no longer there"), "{output}");
    assert!(!run.exists(), "the folder is not created again");
}

/// Waits until a process has used `seconds` of CPU time, so that the wait does not depend on other
/// load. Without `/proc`, waits for twice the time.
fn wait_for_cpu_time(process: u32, seconds: u64) {
    let cpu_ticks = || {
        let stat = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
        // After the name in parentheses, fields 12 and 13 are user and system time in ticks of 10
        // ms.
        let (_, fields) = stat.rsplit_once(')')?;
        let ticks = fields.split_whitespace().skip(11).take(2);
        ticks
            .map(|word| word.parse::<u64>().ok())
            .sum::<Option<u64>>()
    };
    if cpu_ticks().is_none() {
        return std::thread::sleep(Duration::from_secs(2 * seconds));
    }
    while cpu_ticks().is_some_and(|ticks| ticks < 100 * seconds) {
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Interrupts a command while it works. Returns its stdout and stderr.
fn interrupted(home: &TestHome, line: &str) -> [String; 2] {
    let mut command = home.ebb(line.split(' '));
    let command = command.current_dir(home.path("."));
    let child = command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let child = child.expect("ebb starts");
    wait_for_cpu_time(child.id(), 1);
    let id = child.id().to_string();
    let sent = Command::new("kill").args(["-INT", &id]).status();
    assert!(sent.is_ok_and(|status| status.success()));
    let ended = child.wait_with_output().expect("it ends");
    let output = [ended.stdout, ended.stderr];
    let output = output.map(|text| String::from_utf8_lossy(&text).into_owned());
    assert_eq!(ended.status.code(), Some(0), "{line}: {output:?}");
    output
}

#[test]
fn interrupted_searches_suggest_nothing() {
    let home = birds();
    let small = "--image-size 16 --device cpu --threads 2";
    let [out, err] = interrupted(&home, &format!("find-lr birds --steps 10000 {small}"));
    assert!(err.contains("so there is no suggestion"), "{err}");
    assert!(!out.contains("Suggestion"), "{out}");
    let [out, err] = interrupted(&home, &format!("tune birds --epochs 10000 {small}"));
    assert!(err.contains("stopped by request"), "{err}");
    assert!(!out.contains("Best"), "{out}");
    let [out, err] = interrupted(
        &home,
        &format!("sweep-batch birds --controller --batches 4,8 --steps 10000 {small}"),
    );
    assert!(err.contains("stopped by request"), "{err}");
    assert!(!out.contains("best fixed"), "{out}");
}

#[test]
fn inspect_counts_files_of_other_kinds() {
    let home = birds();
    home.file("birds/notes.odt", "of another kind");
    let output = home.run("inspect {birds}").expect_code(0).out;
    assert!(
        output.contains("Ignored: 1 file that is not an image"),
        "{output}"
    );
}

#[test]
fn verify_split_refuses_texts() {
    let home = TestHome::new();
    home.file("sms.tsv", "ham\tgood day\nspam\twin now\n".repeat(6));
    let output = home.run("verify-split {sms.tsv}").expect_code(2).err;
    assert!(output.contains("contains texts"), "{output}");
}

#[test]
fn a_negative_learning_rate_is_refused_by_its_range() {
    let output = birds()
        .run("train {birds} --learning-rate -1")
        .expect_code(2);
    assert!(
        output.err.contains("--learning-rate") && output.err.contains("0.000000001 to 10"),
        "{output:?}"
    );
    assert!(!output.err.contains("unexpected argument"), "{output:?}");
}

#[test]
fn inspect_refuses_a_task_for_other_data() {
    let output = birds()
        .run("inspect {birds} --task text-classification")
        .expect_code(2);
    assert!(output.err.contains("image-classification"), "{output:?}");
    let home = birds();
    home.file("birds/info.json", r#"[{"a": 1}]"#);
    let mixed = home
        .run("inspect {birds} --task text-classification")
        .expect_code(2);
    assert!(mixed.err.contains("birds holds images"), "{mixed:?}");
    let train = birds()
        .run("train {birds} --task token-compression")
        .expect_code(2);
    assert!(
        train
            .err
            .contains("this folder holds images, so the task can only be image-classification"),
        "{train:?}"
    );
}

#[test]
fn file_names_cannot_control_the_terminal() {
    let home = TestHome::new();
    draw_classes(&home.path("birds"), &["\u{1b}[2Jjay", "owl"], 6);
    let output = home.run("inspect {birds}").expect_code(0);
    assert!(
        !output.out.contains('\u{1b}') && output.out.contains("jay"),
        "{output:?}"
    );
}

#[cfg(target_os = "linux")]
mod on_linux {
    use super::birds;
    use crate::support::{TestHome, run_command};
    use std::fs::File;

    #[test]
    fn a_full_disk_behind_stdout_is_an_error() {
        let home = birds();
        let full = File::options()
            .write(true)
            .open("/dev/full")
            .expect("the file exists");
        let path = home.path("birds");
        let ended = home
            .ebb(["inspect".as_ref(), path.as_os_str()])
            .stdout(full)
            .output();
        let ended = ended.expect("ebb starts");
        let err = String::from_utf8_lossy(&ended.stderr);
        assert_eq!(ended.status.code(), Some(1), "{err}");
        let expected = "the output could not be written: the disk is full";
        assert!(err.contains(expected), "{err}");
    }

    #[test]
    #[cfg(feature = "desktop")]
    fn the_window_without_a_display_fails_with_a_hint() {
        let home = TestHome::new();
        for display in [None, Some(":4711")] {
            let mut window = home.ebb(Vec::<&str>::new());
            window.env_remove("DISPLAY").env_remove("WAYLAND_DISPLAY");
            if let Some(display) = display {
                window.env("DISPLAY", display);
            }
            let output = run_command(&mut window).expect_code(1);
            assert!(
                output.err.contains("train in the terminal instead"),
                "{output:?}"
            );
        }
    }
}

#[test]
fn a_run_without_held_out_samples_warns_at_its_start() {
    let home = TestHome::new();
    draw_classes(&home.path("birds"), &["jay", "owl"], 1);
    let found = home.run("inspect {birds}").expect_code(0).out;
    let expected = "Held out: nothing, so no accuracy can be measured";
    assert!(found.contains(expected), "{found}");
    let texts = "text,label\none text here,a\nanother text there,b\n";
    std::fs::write(home.path("texts.csv"), texts).expect("it can be written");
    let found = home.run("inspect {texts.csv}").expect_code(0).out;
    assert!(found.contains(expected), "{found}");
    let line = "{birds} --image-size 16 --steps 1 --effective-batch 2";
    let events = home.train(line).expect_code(0).events();
    let warning = |event: &RunEvent| match event {
        RunEvent::Warning { code, message, .. } if code == "nothing_held_out" => {
            Some(message.clone())
        }
        _ => None,
    };
    let warnings: Vec<_> = events.iter().filter_map(warning).collect();
    let expected = "nothing is held out, so no accuracy can be measured; add more samples, or a folder of validation data";
    assert_eq!(warnings, [expected]);
}

#[test]
fn class_weights_balance_images_whatever_the_micro_batch() {
    let home = TestHome::new();
    draw_classes(&home.path("birds"), &["jay"], 24);
    draw_classes(&home.path("birds"), &["owl"], 6);
    let losses_of = |options: &str| {
        let line = format!(
            "{{birds}} --image-size 16 --steps 3 --effective-batch 8 --augment none {options}"
        );
        losses(&home.train(&line).expect_code(0).events())
    };
    let equal = losses_of("");
    let whole = losses_of("--class-weights balanced --micro-batch 8");
    let split = losses_of("--class-weights balanced --micro-batch 3");
    assert_eq!(whole.len(), 3);
    for (step, ((whole, split), equal)) in whole.iter().zip(&split).zip(&equal).enumerate() {
        assert!((whole - split).abs() < 1e-4, "step {step}: {whole} {split}");
        assert!((whole - equal).abs() > 1e-3, "step {step}: {whole} {equal}");
    }
}
