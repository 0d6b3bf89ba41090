//! One function for each reader of files that Ebb did not write: it reads bytes with the same code
//! as the program. The tests beside it and the targets in `fuzz/` share this file.

use pressure::{
    DecisionInput, JsonlController, MemorySample, MicroBatchKind, PersistedState, Phase, Policy,
    SampleCost,
};
use runlog::{Run, RunConfig, RunFolder, RunStore, read_events};
use serde::Deserialize;
use std::fs;
use std::path::{Path, PathBuf};
use tempfile::TempDir;

/// The weights of a network in the tests of the crate `models`.
macro_rules! published {
    ($name:literal) => {
        include_bytes!(concat!(
            "../../crates/models/tests/fixtures/published/",
            $name,
            "/model.safetensors"
        ))
    };
}

#[allow(dead_code, reason = "only what reads responses is called here")]
#[path = "../../src-tauri/hub_download/hub_responses.rs"]
mod hub_responses;
#[allow(dead_code, reason = "only what reads responses is called here")]
#[path = "../../src-tauri/hub_download/verify_checksum.rs"]
mod verify_checksum;

/// Reads a file with these bytes. An error is the sentence that a user would read.
pub type Reader = fn(&[u8]) -> Result<(), String>;

/// Every reader, by the name of its folder in `tests/corpus` and of its target in `fuzz`.
pub const READERS: &[(&str, Reader)] = &[
    ("images", images),
    ("tables", tables),
    ("texts", texts),
    ("parquet", parquet),
    ("safetensors", safetensors),
    ("model_config", model_config),
    ("gguf", gguf),
    ("tokenizer", tokenizer),
    ("chat_template", chat_template),
    ("questions", questions),
    ("config", config),
    ("events", events),
    ("state", state),
    ("run_files", run_files),
    ("archive", archive),
    ("hub", hub),
    ("controller", controller),
];

/// The reader of this name.
pub fn reader(name: &str) -> Reader {
    let found = READERS.iter().find(|(known, _)| *known == name);
    found.expect("it is in the table").1
}

/// What this reader does with a file, in parts that each read it once.
pub fn parts(name: &str) -> Vec<Reader> {
    match name {
        "tables" => vec![table_in_one, table_in_lines],
        "run_files" => vec![run_samples, run_results, run_controller, run_baselines],
        "hub" => vec![hub_commit, hub_files, hub_part_names],
        "images" => vec![inspect_image, decode_image],
        _ => vec![reader(name)],
    }
}

/// A temporary folder with one file.
struct OneFile {
    folder: TempDir,
    path: PathBuf,
}

impl OneFile {
    fn new(name: &str, bytes: &[u8]) -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = folder.path().join(name);
        fs::write(&path, bytes).expect("the folder can be written");
        Self { folder, path }
    }
}

fn images(bytes: &[u8]) -> Result<(), String> {
    // Also a file that the inspection refuses: it may be replaced afterwards.
    let decoded = decode_image(bytes);
    inspect_image(bytes).and(decoded)
}

fn inspect_image(bytes: &[u8]) -> Result<(), String> {
    let image = OneFile::new("image.jpg", bytes);
    let options = dataset::InspectOptions::default();
    let found = dataset::inspect_images(image.folder.path(), &options, &|_| {});
    let found = found.map_err(|error| error.to_string())?;
    let refused = found.skipped.first().map(|file| file.reason.clone());
    refused.map_or(Ok(()), Err)
}

fn decode_image(bytes: &[u8]) -> Result<(), String> {
    let image = OneFile::new("image.jpg", bytes);
    dataset::thumbnail(&image.path, 16).map(drop)
}

/// Inspects a file, and reads the texts that the inspection found.
fn read_dataset(path: &Path) -> Result<(), String> {
    let inspect = dataset::InspectOptions::default();
    let texts = dataset::TextOptions::default();
    let found = dataset::detect(path, &inspect, &texts, &|_| {});
    let dataset::DetectedDataset::Texts(found) = found.map_err(|error| error.to_string())? else {
        return Ok(());
    };
    for split in [dataset::Split::Train, dataset::Split::HeldOut] {
        dataset::TextDataset::open(&found, split).map_err(|error| error.to_string())?;
    }
    dataset::table_rows(path, None, 10);
    let skipped = found.skipped.into_iter().next().map(|file| file.reason);
    skipped.or(found.refusal).map_or(Ok(()), Err)
}

fn tables(bytes: &[u8]) -> Result<(), String> {
    let in_lines = table_in_lines(bytes);
    table_in_one(bytes).and(in_lines)
}

fn is_json(bytes: &[u8]) -> bool {
    matches!(bytes.trim_ascii_start().first(), Some(b'{' | b'['))
}

/// As one JSON value, or with commas.
fn table_in_one(bytes: &[u8]) -> Result<(), String> {
    let name = if is_json(bytes) {
        "rows.json"
    } else {
        "rows.csv"
    };
    read_dataset(&OneFile::new(name, bytes).path)
}

/// As a JSON value in each line, or with tabs.
fn table_in_lines(bytes: &[u8]) -> Result<(), String> {
    let name = if is_json(bytes) {
        "rows.jsonl"
    } else {
        "rows.tsv"
    };
    read_dataset(&OneFile::new(name, bytes).path)
}

fn texts(bytes: &[u8]) -> Result<(), String> {
    read_dataset(&OneFile::new("text.txt", bytes).path)
}

fn parquet(bytes: &[u8]) -> Result<(), String> {
    read_dataset(&OneFile::new("rows.parquet", bytes).path)
}

fn safetensors(bytes: &[u8]) -> Result<(), String> {
    const CONFIG: &str =
        include_str!("../../crates/models/tests/fixtures/published/vit/config.json");
    let weights = OneFile::new("model.safetensors", bytes);
    let config = weights.folder.path().join("config.json");
    fs::write(config, CONFIG).expect("the folder can be written");
    let config = RunConfig {
        from: Some(weights.folder.path().to_owned()),
        ..RunConfig::default()
    };
    let opened = trainer::pretrained::open(&config);
    opened.map(drop).map_err(|error| error.to_string())
}

/// Small weights by the `model_type` of their network.
const WEIGHTS: &[(&str, &[u8])] = &[
    ("vit", published!("vit")),
    ("bert", published!("bert")),
    ("gpt2", published!("gpt2")),
    ("dinov2", published!("dinov2")),
    ("resnet", published!("resnet-basic")),
    ("llama", published!("decoders/llama")),
    ("gemma3_text", published!("decoders/gemma3")),
    ("phi3", published!("decoders/phi3")),
];

/// The `config.json` of any network, beside weights that fit it if there are some.
fn model_config(bytes: &[u8]) -> Result<(), String> {
    let config = OneFile::new("config.json", bytes);
    let text = String::from_utf8_lossy(bytes);
    let named = |name: &str| text.contains(&format!("\"model_type\": \"{name}\""));
    let weights = WEIGHTS.iter().find(|(name, _)| named(name));
    // Without weights: a header that lists no tensors.
    let weights = weights.map_or(b"\x02\0\0\0\0\0\0\0{}".as_slice(), |(_, bytes)| *bytes);
    let path = config.folder.path().join("model.safetensors");
    fs::write(path, weights).expect("the folder can be written");
    let config = RunConfig {
        from: Some(config.folder.path().to_owned()),
        ..RunConfig::default()
    };
    let opened = trainer::pretrained::open(&config);
    let opened = opened.map_err(|error| error.to_string())?;
    if let Some(opened) = opened {
        opened.end_tokens();
    }
    Ok(())
}

fn gguf(bytes: &[u8]) -> Result<(), String> {
    let file = OneFile::new("model.gguf", bytes);
    let home = file.folder.path().join("home");
    let folder = trainer::ChatModel::unpack_gguf(&file.path, &home);
    let config = RunConfig {
        from: folder.map_err(|error| error.to_string())?,
        ..RunConfig::default()
    };
    let opened = trainer::pretrained::open(&config);
    opened.map(drop).map_err(|error| error.to_string())
}

fn tokenizer(bytes: &[u8]) -> Result<(), String> {
    let file = OneFile::new("tokenizer.json", bytes);
    let tokenizer = dataset::Tokenizer::load(&file.path).map_err(|error| error.to_string())?;
    for text in ["A text about aaaaaaaaaaaaaaaa, 12 words.\n", "", "é\0日本"] {
        let tokens = tokenizer
            .encode_framed(text)
            .map_err(|error| error.to_string())?;
        tokenizer.decode(&tokens);
    }
    tokenizer.to_json();
    Ok(())
}

fn questions(bytes: &[u8]) -> Result<(), String> {
    let file = OneFile::new("questions.jsonl", bytes);
    dataset::is_question_file(&file.path);
    let questions = dataset::QuestionFile::check(&file.path).map_err(|error| error.to_string())?;
    let rule = dataset::AnswerRule::default();
    for row in questions.rows().map_err(|error| error.to_string())? {
        if let Ok(question) = row.map_err(|error| error.to_string())?.question {
            rule.is_right(
                &question.expected,
                "An answer of aaaaaaaaaaaaaaaa, 12 words.",
            );
        }
    }
    Ok(())
}

fn chat_template(bytes: &[u8]) -> Result<(), String> {
    const CONVERSATION: &str = r#"{"messages":[{"role":"user","content":"Hi"},{"role":"assistant","content":"Hello!"},
        {"role":"user","content":"And?"},{"role":"assistant","content":" More. "}]}"#;
    let file = OneFile::new("chat_template.jinja", bytes);
    let template = dataset::ChatTemplate::from_folder(file.folder.path());
    let template = template.map_err(|error| error.to_string())?;
    let encoder = dataset::ConversationEncoder::new(
        dataset::Tokenizer::bytes(),
        template,
        dataset::LearnedTokens::Answers,
        257,
    );
    encoder.encode(CONVERSATION).map(drop)
}

fn config(bytes: &[u8]) -> Result<(), String> {
    let read = ["config.toml", "config.json"].map(|name| {
        let loaded = RunConfig::load(&OneFile::new(name, bytes).path);
        loaded.map(drop).map_err(|error| error.to_string())
    });
    read.into_iter().collect()
}

fn events(bytes: &[u8]) -> Result<(), String> {
    let file = OneFile::new("events.jsonl", bytes);
    let mut run = Run::default();
    for event in read_events(&file.path).map_err(|error| error.to_string())? {
        run.apply(&event);
    }
    run.summary_line();
    Ok(())
}

fn state(bytes: &[u8]) -> Result<(), String> {
    let file = OneFile::new("state.json", bytes);
    let verified = trainer::internals::checkpoint::verify(file.folder.path());
    verified.map(drop).map_err(|error| error.to_string())
}

/// Every other file of a run folder: its samples, its results, what the memory controller has
/// learned, and its baseline.
fn run_files(bytes: &[u8]) -> Result<(), String> {
    let (results, controller) = (run_results(bytes), run_controller(bytes));
    let baselines = run_baselines(bytes);
    run_samples(bytes)
        .and(results)
        .and(controller)
        .and(baselines)
}

/// A run folder with one file.
fn run_with(name: &str, bytes: &[u8]) -> (OneFile, RunFolder) {
    let file = OneFile::new(name, bytes);
    let path = file.folder.path().to_owned();
    (file, RunFolder { path })
}

fn run_samples(bytes: &[u8]) -> Result<(), String> {
    let (_file, run) = run_with("data.json", bytes);
    let dataset = trainer::RunDataset::read(&run).map_err(|error| error.to_string())?;
    dataset.path();
    Ok(())
}

fn run_results(bytes: &[u8]) -> Result<(), String> {
    let (_file, run) = run_with("results-held-out.json", bytes);
    let results = trainer::Results::load(&run).map_err(|error| error.to_string())?;
    if let Some(results) = results {
        results.worst();
    }
    Ok(())
}

/// The part of the file that another process starts with.
#[derive(Deserialize)]
struct SavedState {
    #[serde(alias = "learnt")]
    learned: PersistedState,
}

/// Also makes a decision with what was learned.
fn run_controller(bytes: &[u8]) -> Result<(), String> {
    use trainer::internals::SavedControllerState;
    let (_file, run) = run_with("controller.json", bytes);
    let saved = SavedControllerState::read(&run.path, Some(true));
    if let SavedControllerState::Unreadable(reason) = saved {
        return Err(reason);
    }
    let saved: SavedState = serde_json::from_slice(bytes)
        .map_err(|error| format!("the file was accepted, but: {error}"))?;
    let (state, model) = saved.learned.restore();
    let kind = MicroBatchKind {
        phase: Phase::Train,
        checkpoint_blocks: 0,
        element_bytes: 4,
        input_size: 32,
    };
    let asked = DecisionInput {
        sample: MemorySample {
            at_ms: 1,
            total_bytes: 16 << 30,
            available_bytes: 8 << 30,
            own_bytes: 1 << 30,
            ..MemorySample::default()
        },
        remaining: &[SampleCost(1024); 8],
        kind,
        spare_bytes: 0,
    };
    drop(pressure::decide(&Policy::default(), state, &asked, &model));
    Ok(())
}

fn run_baselines(bytes: &[u8]) -> Result<(), String> {
    let (_file, run) = run_with("baseline.safetensors", bytes);
    let [texts, images] = trainer::internals::load_baselines(&run.path);
    texts.or(images).map_err(|error| error.to_string())
}

fn archive(bytes: &[u8]) -> Result<(), String> {
    let file = OneFile::new("run.ebbrun", bytes);
    let store = RunStore::open(file.folder.path().join("runs"));
    let imported = store.import_archive(&file.path);
    imported.map(drop).map_err(|error| error.to_string())
}

fn hub(bytes: &[u8]) -> Result<(), String> {
    let (files, part_names) = (hub_files(bytes), hub_part_names(bytes));
    hub_commit(bytes).and(files).and(part_names)
}

fn hub_commit(bytes: &[u8]) -> Result<(), String> {
    hub_responses::commit(bytes).map(drop)
}

fn hub_files(bytes: &[u8]) -> Result<(), String> {
    hub_responses::files(bytes).map(drop)
}

fn hub_part_names(bytes: &[u8]) -> Result<(), String> {
    hub_responses::part_names(bytes).map(drop)
}

fn controller(bytes: &[u8]) -> Result<(), String> {
    let mut controller = JsonlController::new(Policy::default());
    for line in String::from_utf8_lossy(bytes).lines() {
        let answered = controller.handle_line(line);
        answered.map_err(|error| error.to_string())?;
    }
    Ok(())
}
