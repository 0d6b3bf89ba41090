//! Made-up samples with a pattern to learn. They are the same on every machine.

use crate::workload::{IMAGE, IMAGE_CLASSES, TEXT_CLASSES, VOCABULARY, Workload};
use std::ops::Range;
use tape::Rng;

impl Workload {
    /// A made-up batch of `samples` with a pattern to learn.
    pub(crate) fn batch(self, samples: usize) -> Batch {
        let stream = Rng::new(2).site(self.name());
        match self {
            Workload::Gpt => sequences(stream, samples, self.tokens(), 256),
            Workload::Gpt125m => sequences(stream, samples, self.tokens(), 16_384),
            Workload::BertMini => texts(stream, samples, self.tokens()),
            Workload::ResNet18
            | Workload::ResNet50
            | Workload::ConvNextTiny
            | Workload::VitTiny => images(stream, samples),
        }
    }

    /// Bytes of one sample on the host.
    pub fn sample_bytes(self) -> u64 {
        let batch = self.zeros(1);
        (4 * (batch.ids.len() + batch.pixels.len() + batch.targets.len())) as u64
    }

    /// A batch of `samples` of the same shapes, filled with zeros.
    pub(crate) fn zeros(self, samples: usize) -> Batch {
        let ids = samples * self.tokens();
        let pixels = if ids == 0 {
            samples * 3 * IMAGE * IMAGE
        } else {
            0
        };
        let targets = match self {
            Workload::Gpt | Workload::Gpt125m => ids,
            Workload::BertMini
            | Workload::ResNet18
            | Workload::ResNet50
            | Workload::ConvNextTiny
            | Workload::VitTiny => samples,
        };
        Batch {
            ids: vec![0; ids],
            pixels: vec![0.0; pixels],
            targets: vec![0; targets],
            samples,
        }
    }
}

/// Samples of a workload on the host.
pub(crate) struct Batch {
    /// Tokens [samples, tokens]; empty for images.
    pub ids: Vec<u32>,
    /// Pixels [samples, 3, side, side]; empty for texts.
    pub pixels: Vec<f32>,
    /// One target per token of a language model, else one per sample.
    pub targets: Vec<u32>,
    pub samples: usize,
}

impl Batch {
    /// A copy of the samples in `range`.
    pub fn slice(&self, range: Range<usize>) -> Batch {
        fn cut<T: Clone>(all: &[T], samples: usize, range: &Range<usize>) -> Vec<T> {
            let each = all.len() / samples;
            all[range.start * each..range.end * each].to_vec()
        }
        Batch {
            ids: cut(&self.ids, self.samples, &range),
            pixels: cut(&self.pixels, self.samples, &range),
            targets: cut(&self.targets, self.samples, &range),
            samples: range.len(),
        }
    }

    /// Divisor of the summed loss: the number of targets.
    pub fn weight(&self) -> f64 {
        self.targets.len() as f64
    }
}

/// Each token follows from the one before it, except for one in eight, which is random.
fn sequences(stream: Rng, samples: usize, tokens: usize, vocabulary: u32) -> Batch {
    let (mut ids, mut targets) = (Vec::new(), Vec::new());
    for sample in 0..samples as u64 {
        let at = |i: u64| stream.at(sample).at(i);
        let mut token = (at(0).uniform(0) * f64::from(vocabulary)) as u32;
        for i in 1..=tokens as u64 {
            ids.push(token);
            token = if at(i).uniform(1) < 0.125 {
                (at(i).uniform(0) * f64::from(vocabulary)) as u32
            } else {
                (token * 5 + 17) % vocabulary
            };
            targets.push(token);
        }
    }
    Batch {
        ids,
        pixels: Vec::new(),
        targets,
        samples,
    }
}

/// The class decides which quarter of the vocabulary is more frequent.
fn texts(stream: Rng, samples: usize, tokens: usize) -> Batch {
    let (mut ids, mut targets) = (Vec::new(), Vec::new());
    let classes = TEXT_CLASSES as u32;
    for sample in 0..samples as u64 {
        let own = stream.at(sample);
        let class = (own.uniform(0) * f64::from(classes)) as u32;
        for i in 0..tokens as u64 {
            let token = (own.at(i).uniform(0) * VOCABULARY as f64) as u32;
            let frequent = own.at(i).uniform(1) < 0.3;
            ids.push(if frequent {
                token / classes + class * (VOCABULARY as u32 / classes)
            } else {
                token
            });
        }
        targets.push(class);
    }
    Batch {
        ids,
        pixels: Vec::new(),
        targets,
        samples,
    }
}

/// Noise whose red channel is shifted by the class.
fn images(stream: Rng, samples: usize) -> Batch {
    let (mut pixels, mut targets) = (Vec::new(), Vec::new());
    for sample in 0..samples as u64 {
        let own = stream.at(sample);
        let class = (own.uniform(0) * IMAGE_CLASSES as f64) as u32;
        let shift = f64::from(class) / IMAGE_CLASSES as f64 * 4.0 - 2.0;
        let plane = (IMAGE * IMAGE) as u64;
        pixels.extend(
            (0..3 * plane)
                .map(|i| (own.at(1).normal(i) + if i < plane { shift } else { 0.0 }) as f32),
        );
        targets.push(class);
    }
    Batch {
        ids: Vec::new(),
        pixels,
        targets,
        samples,
    }
}
