//! Folders that are dropped or opened in the window.

use crate::sample;
use crate::support::drag::drag;
use crate::support::driver::obeying_permissions;
use crate::support::home::Home;
use crate::support::window::Window;
use serde_json::json;
use std::fs::{Permissions, set_permissions};
use std::os::unix::fs::PermissionsExt;

#[test]
fn a_dropped_folder_is_inspected() {
    let home = Home::new();
    let folder = home.path().join("my data set é");
    for (class, count) in [("apple", 12), ("lemon", 9)] {
        std::fs::create_dir_all(folder.join(class)).expect("it can be made");
        let from = std::fs::read_dir(sample().join(class)).expect("the sample is there");
        for file in from
            .take(count)
            .map(|file| file.expect("it can be read").path())
        {
            let name = file.file_name().expect("a file has a name");
            std::fs::copy(&file, folder.join(class).join(name)).expect("it can be copied");
        }
    }
    let window = Window::open(&["app"], home.path());
    window.wait_for(
        "the reason for the CPU stands beside it",
        "return document.querySelector('footer .name').textContent.match(/^CPU, \\d+ threads: no GPU that Ebb can use was found$/)",
    );
    let over = || {
        window.wait_for(
            "the window names what hangs over it",
            "return document.body.textContent.includes('Release to open my data set é') || null",
        );
    };
    let dropped = || {
        window.wait_for(
            "the folder was read",
            "return document.querySelector('#train:enabled') ? true : null",
        );
    };
    drag(&folder, over, dropped);
    window.screenshot("dropped");
    let view = window
        .invoke("inspection", &json!({"id": "folder-1", "seen": 0}))
        .expect("it is open");
    assert_eq!(
        (&view["name"], &view["samples"]),
        (&json!("my data set é"), &json!(21))
    );
    std::fs::remove_dir_all(folder.join("lemon")).expect("it can be removed");
    window.wait_for(
        "the inspection follows the folder",
        "return document.body.textContent.includes('Ebb cannot train on this data yet') || null",
    );
    window.screenshot("one-class");
}

#[test]
fn files_and_missing_folders_are_refused() {
    let home = Home::new();
    let file = home.path().join("notes.pdf");
    std::fs::write(&file, "plain").expect("it can be written");
    let check = |target: &str, sentence: &str| {
        let window = Window::open(&["app", target], home.path());
        let shown = window.wait_for(
            "a refusal",
            "return document.querySelector('.proposal .refusal')?.textContent ?? null",
        );
        assert!(
            shown.as_str().is_some_and(|shown| shown.contains(sentence)),
            "{shown}"
        );
        window
    };
    let window = check(&file.display().to_string(), "is a file, not a folder");
    window.screenshot("not-a-folder");
    drop(window);
    check("/no/such/folder", "There is no folder /no/such/folder");
}

#[test]
fn a_folder_that_ebb_may_not_read_is_refused_with_the_setting_that_allows_it() {
    let home = Home::new();
    let folder = home.path().join("private");
    std::fs::create_dir(&folder).expect("it can be made");
    set_permissions(&folder, Permissions::from_mode(0o000)).expect("it is ours");
    let listed = obeying_permissions("ls").arg(&folder).output();
    if !listed.is_ok_and(|listed| listed.status.code() == Some(2)) {
        return println!("skipped: this user ignores permissions and cannot drop the capability");
    }
    let target = folder.display().to_string();
    let window = Window::open_obeying_permissions(&["app", &target], home.path());
    let shown = window.wait_for(
        "a refusal",
        "return document.querySelector('.proposal .refusal')?.textContent ?? null",
    );
    for part in [
        "Ebb has no permission to read",
        "private",
        "System Settings > Privacy & Security > Files and Folders",
    ] {
        assert!(
            shown.as_str().is_some_and(|shown| shown.contains(part)),
            "{part}: {shown}"
        );
    }
    window.screenshot("no-permission");
    set_permissions(&folder, Permissions::from_mode(0o700)).expect("it is ours");
}

#[test]
fn a_browser_does_not_show_through() {
    let home = Home::new();
    let window = Window::open(&["app"], home.path());
    window.wait_for(
        "the page",
        "return document.querySelector('#choose-folder') ? true : null",
    );
    let prevented = window.run(
        "const prevented = (name) => !document.querySelector('#drop-zone').dispatchEvent(new Event(name, {bubbles: true, cancelable: true})); \
         return [prevented('contextmenu'), prevented('dragstart'), document.querySelectorAll('a[href^=\"#/run\"]').length]",
    );
    assert_eq!(prevented, json!([true, true, 0]));
    window.click("#open-sample");
    window.click("#train");
    window.run_id();
    window.click("#stress-test");
    assert_eq!(
        window.run("return document.activeElement === document.body"),
        json!(true),
        "Space belongs to Pause again"
    );
}
