//! The loader returns the requested samples in the requested order.

use crate::support::{Folder, jpeg, scene};
use dataset::{
    Augment, ImageDataset, ImageOptions, InspectOptions, Loader, LoaderOptions, Order, Split,
};
use std::fs;
use std::sync::Arc;

const FILES: u32 = 12;

fn open(folder: &Folder, cache_bytes: u64) -> Arc<ImageDataset> {
    let found = folder.inspect_with(InspectOptions {
        held_out_fraction: 0.0,
        seed: 0,
        ..InspectOptions::default()
    });
    let options = ImageOptions {
        size: 16,
        augment: Augment::Standard,
        mix: dataset::Mix::None,
        seed: 9,
    };
    Arc::new(ImageDataset::open(
        &found,
        Split::Train,
        options,
        None,
        cache_bytes,
    ))
}

fn folder() -> Folder {
    let folder = Folder::new();
    for i in 0..FILES {
        folder.put(&format!("ant/{i:02}.jpg"), &jpeg(&scene(30 + i, 40)));
    }
    folder
}

fn start(dataset: &Arc<ImageDataset>, workers: usize, depth_samples: usize) -> Loader {
    Loader::start(
        Arc::clone(dataset),
        LoaderOptions {
            workers,
            depth_samples,
        },
    )
}

#[test]
fn a_panic_while_a_sample_is_loaded_is_an_error_in_its_place() {
    let folder = folder();
    for workers in [0, 1, 2] {
        let mut loader = start(&open(&folder, 0), workers, 4);
        // There is no such image: the dataset panics.
        loader.request(0, &[0, FILES + 7, 1]);
        let samples = loader.take(3);
        assert_eq!(samples.len(), 3);
        assert!(samples[0].is_ok() && samples[2].is_ok(), "{samples:?}");
        let error = samples[1]
            .as_ref()
            .expect_err("the sample cannot be loaded");
        assert!(error.reason.contains("a fault in Ebb"), "{}", error.reason);
    }
}

#[test]
fn threads_and_depth_do_not_change_the_samples() {
    let folder = folder();
    let dataset = open(&folder, 0);
    let order = Order {
        seed: 3,
        len: FILES,
        effective_batch: 5,
    };
    let steps: Vec<(u64, Vec<u32>)> = (0..6).map(|step| order.step(step)).collect();
    let expected: Vec<_> = steps
        .iter()
        .flat_map(|(epoch, batch)| batch.iter().map(|i| dataset.sample(*i, *epoch)))
        .collect();
    for (workers, depth) in [(0, 1), (0, 8), (1, 1), (2, 3), (4, 64), (3, 0)] {
        let mut loader = start(&dataset, workers, depth);
        for (epoch, batch) in &steps {
            loader.request(*epoch, batch);
        }
        let mut got = loader.take(1);
        got.extend(loader.take(10));
        assert_eq!(loader.outstanding(), 13);
        got.extend(loader.take(1000));
        assert_eq!(got, expected, "{workers} workers, {depth} ahead");
        assert!(loader.take(1).is_empty() && loader.waited_ms() > 0.0);
    }
}

#[test]
fn a_missing_file_is_an_error_at_its_position() {
    for workers in [0, 2] {
        let folder = folder();
        let dataset = open(&folder, 0);
        fs::remove_file(folder.path().join("ant/03.jpg")).expect("it was there");
        let mut loader = start(&dataset, workers, 4);
        loader.request(0, &[2, 3, 4]);
        let got = loader.take(3);
        assert!(got[0].is_ok() && got[2].is_ok());
        assert!(
            got[1].as_ref().is_err_and(|e| e.file.ends_with("03.jpg")),
            "{:?}",
            got[1]
        );
    }
}

#[test]
fn at_most_depth_samples_are_decoded_ahead() {
    let folder = folder();
    // The size of the cache shows how many files were decoded, since each is requested once.
    let dataset = open(&folder, 1 << 30);
    let mut loader = start(&dataset, 2, 3);
    loader.request(0, &(0..FILES).collect::<Vec<_>>());
    assert!(loader.take(1)[0].is_ok());
    drop(loader);
    let image = 24 * 32 * 3;
    assert!(
        dataset.cached_bytes() <= 4 * image + 4 * 24 * 3 * 4,
        "{} bytes",
        dataset.cached_bytes()
    );
}

#[test]
fn a_loader_describes_itself() {
    let folder = folder();
    let dataset = open(&folder, 256 << 20);
    assert_eq!(
        start(&dataset, 2, 64).describe(),
        "Loader: 2 workers, 64 samples loaded in advance, cache 256 MB"
    );
    assert_eq!(
        start(&dataset, 1, 8).describe(),
        "Loader: 1 worker, 8 samples loaded in advance, cache 256 MB"
    );
    let uncached = open(&folder, 0);
    assert_eq!(
        start(&uncached, 0, 64).describe(),
        "Loader: no workers (the training thread loads the samples), no cache"
    );
}

#[test]
fn changing_the_depth_does_not_change_the_samples() {
    let folder = folder();
    let dataset = open(&folder, 0);
    let all: Vec<u32> = (0..FILES).collect();
    let expected: Vec<_> = all.iter().map(|i| dataset.sample(*i, 2)).collect();
    for workers in [0, 1, 4] {
        let mut loader = start(&dataset, workers, 8);
        loader.request(2, &all);
        let mut got = loader.take(1);
        loader.set_depth(1);
        assert!(loader.describe().contains("1 samples loaded in advance") || workers == 0);
        got.extend(loader.take(5));
        loader.set_depth(8);
        got.extend(loader.take(100));
        assert_eq!(got, expected, "{workers} workers");
    }
}

#[test]
fn cleared_requests_are_dropped_and_the_next_comes_first() {
    let folder = folder();
    let dataset = open(&folder, 0);
    for workers in [0, 1, 4] {
        let mut loader = start(&dataset, workers, 8);
        loader.request(0, &[0, 1, 2, 3, 4]);
        assert_eq!(loader.take(1), [dataset.sample(0, 0)]);
        loader.clear();
        assert_eq!(loader.outstanding(), 0);
        loader.request(1, &[7, 3]);
        let expected = [dataset.sample(7, 1), dataset.sample(3, 1)];
        assert_eq!(loader.take(9), expected, "{workers} workers");
        assert_eq!(loader.workers(), workers, "the threads stay");
    }
}
