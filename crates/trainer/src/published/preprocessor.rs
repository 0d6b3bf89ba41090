//! What is done to a photograph before a published network sees it: `preprocessor_config.json`. Refuses to know pixels.

use super::settings::Settings;
use crate::error::Result;
use serde_json::Value;

/// Sizes and normalisation.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Preprocessor {
    /// Side of the square that the network sees, in pixels.
    pub side: Option<usize>,
    /// Length of the shorter side that a photograph is brought to before the square is cut from its middle, in pixels; where
    /// there is none the whole photograph becomes the square.
    pub shorter_side: Option<usize>,
    /// Taken from each channel after it was brought to `0.0..=1.0`.
    pub mean: [f32; 3],
    /// What each channel is divided by then.
    pub deviation: [f32; 3],
}

impl Preprocessor {
    pub(super) fn read(settings: &Settings) -> Result<Self> {
        let channels = |key: &str| -> Result<Option<[f32; 3]>> {
            let Some(value) = settings.get(key) else {
                return Ok(None);
            };
            let list = value.as_array().into_iter().flatten();
            let numbers: Option<Vec<f32>> = list.map(|n| n.as_f64().map(|n| n as f32)).collect();
            let numbers = numbers.filter(|numbers| numbers.iter().all(|n| n.is_finite()));
            let three = numbers.and_then(|numbers| <[f32; 3]>::try_from(numbers).ok());
            let refused = || settings.refuse(format!("{key} = {value} is no list of 3 numbers"));
            three.map(Some).ok_or_else(refused)
        };
        let normalises = settings.is_on("do_normalize", true);
        let (mean, deviation) = (channels("image_mean")?, channels("image_std")?);
        let (mean, deviation) = match (normalises, mean, deviation) {
            (false, ..) => ([0.0; 3], [1.0; 3]),
            (true, Some(mean), Some(deviation)) => (mean, deviation),
            (true, ..) => {
                return Err(settings.refuse("it does not say image_mean and image_std".to_owned()));
            }
        };
        if deviation.iter().any(|d| *d <= 0.0) {
            return Err(settings.refuse(format!("image_std = {deviation:?} has to be above 0")));
        }
        settings.expect_switch("do_rescale", true)?;
        let factor = settings.number_or("rescale_factor", 1.0 / 255.0)?;
        if (factor * 255.0 - 1.0).abs() > 1e-3 {
            return Err(settings.refuse(format!(
                "rescale_factor = {factor} does not bring bytes to 0 to 1"
            )));
        }
        let (size, shortest) = (
            side(settings, "size"),
            side_of(settings, "size", "shortest_edge"),
        );
        let cropped = settings.is_on("do_center_crop", false);
        let crop = side(settings, "crop_size").filter(|_| cropped);
        // Folders of convolutional networks say what they cut as a share of what they bring the shorter side to.
        let share = settings.get("crop_pct").and_then(Value::as_f64);
        let by_share = share.filter(|s| *s > 0.0 && *s <= 1.0).zip(shortest);
        let shorter = by_share.map(|(share, side)| (side as f64 / share) as usize);
        Ok(Preprocessor {
            side: crop.or(size).or(shortest),
            shorter_side: shorter
                .or(shortest)
                .or(size)
                .filter(|_| crop.is_some() || shorter.is_some()),
            mean,
            deviation,
        })
    }
}

/// A square's side: a number, or equal height and width.
fn side(settings: &Settings, key: &str) -> Option<usize> {
    let whole = settings.get(key).and_then(Value::as_u64);
    let whole = whole.and_then(|side| usize::try_from(side).ok());
    whole.or_else(|| {
        let height = side_of(settings, key, "height")?;
        (side_of(settings, key, "width")? == height).then_some(height)
    })
}

fn side_of(settings: &Settings, key: &str, part: &str) -> Option<usize> {
    let side = settings.get(key)?.get(part)?.as_u64()?;
    usize::try_from(side).ok()
}
