//! Whether a mirrored image still shows its class. A mirrored cat is a cat, but a mirrored 3 is no
//! digit, and a mirrored arrow to the left is an arrow to the right.
//!
//! The names of the classes decide if they name directions or characters. Otherwise a small probe
//! decides: for each of at most 400 images it finds the most similar other image, first for the
//! image as it is and then for the mirrored image. If the mirrored images resemble images of their
//! own class much less often, training should not mirror.

use crate::augment::{self, gray_thousandths};
use crate::decode_image::{decode, system_decoder::Decoders};
use crate::image_inspection::ImageFile;
use crate::seeded_selection::choose_subset;
use crate::types::{Class, Split};
use rayon::prelude::*;
use std::path::Path;

/// Images that are compared at most.
const MAX_IMAGES: usize = 400;
/// Images at regular intervals that are chosen from at most.
const MAX_NAMED_IMAGES: usize = 20_000;
/// Images below which a comparison proves nothing.
const MIN_IMAGES: usize = 50;
/// Pixels that are decoded at most, so that a folder of photos takes less than a second.
const MAX_PIXELS: u64 = 32 << 20;
/// Side of the compared images, in pixels.
const SIDE: usize = 16;
/// Mirroring changes the class if fewer mirrored images than this fraction of the plain ones
/// resemble their class. Measured: 0.38 for digits; 0.74 to 1.0 for photos of animals and objects.
const KEPT_FRACTION: f64 = 0.6;
/// The smallest difference between plain and mirrored images, as a fraction of all images.
const SMALLEST_LOSS: f64 = 0.15;

/// Words that name a direction.
const DIRECTIONS: [&str; 6] = [
    "left",
    "right",
    "clockwise",
    "counterclockwise",
    "port",
    "starboard",
];
/// Words that may stand before a character in the name of a class.
const CHARACTER_WORDS: [&str; 8] = [
    "digit",
    "number",
    "letter",
    "char",
    "character",
    "upper",
    "lower",
    "sign",
];
/// Number words.
const NUMBERS: [&str; 10] = [
    "zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine",
];

/// The reason why a mirrored image does not show its class, as a sentence; `None` if it does, or if
/// too little is known. `root` is the folder of the images.
pub(crate) fn reason_not_to_mirror(
    root: &Path,
    classes: &[Class],
    files: &[ImageFile],
    decoders: Decoders,
) -> Option<String> {
    if classes.len() < 2 {
        return None;
    }
    let names: Vec<&str> = classes.iter().map(|class| class.name.as_str()).collect();
    reason_by_names(&names).or_else(|| Comparison::new(root, files, decoders).reason())
}

fn reason_by_names(names: &[&str]) -> Option<String> {
    let words: Vec<Vec<String>> = names.iter().map(|name| words(name)).collect();
    let names_direction = |word: &&&str| words.iter().flatten().any(|w| w == **word);
    if DIRECTIONS.iter().filter(names_direction).count() >= 2 {
        return Some("Some class names are directions, such as left and right.".into());
    }
    let characters = words.iter().filter(|words| is_character(words)).count();
    (characters == names.len()).then(|| "The names of the classes are letters or digits.".into())
}

/// The words of a class name, in lower case.
fn words(name: &str) -> Vec<String> {
    let words = name.split(|c: char| !c.is_alphanumeric());
    words
        .filter(|w| !w.is_empty())
        .map(str::to_lowercase)
        .collect()
}

/// Whether a name is one letter or number word, perhaps after a word such as "letter". Plain digits
/// prove nothing: many datasets number their classes.
fn is_character(words: &[String]) -> bool {
    let Some((last, first)) = words.split_last() else {
        return false;
    };
    let is_named = !first.is_empty() && first.iter().all(|w| CHARACTER_WORDS.contains(&w.as_str()));
    let is_letter = last.chars().count() == 1 && last.chars().all(char::is_alphabetic);
    let is_number = NUMBERS.contains(&last.as_str());
    let is_digit = last.len() == 1 && last.chars().all(|c| c.is_ascii_digit());
    (first.is_empty() && (is_letter || is_number))
        || (is_named && (is_letter || is_number || is_digit))
}

/// How many images resemble an image of their class most, as they are and mirrored.
#[derive(Debug, Clone, Copy, Default)]
struct Comparison {
    images: usize,
    plain: usize,
    mirrored: usize,
}

impl Comparison {
    fn new(root: &Path, files: &[ImageFile], decoders: Decoders) -> Self {
        let shown = choose_images(files);
        let read = |file: &&ImageFile| {
            let image = decode(&root.join(&file.path), SIDE as u32, decoders).ok()?;
            let planes = augment::center(&image, SIDE as u32);
            Some((file.label, normalized_gray(&planes)))
        };
        let samples: Vec<(u32, Vec<f32>)> = shown.par_iter().filter_map(read).collect();
        if samples.len() < MIN_IMAGES {
            return Comparison::default();
        }
        let is_right = |i: usize, gray: &[f32]| nearest(&samples, i, gray) == Some(samples[i].0);
        let all = || (0..samples.len()).into_par_iter();
        let plain = all().filter(|&i| is_right(i, &samples[i].1));
        let mirrored = all().filter(|&i| is_right(i, &mirror(&samples[i].1)));
        Comparison {
            images: samples.len(),
            plain: plain.count(),
            mirrored: mirrored.count(),
        }
    }

    fn reason(self) -> Option<String> {
        let (all, plain, mirrored) = (self.images as f64, self.plain as f64, self.mirrored as f64);
        let changes = mirrored < KEPT_FRACTION * plain && plain - mirrored >= SMALLEST_LOSS * all;
        changes.then(|| {
            format!(
                "Of {} images, {:.0} % have the same class as the most similar other image; after mirroring, only {:.0} % do.",
                self.images,
                100.0 * plain / all,
                100.0 * mirrored / all
            )
        })
    }
}

/// The images to compare: training images of all classes in proportion, within the limits.
fn choose_images(files: &[ImageFile]) -> Vec<&ImageFile> {
    // Of millions of images, a list of all names would take much memory.
    let step = files.len().div_ceil(MAX_NAMED_IMAGES).max(1);
    let training = files.iter().filter(|f| f.split == Split::Train);
    let training: Vec<&ImageFile> = training.step_by(step).collect();
    let pixels = |file: &ImageFile| u64::from(file.width) * u64::from(file.height);
    let all: u64 = training.iter().map(|file| pixels(file)).sum();
    let mean = (all / training.len().max(1) as u64).max(1);
    let limit = MAX_IMAGES.min((MAX_PIXELS / mean) as usize);
    if limit < MIN_IMAGES {
        return Vec::new();
    }
    let name = |file: &&ImageFile| (file.label, file.path.to_string_lossy().into_owned());
    let named: Vec<(u32, String)> = training.iter().map(name).collect();
    let chosen = choose_subset(crate::DEFAULT_SEED, &named, limit);
    let mut left = MAX_PIXELS;
    let within = |&file: &&ImageFile| {
        let fits = pixels(file) <= left;
        left = left.saturating_sub(pixels(file));
        fits
    };
    chosen
        .into_iter()
        .map(|i| training[i])
        .filter(within)
        .collect()
}

/// The gray levels of three planes, with mean 0 and standard deviation 1.
fn normalized_gray(planes: &[u8]) -> Vec<f32> {
    let plane = planes.len() / 3;
    let gray = |i: usize| {
        let pixel = [planes[i], planes[plane + i], planes[2 * plane + i]];
        gray_thousandths(&pixel) as f32 / 1000.0
    };
    let mut levels: Vec<f32> = (0..plane).map(gray).collect();
    let mean = levels.iter().sum::<f32>() / plane as f32;
    let variance = levels.iter().map(|v| (v - mean).powi(2)).sum::<f32>() / plane as f32;
    let scale = 1.0 / (variance.sqrt() + 1e-3);
    levels.iter_mut().for_each(|v| *v = (*v - mean) * scale);
    levels
}

fn mirror(gray: &[f32]) -> Vec<f32> {
    gray.chunks_exact(SIDE)
        .flat_map(|row| row.iter().rev().copied())
        .collect()
}

/// The class of the image that is most similar to `gray`, the i-th one left out.
fn nearest(samples: &[(u32, Vec<f32>)], i: usize, gray: &[f32]) -> Option<u32> {
    let distance =
        |other: &[f32]| -> f32 { gray.iter().zip(other).map(|(a, b)| (a - b).powi(2)).sum() };
    let others = samples.iter().enumerate().filter(|(j, _)| *j != i);
    let distances = others.map(|(_, (label, other))| (distance(other), *label));
    distances
        .min_by(|a, b| a.0.total_cmp(&b.0))
        .map(|(_, label)| label)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decode_image::system_decoder;
    use image::RgbImage;

    #[test]
    fn names_of_directions_and_characters_are_recognized() {
        assert!(reason_by_names(&["turn_left", "turn_right", "straight"]).is_some());
        assert!(reason_by_names(&["a", "b", "c"]).is_some());
        assert!(reason_by_names(&["digit 3", "digit 4"]).is_some());
        assert!(reason_by_names(&["zero", "one"]).is_some());
        // CIFAR and ImageNet folders are numbered too; the images decide.
        assert_eq!(reason_by_names(&["0", "1", "2"]), None);
        assert_eq!(reason_by_names(&["cat", "dog"]), None);
        assert_eq!(reason_by_names(&["left-over", "bread"]), None);
    }

    /// A folder of 2 classes of `count` images; `draw` gives whether a pixel is bright.
    fn compare(draw: impl Fn(u32, u32, u32, u32) -> bool) -> Comparison {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let mut files = Vec::new();
        for label in 0..2 {
            for i in 0..30 {
                let image = RgbImage::from_fn(20, 20, |x, y| {
                    let level = if draw(label, i, x, y) { 220 } else { 30 };
                    image::Rgb([level + ((x * 7 + y * 3 + i * 11) % 13) as u8; 3])
                });
                let path = format!("{label}-{i}.png");
                image
                    .save(folder.path().join(&path))
                    .expect("it is written");
                files.push(ImageFile {
                    path: path.into(),
                    label,
                    split: Split::Train,
                    width: 20,
                    height: 20,
                    bytes: 0,
                    targets: Vec::new(),
                });
            }
        }
        Comparison::new(folder.path(), &files, system_decoder::installed)
    }

    #[test]
    fn an_image_that_becomes_the_other_class_is_not_mirrored() {
        // A bar on the left, or on the right.
        let found = compare(|label, i, x, _| (2 + i % 5 + 9 * label..).take(3).any(|at| at == x));
        assert_eq!((found.images, found.plain, found.mirrored), (60, 60, 0));
        let reason = found.reason().expect("mirroring changes the class");
        assert_eq!(
            reason,
            "Of 60 images, 100 % have the same class as the most similar other image; after mirroring, only 0 % do."
        );
    }

    #[test]
    fn an_image_that_keeps_its_class_is_mirrored() {
        // A bar at the top, or at the bottom.
        let found = compare(|label, i, _, y| (2 + i % 5 + 9 * label..).take(3).any(|at| at == y));
        assert_eq!((found.images, found.plain, found.mirrored), (60, 60, 60));
        assert_eq!(found.reason(), None);
    }
}
