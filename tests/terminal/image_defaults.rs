//! The defaults for images: chosen from the data, and printed with their reasons.

use crate::support::{TestHome, draw_classes};

#[test]
fn each_default_is_printed_with_its_setting_until_it_is_set() {
    let home = TestHome::new();
    draw_classes(&home.path("birds"), &["jay", "owl"], 10);
    let train = |settings: &str| {
        let line = format!("train {{birds}} --steps 2 --device cpu --threads 2 {settings}");
        let output = home.run(&line).expect_code(0);
        output.out + &output.err
    };
    let open = train("");
    for wanted in [
        "Default: An image size of 32 px, because the images are no larger; --image-size sets another size",
        "Default: Ebb crops the images only a little, because the run is short; --augment standard crops more",
    ] {
        assert!(open.contains(wanted), "{wanted}: {open}");
    }
    let set = train("--image-size 16 --augment standard");
    assert!(!set.contains("Default: "), "{set}");
}
