//! The runs that the schedules disturb: small ones of the four tasks.

use crate::fault_schedule::STEPS;
use crate::noise_images::write_noise_images;
use crate::temporary_folder::temporary_folder;
use dataset::{DetectedDataset, InspectOptions, TextOptions, detect};
use runlog::{Augmentation, DeviceChoice, OptimizerChoice, PrecisionChoice, RunConfig, TaskChoice};
use serde_json::json;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use tape::Rng;
use tempfile::TempDir;
use trainer::Plan;

/// A run.
pub struct Scenario {
    pub name: &'static str,
    pub found: DetectedDataset,
    pub config: RunConfig,
    /// The memory script: nothing else needs memory.
    pub script: PathBuf,
    _folder: TempDir,
}

/// A scenario to be: its name, its dataset, the folder of its pretrained weights, and its settings.
struct Draft {
    name: &'static str,
    dataset: fn(&Path),
    pretrained: Option<&'static str>,
    config: RunConfig,
}

/// The runs. Pretrained weights are those of the smallest networks there are.
fn drafts() -> [Draft; 5] {
    let texts = |optimizer, precision| RunConfig {
        tokens: Some(8),
        dev_samples: Some(12),
        optimizer: Some(optimizer),
        precision: Some(precision),
        ..config()
    };
    let images_in = |model: Option<&str>| RunConfig {
        model: model.map(str::to_owned),
        image_size: Some(16),
        augment: Some(Augmentation::None),
        ema_decay: Some(0.5),
        ..config()
    };
    [
        Draft {
            name: "images and a regression target, AdamW with an average",
            dataset: images,
            pretrained: Some("vit"),
            config: images_in(None),
        },
        Draft {
            name: "text classification in bf16, SGD",
            dataset: messages,
            pretrained: Some("bert"),
            config: texts(OptimizerChoice::Sgd, PrecisionChoice::Bf16),
        },
        Draft {
            name: "language model, 8-bit AdamW",
            dataset: book,
            pretrained: Some("gpt2"),
            config: texts(OptimizerChoice::AdamW8bit, PrecisionChoice::F32),
        },
        Draft {
            name: "token compression, AdamW",
            dataset: book,
            pretrained: None,
            config: RunConfig {
                task: Some(TaskChoice::TokenCompression),
                model: Some("compress_micro".to_owned()),
                ..texts(OptimizerChoice::AdamW, PrecisionChoice::F32)
            },
        },
        Draft {
            name: "images and a regression target in a ConvNet",
            dataset: images,
            pretrained: None,
            config: images_in(Some("convnet")),
        },
    ]
}

impl Scenario {
    /// All scenarios.
    pub fn all() -> Vec<Scenario> {
        drafts().into_iter().map(Scenario::new).collect()
    }

    /// The index of the scenario of a seed. Small networks take turns more often.
    pub fn index_of_seed(seed: u64) -> usize {
        const TURNS: [usize; 16] = [0, 1, 2, 3, 0, 1, 2, 0, 1, 2, 4, 0, 1, 2, 0, 1];
        TURNS[(seed % 16) as usize]
    }

    fn new(draft: Draft) -> Scenario {
        let folder = temporary_folder();
        let data = folder.path().join("data");
        std::fs::create_dir_all(&data).unwrap();
        (draft.dataset)(&data);
        let weights = draft.pretrained.map(|name| {
            let weights = folder.path().join("weights");
            write_weights(name, &weights);
            weights
        });
        let found = detect(
            &data,
            &InspectOptions::default(),
            &TextOptions::default(),
            &|_| {},
        );
        let script = folder.path().join("script");
        let line = r#"{"at_ms":0,"total_bytes":16000000000,"others_bytes":1000000000}"#;
        std::fs::write(&script, line).unwrap();
        Scenario {
            name: draft.name,
            found: found.unwrap(),
            config: RunConfig {
                from: weights,
                ..draft.config
            },
            script,
            _folder: folder,
        }
    }

    /// The plan with fixed or automatic micro-batches.
    pub fn plan(&self, automatic: bool) -> Plan {
        let config = RunConfig {
            micro_batch: (!automatic).then_some(2),
            ..self.config.clone()
        };
        Plan::resolve(&config, &self.found).unwrap()
    }
}

fn config() -> RunConfig {
    RunConfig {
        steps: Some(STEPS),
        effective_batch: Some(4),
        evaluate_every_epochs: Some(1),
        device: Some(DeviceChoice::Cpu),
        threads: Some(1),
        workers: Some(0),
        ..RunConfig::default()
    }
}

/// Tiny pretrained weights, with a tokenizer if they are for texts.
fn write_weights(name: &str, folder: &Path) {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let fixture = here.join("../models/tests/fixtures/published").join(name);
    std::fs::create_dir_all(folder).unwrap();
    for entry in std::fs::read_dir(fixture).unwrap() {
        let entry = entry.unwrap();
        std::fs::copy(entry.path(), folder.join(entry.file_name())).unwrap();
    }
    let (tokens, splits): (Vec<&str>, _) = match name {
        "bert" => (
            [&["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"], &WORDS[..]].concat(),
            json!({"type": "Whitespace"}),
        ),
        "gpt2" => (
            vec![
                "<|endoftext|>",
                "C",
                "h",
                "a",
                "p",
                "t",
                "e",
                "r",
                "I",
                "i",
                "n",
                "s",
                ".",
                " ",
            ],
            json!({"type": "Split", "pattern": {"Regex": "."}, "behavior": "Isolated", "invert": false}),
        ),
        _ => return,
    };
    let ids: serde_json::Map<_, _> = (0..)
        .zip(&tokens)
        .map(|(id, token)| ((*token).to_owned(), json!(id)))
        .collect();
    let special = |id: usize, token: &str| {
        json!({"id": id, "content": token, "single_word": false, "lstrip": false,
               "rstrip": false, "normalized": false, "special": true})
    };
    let added = tokens.iter().enumerate();
    let added = added.filter(|(_, token)| token.starts_with(['[', '<']));
    let added: Vec<_> = added.map(|(id, token)| special(id, token)).collect();
    let tokenizer = json!({
        "version": "1.0", "truncation": null, "padding": null, "added_tokens": added,
        "normalizer": null, "pre_tokenizer": splits, "post_processor": null, "decoder": null,
        "model": {"type": "WordLevel", "vocab": ids, "unk_token": tokens[1]},
    });
    std::fs::write(folder.join("tokenizer.json"), tokenizer.to_string()).unwrap();
}

/// The words of the texts.
const WORDS: [&str; 8] = ["rain", "cash", "win", "home", "see", "you", "soon", "prize"];

/// Images in two classes, with a number each.
fn images(folder: &Path) {
    let mut table = "image,calories\n".to_owned();
    write_noise_images(folder, 7, 16);
    for (class, least) in [("jay", 100), ("owl", 101)] {
        for number in 0..7 {
            writeln!(table, "{class}/{number}.png,{}", least + 7 * number).unwrap();
        }
    }
    std::fs::write(folder.join("labels.csv"), table).unwrap();
}

/// Texts in two classes.
fn messages(folder: &Path) {
    let row = |i: u64| {
        let stream = Rng::new(3).at(i);
        let word = |n: u64| WORDS[(stream.uniform(n) * WORDS.len() as f64) as usize];
        let text: Vec<&str> = (0..2 + i % 4).map(word).collect();
        format!(
            "{}\t{} {i}\n",
            ["spam", "ham"][i as usize % 2],
            text.join(" ")
        )
    };
    let rows: String = (0..15).map(row).collect();
    std::fs::write(folder.join("sms.tsv"), rows).unwrap();
}

/// Documents of different lengths.
fn book(folder: &Path) {
    for i in 0..6usize {
        let text = format!("Chapter {i}. ") + &"It rains. ".repeat(14 + i);
        std::fs::write(folder.join(format!("{i}.txt")), text).unwrap();
    }
}
