//! Exports of the results page through the system's dialog: what is written, and what is shown
//! where nothing can be written. A run that was exported is imported elsewhere.

use crate::SOON;
use crate::run_list::trained;
use crate::support::driver::{SmallDisk, fill};
use crate::support::home::Home;
use crate::support::window::Window;
use crate::support::{until, xdotool};
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

const DISK_MB: u64 = 128;
/// Space that is left on the full disk: too little for any export.
const LEFT_BYTES: u64 = 4_096;
/// A folder in which no one can create a file, not even root.
const READ_ONLY: &str = "/sys";

/// The choices of the sheet, in its order.
const CHOICES: [&str; 4] = ["Hugging Face folder", "ONNX", "Core ML", "Report as PDF"];

/// Opens the results of the only run, and the export sheet.
fn open_sheet(window: &Window) {
    window.click("[data-run-row] .name");
    window.click("#export-open");
    window.wait_for(
        "the choices",
        "return document.querySelectorAll('#export li').length >= 4 || null",
    );
}

/// Types the place into the dialog with this title, and accepts it.
fn accept(title: &str, place: &Path) {
    let name = format!("^{title}$");
    let is_open = || xdotool::xdotool(&["search", "--onlyvisible", "--name", &name]).is_some();
    let dialog = xdotool::found(title);
    xdotool::fill_in(&dialog, &place.display().to_string());
    until("the dialog is accepted", SOON, || {
        if !is_open() {
            return Some(());
        }
        xdotool::activate(&dialog);
        let _ = xdotool::xdotool(&["key", "Return"]);
        let pressed = Instant::now();
        while is_open() && pressed.elapsed() < Duration::from_secs(3) {}
        (!is_open()).then_some(())
    });
}

/// Exports what the choice names to `place`, and returns the sentence that the sheet shows then.
fn export(window: &Window, choice: &str, place: &Path) -> String {
    let index = CHOICES.iter().position(|title| *title == choice);
    let index = index.expect("it is a choice");
    window.run(&format!(
        "document.querySelectorAll('#export li input')[{index}].click()"
    ));
    window.click("#export-go");
    accept(choice, place);
    let shown = window.wait_for(
        "the outcome",
        "const note = document.querySelector('#export .note').textContent.trim(); \
         return note && note !== 'Writing…' ? note : null",
    );
    shown.as_str().unwrap_or_default().to_owned()
}

/// The names in a folder, in alphabetical order.
fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).expect("it can be listed");
    let mut names: Vec<String> = entries
        .map(|entry| entry.expect("it can be listed").file_name())
        .map(|name| name.to_string_lossy().into_owned())
        .collect();
    names.sort();
    names
}

#[test]
fn a_run_is_exported_into_a_folder_and_a_read_only_one_is_named() {
    let home = Home::new();
    trained(&home, "2");
    let _manager = xdotool::manager();
    let window = Window::open(&["app"], home.path());
    open_sheet(&window);
    let out = home.path().join("out");
    fs::create_dir(&out).expect("it can be made");
    for (choice, name) in CHOICES
        .iter()
        .zip(["hub", "onnx", "birds.mlpackage", "birds.pdf"])
    {
        let shown = export(&window, choice, &out.join(name));
        assert_eq!(shown, format!("Written: {name}"));
    }
    assert_eq!(names(&out), ["birds.mlpackage", "birds.pdf", "hub", "onnx"]);
    assert!(out.join("hub/model.safetensors").is_file());
    assert!(
        names(&out.join("onnx"))
            .iter()
            .any(|name| name.ends_with(".onnx"))
    );
    assert!(out.join("birds.mlpackage/Manifest.json").is_file());
    let report = fs::read(out.join("birds.pdf")).expect("it was written");
    assert!(report.starts_with(b"%PDF-"));

    let place = Path::new(READ_ONLY).join("birds.pdf");
    let refused = export(&window, "Report as PDF", &place);
    assert!(
        refused.contains("no permission to write") && refused.ends_with("Choose another place."),
        "{refused}"
    );
    let place = Path::new(READ_ONLY).join("birds-onnx");
    let refused = export(&window, "ONNX", &place);
    assert!(refused.ends_with("Nothing was written."), "{refused}");
    assert!(!place.exists());
    window.screenshot("export-read-only");
}

#[test]
fn a_full_disk_is_named_and_nothing_is_left_there() {
    let (home, elsewhere) = (Home::new(), Home::new());
    let Some(small) = SmallDisk::allowed(DISK_MB) else {
        return println!("skipped: no disk can be mounted here (unshare -m, mount -t tmpfs)");
    };
    let run = trained(&elsewhere, "2");
    let _manager = xdotool::manager();
    let window = Window::open_on(&small, &["app"], home.path());
    // The disk is mounted for the window only.
    let disk = window.path_inside(home.path());
    fs::create_dir_all(disk.join("runs")).expect("it can be made");
    let copied = Command::new("cp")
        .arg("-r")
        .arg(elsewhere.run(&run))
        .arg(disk.join("runs"))
        .status();
    assert!(copied.expect("cp runs").success());
    open_sheet(&window);
    fill(&disk, LEFT_BYTES).expect("the disk has space for the filler");
    for (choice, name) in [
        ("Hugging Face folder", "hub"),
        ("Report as PDF", "birds.pdf"),
    ] {
        let refused = export(&window, choice, &home.path().join(name));
        assert!(refused.contains("disk is full"), "{refused}");
    }
    window.screenshot("export-full-disk");
    // The draft of a file has its name, too.
    let is_left = |name: &&String| name.contains("hub") || name.contains("birds.pdf");
    let left = names(&disk);
    let left: Vec<&String> = left.iter().filter(is_left).collect();
    assert!(left.is_empty(), "{left:?}");
}

/// Runs Ebb in the terminal.
fn ebb(home: &Home, args: &[&str]) {
    let ended = Command::new(env!("CARGO_BIN_EXE_ebb"))
        .args(args)
        .env("EBB_HOME", home.path())
        .output()
        .expect("the binary runs");
    assert!(ended.status.success(), "{ended:?}");
}

#[test]
fn an_exported_run_is_imported_and_a_damaged_one_is_refused() {
    let (home, elsewhere) = (Home::new(), Home::new());
    let run = trained(&elsewhere, "2");
    let archive = elsewhere.path().join("fruit.ebbrun").display().to_string();
    ebb(&elsewhere, &["runs", "export", &run, &archive]);
    let window = Window::open(&["app", &archive], home.path());
    window.wait_for(
        "the results of the imported run",
        "return document.body.dataset.view === 'results' && document.querySelector('#export-open') ? true : null",
    );
    assert_eq!(names(&home.path().join("runs")), [run.as_str()]);

    let damaged = elsewhere.path().join("damaged.ebbrun");
    fs::write(&damaged, "damaged").expect("it can be written");
    ebb(&home, &["app", &damaged.display().to_string()]);
    window.wait_for(
        "the refusal on the page that is open",
        "return document.querySelector('main > .refusal p')?.textContent.includes('damaged.ebbrun was not imported') || null",
    );
    assert_eq!(names(&home.path().join("runs")), [run.as_str()]);
    window.screenshot("import-refused");
}
