//! Seeded mutations of the corpus: bytes flipped, cut, repeated and taken from other files. It
//! finds in half a second what the targets in `fuzz/` need no coverage for.

use crate::corpus_of;
use crate::readers::reader;
use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

/// Environment variable: seconds for each reader.
const SECONDS: &str = "EBB_MUTATION_SECONDS";
/// Seconds without it, and most mutations: a faster machine tries no others.
const USUAL_SECONDS: f64 = 0.5;
const USUAL_MUTATIONS: u64 = 2000;
/// Bytes that readers treat specially: the ends of ranges, delimiters and brackets.
const SPECIAL: &[u8] = &[
    0, 1, 0x7F, 0x80, 0xFE, 0xFF, b'"', b',', b'\n', b'[', b'{', b'9', b'-',
];
/// Most bytes of a mutated file.
const MAX_BYTES: usize = 64 << 10;

/// Random numbers (xorshift64*, Vigna 2016).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D)
    }

    /// A number below `limit`; 0 if that is 0.
    fn below(&mut self, limit: usize) -> usize {
        (self.next() >> 33) as usize % limit.max(1)
    }
}

/// Changes a file in up to four places.
fn mutate(file: &[u8], other: &[u8], random: &mut Random) -> Vec<u8> {
    let mut bytes = file.to_vec();
    for _ in 0..=random.below(4) {
        let at = random.below(bytes.len());
        let length = random.below(64).min(bytes.len() - at);
        match random.below(7) {
            0 => bytes.truncate(at),
            1 => drop(bytes.drain(at..at + length)),
            2 => {
                let block = bytes[at..at + length].repeat(1 + random.below(8));
                bytes.splice(at..at, block);
            }
            3 => {
                let from = random.below(other.len());
                let until = (from + random.below(256)).min(other.len());
                bytes.splice(at..at + length, other[from..until].iter().copied());
            }
            4 => bytes.insert(at, SPECIAL[random.below(SPECIAL.len())]),
            5 if !bytes.is_empty() => bytes[at] ^= 1 << random.below(8),
            _ if !bytes.is_empty() => bytes[at] = SPECIAL[random.below(SPECIAL.len())],
            _ => {}
        }
    }
    bytes.truncate(MAX_BYTES);
    bytes
}

/// Reads mutations of the reader's corpus until its time is over. No mutation may panic.
fn check(name: &str) {
    let read = reader(name);
    let files: Vec<Vec<u8>> = corpus_of(name)
        .iter()
        .map(|path| fs::read(path).expect("it can be read"))
        .collect();
    let seconds = std::env::var(SECONDS).ok();
    let seconds: Option<f64> = seconds.and_then(|seconds| seconds.parse().ok());
    let most = seconds.map_or(USUAL_MUTATIONS, |_| u64::MAX);
    let limit = Duration::from_secs_f64(seconds.unwrap_or(USUAL_SECONDS));
    let (begin, mut seed) = (Instant::now(), 0u64);
    while (begin.elapsed() < limit && seed < most) || seed < files.len() as u64 {
        seed += 1;
        let mut random = Random(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15));
        let file = &files[seed as usize % files.len()];
        let other = &files[random.below(files.len())];
        let bytes = mutate(file, other, &mut random);
        let outcome = catch_unwind(AssertUnwindSafe(|| read(&bytes)));
        if outcome.is_err() {
            let saved = std::env::temp_dir().join(format!("ebb-{name}-{seed}"));
            fs::write(&saved, &bytes).expect("it can be written");
            panic!("mutation {seed} of {name} panics: {}", saved.display());
        }
    }
    println!("{name}: {seed} mutations");
}

#[test]
fn mutated_images_do_not_panic() {
    check("images");
}

#[test]
fn mutated_tables_do_not_panic() {
    check("tables");
}

#[test]
fn mutated_texts_do_not_panic() {
    check("texts");
}

#[test]
fn mutated_parquet_files_do_not_panic() {
    check("parquet");
}

#[test]
fn mutated_weights_do_not_panic() {
    check("safetensors");
}

#[test]
fn mutated_model_configs_do_not_panic() {
    check("model_config");
}

#[test]
fn mutated_files_of_runs_do_not_panic() {
    check("run_files");
}

#[test]
fn mutated_gguf_files_do_not_panic() {
    check("gguf");
}

#[test]
fn mutated_tokenizers_do_not_panic() {
    check("tokenizer");
}

#[test]
fn mutated_chat_templates_do_not_panic() {
    check("chat_template");
}

#[test]
fn mutated_questions_do_not_panic() {
    check("questions");
}

#[test]
fn mutated_configs_do_not_panic() {
    check("config");
}

#[test]
fn mutated_events_do_not_panic() {
    check("events");
}

#[test]
fn mutated_states_do_not_panic() {
    check("state");
}

#[test]
fn mutated_archives_do_not_panic() {
    check("archive");
}

#[test]
fn mutated_hub_responses_do_not_panic() {
    check("hub");
}

#[test]
fn mutated_controller_lines_do_not_panic() {
    check("controller");
}

/// The readers that `scripts/fuzz` finds in the manifest: it prints them with the same `sed`.
fn readers_of_the_script(root: &Path) -> Vec<String> {
    let script = fs::read_to_string(root.join("scripts/fuzz")).expect("it can be read");
    let (_, expression) = script
        .split_once("sed -n '")
        .expect("the script reads names");
    let (expression, _) = expression.split_once('\'').expect("the expression ends");
    let output = Command::new("sed")
        .args(["-n", expression, "fuzz/Cargo.toml"])
        .current_dir(root)
        .output()
        .expect("sed runs");
    let text = String::from_utf8(output.stdout).expect("names are text");
    text.lines().map(str::to_owned).collect()
}

/// The readers that are fuzzed at night.
fn readers_of_the_workflow(root: &Path) -> Vec<String> {
    let path = root.join(".github/workflows/nightly.yml");
    let workflow = fs::read_to_string(path).expect("it can be read");
    let (_, list) = workflow
        .split_once("reader: [")
        .expect("it lists the readers");
    let (list, _) = list.split_once(']').expect("the list ends");
    list.split(',').map(|name| name.trim().to_owned()).collect()
}

#[test]
fn every_reader_has_a_fuzz_target() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let targets = root.join("fuzz/fuzz_targets");
    let manifest = targets.with_file_name("Cargo.toml");
    let manifest = fs::read_to_string(manifest).expect("it can be read");
    let mut names: Vec<String> = crate::readers::READERS
        .iter()
        .map(|(name, _)| (*name).to_owned())
        .collect();
    names.sort();
    for (mut found, file) in [
        (readers_of_the_script(root), "scripts/fuzz"),
        (readers_of_the_workflow(root), "nightly.yml"),
    ] {
        found.sort();
        assert_eq!(found, names, "{file}");
    }
    for (name, _) in crate::readers::READERS {
        let target = fs::read_to_string(targets.join(format!("{name}.rs")));
        let target = target.expect("it can be read");
        assert!(target.contains(&format!("\"{name}\"")), "{name}");
        assert!(manifest.contains(&format!("name = \"{name}\"")), "{name}");
    }
}
