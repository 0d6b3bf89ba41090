//! `ebb runs rename`, `ebb runs note` and `ebb runs trash`.

use crate::support::{CommandOutput, TestHome, draw_classes, run_command};

/// A home with two runs on the folder `birds`, and their ids, the newest first.
fn two_runs() -> (TestHome, [String; 2]) {
    let home = TestHome::new();
    draw_classes(&home.path("birds"), &["jay", "owl"], 4);
    for _ in 0..2 {
        home.train("{birds} --image-size 16 --steps 1")
            .expect_code(0);
    }
    let ids = home.runs().iter().map(|run| run.id()).collect::<Vec<_>>();
    let ids = <[String; 2]>::try_from(ids).expect("two runs");
    (home, ids)
}

fn runs(home: &TestHome, words: &[&str]) -> CommandOutput {
    run_command(&mut home.ebb(["runs"].iter().chain(words)))
}

#[test]
fn a_run_is_renamed() {
    let (home, [newer, older]) = two_runs();
    let renamed = runs(&home, &["rename", &older, "  Garden birds "]);
    assert_eq!(
        renamed.expect_code(0).out,
        format!("{older}  Garden birds\n")
    );
    let shown = runs(&home, &["show", &older]).expect_code(0).out;
    assert!(shown.contains("\nName: Garden birds\n"), "{shown}");
    let json = runs(&home, &["show", &older, "--json"]).expect_code(0).out;
    let json: serde_json::Value = serde_json::from_str(&json).expect("JSON");
    assert_eq!(json["name"], "Garden birds");

    let taken = runs(&home, &["rename", &newer, "garden BIRDS"]);
    assert!(taken.err.contains("another run is called"), "{}", taken.err);
    taken.expect_code(2);
    let restored = runs(&home, &["rename", &older, ""]).expect_code(0).out;
    assert!(restored.contains("the name of its dataset"), "{restored}");
    let shown = runs(&home, &["show", &older]).expect_code(0).out;
    assert!(!shown.contains("Name:"), "{shown}");
}

#[test]
fn a_note_is_written_printed_and_removed() {
    let (home, [run, _]) = two_runs();
    let none = format!("{run} has no note\n");
    let note = |words: &[&str]| {
        let words = ["note", &run].into_iter().chain(words.iter().copied());
        let words: Vec<&str> = words.collect();
        runs(&home, &words).expect_code(0).out
    };
    assert_eq!(note(&[]), none);
    assert_eq!(
        note(&["twice the size\nof #garden "]),
        "twice the size\nof #garden\n"
    );
    assert_eq!(note(&[]), "twice the size\nof #garden\n");
    let shown = runs(&home, &["show", &run]).expect_code(0).out;
    let section = "\nYour note:\n  twice the size\n  of #garden\n";
    assert!(shown.contains(section), "{shown}");
    runs(&home, &["tag", &run, "+final"]).expect_code(0);
    assert_eq!(
        note(&[]),
        "twice the size\nof #garden\n",
        "tags change no note"
    );
    assert_eq!(note(&[""]), none);
}

#[cfg(target_os = "linux")]
#[test]
fn a_run_is_moved_to_the_trash() {
    let (home, [newer, older]) = two_runs();
    let data = home.path("data");
    let mut command = home.ebb(["runs", "trash", &older]);
    let moved = run_command(command.env("XDG_DATA_HOME", &data)).expect_code(0);
    assert_eq!(moved.out, format!("Moved {older} to the trash\n"));
    let left: Vec<String> = home.runs().iter().map(|run| run.id()).collect();
    assert_eq!(left, [newer]);
    let in_trash = data.join("Trash/files").join(&older);
    assert!(in_trash.join("events.jsonl").is_file());
    let unknown = runs(&home, &["trash", &older]);
    assert_ne!(unknown.code, Some(0), "it is no longer there");
}
