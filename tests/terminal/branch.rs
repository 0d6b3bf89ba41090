//! `ebb branch` starts a new run from the weights of another one.

use crate::support::{TestHome, draw_classes, losses};
use runlog::{RunEvent, RunFolder};

const PLAN: &str = "{birds} --image-size 16 --effective-batch 4 --augment none --steps 30";

fn trained() -> (TestHome, RunFolder) {
    let home = TestHome::new();
    draw_classes(&home.path("birds"), &["jay", "owl"], 10);
    home.train(PLAN).expect_code(0);
    let run = home.only_run();
    (home, run)
}

fn weights(run: &RunFolder, step: u64) -> Vec<u8> {
    let path = run.path.join(RunFolder::checkpoint_name(step));
    std::fs::read(path.join("model.safetensors")).expect("the checkpoint is there")
}

#[test]
fn a_branch_begins_with_the_weights_of_its_run_and_other_settings() {
    let (home, origin) = trained();
    let line = format!(
        "branch {} --newest --set learning_rate=1e-9 --set epochs=1 --set seed=8 --json",
        origin.id()
    );
    let events = home.run(&line).expect_code(0).events();
    let RunEvent::Started(started) = &events[0] else {
        panic!("{:?}", events[0]);
    };
    assert_eq!(started.branched_from, format!("{}, step 30", origin.id()));
    assert_eq!(
        (started.steps, started.learning_rate, started.seed),
        (4, 1e-9, 8)
    );
    let branch = home.runs().remove(0);
    assert_ne!(branch.id(), origin.id());
    assert!(
        weights(&branch, 0) == weights(&origin, 30),
        "the first checkpoint differs"
    );
    let data = |run: &RunFolder| std::fs::read(run.path.join("data.json")).expect("it is there");
    assert!(
        data(&branch) == data(&origin),
        "another seed changed the split"
    );
    let begin = losses(&home.train(&PLAN.replace("30", "1")).expect_code(0).events())[0];
    let first = losses(&events)[0];
    assert!(
        first < begin,
        "{first} is not below {begin}, the loss of random weights"
    );
}

#[test]
fn the_learning_rate_has_a_short_name() {
    let (home, origin) = trained();
    let line = format!("branch {} --set lr=1e-4 --set steps=1 --json", origin.id());
    let events = home.run(&line).expect_code(0).events();
    let RunEvent::Started(started) = &events[0] else {
        panic!("{:?}", events[0]);
    };
    assert_eq!(started.learning_rate, 1e-4);
}

#[test]
fn a_branch_resumes_without_its_run() {
    let (home, origin) = trained();
    let mut training = home.start(&format!("branch {} --set steps=1000", origin.id()));
    training.until(|event| matches!(event, RunEvent::Checkpoint { step: 0, .. }));
    training.signal("KILL");
    training.finish();
    let branch = home.runs().remove(0);
    std::fs::remove_dir_all(&origin.path).expect("it can be removed");
    let resumed = home.run(&format!("resume {} --steps 3", branch.id()));
    assert!(resumed.err.contains("Resumed at step 0"), "{}", resumed.err);
    resumed.expect_code(0);
}

#[test]
fn settings_that_belong_to_the_weights_are_refused() {
    let (home, origin) = trained();
    let check = |set: &str, expected: &str| {
        let refused = home.run(&format!("branch {} --set {set}", origin.id()));
        assert!(refused.err.contains(expected), "{}", refused.err);
        refused.expect_code(2);
        assert_eq!(home.leftover_files().len(), 1, "a run folder is left");
    };
    check("model=vit_micro", "the split cannot change in a branch");
    check(
        "leave_out_classes=jay",
        "the split cannot change in a branch",
    );
    check("epoch=3", "did you mean `epochs`?");
    check("epochs=0", "`epochs` is 0, but must be");
    check(
        "epochs",
        "a setting is written as KEY=VALUE; correct it and start again",
    );
    check("foo=1", "there is no key `foo`; the keys are ");
}
