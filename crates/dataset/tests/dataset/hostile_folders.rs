//! Folders as users have them, and files that lie. None of them may abort the process, hang it, or
//! count as a class.

use crate::small_child::{CHILD, run_in_small_child};
use crate::support::{Folder, jpeg, jpeg_declaring, plain, png, png_declaring, scene};
use dataset::{InspectOptions, inspect_images};
use std::fs;
use std::path::Path;

#[test]
fn files_left_by_systems_are_ignored() {
    let folder = Folder::with_images(&["ant/1.jpg", "bee/1.jpg"]);
    for name in [
        ".DS_Store",
        "Thumbs.db",
        "ant/._1.jpg",
        "ant/desktop.ini",
        "__MACOSX/ant/1.jpg",
        ".hidden/x.jpg",
        "Icon\r",
    ] {
        folder.put(name, &jpeg(&scene(8, 8)));
    }
    folder.put("README.txt", b"about");
    folder.put("ant/targets.csv", b"name,value");
    let found = folder.inspect();
    assert_eq!((found.image_count(), found.classes.len()), (2, 2));
    assert_eq!((found.ignored.system, found.ignored.other), (7, 2));
    assert!(found.skipped.is_empty(), "{:?}", found.skipped);
}

#[test]
fn files_that_are_not_images_are_skipped_with_a_reason() {
    let folder = Folder::with_images(&["ant/1.jpg", "bee/1.jpg"]);
    let cases: [(&str, &[u8], &str); 10] = [
        ("zero.jpg", b"", "empty"),
        ("page.jpg", b"\n<!DOCTYPE HTML><html>", "web page"),
        (
            "pointer.png",
            b"version https://git-lfs.github.com/spec/v1",
            "git lfs pull",
        ),
        ("phone.heic", b"\0\0\0\x18ftypheic\0\0\0\0", "HEIC"),
        ("phone.jpg", b"\0\0\0\x18ftypmif1\0\0\0\0", "HEIC"),
        ("new.avif", b"\0\0\0\x18ftypavif\0\0\0\0", "AVIF"),
        ("moving.gif", b"GIF89a\x01\0\x01\0", "GIF"),
        ("words.webp", b"just words", "not a JPEG, PNG or WebP"),
        ("cut.jpg", &jpeg(&scene(8, 8))[..20], "ends before"),
        ("cut.png", &png(&scene(8, 8))[..20], "damaged"),
    ];
    for (name, bytes, _) in &cases {
        folder.put(&format!("ant/{name}"), bytes);
    }
    let found = folder.inspect();
    assert_eq!(found.image_count(), 2);
    for (name, _, expected) in &cases {
        let path = Path::new("ant").join(name);
        let reason = found
            .skipped
            .iter()
            .find(|s| s.path == path)
            .map(|s| s.reason.as_str());
        assert!(
            reason.is_some_and(|r| r.contains(expected)),
            "{name}: {reason:?}"
        );
    }
    let formats = "Files in unsupported formats were left out: 1 AVIF, 1 GIF, 2 HEIC.";
    let has_note = found.notes.iter().any(|n| n.starts_with(formats));
    assert!(has_note, "{:?}", found.notes);
}

#[test]
fn images_are_refused_by_their_declared_size() {
    let folder = Folder::with_images(&["ant/1.jpg", "bee/1.jpg"]);
    folder.put("ant/wide.jpg", &jpeg_declaring(65_500, 65_500));
    folder.put("ant/bilevel.png", &png_declaring(40_000, 40_000, 1, 0));
    folder.put("ant/deep.png", &png_declaring(9_000, 9_000, 16, 6));
    folder.put("ant/thin.png", &png_declaring(1, 200_000, 8, 0));
    folder.put("ant/none.jpg", &jpeg_declaring(40, 0));
    folder.put("ant/large.webp", &webp_declaring(16_000, 16_000));
    folder.put("ant/phone.jpg", &jpeg_declaring(8_064, 6_048));
    let found = folder.inspect();
    let reasons: Vec<&str> = found.skipped.iter().map(|s| s.reason.as_str()).collect();
    let expected = [
        "100 million",
        "618 MB",
        "100 million",
        "no size",
        "1:50",
        "100 million",
    ];
    assert_eq!(reasons.len(), expected.len(), "{reasons:?}");
    for (reason, part) in reasons.iter().zip(expected) {
        assert!(reason.contains(part), "{reason} lacks {part}");
    }
    assert!(
        found
            .files
            .iter()
            .any(|f| f.path.ends_with("phone.jpg") && f.width == 8_064)
    );
}

#[cfg(unix)]
#[test]
fn links_are_judged_by_their_targets() {
    use std::os::unix::fs::symlink;
    let outside = Folder::with_images(&["secret.jpg"]);
    let folder = Folder::with_images(&["ant/1.jpg", "bee/1.jpg", ".hidden.jpg"]);
    let at = |name: &str| folder.path().join(name);
    let link = |to: &Path, name: &str| symlink(to, at(name)).expect("temporary folders take links");
    link(Path::new("nowhere.jpg"), "ant/dangling.jpg");
    link(Path::new(".."), "ant/loop");
    link(Path::new("self"), "ant/self");
    link(&outside.path().join("secret.jpg"), "ant/outside.jpg");
    link(outside.path(), "outside");
    link(Path::new("../bee"), "ant/sibling");
    link(Path::new("../.hidden.jpg"), "ant/hidden.jpg");
    link(Path::new("../bee/1.jpg"), "ant/inside.jpg");
    // Opening a pipe or socket would block forever.
    let _socket = std::os::unix::net::UnixListener::bind(at("bee/socket.jpg"));
    let found = folder.inspect();
    let used: Vec<&Path> = found.files.iter().map(|f| f.path.as_path()).collect();
    assert_eq!(
        used,
        ["ant/1.jpg", "ant/inside.jpg", "bee/1.jpg"].map(Path::new)
    );
    let check = |name: &str, expected: &str| {
        let reason = found
            .skipped
            .iter()
            .find(|s| s.path == Path::new(name))
            .map(|s| s.reason.as_str());
        assert!(
            reason.is_some_and(|r| r.contains(expected)),
            "{name}: {reason:?}"
        );
    };
    check("ant/dangling.jpg", "does not exist");
    check("ant/self", "does not exist");
    check("ant/loop", "contains the link");
    check("ant/outside.jpg", "points outside the folder");
    check("outside", "points outside the folder");
    check("ant/sibling", "points to a folder.");
    check("ant/hidden.jpg", "hidden");
    check("bee/socket.jpg", "not a file");
}

/// Runs itself in a child process with 4 GB of address space. A larger allocation aborts, which no
/// test can catch.
#[test]
fn no_file_aborts_the_process() {
    if let Some(folder) = std::env::var_os(CHILD) {
        return read_everything(Path::new(&folder));
    }
    let folder = Folder::with_images(&["ant/1.jpg", "bee/1.jpg", "bee/2.jpg", "ant/2.jpg"]);
    // Each is a valid image during the inspection, and something else when it is decoded.
    for name in [
        "bilevel.png",
        "wide.jpg",
        "two_frames.jpg",
        "noise.png",
        "cut.png",
    ] {
        folder.put(&format!("ant/{name}"), &jpeg(&scene(40, 30)));
    }
    run_in_small_child(4_000_000, folder.path(), "read everything");
}

/// Runs in the child process.
fn read_everything(folder: &Path) {
    let all = InspectOptions {
        held_out_fraction: 0.0,
        seed: 0,
        ..InspectOptions::default()
    };
    let found = inspect_images(folder, &all, &|_| {}).expect("the folder can be read");
    let ant = folder.join("ant");
    let change = |name: &str, bytes: &[u8]| {
        fs::write(ant.join(name), bytes).expect("the folder takes files")
    };
    change("wide.jpg", &jpeg_declaring(65_500, 65_500));
    change("bilevel.png", &png_declaring(40_000, 40_000, 1, 0));
    let (mut two, second) = (jpeg(&scene(40, 30)), jpeg_declaring(65_500, 65_500));
    let frame = second
        .windows(2)
        .position(|w| w == [0xFF, 0xC0])
        .expect("every JPEG has a frame header");
    let scan = two
        .windows(2)
        .position(|w| w == [0xFF, 0xDA])
        .expect("every JPEG has a scan");
    two.splice(scan..scan, second[frame..frame + 19].iter().copied());
    change("two_frames.jpg", &two);
    change(
        "noise.png",
        &[&png(&scene(8, 8))[..40], &[0xA5; 4000]].concat(),
    );
    change("cut.png", &png(&scene(40, 30))[..60]);
    let dataset = plain(&found, 16);
    let mut failed = Vec::new();
    for index in 0..dataset.len() as u32 {
        failed.extend(dataset.sample(index, 0).err());
    }
    let check = |name: &str, expected: &str| {
        let reason = failed
            .iter()
            .find(|e| e.file.ends_with(name))
            .map(|e| e.reason.as_str());
        assert!(
            reason.is_some_and(|r| r.contains(expected)),
            "{name}: {reason:?}"
        );
    };
    check("wide.jpg", "100 million");
    check("bilevel.png", "100 million");
    check("noise.png", "cannot be decoded");
    check("cut.png", "cannot be decoded");
    println!("read everything, {} refused", failed.len());
}

/// A WebP whose extended header declares a size.
fn webp_declaring(width: u32, height: u32) -> Vec<u8> {
    let side = |n: u32| (n - 1).to_le_bytes()[..3].to_vec();
    [
        b"RIFF\x40\0\0\0WEBPVP8X\x0a\0\0\0\0\0\0\0".to_vec(),
        side(width),
        side(height),
        vec![0; 40],
    ]
    .concat()
}
