//! How images are resized and normalized before a pretrained network sees them:
//! `preprocessor_config.json`.

use super::json_config::JsonConfig;
use crate::error::Result;
use crate::pixel_normalization::PixelNormalization;
use serde_json::Value;

/// Sizes and normalization of images.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Preprocessor {
    /// Side of the square input in pixels, if the file has one.
    pub side: Option<usize>,
    /// Length in pixels to which the shorter side is resized before the square is cropped from the
    /// centre; `None` if the whole image is resized to the square.
    pub shorter_side: Option<usize>,
    /// Mean and standard deviation of each channel.
    pub normalization: PixelNormalization,
}

impl Preprocessor {
    pub(super) fn read(settings: &JsonConfig) -> Result<Self> {
        let channels = |key: &str| -> Result<Option<[f32; 3]>> {
            let Some(value) = settings.get(key) else {
                return Ok(None);
            };
            let list = value.as_array().into_iter().flatten();
            let numbers: Option<Vec<f32>> = list.map(|n| n.as_f64().map(|n| n as f32)).collect();
            let numbers = numbers.filter(|numbers| numbers.iter().all(|n| n.is_finite()));
            let three = numbers.and_then(|numbers| <[f32; 3]>::try_from(numbers).ok());
            let refused = || settings.refuse(format!("{key} = {value} is not a list of 3 numbers"));
            three.map(Some).ok_or_else(refused)
        };
        let normalizes = settings.bool_or("do_normalize", true);
        let (mean, std) = (channels("image_mean")?, channels("image_std")?);
        let (mean, std) = match (normalizes, mean, std) {
            (false, ..) => ([0.0; 3], [1.0; 3]),
            (true, Some(mean), Some(std)) => (mean, std),
            (true, ..) => {
                return Err(settings.refuse("image_mean and image_std are missing".to_owned()));
            }
        };
        if std.iter().any(|d| *d <= 0.0) {
            return Err(settings.refuse(format!("image_std = {std:?} must be above 0")));
        }
        settings.expect_bool("do_rescale", true)?;
        let factor = settings.positive_or("rescale_factor", 1.0 / 255.0)?;
        if (factor * 255.0 - 1.0).abs() > 1e-3 {
            return Err(settings.refuse(format!(
                "rescale_factor = {factor} does not map bytes to the range from 0 to 1"
            )));
        }
        let (size, shortest) = (
            side(settings, "size"),
            length(settings, "size", "shortest_edge"),
        );
        let cropped = settings.bool_or("do_center_crop", false);
        let crop = side(settings, "crop_size").filter(|_| cropped);
        // Convolutional networks give the crop as a fraction of the resized shorter side.
        let fraction = settings.get("crop_pct").and_then(Value::as_f64);
        let by_fraction = fraction.filter(|s| *s > 0.0 && *s <= 1.0).zip(shortest);
        let shorter = by_fraction.map(|(fraction, side)| (side as f64 / fraction) as usize);
        Ok(Preprocessor {
            side: crop.or(size).or(shortest),
            shorter_side: shorter
                .or(shortest)
                .or(size)
                .filter(|_| crop.is_some() || shorter.is_some()),
            normalization: PixelNormalization { mean, std },
        })
    }
}

/// Side of a square: a number, or equal height and width.
fn side(settings: &JsonConfig, key: &str) -> Option<usize> {
    let whole = settings.get(key).and_then(Value::as_u64);
    let whole = whole.and_then(|side| usize::try_from(side).ok());
    whole.or_else(|| {
        let height = length(settings, key, "height")?;
        (length(settings, key, "width")? == height).then_some(height)
    })
}

fn length(settings: &JsonConfig, key: &str, part: &str) -> Option<usize> {
    let side = settings.get(key)?.get(part)?.as_u64()?;
    usize::try_from(side).ok()
}
