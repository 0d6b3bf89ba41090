//! Shows the first images of a run as the training would use them, after augmentation.

use crate::window_types::CommandError;
use dataset::{DetectedDataset, ImageSample, encode_jpeg};
use runlog::{RunConfig, format_percent};
use serde::Serialize;
use trainer::Plan;
use ts_rs::TS;

/// Images that are drawn.
const DRAWN: usize = 10;

/// One image as training draws it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, TS)]
pub struct DrawnView {
    /// Why it cannot be drawn; empty if it can.
    pub problem: String,
    /// Its class, "78 % cat, 22 % dog" if it is mixed, or empty.
    pub label: String,
}

/// Draws the first images of a run: what is shown of each, and each as the bytes of a JPEG.
///
/// # Errors
/// A setting does not work, or the samples are texts.
pub fn draw(
    config: &RunConfig,
    found: &DetectedDataset,
) -> Result<(Vec<DrawnView>, Vec<Vec<u8>>), CommandError> {
    let plan = Plan::resolve(config, found)?;
    let mut drawn = (Vec::new(), Vec::new());
    for sample in plan.draw_images(found, DRAWN)? {
        let side = plan.input_size;
        let made = sample.map_err(|error| error.to_string());
        let made = made.and_then(|sample| Ok((encode_jpeg(&sample.pixels, side)?, sample)));
        let (view, picture) = match made {
            Ok((picture, sample)) => (view(&plan, &sample), picture),
            Err(problem) => (
                DrawnView {
                    problem,
                    label: String::new(),
                },
                Vec::new(),
            ),
        };
        drawn.0.push(view);
        drawn.1.push(picture);
    }
    Ok(drawn)
}

fn view(plan: &Plan, sample: &ImageSample) -> DrawnView {
    let name = |label: u32| {
        plan.classes
            .get(label as usize)
            .cloned()
            .unwrap_or_default()
    };
    let label = match sample.partner {
        Some((partner, share)) if partner != sample.label => {
            let share = f64::from(share);
            format!(
                "{} {}, {} {}",
                format_percent(1.0 - share),
                name(sample.label),
                format_percent(share),
                name(partner)
            )
        }
        _ => name(sample.label),
    };
    DrawnView {
        problem: String::new(),
        label,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::window_types::tests::current_types;
    use dataset::{InspectOptions, TextOptions, detect};
    use runlog::Augmentation;

    #[test]
    fn the_types_of_drawn_images_are_current() {
        current_types(DrawnView::export_all);
    }

    #[test]
    fn the_first_images_of_a_run_are_drawn() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        for (class, shade) in [("dark", 20), ("light", 200)] {
            std::fs::create_dir_all(folder.path().join(class)).expect("it can be made");
            for number in 0..10u8 {
                let image = image::RgbImage::from_fn(64, 64, |x, y| {
                    image::Rgb([shade, (x * 3) as u8, (y * 3) as u8 ^ number])
                });
                let file = folder.path().join(class).join(format!("{number}.png"));
                image.save(&file).expect("it can be written");
            }
        }
        let (options, texts) = (InspectOptions::default(), TextOptions::default());
        let found = detect(folder.path(), &options, &texts, &|_| {}).expect("it can be read");
        let config = |augment: Augmentation| RunConfig {
            augment: Some(augment),
            effective_batch: Some(4),
            seed: Some(7),
            ..RunConfig::default()
        };
        let (views, pictures) = draw(&config(Augmentation::Standard), &found).expect("it works");
        assert_eq!((views.len(), pictures.len()), (10, 10));
        assert!(views.iter().all(|view| view.problem.is_empty()));
        assert!(
            views
                .iter()
                .all(|view| ["dark", "light"].contains(&view.label.as_str()))
        );
        assert!(
            pictures
                .iter()
                .all(|picture| picture.starts_with(&[0xFF, 0xD8]))
        );
        let again = draw(&config(Augmentation::Standard), &found).expect("it works");
        assert_eq!(
            again.1, pictures,
            "the same seed must select the same images"
        );
        let plain = draw(&config(Augmentation::None), &found).expect("it works");
        assert_eq!(plain.0, views, "the same samples");
        assert_ne!(plain.1, pictures, "without augmentation");
    }
}
