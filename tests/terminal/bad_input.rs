//! Invalid folders, configs, arguments and permissions are refused with the reason, a remedy and
//! the right exit code, and no partial files are left behind.

use crate::support::{COMMON_ARGS, CommandOutput, EBB, TestHome, draw_classes, run_command};
use std::fs;
use std::process::Command;

const QUICK: &str = "--image-size 16 --steps 4 --effective-batch 4";

fn birds() -> TestHome {
    let home = TestHome::new();
    draw_classes(&home.path("birds"), &["jay", "owl"], 5);
    home
}

/// The command fails with this code, its stderr contains all parts, and no run is left behind.
#[track_caller]
fn check(home: &TestHome, line: &str, code: i32, parts: &[&str]) {
    let output = home.run(line).expect_code(code);
    for part in parts {
        assert!(
            output.err.contains(part),
            "{line}: no `{part}` in {}",
            output.err
        );
    }
    assert_eq!(
        home.leftover_files(),
        Vec::<std::path::PathBuf>::new(),
        "{line}"
    );
}

#[test]
fn untrainable_folders_are_refused() {
    let home = birds();
    fs::create_dir(home.path("empty")).expect("the folder can be created");
    home.file("photo.jpg", "not a folder");
    draw_classes(&home.path("single"), &["jay"], 5);
    for class in ["jay", "owl"] {
        fs::create_dir_all(home.path("broken").join(class)).expect("the folder can be created");
        home.file(&format!("broken/{class}/1.jpg"), "not an image");
    }
    for command in ["inspect", "train"] {
        let check = |folder: &str, parts: &[&str]| {
            check(&home, &format!("{command} {{{folder}}}"), 1, parts);
        };
        check(
            "nowhere",
            &["There is no folder", "nowhere", "Check the spelling"],
        );
        check(
            "photo.jpg",
            &["photo.jpg is a file, not a folder", "Choose the folder"],
        );
        check("empty", &["is empty", "Add one sub-folder"]);
        check("single", &["has one class, jay", "add a second sub-folder"]);
        check(
            "broken",
            &["no readable image", "2 files were left out", "Add JPEG"],
        );
    }
}

#[test]
fn ten_thousand_classes_are_trained() {
    let home = TestHome::new();
    let row = |i: u32| format!("note {i} about {},topic {}\n", i / 3, i / 3);
    let rows: String = (0..30_000).map(row).collect();
    home.file("notes.csv", format!("text,label\n{rows}"));
    let inspected = home.run("inspect {notes.csv}").expect_code(0).out;
    for part in [
        "30,000 texts in 10,000 classes",
        "more; `ebb inspect --json` lists all of them",
    ] {
        assert!(inspected.contains(part), "{part}: {inspected}");
    }
    let lines = inspected.lines().count();
    assert!(lines < 150, "not every class is printed: {lines} lines");
    let line = "train {notes.csv} --tokens 16 --vocabulary 400 --baseline none --effective-batch 16 --steps 1 --device cpu --threads 2";
    let trained = home.run(line).expect_code(0);
    assert!(
        trained.err.contains("Finished at step 1"),
        "{}",
        trained.err
    );
}

#[test]
fn images_that_are_all_equal_are_reported_and_trained() {
    let home = birds();
    let image = home.path("birds/jay/000.png");
    for class in ["one", "two"] {
        let folder = home.path("copies").join(class);
        fs::create_dir_all(&folder).expect("the folder can be created");
        for number in 0..10 {
            let copy = folder.join(format!("{number}.png"));
            fs::copy(&image, copy).expect("the image can be copied");
        }
    }
    let line = format!("train {{copies}} {QUICK} --device cpu --threads 2");
    let output = home.run(&line).expect_code(0);
    let printed = output.out + &output.err;
    for part in [
        "4 held-out images are copies of training images",
        "all look the same, so there is nothing to learn",
        "Finished at step 4",
        "Not learning: no better than guessing.",
    ] {
        assert!(printed.contains(part), "{part}: {printed}");
    }
}

#[test]
fn invalid_configs_are_refused_by_line() {
    let home = birds();
    home.file("key.toml", "steps = 4\nepoch = 3\n");
    home.file("range.toml", "steps = 4\n\nimage_size = 5\n");
    home.file("type.json", "{\n \"steps\": \"many\"\n}");
    home.file("torn.toml", "steps = \n");
    home.file("config.yaml", "steps: 4");
    let check = |config: &str, code: i32, parts: &[&str]| {
        check(
            &home,
            &format!("train {{birds}} --config {{{config}}}"),
            code,
            parts,
        );
    };
    check(
        "key.toml",
        2,
        &[
            "key.toml, line 2",
            "no key `epoch`",
            "did you mean `epochs`?",
        ],
    );
    check(
        "range.toml",
        2,
        &["range.toml, line 3", "`image_size` is 5", "from 16 to 1024"],
    );
    check(
        "type.json",
        2,
        &["type.json, line 2", "`steps` is `many`", "a whole number"],
    );
    check("torn.toml", 2, &["torn.toml, line 1", "start again"]);
    check(
        "config.yaml",
        2,
        &["config.yaml is not a config", ".toml or .json"],
    );
    check(
        "nowhere.toml",
        1,
        &["nowhere.toml could not be read", "check the path"],
    );
}

#[test]
fn invalid_arguments_are_refused() {
    let home = birds();
    let check = |line: &str, parts: &[&str]| check(&home, line, 2, parts);
    for (arguments, parts) in [
        (
            "--preset fast",
            &["no preset `fast`", "choose one of quick"][..],
        ),
        ("--model alexnet", &["model", "alexnet", "convnet"]),
        ("--task dance", &["task", "dance", "image-classification"]),
        ("--optimizer adagrad", &["optimizer", "adagrad", "lion"]),
        ("--device tpu", &["device", "tpu", "cpu"]),
        ("--image-size 8", &["--image-size", "8", "16 to 1024"]),
        (
            "--model vit_micro --image-size 20",
            &["image_size", "20", "multiple of 8", "24"],
        ),
        (
            "--model convnet --checkpoint-blocks 5",
            &["checkpoint_blocks", "5", "ConvNet has 4 blocks", "all"],
        ),
        (
            "--checkpoint-blocks most",
            &["most", "must be a number of blocks", "all"],
        ),
        ("--workers 300", &["workers", "300", "0 to 256"]),
        ("--steps 0", &["steps", "0", "1 to"]),
        ("--effective-batch 0", &["--effective-batch", "0", "1 to"]),
        ("--learning-rate 100", &["--learning-rate", "100", "10"]),
        (
            "--micro-batch none",
            &["micro-batch", "none", "whole number from 1"],
        ),
        ("--memory-cap 1MB", &["--memory-cap", "at least 64 MB"]),
        (
            "--memory-target 1",
            &["memory-target", "number from 0.1 to 0.95"],
        ),
        (
            "--memory-cap nonsense",
            &["nonsense", "must be a size", "8GB"],
        ),
        ("--checkpoint-every often", &["often", "10min"]),
        ("--precision f8", &["precision", "f8", "f32"]),
        (
            "--precision f64 --device metal",
            &["precision", "f64", "--device cpu"],
        ),
        ("--colour red", &["--colour"]),
    ] {
        check(&format!("train {{birds}} {arguments}"), parts);
    }
    check("train", &["no folder to train on", "ebb train FOLDER"]);
    check("dance", &["dance"]);
    check("predict birds", &["IMAGE|TEXT"]);
    check("predict birds x.png --top 0", &["--top", "1..=10000"]);
}

#[test]
fn invalid_memory_scripts_are_refused() {
    let home = birds();
    home.file(
        "torn",
        "{\"at_ms\":0,\"total_bytes\":8,\"others_bytes\":2}\n{\"at_ms\":\n",
    );
    let line = |at_ms: u64| format!("{{\"at_ms\":{at_ms},\"total_bytes\":8,\"others_bytes\":2}}\n");
    home.file("hole", format!("{}\n{}", line(0), line(9)));
    home.file("back", [0, 9, 8].map(line).concat());
    home.file("again", [0, 9, 9].map(line).concat());
    home.file("empty", "");
    for (script, parts) in [
        ("torn", &["torn", "line 2"][..]),
        ("hole", &["hole", "line 2", "the line is empty"]),
        ("back", &["back", "line 3", "8 ms follows 9 ms"]),
        ("again", &["again", "line 3", "9 ms follows 9 ms"]),
        ("empty", &["empty"]),
        ("nowhere", &["nowhere"]),
    ] {
        let line = format!("train {{birds}} {QUICK} --memory-script {{{script}}}");
        check(&home, &line, 1, parts);
    }
}

#[test]
fn a_missing_device_is_refused() {
    if cfg!(target_os = "macos") {
        return println!("skipped: this machine has Metal");
    }
    let home = birds();
    check(
        &home,
        &format!("train {{birds}} {QUICK} --device metal"),
        1,
        &["metal cannot be used", "choose --device cpu or auto"],
    );
}

#[test]
fn refused_trainings_announce_no_run() {
    if cfg!(target_os = "macos") {
        return println!("skipped: this machine has Metal");
    }
    let home = birds();
    home.file("torn", "{\"at_ms\":\n");
    for (flags, code, part) in [
        ("--precision bf16", 2, "choose f32, or add --device cpu"),
        ("--precision f16", 2, "precision = f16 does not work"),
        ("--device metal", 1, "metal cannot be used"),
        ("--memory-script {torn}", 1, "line 1"),
    ] {
        let line = format!("train {{birds}} {QUICK} {flags}");
        check(&home, &line, code, &[part]);
        let output = home.run(&line).expect_code(code);
        assert!(!output.err.contains("Run: "), "{output:?}");
    }
    check(&home, "plan {birds} --precision bf16", 2, &["choose f32"]);
    let line = format!("train {{birds}} {QUICK} --precision bf16");
    let output = home.run(&line).expect_code(2);
    let text = output.out + &output.err;
    assert!(
        !text.contains(" images in "),
        "no inspection was printed: {text}"
    );
}

#[test]
fn settings_without_an_effect_are_refused() {
    let home = birds();
    let cases = [
        (
            "--task token-compression",
            "this folder holds images, so the task can only be image-classification",
        ),
        (
            "--text-column a",
            "text_column = a does not work: this setting is for texts",
        ),
        (
            "--epochs 1",
            "--epochs 1 and --steps 4 both set the length of the training",
        ),
    ];
    for (flags, part) in cases {
        check(
            &home,
            &format!("train {{birds}} {QUICK} {flags}"),
            2,
            &[part],
        );
    }
}

#[test]
fn a_micro_batch_that_is_larger_than_a_step_is_reported() {
    let home = birds();
    let output = home.run(&format!(
        "train {{birds}} {QUICK} --device cpu --micro-batch 64"
    ));
    let part = "the micro-batch is 4 instead of 64, because a step has 4 samples";
    assert!(output.err.contains(part), "{}", output.err);
    output.expect_code(0);
}

/// Runs a shell line with `$EBB` and this home. Root obeys permissions only without two
/// capabilities. Returns `None` and prints why if this user ignores permissions anyway.
fn run_with_permissions(home: &TestHome, line: &str) -> Option<CommandOutput> {
    let script = format!("umask 022; {line}");
    let drop = ["--bounding-set", "-dac_override,-dac_read_search"];
    let mut command = if is_root() {
        let mut command = Command::new("setpriv");
        command.args(drop).args(["sh", "-c", &script]);
        command
    } else {
        let mut command = Command::new("sh");
        command.args(["-c", &script]);
        command
    };
    command.env("EBB", EBB).env("EBB_HOME", home.path("home"));
    let probe = home.path("probe");
    fs::create_dir(&probe).expect("the folder can be created");
    remove_permissions(&probe);
    let mut attempt = Command::new(command.get_program());
    attempt.args(command.get_args().take(command.get_args().count() - 1));
    let denied = attempt.arg(format!("ls {}", probe.display())).output();
    if !denied.is_ok_and(|output| !output.status.success() && !output.stderr.is_empty()) {
        println!("skipped: this user ignores permissions and cannot drop the capability");
        return None;
    }
    Some(run_command(&mut command))
}

fn is_root() -> bool {
    let id = Command::new("id").arg("-u").output();
    id.is_ok_and(|output| output.stdout.trim_ascii() == b"0")
}

/// Removes all permissions of a folder.
fn remove_permissions(folder: &std::path::Path) {
    let done = Command::new("chmod").arg("000").arg(folder).status();
    assert!(done.is_ok_and(|status| status.success()));
}

/// A training on `birds` without permissions for `folder` is refused with a message that has these
/// parts.
fn check_training_without_permission(home: &TestHome, folder: &str, parts: &[&str]) {
    remove_permissions(&home.path(folder));
    let line = format!(
        "exec \"$EBB\" train {} {QUICK}",
        home.path("birds").display()
    );
    let Some(output) = run_with_permissions(home, &line) else {
        return;
    };
    let output = output.expect_code(1);
    for part in parts {
        assert!(output.err.contains(part), "{output:?}");
    }
}

#[test]
fn a_folder_without_permission_is_refused() {
    let home = birds();
    let parts = ["no permission to read", "birds", "Allow access"];
    check_training_without_permission(&home, "birds", &parts);
    assert_eq!(home.leftover_files(), Vec::<std::path::PathBuf>::new());
}

#[test]
fn a_run_of_another_user_needs_permission() {
    let home = birds();
    home.train(&format!("{{birds}} {QUICK}")).expect_code(0);
    let run = home.only_run();
    for checkpoint in run.checkpoints().expect("the checkpoints can be listed") {
        remove_permissions(&checkpoint.path);
    }
    let line = format!("exec \"$EBB\" evaluate {}", run.id());
    let Some(output) = run_with_permissions(&home, &line) else {
        return;
    };
    let output = output.expect_code(1);
    for part in ["state.json: permission denied", "allow Ebb to read"] {
        assert!(output.err.contains(part), "{output:?}");
    }
}

#[test]
fn a_permission_that_is_revoked_during_a_run_ends_it_with_a_checkpoint() {
    // More images than are decoded ahead of the first step.
    let home = TestHome::new();
    draw_classes(&home.path("birds"), &["jay", "owl"], 160);
    let line = format!(
        "\"$EBB\" train {birds} {common} --image-size 16 --steps 100000 --effective-batch 4 --json >{out} &\n\
         until grep -q '\"kind\":\"step\"' {out} || ! kill -0 $!; do sleep 0.1; done\n\
         chmod 000 {birds}; wait $!",
        birds = home.path("birds").display(),
        common = COMMON_ARGS.join(" "),
        out = home.path("events").display()
    );
    let Some(output) = run_with_permissions(&home, &line) else {
        return;
    };
    let output = output.expect_code(1);
    for part in [
        "check that Ebb may read the samples",
        "birds",
        "then resume",
    ] {
        assert!(output.err.contains(part), "{output:?}");
    }
    let events = fs::read_to_string(home.path("events")).expect("events were printed");
    assert!(events.contains(
        "Ebb has no permission to read this file. Allow access in the file's permissions"
    ));
    assert!(events.contains("\"kind\":\"checkpoint\""), "{output:?}");
}

#[test]
fn a_store_without_permission_is_refused() {
    let home = birds();
    fs::create_dir(home.path("home")).expect("the folder can be created");
    let parts = ["runs could not be created", "home", "allow Ebb to use"];
    check_training_without_permission(&home, "home", &parts);
}

/// Trains with the runs on a disk of 4 MB, or, if no disk can be mounted, with a limit on the size
/// of files; the checkpoint needs 15 MB. The disk is unmounted with the process.
fn train_on_a_small_disk(home: &TestHome) -> CommandOutput {
    let disk = home.path("disk");
    fs::create_dir(&disk).expect("the folder can be created");
    let train = format!(
        "\"$EBB\" train {} {QUICK} --baseline none --out {disk}/runs {}; code=$?; find {disk}; exit $code",
        home.path("birds").display(),
        COMMON_ARGS.join(" "),
        disk = disk.display()
    );
    let mount = format!("mount -t tmpfs -o size=4m ebb {}", disk.display());
    let namespaces = if is_root() { "-m" } else { "-rm" };
    let mut own_disk = Command::new("unshare");
    own_disk.args([
        namespaces,
        "sh",
        "-c",
        &format!("{mount} || exit 99; {train}"),
    ]);
    let mut short_files = Command::new("sh");
    short_files.args(["-c", &format!("trap '' XFSZ; ulimit -f 4000; {train}")]);
    // Only Linux has `unshare`.
    let on_disk = cfg!(target_os = "linux").then(|| run_command(own_disk.env("EBB", EBB)));
    match on_disk {
        Some(on_disk) if !matches!(on_disk.code, Some(99) | None) => on_disk,
        _ => {
            println!("no disk can be mounted here; a limit on file sizes is used instead");
            run_command(short_files.env("EBB", EBB))
        }
    }
}

#[test]
fn a_full_disk_fails_the_checkpoint_and_leaves_no_partial_file() {
    let home = birds();
    let output = train_on_a_small_disk(&home).expect_code(1);
    for part in ["checkpoint", "step-000004 could not be saved", "disk"] {
        assert!(output.err.contains(part), "{part}: {output:#?}");
    }
    if output.err.contains("the disk is full") {
        assert!(
            output.err.contains("is free on this disk; free "),
            "{output:#?}"
        );
        let warning = output.err.find("two checkpoints of this run need");
        let first_step = output.err.find("could not be saved");
        assert!(warning.is_some() && warning < first_step, "{output:#?}");
    }
    let reported = output.err.matches("step-000004 could not be saved");
    assert_eq!(reported.count(), 1, "{output:#?}");
    assert!(output.out.contains("events.jsonl"), "{output:#?}");
    for partial in ["safetensors", "draft", ".new"] {
        assert!(!output.out.contains(partial), "{partial}: {}", output.out);
    }
}
