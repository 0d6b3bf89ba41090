//! The window's plan for pretrained weights equals the terminal's: the same numbers, the same
//! errors.

use super::*;
use crate::hub_download::look_up;
use crate::hub_download::test_hub::{Ignore, TestHub};
use dataset::{InspectOptions, TextOptions, detect};
use std::fs;
use std::path::Path;
use tempfile::TempDir;

/// Images of two colors, and pretrained weights: tiny and random, as in the trainer's tests.
struct Place(TempDir);

impl Place {
    fn new() -> Self {
        let place = Place(tempfile::tempdir().expect("a temporary folder"));
        for (class, colour) in [("jay", [20, 60, 200]), ("owl", [120, 90, 40])] {
            let folder = place.path("birds").join(class);
            fs::create_dir_all(&folder).expect("it can be made");
            for number in 0..10 {
                let image = image::RgbImage::from_pixel(24, 24 + number, image::Rgb(colour));
                let file = folder.join(format!("{number}.png"));
                image.save(file).expect("it can be written");
            }
        }
        place
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn found(&self) -> DetectedDataset {
        let (options, texts) = (InspectOptions::default(), TextOptions::default());
        detect(&self.path("birds"), &options, &texts, &|_| {}).expect("it can be read")
    }

    /// A copy that may be changed.
    fn published(&self, name: &str) -> PathBuf {
        let fixtures = "crates/models/tests/fixtures/published";
        let from = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join(fixtures)
            .join(name);
        let to = self.path(name);
        fs::create_dir(&to).expect("it can be made");
        for entry in fs::read_dir(from).expect("the fixture is there") {
            let entry = entry.expect("it can be listed");
            fs::copy(entry.path(), to.join(entry.file_name())).expect("it can be copied");
        }
        to
    }
}

fn planned(
    found: &DetectedDataset,
    from: &Path,
    trains: Option<&str>,
) -> trainer::Result<PlanView> {
    begun(
        found,
        "weights-1",
        from.to_owned(),
        trains,
        &Reported::default(),
    )
}

#[test]
fn texts_that_are_longer_than_the_model_reads_are_counted() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("reviews.csv");
    let row = |n: usize| {
        let (label, words) = (["good", "bad"][n % 2], if n < 5 { 200 } else { 10 });
        format!("review {n} {},{label}\n", "word ".repeat(words))
    };
    let rows: String = (0..60).map(row).collect();
    fs::write(&path, format!("text,label\n{rows}")).expect("it can be written");
    let (options, texts) = (InspectOptions::default(), TextOptions::default());
    let found = detect(&path, &options, &texts, &|_| {}).expect("it can be read");
    let DetectedDataset::Texts(found) = found else {
        panic!("they are texts");
    };
    let cut = [64, 512].map(|tokens| Plan::estimate_cut_texts(&found, tokens));
    assert_eq!(cut, [5, 0]);
}

/// Documents suit two tasks, conversations only one.
#[test]
fn a_file_of_conversations_is_planned() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("chats.jsonl");
    let row = |n: u32| {
        format!(
            r#"{{"prompt":"What is {n} and 1?","completion":"It is {}."}}"#,
            n + 1
        )
    };
    let rows: Vec<String> = (0..40).map(row).collect();
    fs::write(&path, rows.join("\n")).expect("it can be written");
    let (options, texts) = (InspectOptions::default(), TextOptions::default());
    let found = detect(&path, &options, &texts, &|_| {}).expect("it can be read");
    let plans = all(&found, &Reported::default()).expect("it can be planned");
    assert_eq!(plans.len(), 1);
}

/// The window has no flags.
#[test]
fn the_defaults_of_a_folder_have_reasons() {
    let reasons = reasons_of_defaults(&Place::new().found());
    let expected = "An image size of 24 px, because the images are no larger.";
    assert!(reasons.contains(&expected.to_owned()), "{reasons:?}");
    assert!(!reasons.join(" ").contains("--"), "{reasons:?}");
}

/// The default length of a language model may be a part of an epoch, which no number of epochs
/// describes.
#[test]
fn the_default_length_of_a_large_text_stays_a_part_of_an_epoch() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let line = "The rain fell all day in the hills, and the river rose.\n";
    let text = line.repeat(20_000_000 / line.len());
    fs::write(folder.path().join("book.txt"), text).expect("it can be written");
    let (options, texts) = (InspectOptions::default(), TextOptions::default());
    let found = detect(folder.path(), &options, &texts, &|_| {}).expect("it can be read");
    let views = all(&found, &Reported::default()).expect("it can be planned");
    let mut settings = views[0].settings.clone();
    assert_eq!(settings.epochs, 1);
    let part = config(&settings, &found, None).expect("the settings are valid");
    assert_eq!(part.epochs, None);
    let plan = Plan::resolve(&part, &found).expect("it can be planned");
    assert!(plan.steps < plan.steps_per_epoch, "{}", plan.steps);
    settings.epochs = 2;
    let whole = config(&settings, &found, None).expect("the settings are valid");
    assert_eq!(whole.epochs, Some(2));
}

#[test]
fn every_model_has_the_image_size_that_the_terminal_plans_for_it() {
    let place = Place::new();
    let found = place.found();
    let views = all(&found, &Reported::default()).expect("it can be planned");
    let sizes = &views[0].model_sizes;
    let models: Vec<&str> = views[0].models.iter().map(|(name, _)| &**name).collect();
    let sized: Vec<&str> = sizes.iter().map(|(name, _)| &**name).collect();
    assert_eq!(sized, models);
    for (model, size) in sizes {
        let wanted = RunConfig {
            model: Some(model.clone()),
            ..RunConfig::default()
        };
        let plan = Plan::resolve(&wanted, &found).expect("it can be planned");
        assert_eq!(plan.input_size, *size, "{model}");
    }
    let suggested = &views[0].settings;
    let own = sizes.iter().find(|(name, _)| *name == suggested.model);
    assert_eq!(own.map(|(_, size)| *size), Some(suggested.resolution));
}

#[test]
fn what_is_chosen_in_the_window_is_what_the_terminal_plans() {
    let place = Place::new();
    let (found, vit) = (place.found(), place.published("vit"));
    let offered = planned(&found, &vit, None).expect("it fits").trains;
    assert!(offered.len() > 2, "{offered:?}");
    for (word, _) in &offered {
        let view = planned(&found, &vit, Some(word)).expect("it is offered");
        assert_eq!(view.settings.from.as_deref(), Some("weights-1"));
        assert_eq!(
            (&view.settings.trains, view.trains.len()),
            (word, offered.len())
        );
        let of_page = config(&view.settings, &found, Some(vit.clone())).expect("all is allowed");
        let of_page = Plan::resolve(&of_page, &found).expect("what is suggested is allowed");
        let typed = RunConfig {
            from: Some(vit.clone()),
            // A word for adapters is no part of a network.
            train_only: word.parse().ok(),
            adapter_rank: word
                .strip_prefix("adapter:")
                .and_then(|rank| rank.parse().ok()),
            ..RunConfig::default()
        };
        let typed = Plan::resolve(&typed, &found).expect("the terminal allows it");
        let messages = |plan: &Plan| {
            let trained = plan.trained_parameters().expect("it can be built");
            (
                plan.model,
                plan.input_size,
                plan.learning_rate.to_bits(),
                plan.steps,
                trained,
            )
        };
        assert_eq!(messages(&of_page), messages(&typed), "{word}");
        assert_eq!(of_page.pretrained, typed.pretrained, "{word}");
    }
    let view = planned(&found, &vit, None).expect("it fits");
    assert_eq!(
        view.models,
        [("vit".to_owned(), "ViT, 10,741 parameters".to_owned())]
    );
    assert_eq!(
        view.settings.resolution, 16,
        "the default is the image size of the pretrained weights"
    );
    assert!(view.resolutions.iter().all(|side| side % 4 == 0));
}

#[test]
fn a_model_at_a_hub_is_planned_like_its_weights_before_they_are_downloaded() {
    let place = Place::new();
    let (found, vit) = (place.found(), place.published("vit"));
    let hub = TestHub::open("vit");
    let home = place.path("hub");
    let offer = look_up(hub.repository(), hub.access(), &home, &Ignore).expect("it is there");
    let free = Reported {
        sample: MemorySample {
            total_bytes: 64 << 30,
            available_bytes: 60 << 30,
            ..MemorySample::default()
        },
        ..Reported::default()
    };
    let of = |from: &Path| {
        let view = planned(&found, from, Some("head")).expect("it fits");
        let config = config(&view.settings, &found, Some(from.to_owned()));
        let estimate = estimate(&config.expect("all is allowed"), &found, &free);
        let parameters = estimate.expect("it can be estimated").parameters;
        (view.settings, view.models, parameters)
    };
    assert_eq!(of(offer.preview.path()), of(&vit));
    let (refused, sentence) = (place.published("gpt2"), "image classification");
    let of_real = planned(&found, &refused, None).map(|_| ());
    assert!(
        of_real
            .expect_err("it reads texts")
            .to_string()
            .contains(sentence)
    );
    let other = TestHub::open("gpt2");
    let offer = look_up(other.repository(), other.access(), &home, &Ignore).expect("it is there");
    let of_offer = planned(&found, offer.preview.path(), None).map(|_| ());
    assert!(
        of_offer
            .expect_err("it reads texts")
            .to_string()
            .contains(sentence)
    );
}

#[test]
fn a_head_alone_takes_less_than_everything() {
    let place = Place::new();
    let (found, vit) = (place.found(), place.published("vit"));
    let of = |word: &str| {
        let view = planned(&found, &vit, Some(word)).expect("it is offered");
        let config = config(&view.settings, &found, Some(vit.clone())).expect("all is allowed");
        let parameters = Plan::resolve(&config, &found).and_then(|plan| plan.trained_parameters());
        parameters.expect("it can be built")
    };
    let (head, last, all) = (of("head"), of("last:1"), of("all"));
    assert!(
        head == 2 * 24 + 2 && head < last && last < all,
        "{head} {last} {all}"
    );
}

#[test]
fn weights_that_cannot_be_begun_with_are_refused_in_the_terminals_words() {
    let place = Place::new();
    let found = place.found();
    let check = |from: &Path, words: &[&str]| {
        let output = planned(&found, from, None)
            .map(|_| ())
            .expect_err("it is refused")
            .to_string();
        for word in words {
            assert!(output.contains(word), "{word}: {output}");
        }
    };
    check(
        &place.path("nowhere"),
        &["nowhere", "there is no such folder"],
    );
    check(&place.path("birds"), &["birds", "no config.json"]);
    check(
        &place.published("gpt2"),
        &[
            "GPT-2",
            "image classification",
            "one of these networks: vit, deit, dinov2, resnet, convnext",
        ],
    );
    let vit = place.published("vit");
    let described = fs::read_to_string(vit.join("config.json")).expect("it is there");
    let wider = described.replace("\"intermediate_size\": 40", "\"intermediate_size\": 48");
    fs::write(vit.join("config.json"), wider).expect("it can be written");
    check(
        &vit,
        &[
            "do not match its config.json",
            "intermediate.dense.weight has the shape [40, 24] instead of [48, 24]",
        ],
    );
    fs::write(vit.join("config.json"), described).expect("it can be written");
    fs::rename(vit.join("model.safetensors"), vit.join("pytorch_model.bin")).expect("it is there");
    check(&vit, &["pytorch_model.bin", "could run any program"]);
}

#[test]
fn other_settings_reach_the_config_and_only_those_that_the_page_does_not_show() {
    let place = Place::new();
    let found = place.found();
    let suggested = all(&found, &Reported::default()).expect("it can be trained");
    let with = |key: &str, text: &str| {
        let others = [(key.to_owned(), text.to_owned())].into();
        let settings = PlanSettings {
            other_settings: others,
            ..suggested[0].settings.clone()
        };
        config(&settings, &found, None).map_err(|error| (error.code, error.message))
    };
    let set = with("memory_cap_bytes", "3GB").expect("it is allowed");
    assert_eq!(set.memory_cap_bytes, Some(3 << 30));
    assert_eq!(set.epochs, Some(suggested[0].settings.epochs));
    let lion = with("optimizer", "lion").expect("it is allowed");
    let plan = Plan::resolve(&lion, &found).expect("it can be trained");
    assert_eq!(plan.optimizer, trainer::OptimizerKind::Lion);
    for (key, text, part) in [
        ("weight_decay", "11", "must be a number from 0 to 10"),
        ("weight", "1", "there is no key `weight`"),
        ("epochs", "3", "already has its own field"),
        ("folder", "/etc", "already has its own field"),
        ("from", "/etc", "already has its own field"),
    ] {
        let (code, message) = with(key, text).expect_err(key);
        assert_eq!(code, "invalid_setting");
        assert!(message.contains(part), "{message}");
    }
}

#[test]
fn a_plan_that_does_not_fit_is_offered_what_would_save_memory() {
    let place = Place::new();
    let found = place.found();
    let config = RunConfig {
        image_size: Some(96),
        ..RunConfig::default()
    };
    // Other apps use all of the memory.
    let full = Reported {
        sample: MemorySample {
            total_bytes: 8 << 30,
            ..MemorySample::default()
        },
        ..Reported::default()
    };
    let refused = estimate(&config, &found, &full).expect("it can be estimated");
    assert!(refused.refusal.is_some());
    let first = &refused.recovery[0];
    assert_eq!(first.title, "Train at 64 px instead of 96 px");
    assert_eq!((&*first.setting, &*first.value), ("resolution", "64"));
    let settings: Vec<&str> = refused.recovery.iter().map(|step| &*step.setting).collect();
    assert!(!settings.contains(&"trains"), "no weights are pretrained");

    let free = Reported {
        sample: MemorySample {
            total_bytes: 64 << 30,
            available_bytes: 60 << 30,
            ..MemorySample::default()
        },
        ..Reported::default()
    };
    let fits = estimate(&config, &found, &free).expect("it can be estimated");
    assert!(fits.refusal.is_none() && fits.recovery.is_empty());
}
