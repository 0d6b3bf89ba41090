//! The KV cache changes no generated token and saves most of the time.

// A helper that fails fails the test.
#![allow(clippy::unwrap_used)]

use candle_core::{DType, Device, Tensor};
use models::Network;
use std::time::Instant;
use tape::inplace::to_f64;
use tape::{Cancel, Kernels, Parameters, Rng, Tape};
use trainer::{ModelId, TextModel, TextSize};

/// A model with noisy weights that reads at most `tokens` tokens.
fn model(size: TextSize, tokens: u32, dtype: DType) -> (Network, Parameters) {
    let kind = ModelId::Text(TextModel {
        size,
        tokens,
        vocabulary: 257,
        policy: None,
        neighbors: TextModel::NEIGHBORS,
    });
    let (network, mut parameters) = Network::build(kind, 0, 0, 9, dtype, &Device::Cpu).unwrap();
    for index in 0..parameters.len() {
        let like = parameters.at(index).tensor.clone();
        let stream = Rng::new(index as u64);
        let noise: Vec<f64> = (0..like.elem_count())
            .map(|i| 0.1 * stream.normal(i as u64))
            .collect();
        let noise = Tensor::from_vec(noise, like.dims(), &Device::Cpu).unwrap();
        let noise = noise.to_dtype(dtype).unwrap();
        parameters.set(index, (like + noise).unwrap()).unwrap();
    }
    (network, parameters)
}

/// Extends 12 tokens to `tokens` with the most probable ones, with or without the cache. Returns
/// the tokens, the scores of each step, and the seconds it took.
fn written(
    model: &(Network, Parameters),
    tokens: usize,
    keep: bool,
) -> (Vec<u32>, Vec<Vec<f64>>, f64) {
    let (Network::Gpt(network), parameters) = model else {
        panic!("it is a language model");
    };
    let mut ids: Vec<u32> = (0..12).map(|i| 37 * i % 257).collect();
    let (mut cache, mut all, start) = (network.new_cache(), Vec::new(), Instant::now());
    while ids.len() < tokens {
        let tape = Tape::forward_only(parameters, Cancel::default(), Kernels::Fused);
        let scores = match (keep, cache.tokens()) {
            (false, _) => network.next_scores(&tape, &ids),
            (true, 0) => network.next_scores_cached(&tape, &ids, &mut cache),
            (true, _) => network.next_scores_cached(&tape, &ids[ids.len() - 1..], &mut cache),
        };
        let scores = to_f64(scores.unwrap().tensor()).unwrap();
        let best = (0..scores.len()).max_by(|&a, &b| scores[a].total_cmp(&scores[b]));
        ids.push(best.unwrap() as u32);
        all.push(scores);
    }
    let expected = if keep { tokens - 1 } else { 0 };
    assert_eq!(cache.tokens(), expected);
    (ids, all, start.elapsed().as_secs_f64())
}

#[test]
fn the_cache_changes_no_token_and_saves_most_of_the_time() {
    for (dtype, apart) in [(DType::F64, 1e-10), (DType::F32, 1e-3)] {
        let model = model(TextSize::GptMicro, 512, dtype);
        let tokens = if dtype == DType::F64 { 64 } else { 448 };
        let (again, own, mut slow) = written(&model, tokens, false);
        let (cached, theirs, mut quick) = written(&model, tokens, true);
        // Other processes may slow either of the two down, so the fastest of some rounds count.
        for _ in 0..6 {
            if dtype == DType::F64 || slow > 3.0 * quick {
                break;
            }
            slow = slow.min(written(&model, tokens, false).2);
            quick = quick.min(written(&model, tokens, true).2);
        }
        let each = own.iter().flatten().zip(theirs.iter().flatten());
        let most = each.map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
        println!(
            "{dtype:?}: {tokens} tokens in {slow:.2} s read again, {quick:.2} s with the cache ({:.1} times), scores {most:.1e} apart",
            slow / quick
        );
        assert_eq!(again, cached);
        let distinct: std::collections::BTreeSet<u32> = again.iter().copied().collect();
        assert!(
            distinct.len() > 12,
            "the text does not repeat one token: {again:?}"
        );
        assert!(most < apart, "{most:e}");
        assert!(dtype == DType::F64 || slow > 3.0 * quick, "{slow} {quick}");
    }
}

#[test]
fn a_text_longer_than_the_context_is_refused() {
    let (network, parameters) = model(TextSize::GptMicro, 16, DType::F32);
    let Network::Gpt(network) = network else {
        panic!("it is a language model");
    };
    let tape = Tape::forward_only(&parameters, Cancel::default(), Kernels::Fused);
    let mut cache = network.new_cache();
    network
        .next_scores_cached(&tape, &[1; 16], &mut cache)
        .unwrap();
    // Keys and values: 4 blocks of 192, 4 bytes each.
    assert_eq!(cache.bytes(), 16 * 2 * 4 * 192 * 4);
    for (ids, cache, expected) in [
        (&[1][..], &mut cache, "holds its maximum of 16"),
        (&[1; 17][..], &mut network.new_cache(), "1 to 16 tokens"),
    ] {
        let message = network
            .next_scores_cached(&tape, ids, cache)
            .unwrap_err()
            .to_string();
        assert!(message.contains(expected), "{message}");
    }
}
