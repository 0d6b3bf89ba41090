//! Loading images as samples.

use crate::support::{
    Folder, cmyk_jpeg, encoded, exif, jpeg, plain, png, rotated_jpeg, rotated_webp, scene,
};
use dataset::{Augment, ImageDataset, ImageInspection, ImageOptions, InspectOptions, Split};
use image::metadata::Orientation;
use image::{DynamicImage, GrayImage, ImageBuffer, ImageFormat, Luma, LumaA, Rgb, RgbImage, Rgba};
use std::fs;

const AUGMENTED: ImageOptions = ImageOptions {
    size: 24,
    augment: Augment::Standard,
    mix: dataset::Mix::None,
    seed: 5,
};

/// A folder whose images are all for training, sorted by path.
fn open_all(folder: &Folder) -> ImageInspection {
    folder.inspect_with(InspectOptions {
        held_out_fraction: 0.0,
        seed: 0,
        ..InspectOptions::default()
    })
}

/// The red, green and blue of the pixel at (x, y) in the sample of `size` by `size` pixels.
fn pixel_of(bytes: &[u8], size: u32, at: (u32, u32)) -> [u8; 3] {
    let folder = Folder::new();
    folder.put("ant/x.img", bytes);
    let sample = plain(&open_all(&folder), size)
        .sample(0, 0)
        .expect("the image decodes");
    let at = (at.1 * size + at.0) as usize;
    let plane = (size * size) as usize;
    [at, at + plane, at + 2 * plane].map(|i| sample.pixels[i])
}

fn near(got: [u8; 3], expected: [u8; 3], by: u8) {
    assert!(
        got.iter().zip(expected).all(|(a, b)| a.abs_diff(b) <= by),
        "{got:?} is not {expected:?}"
    );
}

/// The image that is upright once its orientation is applied.
fn stored_as(upright: &RgbImage, orientation: u8) -> RgbImage {
    let back = match orientation {
        6 => 8,
        8 => 6,
        other => other,
    };
    let mut image = DynamicImage::ImageRgb8(upright.clone());
    image.apply_orientation(Orientation::from_exif(back).expect("1 to 8 are orientations"));
    image.into_rgb8()
}

#[test]
fn all_eight_orientations_give_the_same_sample() {
    let upright = scene(120, 80);
    let folder = Folder::new();
    for orientation in 1..=8 {
        let stored = stored_as(&upright, orientation);
        folder.put(
            &format!("ant/{orientation}.jpg"),
            &rotated_jpeg(&stored, orientation),
        );
        folder.put(
            &format!("bee/{orientation}.webp"),
            &rotated_webp(&stored, b"", orientation),
        );
        folder.put(
            &format!("cat/{orientation}.webp"),
            &rotated_webp(&stored, b"Exif\0\0", orientation),
        );
    }
    let dataset = plain(&open_all(&folder), 32);
    let first = dataset.sample(0, 0).expect("it decodes").pixels;
    near([first[0], first[1024], first[2048]], [220, 30, 30], 12);
    for index in 1..24 {
        let sample = dataset.sample(index, 0).expect("it decodes");
        let worst = sample
            .pixels
            .iter()
            .zip(&first)
            .map(|(a, b)| a.abs_diff(*b))
            .max();
        assert!(
            worst <= Some(40),
            "{} differs by {worst:?}",
            dataset.file(index as usize).display()
        );
    }
    assert_eq!(exif(6).len(), 26, "the EXIF is complete");
}

#[test]
fn every_color_type_becomes_rgb() {
    let deep = ImageBuffer::from_pixel(8, 8, Rgb([0xC800_u16, 0x6400, 0x3200]));
    let clear = ImageBuffer::from_pixel(8, 8, Rgba([200_u8, 0, 0, 0]));
    let half = ImageBuffer::from_pixel(8, 8, LumaA([0_u8, 128]));
    let grey = GrayImage::from_pixel(8, 8, Luma([90]));
    let as_png = |image: DynamicImage| encoded(&image, ImageFormat::Png);
    let middle = (3, 3);
    near(
        pixel_of(&as_png(DynamicImage::ImageRgb16(deep)), 8, middle),
        [200, 100, 50],
        1,
    );
    near(
        pixel_of(&as_png(DynamicImage::ImageRgba8(clear)), 8, middle),
        [255, 255, 255],
        0,
    );
    near(
        pixel_of(&as_png(DynamicImage::ImageLumaA8(half)), 8, middle),
        [127, 127, 127],
        1,
    );
    near(
        pixel_of(
            &encoded(&DynamicImage::ImageLuma8(grey), ImageFormat::Jpeg),
            8,
            middle,
        ),
        [90, 90, 90],
        2,
    );
    near(
        pixel_of(
            &encoded(&DynamicImage::ImageRgb8(scene(8, 8)), ImageFormat::WebP),
            8,
            (1, 6),
        ),
        [30, 30, 220],
        0,
    );
    near(pixel_of(&cmyk_jpeg(), 8, middle), [64, 64, 64], 4);
}

#[test]
fn a_sample_without_augmentation_is_the_center() {
    let mut wide = RgbImage::from_pixel(300, 100, Rgb([0, 0, 0]));
    for (x, _, pixel) in wide.enumerate_pixels_mut() {
        if (100..200).contains(&x) {
            *pixel = Rgb([10, 200, 10]);
        }
    }
    for at in [(0, 0), (15, 15), (0, 15)] {
        // The image is shrunk first, so its edge may mix with the neighboring color.
        near(pixel_of(&png(&wide), 16, at), [10, 200, 10], 45);
    }
    near(pixel_of(&png(&wide), 16, (8, 8)), [10, 200, 10], 0);
}

#[test]
fn a_sample_depends_only_on_seed_epoch_and_index() {
    let folder = Folder::new();
    for i in 0..6 {
        folder.put(&format!("ant/{i}.jpg"), &jpeg(&scene(50 + i, 90)));
    }
    let found = open_all(&folder);
    let open =
        |options, cache_bytes| ImageDataset::open(&found, Split::Train, options, None, cache_bytes);
    let (cached, uncached) = (open(AUGMENTED, 1 << 20), open(AUGMENTED, 0));
    let forward: Vec<_> = (0..6).map(|i| cached.sample(i, 3)).collect();
    let backward: Vec<_> = (0..6).rev().map(|i| uncached.sample(i, 3)).collect();
    assert!(forward.iter().all(Result::is_ok));
    assert!(
        forward.iter().eq(backward.iter().rev()),
        "order or cache changed a sample"
    );
    assert_eq!(
        cached.sample(2, 3),
        forward[2],
        "a cached image gives the same sample"
    );
    assert_ne!(cached.sample(2, 4), forward[2]);
    assert_ne!(
        open(
            ImageOptions {
                seed: 6,
                ..AUGMENTED
            },
            0
        )
        .sample(2, 3),
        forward[2]
    );
}

#[test]
fn the_cache_respects_its_limit_and_can_be_emptied() {
    let folder = Folder::new();
    for i in 0..8 {
        folder.put(&format!("ant/{i}.jpg"), &jpeg(&scene(100, 100)));
    }
    // Each image is cached at 36 x 36 pixels: one and a half times the sample.
    let one = 36 * 36 * 3;
    let dataset = ImageDataset::open(
        &open_all(&folder),
        Split::Train,
        AUGMENTED,
        None,
        3 * one + 1,
    );
    for round in 0..2 {
        let errors = (0..8)
            .filter(|i| dataset.sample(*i, round).is_err())
            .count();
        assert_eq!((errors, dataset.cached_bytes()), (0, 3 * one));
    }
    assert_eq!(
        (dataset.release_cache(), dataset.cached_bytes()),
        (3 * one, 0)
    );
    dataset.limit_cache(one);
    assert!((0..8).all(|i| dataset.sample(i, 0).is_ok()));
    assert_eq!(dataset.cached_bytes(), one);
    dataset.limit_cache(0);
    assert_eq!(dataset.cached_bytes(), 0);
}

#[test]
fn tiny_and_extreme_sizes_give_complete_samples() {
    let folder = Folder::new();
    for (w, h) in [(1, 1), (1, 50), (50, 1), (2, 3), (700, 14)] {
        folder.put(&format!("ant/{w}x{h}.png"), &png(&scene(w, h)));
    }
    let found = open_all(&folder);
    for size in [1, 7, 64] {
        let options = ImageOptions { size, ..AUGMENTED };
        let dataset = ImageDataset::open(&found, Split::Train, options, None, 0);
        assert_eq!(dataset.len(), 5);
        for (index, epoch) in (0..5).flat_map(|i| (0..20).map(move |e| (i, e))) {
            let sample = dataset.sample(index, epoch).expect("it decodes");
            assert_eq!(sample.pixels.len(), (size * size * 3) as usize);
        }
    }
}

#[test]
fn a_limited_dataset_has_every_class() {
    let folder = Folder::new();
    for (class, n) in [("ant", 30), ("bee", 10), ("cat", 2)] {
        for i in 0..n {
            folder.put(&format!("{class}/{i}.jpg"), &jpeg(&scene(8, 8)));
        }
    }
    let found = open_all(&folder);
    let dataset = ImageDataset::open(&found, Split::Train, AUGMENTED, Some(8), 0);
    let of = |label| {
        (0..dataset.len())
            .filter(|i| dataset.label(*i) == label)
            .count()
    };
    assert_eq!((dataset.len(), of(0), of(1), of(2)), (8, 5, 2, 1));
    assert!(ImageDataset::open(&found, Split::HeldOut, AUGMENTED, Some(8), 0).is_empty());
}

#[test]
fn a_missing_or_broken_file_is_an_error_with_its_name() {
    let folder = Folder::with_images(&["ant/1.jpg", "ant/2.jpg", "ant/3.jpg"]);
    let dataset = plain(&open_all(&folder), 16);
    fs::remove_file(folder.path().join("ant/2.jpg")).expect("it was there");
    folder.put("ant/3.jpg", b"no longer an image");
    assert!(dataset.sample(0, 0).is_ok());
    let missing = dataset.sample(1, 0).expect_err("it is gone").to_string();
    assert!(
        missing.contains("2.jpg") && missing.contains("no longer there"),
        "{missing}"
    );
    let broken = dataset.sample(2, 0).expect_err("it is broken").to_string();
    assert!(
        broken.contains("3.jpg") && broken.contains("here again"),
        "{broken}"
    );
}
