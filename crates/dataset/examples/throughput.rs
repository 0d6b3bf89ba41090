//! How many samples a second one thread makes of a folder: first with every file decoded, then from memory.
//! `cargo run --release -p dataset --example throughput FOLDER [SIZE]`

use dataset::{Augment, ImageDataset, ImageOptions, InspectOptions, Part, inspect};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

const CACHE_BYTES: u64 = 1_000_000_000;

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    let Some(folder) = arguments.next().map(PathBuf::from) else {
        eprintln!("throughput FOLDER [SIZE]: name a folder of class folders.");
        return ExitCode::from(2);
    };
    let size = arguments.next().and_then(|s| s.parse().ok()).unwrap_or(64);
    let begun = Instant::now();
    let inspection = match inspect(&folder, &InspectOptions::default(), &|_| {}) {
        Ok(inspection) => inspection,
        Err(error) => {
            eprintln!("{error}");
            return ExitCode::FAILURE;
        }
    };
    let ms = begun.elapsed().as_millis();
    println!(
        "{} photographs looked at in {ms} ms",
        inspection.photographs()
    );
    let options = ImageOptions {
        size,
        augment: Augment::Standard,
        mix: dataset::Mix::None,
        seed: 0,
    };
    let dataset = ImageDataset::open(&inspection, Part::Train, options, None, CACHE_BYTES);
    for what in ["decoded", "from memory"] {
        let begun = Instant::now();
        let made = (0..dataset.len() as u32)
            .filter(|i| dataset.sample(*i, 0).is_ok())
            .count();
        let rate = made as f64 / begun.elapsed().as_secs_f64();
        println!(
            "{size} px, 1 thread, {what}: {rate:.0} samples/s, {made} of {}",
            dataset.len()
        );
    }
    ExitCode::SUCCESS
}
