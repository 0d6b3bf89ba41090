//! `ebb runs export` and `ebb runs import`.

use crate::support::{TestHome, draw_classes};

#[test]
fn an_exported_run_is_imported_and_resumed_elsewhere() {
    let (first, second) = (TestHome::new(), TestHome::new());
    draw_classes(&first.path("birds"), &["jay", "owl"], 4);
    first
        .train("{birds} --image-size 16 --steps 1")
        .expect_code(0);
    let run = first.only_run();
    let archive = first.path("birds.ebbrun").display().to_string();
    let exported = first.run(&format!("runs export {} {archive}", run.id()));
    let exported = exported.expect_code(0).out;
    assert!(exported.contains("birds.ebbrun: "), "{exported}");
    let again = first.run(&format!("runs export {} {archive}", run.id()));
    assert!(again.err.contains("exists already"), "{}", again.err);
    again.expect_code(1);
    let inside = run.path.join("inside.ebbrun").display().to_string();
    let refused = first.run(&format!("runs export {} {inside}", run.id()));
    assert!(refused.err.contains("must not change"), "{}", refused.err);
    refused.expect_code(2);

    let imported = second.run(&format!("runs import {archive}")).expect_code(0);
    let sentence = format!("Imported {}: ", run.id());
    assert!(imported.out.starts_with(&sentence), "{}", imported.out);
    let copy = second.only_run();
    assert_eq!(copy.config().ok(), run.config().ok());
    let longer = second.run(&format!("resume {} --steps 2", copy.id()));
    longer.expect_code(0);
    let newest = copy.checkpoints().expect("they can be listed").pop();
    assert_eq!(newest.map(|checkpoint| checkpoint.step), Some(2));

    let next = second.run(&format!("runs import {archive}")).expect_code(0);
    let taken = format!("There is already a run {}, so the imported", run.id());
    assert!(next.out.starts_with(&taken), "{}", next.out);
    std::fs::write(first.path("damaged.ebbrun"), "damaged").expect("it can be written");
    let damaged = first.path("damaged.ebbrun").display().to_string();
    let refused = second.run(&format!("runs import {damaged}"));
    assert!(refused.err.contains("was not imported"), "{}", refused.err);
    refused.expect_code(1);
    assert_eq!(second.runs().len(), 2);
}
