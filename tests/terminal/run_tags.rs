//! `ebb runs tag` and `ebb runs --tag`.

use crate::support::{TestHome, draw_classes};

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

#[test]
fn tags_are_listed_filtered_and_removed() {
    let (home, [newer, older]) = two_runs();
    let tag = |line: &str| home.run(&format!("runs tag {line}")).expect_code(0).out;
    assert_eq!(
        tag(&format!("{older} +garden +#Final")),
        format!("{older}  [garden, Final]\n")
    );
    assert_eq!(tag(&older), format!("{older}  [garden, Final]\n"));
    assert_eq!(tag(&newer), format!("{newer} has no tags\n"));

    let list = |line: &str| home.run(&format!("runs {line}")).expect_code(0).out;
    assert_eq!(list("").lines().count(), 3, "a heading and two runs");
    let final_runs = list("--tag final");
    let lines: Vec<&str> = final_runs.lines().collect();
    assert_eq!(lines.len(), 2, "{final_runs}");
    assert!(lines[0].starts_with("Run ") && lines[0].ends_with("  Tags"));
    assert!(
        lines[1].starts_with(&older) && lines[1].ends_with("  garden, Final"),
        "{final_runs}"
    );
    assert!(list("--tag v2").starts_with("No run has the tag `v2`."));
    let json = list("--tag garden --json");
    let row: serde_json::Value = serde_json::from_str(&json).expect("one JSON line");
    assert_eq!(row["tags"], serde_json::json!(["garden", "Final"]));
    assert!(list(&format!("show {older}")).contains("\nTags: garden, Final\n"));

    assert_eq!(
        tag(&format!("{older} -garden -final +v2")),
        format!("{older}  [v2]\n")
    );
    let changed = home.run(&format!("runs tag {older} -v2 +v2 +V2"));
    let reason = "the tag `V2` does not work: the run has this tag already";
    assert!(changed.err.contains(reason), "{}", changed.err);
    changed.expect_code(2);
    assert_eq!(
        tag(&older),
        format!("{older}  [v2]\n"),
        "nothing is changed by half"
    );
}

#[test]
fn a_tag_that_cannot_be_used_is_refused() {
    let (home, [run, _]) = two_runs();
    let check = |words: &[&str], reason: &str| {
        let mut command = home.ebb(["runs"].iter().chain(words));
        let refused = crate::support::run_command(&mut command);
        assert!(refused.err.contains(reason), "{}", refused.err);
        refused.expect_code(2);
    };
    check(&["tag", &run, "+"], "at least one letter");
    check(&["tag", &run, "+a\u{1b}b"], "control character");
    check(
        &["tag", &run, &format!("+{}", "x".repeat(41))],
        "this tag has 41",
    );
    check(&["tag", &run, "-x"], "the run has no tags");
    check(&["tag", &run, "x"], "write +TAG");
    check(&["--tag", ""], "at least one letter");
}
