//! The data before a training: samples and problems, duplicates and the switch that leaves them
//! out, and a class that is left out.

use crate::support::home::Home;
use crate::support::until;
use crate::support::window::Window;
use crate::{SOON, sample};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

/// Images of each class.
const COUNT: usize = 8;

/// A folder of three classes with one image twice and one file that is no image.
fn fruit(home: &Home) -> PathBuf {
    let folder = home.path().join("fruit");
    for class in ["apple", "lemon", "melon"] {
        std::fs::create_dir_all(folder.join(class)).expect("it can be made");
        let mut files: Vec<PathBuf> = std::fs::read_dir(sample().join(class))
            .expect("the sample is there")
            .map(|file| file.expect("it can be read").path())
            .collect();
        files.sort();
        for (number, file) in files.iter().take(COUNT).enumerate() {
            copy(file, &folder.join(class).join(format!("{number}.jpg")));
        }
    }
    copy(&folder.join("apple/0.jpg"), &folder.join("apple/again.jpg"));
    std::fs::write(folder.join("melon/cut.jpg"), [0xFF, 0xD8, 0xFF]).expect("it can be written");
    folder
}

fn copy(from: &Path, to: &Path) {
    std::fs::copy(from, to).expect("it can be copied");
}

/// The folder as the plan has it.
fn inspection(window: &Window) -> Value {
    let found = window.invoke("inspection", &json!({"id": "folder-1", "seen": 0}));
    found.expect("it is open")
}

/// Waits until the plan uses this many images, and returns the number that it trains on.
fn trained_of(window: &Window, samples: u64) -> u64 {
    until("the plan follows", SOON, || {
        let view = inspection(window);
        let is_read = view["reading"] == json!(false) && view["samples"] == json!(samples);
        is_read.then(|| view["plans"][0]["train_samples"].as_u64())?
    })
}

#[test]
fn the_data_page_shows_samples_and_problems_and_changes_the_plan() {
    let home = Home::new();
    let folder = fruit(&home);
    let window = Window::open(&["app", &folder.display().to_string()], home.path());
    window.wait_for(
        "a plan",
        "return document.querySelector('#train:enabled') ? true : null",
    );
    window.wait_for(
        "eight images beside the plan",
        "return document.querySelectorAll('#first-samples img').length === 8 || null",
    );
    let all = 3 * COUNT as u64 + 1;
    let trained_at_first = trained_of(&window, all);
    window.click("#show-data");
    window.wait_for(
        "the file that cannot be used",
        "return document.querySelector('#data-problems')?.textContent.includes('melon/cut.jpg') || null",
    );
    window.wait_for(
        "images of the first class",
        "const part = document.querySelector('section[aria-label=apple]'); part?.scrollIntoView(); \
         return part?.querySelectorAll('li img').length >= 4 || null",
    );
    let left_out = window.wait_for(
        "the duplicates",
        "const label = document.querySelector('#data-duplicates label')?.textContent ?? ''; \
         return Number(label.match(/one of each group .(\\d+) image/)?.[1]) || null",
    );
    let left_out = left_out.as_u64().expect("a count");
    window.wait_for(
        "the same image twice",
        "const part = document.querySelector('#data-duplicates'); \
         part.querySelector('.between button[aria-expanded=false]')?.click(); \
         const labels = [...part.querySelectorAll('li button')].map((button) => button.getAttribute('aria-label')).join(); \
         return labels.includes('again.jpg') || null",
    );
    window.screenshot("data");

    window.click("#leave-duplicates-out");
    trained_of(&window, all - left_out);
    window.click("#leave-duplicates-out");
    trained_of(&window, all);
    window.click("section[aria-label=lemon] button[aria-label='Leave out lemon']");
    let trained = trained_of(&window, all - COUNT as u64);
    assert!(trained < trained_at_first, "{trained}");
    window.click("#show-data");
    window.wait_for(
        "the plan without the class",
        "const list = document.querySelector('#class-list')?.textContent; \
         return list?.includes('apple') && !list.includes('lemon') || null",
    );
}
