//! What Ebb does with photographs that only the system decodes, seen with a decoder that pretends to be one.

use super::pretended::{DECODER, Plain, in_box};
use super::*;
use crate::images::{Augment, ImageDataset, ImageOptions};
use crate::inspect::{InspectOptions, inspect_by};
use crate::inspection::{Inspection, Part};
use image::{DynamicImage, ImageFormat, Rgb, RgbImage, Rgba, RgbaImage};
use std::io::Cursor;

/// Whatever the format is, files of plain pixels are read.
const PRETENDED: Decoders = |_| Some(DECODER);
/// As where the system decodes nothing.
const NONE: Decoders = |_| None;

/// Four quarters of different colours, so that no turn or mirror leaves it alike.
fn quarters(width: u32, height: u32) -> impl Fn(u32, u32) -> [u8; 3] {
    move |x, y| match (x * 2 < width, y * 2 < height) {
        (true, true) => [220, 30, 30],
        (false, true) => [30, 200, 30],
        (true, false) => [30, 30, 220],
        (false, false) => [240, 240, 240],
    }
}

fn png(image: impl Into<DynamicImage>) -> Vec<u8> {
    let mut bytes = Cursor::new(Vec::new());
    let written = image.into().write_to(&mut bytes, ImageFormat::Png);
    written.expect("memory takes bytes");
    bytes.into_inner()
}

fn inspected(files: &[(&str, Vec<u8>)], decoders: Decoders) -> (tempfile::TempDir, Inspection) {
    let folder = tempfile::tempdir().expect("the system gives temporary folders");
    for (path, bytes) in files {
        let file = folder.path().join(path);
        let parent = file.parent().expect("it stands in the folder");
        std::fs::create_dir_all(parent).expect("a temporary folder takes folders");
        std::fs::write(&file, bytes).expect("a temporary folder takes files");
    }
    let options = InspectOptions {
        held_out_fraction: 0.0,
        ..InspectOptions::default()
    };
    let found = inspect_by(folder.path(), &options, decoders, &|_| {}).expect("it can be read");
    (folder, found)
}

fn opened(found: &Inspection, size: u32) -> ImageDataset {
    let options = ImageOptions {
        size,
        augment: Augment::None,
        mix: crate::Mix::None,
        seed: 1,
    };
    ImageDataset::open(found, Part::Train, options, None, 0)
}

/// The pixels of one file as a sample.
fn sample(bytes: Vec<u8>, size: u32) -> Result<Vec<u8>, String> {
    let (_folder, found) = inspected(&[("ant/x.img", bytes)], PRETENDED);
    if let Some(file) = found.skipped.first() {
        return Err(file.reason.clone());
    }
    let dataset = opened(&found, size).decoded_by(PRETENDED);
    dataset.sample(0, 0).map(|s| s.pixels).map_err(|e| e.reason)
}

fn phones() -> Vec<(&'static str, Vec<u8>)> {
    let photograph = Plain::new(40, 30, quarters(40, 30));
    let avif = Plain {
        brand: b"avif",
        ..photograph.clone()
    };
    let image = RgbImage::from_fn(40, 30, |x, y| Rgb(quarters(40, 30)(x, y)));
    vec![
        ("ant/1.heic", photograph.bytes()),
        ("ant/2.jpg", photograph.bytes()),
        ("bee/3.avif", avif.bytes()),
        ("bee/4.png", png(image)),
    ]
}

#[test]
fn where_the_system_decodes_heic_and_avif_they_are_used_counted_and_read() {
    let (_folder, found) = inspected(&phones(), PRETENDED);
    assert!(found.skipped.is_empty(), "{:?}", found.skipped);
    assert_eq!((found.photographs(), found.classes.len()), (4, 2));
    assert!(found.files.iter().all(|f| (f.width, f.height) == (40, 30)));
    assert!(!found.notes.iter().any(|note| note.contains("not read")));
    let dataset = opened(&found, 24).decoded_by(PRETENDED);
    let pixels = |index| dataset.sample(index, 0).expect("it is decoded").pixels;
    let of_the_png = pixels(3);
    for index in 0..3 {
        assert_eq!(
            pixels(index),
            of_the_png,
            "{}",
            dataset.file(index as usize).display()
        );
    }
}

#[test]
fn where_nothing_decodes_them_they_are_named_and_counted() {
    let (_folder, found) = inspected(&phones(), NONE);
    assert_eq!(found.photographs(), 1);
    let reasons: Vec<&str> = found.skipped.iter().map(|f| f.reason.as_str()).collect();
    let [heic, renamed, avif] = reasons[..] else {
        panic!("{reasons:?}")
    };
    assert!(heic.contains("HEIC file, which is not read") && heic == renamed);
    assert!(avif.contains("AVIF file, which is not read"));
    let note = "Formats that are not read were left out: 1 AVIF, 2 HEIC.";
    assert!(
        found.notes.iter().any(|n| n.starts_with(note)),
        "{:?}",
        found.notes
    );
    // The list of a run that was begun where they are decoded.
    let (_folder, listed) = inspected(&phones(), PRETENDED);
    let elsewhere = opened(&listed, 24).decoded_by(NONE);
    let error = elsewhere.sample(0, 0).expect_err("nothing decodes it");
    assert_eq!(error.reason, heic);
}

#[test]
fn a_system_without_this_decoder_counts_the_format_among_those_not_read() {
    let mut unknown = Plain::new(40, 30, quarters(40, 30));
    unknown.bits = 0;
    let (_folder, found) = inspected(&[("ant/1.heic", unknown.bytes())], PRETENDED);
    assert!(
        found.skipped[0]
            .reason
            .contains("HEIC file, which is not read")
    );
    assert!(found.notes.iter().any(|note| note.contains("1 HEIC")));
}

#[test]
fn files_of_the_system_are_refused_for_what_every_photograph_is_refused_for() {
    let check = |bytes: Vec<u8>, expected: &str| {
        let (_folder, found) = inspected(&[("ant/x.heic", bytes.clone())], PRETENDED);
        let reason = found.skipped.first().map(|f| f.reason.as_str());
        assert!(
            reason.is_some_and(|r| r.contains(expected)),
            "{reason:?} lacks {expected}"
        );
        assert!(
            !found.notes.iter().any(|note| note.contains("HEIC")),
            "the format is read"
        );
        // The file may change between the inspection and the training.
        let decoded = picture(Some(DECODER), &mut &bytes[..]);
        assert!(
            matches!(&decoded, Err(Unread::File(reason)) if reason.contains(expected)),
            "{decoded:?}"
        );
    };
    check(Plain::promising(65_500, 65_500).bytes(), "100 million");
    let deep = Plain {
        bits: 10,
        ..Plain::promising(9_000, 9_000)
    };
    check(deep.bytes(), "617 MiB");
    check(Plain::promising(100, 5_001).bytes(), "1:50");
    check(Plain::promising(0, 30).bytes(), "no size");
    let whole = Plain::new(40, 30, quarters(40, 30)).bytes();
    check(whole[..whole.len() - 1].to_vec(), "ends before");
    check(whole[..30].to_vec(), "ends before");
    check(whole[..16].to_vec(), "ends before");
}

#[test]
fn what_the_decoder_makes_of_a_file_is_not_trusted() {
    let check = |file: Plain, expected: &str| {
        let reason = sample(file.bytes(), 24).expect_err("it is refused");
        assert!(reason.contains(expected), "{reason} lacks {expected}");
    };
    let mut half = Plain::new(40, 30, quarters(40, 30));
    half.pixels.truncate(600);
    check(half, "parts of it are missing");
    check(Plain::promising(40, 30), "disagree about its size");
    let failing = Plain {
        bits: 66,
        ..Plain::new(40, 30, quarters(40, 30))
    };
    check(failing, "makes its decoder fail");
}

#[test]
fn all_eight_orientations_of_the_system_look_alike() {
    let upright = RgbImage::from_fn(60, 40, |x, y| Rgb(quarters(60, 40)(x, y)));
    let expected = sample(png(upright.clone()), 32).expect("a PNG is read");
    for orientation in 1..=8 {
        // The image that, turned as it says, is the upright one.
        let back = [1, 2, 3, 4, 5, 8, 7, 6][usize::from(orientation) - 1];
        let mut stored = DynamicImage::ImageRgb8(upright.clone());
        stored.apply_orientation(Orientation::from_exif(back).expect("1 to 8 are orientations"));
        let stored = stored.into_rgb8();
        let file = Plain {
            orientation,
            ..Plain::new(stored.width(), stored.height(), |x, y| {
                stored.get_pixel(x, y).0
            })
        };
        let got = sample(file.bytes(), 32).expect("it is read");
        let worst = got.iter().zip(&expected).map(|(a, b)| a.abs_diff(*b)).max();
        assert!(
            worst <= Some(1),
            "orientation {orientation} differs by {worst:?}"
        );
    }
    let turned = |number| Described::new([Some(1); 2], None, number).turned();
    for nonsense in [None, Some(0), Some(9), Some(-1), Some(262)] {
        assert_eq!(turned(nonsense), Orientation::NoTransforms, "{nonsense:?}");
    }
}

#[test]
fn transparency_is_laid_on_white_as_that_of_a_png() {
    for alpha in [0, 1, 77, 128, 254, 255] {
        for colour in [[0, 0, 0], [255, 255, 255], [200, 100, 3]] {
            let image = RgbaImage::from_pixel(8, 8, Rgba([colour[0], colour[1], colour[2], alpha]));
            let multiplied = colour.map(|c| ((u32::from(c) * u32::from(alpha) + 127) / 255) as u8);
            let file = Plain {
                alpha: Some(alpha),
                ..Plain::new(8, 8, |_, _| multiplied)
            };
            let (got, expected) = (sample(file.bytes(), 8), sample(png(image), 8));
            assert_eq!(got, expected, "{colour:?} at {alpha}");
        }
    }
}

#[test]
fn a_file_is_cut_when_a_box_it_needs_reaches_beyond_its_end() {
    let boxes = |parts: &[(&[u8; 4], usize)]| -> Vec<u8> {
        let each = parts.iter().map(|(name, n)| in_box(name, &vec![7; *n]));
        each.flatten().collect()
    };
    let whole = boxes(&[(b"ftyp", 16), (b"meta", 40), (b"mdat", 100)]);
    assert!(!ends_early(&whole));
    for cut in 0..whole.len() {
        // Behind a box that is whole a file could end, but for the description.
        let between = cut == 24 + 48 || cut > 72 && cut < 80;
        assert_eq!(ends_early(&whole[..cut]), !between, "cut at {cut}");
    }
    let with = |more: &[u8]| ends_early(&[&whole[..], more].concat());
    assert!(!with(b"SEFT") && !with(b"\xFF\xFF\xFF\xFFtail of a camera's own"));
    assert!(
        with(&in_box(b"mdat", &[0; 8])[..12]),
        "more pixels were announced"
    );
    let to_the_end = [&whole[..72], b"\0\0\0\0mdatpixels"].concat();
    assert!(!ends_early(&to_the_end));
    let long = |length: u64| {
        [
            &whole[..72],
            b"\0\0\0\x01mdat",
            &length.to_be_bytes(),
            b"pixels",
        ]
        .concat()
    };
    assert!(!ends_early(&long(22)) && ends_early(&long(23)) && ends_early(&long(u64::MAX)));
    assert!(ends_early(&long(22)[..84]), "within the length itself");
    assert!(ends_early(b"") && ends_early(&[0; 64]));
}

#[test]
fn a_format_is_refused_in_english() {
    for (format, said) in [
        ("ICO", "It is an ICO file,"),
        ("AVIF", "It is an AVIF file,"),
        ("HEIC", "It is a HEIC file,"),
        ("TIFF or camera raw", "It is a TIFF or camera raw file,"),
    ] {
        let reason = Unread::Format.reason(format);
        assert!(reason.starts_with(said), "{reason}");
    }
}

#[test]
fn a_file_too_large_to_hold_is_refused() {
    let mut endless = std::io::repeat(0);
    let Err(Unread::File(reason)) = judge(Some(DECODER), &mut endless) else {
        panic!("it was read")
    };
    assert!(reason.contains("128 MiB"), "{reason}");
}
