//! Segments of checkpointed blocks: only the input of each segment is saved.

// A helper that fails fails the test.
#![allow(clippy::unwrap_used)]

use crate::folders::adapters::set_adapters;
use crate::folders::{assert_error_contains, fixture};
use candle_core::{DType, Device};
use models::pretrained::{BuildOptions, FineTuningSettings};
use models::{Gpt, Network, Pretrained};
use tape::inplace::to_f64;
use tape::{Cancel, Kernels, Parameters, SampleNoise, Tape};

const SAMPLES: usize = 2;
const TOKENS: usize = 12;

fn ids() -> Vec<u32> {
    (0..SAMPLES * TOKENS).map(|i| (7 * i % 17) as u32).collect()
}

/// The network of a run with this setting, in f64.
fn trained(segment: Option<u32>) -> (Gpt, Parameters) {
    let settings = FineTuningSettings {
        from: Some(fixture("decoders/llama")),
        adapter_rank: Some(2),
        adapter_dropout: Some(0.1),
        checkpoint_segment: segment,
        ..FineTuningSettings::default()
    };
    // A run trains from its own copy of the weights.
    let (pretrained, run) = (Pretrained::open(&settings), tempfile::tempdir().unwrap());
    let pretrained = pretrained.unwrap().unwrap().copy_into(run.path()).unwrap();
    let options = BuildOptions {
        input_size: 0,
        outputs: 0,
        seed: 4,
        dtype: DType::F64,
        device: &Device::Cpu,
    };
    let (network, mut parameters) = pretrained.build(&options).unwrap();
    set_adapters(&mut parameters);
    let Network::Gpt(gpt) = network else {
        panic!("it is a language model");
    };
    (gpt, parameters)
}

/// The gradients, and the bytes that the forward pass saves.
fn gradients(segment: Option<u32>, checkpointed: usize) -> (Vec<f64>, u64) {
    let (gpt, parameters) = trained(segment);
    let noise = SampleNoise {
        seed: 5,
        step: 3,
        samples: [7, 9].into(),
    };
    let tape = Tape::record(&parameters, Cancel::default(), Kernels::Fused);
    let tape = tape.with_sample_noise(noise);
    let loss = gpt.loss(&tape, &ids(), &ids(), SAMPLES, checkpointed);
    let saved = tape.saved_bytes();
    let found = tape.backward(vec![(loss.unwrap().sum, 1.0)]).unwrap();
    let found = found.iter().map(|g| to_f64(g.as_ref().unwrap()).unwrap());
    (found.flatten().collect(), saved)
}

#[test]
fn segments_of_checkpointed_blocks_save_less_and_have_the_same_gradients() {
    let (expected, saved) = gradients(None, 2);
    // The last segment may be shorter, and blocks that are not checkpointed are in no segment.
    for (segment, checkpointed) in [(2, 2), (3, 2), (1, 2), (2, 1), (2, 0)] {
        let (found, of_segments) = gradients(Some(segment), checkpointed);
        assert!(found == expected, "segments of {segment}");
        if segment > 1 && checkpointed == 2 {
            assert!(of_segments < saved, "{of_segments} of {saved} bytes");
        }
    }
}

#[test]
fn networks_without_rotary_positions_have_no_segments() {
    let settings = FineTuningSettings {
        from: Some(fixture("gpt2")),
        checkpoint_segment: Some(2),
        ..FineTuningSettings::default()
    };
    assert_error_contains(
        Pretrained::open(&settings),
        &["checkpoint_segment", "rotary positions"],
    );
    let settings = FineTuningSettings {
        from: None,
        ..settings
    };
    assert_error_contains(
        Pretrained::open(&settings),
        &["checkpoint_segment", "--from"],
    );
}
