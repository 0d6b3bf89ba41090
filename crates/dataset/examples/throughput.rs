//! Measures how many samples per second one thread loads: first with every file decoded, then from
//! the cache.
//! `cargo run --release -p dataset --example throughput FOLDER [SIZE]`

use dataset::{Augment, ImageDataset, ImageOptions, InspectOptions, Split, inspect_images};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

const CACHE_BYTES: u64 = 1_000_000_000;

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    let Some(folder) = arguments.next().map(PathBuf::from) else {
        eprintln!("usage: throughput FOLDER [SIZE], with a folder of class folders");
        return ExitCode::from(2);
    };
    let size = arguments.next().and_then(|s| s.parse().ok()).unwrap_or(64);
    let start = Instant::now();
    let inspection = match inspect_images(&folder, &InspectOptions::default(), &|_| {}) {
        Ok(inspection) => inspection,
        Err(error) => {
            eprintln!("{error}");
            return ExitCode::FAILURE;
        }
    };
    let ms = start.elapsed().as_millis();
    println!("{} images inspected in {ms} ms", inspection.image_count());
    let options = ImageOptions {
        size,
        augment: Augment::Standard,
        mix: dataset::Mix::None,
        seed: 0,
    };
    let dataset = ImageDataset::open(&inspection, Split::Train, options, None, CACHE_BYTES);
    for source in ["decoded", "cached"] {
        let start = Instant::now();
        let loaded = (0..dataset.len() as u32)
            .filter(|i| dataset.sample(*i, 0).is_ok())
            .count();
        let rate = loaded as f64 / start.elapsed().as_secs_f64();
        println!(
            "{size} px, 1 thread, {source}: {rate:.0} samples/s, {loaded} of {}",
            dataset.len()
        );
    }
    ExitCode::SUCCESS
}
