//! Datasets of texts, each in a home of its own.

use crate::support::TestHome;

/// `sms.tsv`: messages of two classes, each with its number and two of the `fillers`, which do not
/// depend on the class.
pub fn messages(fillers: &[&str]) -> TestHome {
    let home = TestHome::new();
    let row = |i: usize| {
        let filler = |n: usize| fillers[(i * n + i / 7) % fillers.len()];
        match i % 4 {
            0 => format!("spam\twin {} cash {} now {i}\n", filler(3), filler(5)),
            _ => format!("ham\tsee you {} {} at {i}\n", filler(3), filler(5)),
        }
    };
    home.file("sms.tsv", (0..160).map(row).collect::<String>());
    home
}

/// `book`: documents that repeat one sentence.
pub fn book() -> TestHome {
    let home = TestHome::new();
    std::fs::create_dir(home.path("book")).expect("the folder can be created");
    for i in 0..12 {
        let text = format!(
            "Chapter {i}. {}",
            "It rained all day and we stayed in. ".repeat(20 + i)
        );
        home.file(&format!("book/{i:02}.txt"), text);
    }
    home
}
