//! Tests of the handling of HEIC and AVIF, with a fake decoder in place of the system's.

use crate::decode_image::system_decoder::fake_decoder::{DECODER, FakeImage, in_box};
use crate::decode_image::system_decoder::{
    Decoders, ImageProperties, Unreadable, decode, ends_early, read_header,
};
use crate::image_dataset::{Augment, ImageDataset, ImageOptions};
use crate::image_inspection::ImageInspection;
use crate::inspect_images::inspect_with;
use crate::options::InspectOptions;
use crate::types::Split;
use image::metadata::Orientation;
use image::{DynamicImage, ImageFormat, Rgb, RgbImage, Rgba, RgbaImage};
use std::io::Cursor;

/// Decodes fake files of either format.
const FAKE: Decoders = |_| Some(DECODER);
/// A system without decoders.
const NONE: Decoders = |_| None;

/// Four quarters of different colors, so that no rotation or mirroring leaves the image unchanged.
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
    written.expect("memory can be written");
    bytes.into_inner()
}

fn inspected(
    files: &[(&str, Vec<u8>)],
    decoders: Decoders,
) -> (tempfile::TempDir, ImageInspection) {
    let folder = tempfile::tempdir().expect("a temporary folder can be created");
    for (path, bytes) in files {
        let file = folder.path().join(path);
        let parent = file.parent().expect("the file is inside the folder");
        std::fs::create_dir_all(parent).expect("a folder can be created");
        std::fs::write(&file, bytes).expect("a file can be written");
    }
    let options = InspectOptions {
        held_out_fraction: 0.0,
        ..InspectOptions::default()
    };
    let found =
        inspect_with(folder.path(), &options, decoders, &|_| {}).expect("the folder can be read");
    (folder, found)
}

fn opened(found: &ImageInspection, size: u32) -> ImageDataset {
    let options = ImageOptions {
        size,
        augment: Augment::None,
        mix: crate::augment::Mix::None,
        seed: 1,
    };
    ImageDataset::open(found, Split::Train, options, None, 0)
}

/// The pixels of one file as a sample.
fn sample(bytes: Vec<u8>, size: u32) -> Result<Vec<u8>, String> {
    let (_folder, found) = inspected(&[("ant/x.img", bytes)], FAKE);
    if let Some(file) = found.skipped.first() {
        return Err(file.reason.clone());
    }
    let dataset = opened(&found, size).with_decoders(FAKE);
    dataset.sample(0, 0).map(|s| s.pixels).map_err(|e| e.reason)
}

fn phones() -> Vec<(&'static str, Vec<u8>)> {
    let heic = FakeImage::new(40, 30, quarters(40, 30));
    let avif = FakeImage {
        brand: b"avif",
        ..heic.clone()
    };
    let image = RgbImage::from_fn(40, 30, |x, y| Rgb(quarters(40, 30)(x, y)));
    vec![
        ("ant/1.heic", heic.bytes()),
        ("ant/2.jpg", heic.bytes()),
        ("bee/3.avif", avif.bytes()),
        ("bee/4.png", png(image)),
    ]
}

#[test]
fn heic_and_avif_are_used_if_the_system_decodes_them() {
    let (_folder, found) = inspected(&phones(), FAKE);
    assert!(found.skipped.is_empty(), "{:?}", found.skipped);
    assert_eq!((found.image_count(), found.classes.len()), (4, 2));
    assert!(found.files.iter().all(|f| (f.width, f.height) == (40, 30)));
    assert!(!found.notes.iter().any(|note| note.contains("unsupported")));
    let dataset = opened(&found, 24).with_decoders(FAKE);
    let pixels = |index| dataset.sample(index, 0).expect("it decodes").pixels;
    let png_pixels = pixels(3);
    for index in 0..3 {
        assert_eq!(
            pixels(index),
            png_pixels,
            "{}",
            dataset.file(index as usize).display()
        );
    }
}

#[test]
fn heic_and_avif_are_reported_if_nothing_decodes_them() {
    let (_folder, found) = inspected(&phones(), NONE);
    assert_eq!(found.image_count(), 1);
    let reasons: Vec<&str> = found.skipped.iter().map(|f| f.reason.as_str()).collect();
    let [heic, renamed, avif] = reasons[..] else {
        panic!("{reasons:?}")
    };
    assert!(heic.contains("HEIC file, which is not supported") && heic == renamed);
    assert!(avif.contains("AVIF file, which is not supported"));
    let note = "Files in unsupported formats were left out: 1 AVIF, 2 HEIC.";
    assert!(
        found.notes.iter().any(|n| n.starts_with(note)),
        "{:?}",
        found.notes
    );
    // A run that was started on a machine that decodes them.
    let (_folder, listed) = inspected(&phones(), FAKE);
    let elsewhere = opened(&listed, 24).with_decoders(NONE);
    let error = elsewhere.sample(0, 0).expect_err("no decoder is installed");
    assert_eq!(error.reason, heic);
}

#[test]
fn a_format_that_the_system_does_not_know_is_unsupported() {
    let mut unknown = FakeImage::new(40, 30, quarters(40, 30));
    unknown.bits = 0;
    let (_folder, found) = inspected(&[("ant/1.heic", unknown.bytes())], FAKE);
    assert!(
        found.skipped[0]
            .reason
            .contains("HEIC file, which is not supported")
    );
    assert!(found.notes.iter().any(|note| note.contains("1 HEIC")));
}

#[test]
fn system_formats_respect_the_same_limits_as_other_images() {
    let check = |bytes: Vec<u8>, expected: &str| {
        let (_folder, found) = inspected(&[("ant/x.heic", bytes.clone())], FAKE);
        let reason = found.skipped.first().map(|f| f.reason.as_str());
        assert!(
            reason.is_some_and(|r| r.contains(expected)),
            "{reason:?} lacks {expected}"
        );
        assert!(
            !found.notes.iter().any(|note| note.contains("HEIC")),
            "the format is supported"
        );
        // The file may change between inspection and training.
        let decoded = decode(Some(DECODER), &mut &bytes[..]);
        assert!(
            matches!(&decoded, Err(Unreadable::File(reason)) if reason.contains(expected)),
            "{decoded:?}"
        );
    };
    check(FakeImage::declaring(65_500, 65_500).bytes(), "100 million");
    let deep = FakeImage {
        bits: 10,
        ..FakeImage::declaring(9_000, 9_000)
    };
    check(deep.bytes(), "618 MB");
    check(FakeImage::declaring(100, 5_001).bytes(), "1:50");
    check(FakeImage::declaring(0, 30).bytes(), "no size");
    let whole = FakeImage::new(40, 30, quarters(40, 30)).bytes();
    check(whole[..whole.len() - 1].to_vec(), "ends before");
    check(whole[..30].to_vec(), "ends before");
    check(whole[..16].to_vec(), "ends before");
}

#[test]
fn the_output_of_the_decoder_is_checked() {
    let check = |file: FakeImage, expected: &str| {
        let reason = sample(file.bytes(), 24).expect_err("the file is refused");
        assert!(reason.contains(expected), "{reason} lacks {expected}");
    };
    let mut half = FakeImage::new(40, 30, quarters(40, 30));
    half.pixels.truncate(600);
    check(half, "parts of it are missing");
    check(
        FakeImage::declaring(40, 30),
        "differs from the size in its header",
    );
    let failing = FakeImage {
        bits: 66,
        ..FakeImage::new(40, 30, quarters(40, 30))
    };
    check(failing, "its decoder failed");
}

#[test]
fn all_eight_orientations_give_the_same_image() {
    let upright = RgbImage::from_fn(60, 40, |x, y| Rgb(quarters(60, 40)(x, y)));
    let expected = sample(png(upright.clone()), 32).expect("a PNG decodes");
    for orientation in 1..=8 {
        // The image that is upright once its orientation is applied.
        let back = [1, 2, 3, 4, 5, 8, 7, 6][usize::from(orientation) - 1];
        let mut stored = DynamicImage::ImageRgb8(upright.clone());
        stored.apply_orientation(Orientation::from_exif(back).expect("1 to 8 are orientations"));
        let stored = stored.into_rgb8();
        let file = FakeImage {
            orientation,
            ..FakeImage::new(stored.width(), stored.height(), |x, y| {
                stored.get_pixel(x, y).0
            })
        };
        let got = sample(file.bytes(), 32).expect("it decodes");
        let worst = got.iter().zip(&expected).map(|(a, b)| a.abs_diff(*b)).max();
        assert!(
            worst <= Some(1),
            "orientation {orientation} differs by {worst:?}"
        );
    }
    let orientation = |number| ImageProperties::new([Some(1); 2], None, number).orientation();
    for invalid in [None, Some(0), Some(9), Some(-1), Some(262)] {
        assert_eq!(
            orientation(invalid),
            Orientation::NoTransforms,
            "{invalid:?}"
        );
    }
}

#[test]
fn transparency_is_laid_on_white_as_in_a_png() {
    for alpha in [0, 1, 77, 128, 254, 255] {
        for color in [[0, 0, 0], [255, 255, 255], [200, 100, 3]] {
            let image = RgbaImage::from_pixel(8, 8, Rgba([color[0], color[1], color[2], alpha]));
            let multiplied = color.map(|c| ((u32::from(c) * u32::from(alpha) + 127) / 255) as u8);
            let file = FakeImage {
                alpha: Some(alpha),
                ..FakeImage::new(8, 8, |_, _| multiplied)
            };
            let (got, expected) = (sample(file.bytes(), 8), sample(png(image), 8));
            assert_eq!(got, expected, "{color:?} at {alpha}");
        }
    }
}

#[test]
fn a_file_ends_early_if_a_needed_box_exceeds_it() {
    let boxes = |parts: &[(&[u8; 4], usize)]| -> Vec<u8> {
        let each = parts.iter().map(|(name, n)| in_box(name, &vec![7; *n]));
        each.flatten().collect()
    };
    let whole = boxes(&[(b"ftyp", 16), (b"meta", 40), (b"mdat", 100)]);
    assert!(!ends_early(&whole));
    for cut in 0..whole.len() {
        // A file may end after a complete box, once the description is there.
        let between = cut == 24 + 48 || cut > 72 && cut < 80;
        assert_eq!(ends_early(&whole[..cut]), !between, "cut at {cut}");
    }
    let with = |more: &[u8]| ends_early(&[&whole[..], more].concat());
    assert!(!with(b"SEFT") && !with(b"\xFF\xFF\xFF\xFFdata that a camera appends"));
    assert!(
        with(&in_box(b"mdat", &[0; 8])[..12]),
        "the box declares more pixels"
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
    assert!(
        ends_early(&long(22)[..84]),
        "the file ends within the length"
    );
    assert!(ends_early(b"") && ends_early(&[0; 64]));
}

#[test]
fn the_article_fits_the_name_of_the_format() {
    for (format, start) in [
        ("ICO", "This is an ICO file,"),
        ("AVIF", "This is an AVIF file,"),
        ("HEIC", "This is a HEIC file,"),
        ("TIFF or camera raw", "This is a TIFF or camera raw file,"),
    ] {
        let reason = Unreadable::Format.reason(format);
        assert!(reason.starts_with(start), "{reason}");
    }
}

#[test]
fn a_file_that_is_too_large_is_refused() {
    let mut endless = std::io::repeat(0);
    let Err(Unreadable::File(reason)) = read_header(Some(DECODER), &mut endless) else {
        panic!("the file was read")
    };
    assert!(reason.contains("128 MB"), "{reason}");
}
