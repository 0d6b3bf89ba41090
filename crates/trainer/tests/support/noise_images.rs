//! A small dataset of images on disk, for tests that train whole runs.

use std::path::Path;
use tape::Rng;

/// Writes two classes of seeded noise, `jay` and `owl`: `each` images of `side` x `side` pixels per
/// class.
pub fn write_noise_images(folder: &Path, each: u32, side: u32) {
    for (label, class) in ["jay", "owl"].into_iter().enumerate() {
        std::fs::create_dir_all(folder.join(class)).unwrap();
        for number in 0..each {
            let stream = Rng::new(label as u64).at(u64::from(number));
            let image = image::RgbImage::from_fn(side, side, |x, y| {
                let shade = stream.uniform(u64::from(side * y + x)) * 200.0;
                image::Rgb([shade as u8, 40 * label as u8, 90])
            });
            let path = folder.join(class).join(format!("{number}.png"));
            image.save(path).unwrap();
        }
    }
}
