//! A synthetic run of 9:42 minutes: 64 samples per step on a Mac with 24 GB, while another app
//! needs memory twice. It uses only additions, multiplications and divisions, so that every
//! platform writes the same file.

use super::Noise;
use pressure::describe_decision;
use pressure::{
    Action, Change, Component, Decision, Level, MemorySample, Moments, Phase, Prefetch, Thermal,
};
use runlog::{CheckpointReason, MemoryPeak, RunEvent, Started};
use std::collections::BTreeMap;

const GB: f64 = 1073741824.0;
const END_MS: u64 = 582_000;
const STATE_GB: f64 = 1.7;
const SYSTEM_GB: f64 = 3.1;
const TOTAL_GB: f64 = 24.0;
const LINE_GB: f64 = 21.6;
const TRAIN: u64 = 972;
const BATCH: u64 = 64;
const STEPS_PER_EPOCH: u64 = 16;

/// Decisions: time in ms, micro-batch and reason.
const PLAN: [(u64, u32, &str); 8] = [
    (0, 1, "no micro-batch has been measured yet"),
    (4_000, 2, "a micro-batch of 1 leaves 19 GB free"),
    (8_000, 4, "a micro-batch of 2 leaves enough free"),
    (14_000, 8, "a micro-batch of 4 leaves enough free"),
    (22_000, 16, "a micro-batch of 8 leaves enough free"),
    (190_000, 11, "another app took 2.9 GB in 18 s"),
    (285_000, 16, "memory has been free for 4 s"),
    (537_000, 8, "another app took 6.1 GB in 20 s"),
];

/// All events of the run, in order.
pub fn events() -> Vec<RunEvent> {
    let mut run = Demo {
        noise: Noise(7),
        events: vec![RunEvent::Started(Box::new(started()))],
        clock_ms: 0.0,
        decided: 0,
        sampled_ms: None,
        drift: 0.0,
        level: Level::Normal,
        best: 0.0,
    };
    let mut step = 0;
    while run.clock_ms < END_MS as f64 {
        step += 1;
        run.step(step);
        if step % STEPS_PER_EPOCH == 0 {
            run.evaluation(step);
        }
    }
    run.events
}

struct Demo {
    noise: Noise,
    events: Vec<RunEvent>,
    clock_ms: f64,
    /// Number of entries of `PLAN` that were applied.
    decided: usize,
    sampled_ms: Option<u64>,
    drift: f64,
    level: Level,
    best: f64,
}

impl Demo {
    fn at_ms(&self) -> u64 {
        self.clock_ms as u64
    }

    fn micro_batch(&self) -> u32 {
        PLAN[self.decided - 1].1
    }

    fn step(&mut self, step: u64) {
        let begun_ms = self.clock_ms;
        let epoch = (step - 1) / STEPS_PER_EPOCH;
        let samples = BATCH.min(TRAIN - (step - 1) % STEPS_PER_EPOCH * BATCH);
        let (mut left, mut micro_batches) = (samples, Vec::new());
        while left > 0 {
            self.decide(step - 1);
            let largest = u64::from(self.micro_batch());
            let size = left.div_ceil(left.div_ceil(largest));
            self.advance(size as f64 * 1000.0 / speed(size as u32));
            micro_batches.push(size as u32);
            left -= size;
        }
        let wait_ms = 3.0 + 2.0 * self.noise.unit();
        self.pass(wait_ms);
        let spread = if samples < BATCH { 0.2 } else { 0.11 };
        let loss = (truth(step) * (1.0 + spread * self.noise.normal())).max(0.05);
        self.events.push(RunEvent::Step {
            at_ms: self.at_ms(),
            step,
            epoch,
            loss: rounded(loss),
            learning_rate: learning_rate(step),
            gradient_norm: rounded(0.4 + loss * (0.6 + 0.1 * self.noise.normal())),
            samples_per_second: rounded(samples as f64 * 1000.0 / (self.clock_ms - begun_ms)),
            wait_ms: rounded(wait_ms),
            command_buffer_ms: None,
            micro_batches,
            checkpoint_blocks: Vec::new(),
            ledger: Vec::new(),
            metrics: Default::default(),
        });
        if step == 40 {
            self.events.push(RunEvent::Skipped {
                at_ms: self.at_ms(),
                step,
                item: "ibis/image_0031.jpg".into(),
                reason: "it ends after 12 of 48 kB; copy it again to use it".into(),
                gradients: Some(Vec::new()),
            });
        }
    }

    fn advance(&mut self, ms: f64) {
        let factor = 1.0 + 0.02 * self.noise.normal();
        self.pass(ms * factor);
    }

    /// Advances the clock and samples memory once per second.
    fn pass(&mut self, ms: f64) {
        let until = self.clock_ms + ms;
        while self.sampled_ms.is_none_or(|at| (at + 1000) as f64 <= until) {
            let at_ms = self.sampled_ms.map_or(0, |at| at + 1000);
            self.sampled_ms = Some(at_ms);
            self.drift += 0.02 * self.noise.normal() - 0.01 * self.drift;
            self.memory(at_ms);
        }
        self.clock_ms = until;
    }

    fn memory(&mut self, at_ms: u64) {
        let wobble = 0.03 * self.noise.unit();
        let event = self.sample(at_ms, wobble);
        self.events.push(event);
    }

    fn sample(&mut self, at_ms: u64, wobble: f64) -> RunEvent {
        let others = others_gb(at_ms as f64 / 1000.0, self.drift);
        let own = STATE_GB + 0.3 * f64::from(self.micro_batch()) - wobble;
        let used = SYSTEM_GB + others + own;
        self.level = match self.level {
            Level::Normal if used > 20.4 => Level::Warning,
            Level::Warning if used < 18.5 => Level::Normal,
            level => level,
        };
        RunEvent::Memory {
            at_ms,
            sample: MemorySample {
                at_ms,
                total_bytes: bytes(TOTAL_GB),
                available_bytes: bytes(TOTAL_GB - used),
                own_bytes: bytes(own),
                system_bytes: bytes(SYSTEM_GB),
                device_live_bytes: bytes(own - 0.2),
                device_allocated_bytes: bytes(own - 0.1),
                device_limit_bytes: bytes(17.8),
                compressor_fraction: Some(0.08),
                disk_free_bytes: Some(bytes(214.0)),
                thermal: Some(thermal(at_ms)),
                ..MemorySample::default()
            },
            state_bytes: bytes(STATE_GB),
            pressure: rounded(pressure(used / TOTAL_GB)),
            level: self.level,
            cause: Component::Headroom,
            budget_bytes: bytes(LINE_GB - SYSTEM_GB - others),
            micro_batch: self.micro_batch(),
            peak: Some(MemoryPeak {
                own_bytes: bytes(own),
                cached_bytes: bytes(0.1),
                others_bytes: bytes(others),
            }),
            limit_bytes: bytes(LINE_GB),
        }
    }

    fn decide(&mut self, step: u64) {
        let Some(&(due_ms, size, reason)) = PLAN.get(self.decided) else {
            return;
        };
        if self.clock_ms < due_ms as f64 {
            return;
        }
        let previous = self.decided.checked_sub(1).map_or(0, |i| PLAN[i].1);
        self.decided += 1;
        let at_ms = self.at_ms();
        let decision = Decision {
            action: Action::Run,
            micro_batch: size,
            change: match previous {
                0 => Change::Start,
                p if p < size => Change::Grow,
                _ => Change::Shrink,
            },
            release_caches: size < previous,
            checkpoint_first: false,
            prefetch: Prefetch::Long,
            checkpoint_blocks: 0,
            moments: Moments::Resident,
            predicted_peak_bytes: bytes(STATE_GB + 0.3 * f64::from(size)),
            budget_bytes: bytes(LINE_GB - SYSTEM_GB - others_gb(at_ms as f64 / 1000.0, self.drift)),
            cause: Component::Headroom,
            reason: reason.into(),
        };
        let message = describe_decision(previous, &decision);
        self.events.push(RunEvent::Decision {
            at_ms,
            step,
            phase: Phase::Train,
            previous_micro_batch: previous,
            micro_batches: (BATCH as u32).div_ceil(size),
            decision,
            message,
        });
        let event = self.sample(at_ms, 0.0);
        self.events.push(event);
        if size < previous {
            self.checkpoint(step, CheckpointReason::Pressure);
        }
    }

    fn evaluation(&mut self, step: u64) {
        self.advance(1_400.0);
        let epoch = step / STEPS_PER_EPOCH;
        let right = (0.91 - 0.86 / (1.0 + square(epoch as f64 / 2.6)) + 0.01 * self.noise.normal())
            .clamp(0.05, 1.0);
        // The accuracy is a fraction of 243 images.
        let accuracy = (right * 243.0).floor() / 243.0;
        let best = accuracy > self.best;
        self.best = self.best.max(accuracy);
        self.events.push(RunEvent::Evaluation {
            at_ms: self.at_ms(),
            step,
            epoch,
            samples: 243,
            loss: rounded(truth(step) * 1.06 + 0.1 + 0.015 * self.noise.normal()),
            metrics: BTreeMap::from([("accuracy".into(), rounded(accuracy))]),
            best,
        });
        if best {
            self.checkpoint(step, CheckpointReason::Best);
        }
    }

    fn checkpoint(&mut self, step: u64, reason: CheckpointReason) {
        let duration_ms = 760.0 + 60.0 * self.noise.unit();
        self.advance(40.0);
        self.events.push(RunEvent::Checkpoint {
            at_ms: self.at_ms(),
            step,
            path: format!("checkpoints/step-{step:06}"),
            bytes: bytes(STATE_GB * 0.75),
            duration_ms: rounded(duration_ms),
            reason,
        });
    }
}

fn started() -> Started {
    let classes = "Leopards Motorbikes airplanes bonsai butterfly chandelier dalmatian grand_piano hawksbill ibis \
                   kangaroo ketch laptop llama menorah scorpion starfish sunflower trilobite watch";
    Started {
        targets: Vec::new(),
        at_ms: 0,
        unix_ms: 1_795_180_920_000,
        process: 4242,
        version: "0.1.0".into(),
        name: "img_caltech101_20".into(),
        task: "image-classification".into(),
        model: "vit_micro".into(),
        classes: classes.split(' ').map(str::to_owned).collect(),
        train_samples: TRAIN,
        held_out_samples: 243,
        held_out_copies: 0,
        parameters: 114_085_000,
        input_size: 224,
        effective_batch: BATCH as u32,
        effective_batch_tokens: None,
        epochs: 30,
        steps: 30 * STEPS_PER_EPOCH,
        steps_per_epoch: STEPS_PER_EPOCH,
        learning_rate: 0.001,
        optimizer: "adamw".into(),
        device: "Metal on M4 Pro".into(),
        device_reason: "16 operations checked on this Mac".into(),
        precision: "f32".into(),
        checkpoint_blocks: 0,
        threads: 8,
        loader: "4 workers prefetch up to 8 micro-batches".into(),
        memory_source: "macOS".into(),
        total_bytes: bytes(TOTAL_GB),
        seed: 7,
        estimated_peak_bytes: bytes(6.4),
        branched_from: String::new(),
    }
}

fn square(v: f64) -> f64 {
    v * v
}

fn rounded(v: f64) -> f64 {
    (v * 10_000.0).round() / 10_000.0
}

fn bytes(gb: f64) -> u64 {
    (gb * GB / 65_536.0).round() as u64 * 65_536
}

fn truth(step: u64) -> f64 {
    0.27 + 2.75 / (1.0 + square(step as f64 / 52.0))
}

fn learning_rate(step: u64) -> f64 {
    let (step, steps) = (step as f64, (30 * STEPS_PER_EPOCH) as f64);
    let slope = if step < 24.0 {
        step / 24.0
    } else {
        1.0 - square((step - 24.0) / (steps - 24.0))
    };
    (slope * 1e-3 * 1e8).round() / 1e8
}

fn speed(size: u32) -> f64 {
    31.5 * f64::from(size) / (f64::from(size) + 1.6)
}

/// The machine gets warm after three minutes.
fn thermal(at_ms: u64) -> Thermal {
    if at_ms < 180_000 {
        Thermal::Nominal
    } else {
        Thermal::Fair
    }
}

fn ramp(t: f64, from: f64, to: f64) -> f64 {
    ((t - from) / (to - from)).clamp(0.0, 1.0)
}

fn others_gb(t: f64, drift: f64) -> f64 {
    8.1 + drift
        + 4.5 * (ramp(t, 172.0, 200.0) - ramp(t, 266.0, 280.0))
        + 0.9 * (ramp(t, 392.0, 398.0) - ramp(t, 424.0, 440.0))
        - 2.4 * ramp(t, 446.0, 470.0)
        + 7.9 * ramp(t, 517.0, 543.0)
}

fn pressure(used: f64) -> f64 {
    0.5 * ramp(used, 0.5, 0.85) + 0.3 * ramp(used, 0.85, 0.93) + 0.2 * ramp(used, 0.93, 1.0)
}
