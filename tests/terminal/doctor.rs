//! `ebb doctor`: the summary in the terminal, and `--json` and `--page`, which someone attaches to
//! an issue.

use crate::support::TestHome;
use serde_json::Value;

#[test]
fn the_comparisons_are_counted_by_precision() {
    let out = TestHome::new()
        .run("doctor --device cpu --only linear")
        .expect_code(0)
        .out;
    assert!(
        out.contains("Device: cpu (") && out.contains("checks passed"),
        "{out}"
    );
    for half in ["In bf16: ", "In f16: "] {
        assert!(out.contains(half), "{out}");
    }
    let checks = out.split(": ").last().unwrap_or_default();
    let numbers: Vec<&str> = checks.split([' ']).collect();
    assert!(numbers.len() > 2 && numbers[0] == numbers[2], "{out}");
    assert_ne!(numbers[0], "0", "{out}");
}

/// The only test that makes all comparisons, on the CPU: all of them pass.
#[test]
fn json_and_page_name_the_machine_and_every_comparison() {
    let home = TestHome::new();
    let found = home
        .run("doctor --device cpu --json --page {page.html}")
        .expect_code(0);
    let report: Value =
        serde_json::from_str(&found.out).unwrap_or_else(|error| panic!("{}: {error}", found.out));
    for text in [
        "version",
        "system",
        "architecture",
        "memory_source",
        "mpi",
        "nccl",
        "device",
        "reason",
    ] {
        let value = report[text].as_str().unwrap_or_default();
        assert!(!value.is_empty(), "{text} is missing: {report}");
    }
    for text in ["model", "chip"] {
        assert!(report[text].is_string(), "{text} is missing: {report}");
    }
    let bytes = |name: &str| report[name].as_u64().unwrap_or(0);
    assert!(bytes("total_bytes") > 1 << 28, "{report}");
    assert!(bytes("available_bytes") <= bytes("total_bytes"), "{report}");
    assert!(report["monitor"]["readings_per_second"].is_number());
    assert!(report["gpu"].is_null(), "the CPU was checked");
    for list in ["fell_back", "kernels"] {
        let list = report[list].as_array();
        assert!(list.is_some_and(Vec::is_empty), "the CPU has none of these");
    }
    let findings = report["findings"].as_array().expect("a list");
    let failed: Vec<_> = findings.iter().filter(|it| it["passed"] != true).collect();
    assert!(findings.len() > 1000 && failed.is_empty(), "{failed:#?}");
    let page = std::fs::read_to_string(home.path("page.html")).expect("the page was written");
    assert!(page.starts_with("<!DOCTYPE html>") && page.ends_with("</html>\n"));
    assert!(page.contains("<th>Device</th><td>cpu ("), "{page}");
    assert!(page.contains("<th>MPI</th><td>"), "{page}");
    assert!(page.contains("<th>NCCL</th><td>"), "{page}");
    let rows = page.matches("<td>passed</td>").count();
    assert_eq!((rows > 0, rows), (true, findings.len()));
    // The page was written completely or not at all, so nothing else is there.
    let left = std::fs::read_dir(home.path(""));
    let left = left.expect("the folder is there").flatten();
    let drafts = left.filter(|entry| entry.file_name().to_string_lossy().contains("page"));
    assert_eq!(drafts.count(), 1);
}

#[test]
fn a_page_replaces_nothing_and_is_refused_before_the_check() {
    let home = TestHome::new();
    let kept = home.file("page.html", "kept");
    let refused = home
        .run("doctor --device cpu --page {page.html}")
        .expect_code(2);
    assert!(refused.err.contains("exists already"), "{refused:?}");
    assert_eq!(refused.out, "", "no check began");
    assert_eq!(std::fs::read(kept).expect("it is there"), b"kept");
    let refused = home
        .run("doctor --device cpu --page {none/page.html}")
        .expect_code(2);
    assert!(refused.err.contains("there is no folder"), "{refused:?}");
}
