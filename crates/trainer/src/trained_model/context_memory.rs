//! How many tokens of a conversation fit into memory. Keys and values of all tokens stay in memory
//! while an answer is generated, beside the weights.

use crate::error::{Result, TrainError};
use crate::machine_sources::Machine;
use crate::shared_device::SharedDevice;
use candle_core::Device;
use models::Gpt;
use pressure::{
    Component, ControllerState, Level, MemorySample, MemorySource, Policy, budget_bytes, pressure,
};
use runlog::{counted, format_bytes};
use std::cell::RefCell;
use std::ops::ControlFlow;

/// Bytes for each cached value: 4 of itself, and as many for the pass over the prompt, and for the
/// blocks whose caches a token joins.
const BYTES_PER_VALUE: u64 = 8;
/// A model is not loaded for conversations with room for fewer tokens.
const LEAST_TOKENS: usize = 64;
/// While an answer is generated, the memory is read again after this many parts of its text.
const PARTS_PER_READING: usize = 32;

/// The memory of the machine, from which conversations take theirs.
pub(super) struct ContextMemory {
    source: RefCell<Box<dyn MemorySource>>,
    /// Whether the device has a memory of its own.
    is_separate: bool,
}

/// How long a conversation may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Room {
    /// Its most tokens, with the answer.
    pub tokens: usize,
    /// Bytes that a conversation may use, if they limit its tokens; otherwise the model does.
    pub limited_by_bytes: Option<u64>,
}

impl ContextMemory {
    /// # Errors
    /// The script that replaces the machine's memory cannot be read.
    pub fn open(machine: &Machine, device: &Device) -> Result<Self> {
        Ok(ContextMemory {
            source: RefCell::new(machine.source(&SharedDevice::new(device), 0)?),
            is_separate: device.is_cuda(),
        })
    }

    /// The room for a conversation of at most `most` tokens now.
    pub fn room(&self, network: &Gpt, most: usize) -> Room {
        let sample = self.source.borrow_mut().sample().ok();
        let available_bytes = sample.map(|sample| self.available_bytes(&sample));
        let cost = |tokens| conversation_bytes(network, tokens);
        let tokens = available_bytes.map_or(most, |bytes| most_tokens(most, bytes, cost));
        Room {
            tokens,
            limited_by_bytes: available_bytes.filter(|_| tokens < most),
        }
    }

    /// Bytes beyond those that the process uses already.
    fn available_bytes(&self, sample: &MemorySample) -> u64 {
        let policy = Policy::default();
        if self.is_separate {
            let limit = policy.device_fraction * sample.device_limit_bytes as f64;
            let used = sample.device_allocated_bytes.max(sample.device_live_bytes);
            return (limit as u64).saturating_sub(used);
        }
        let budget = budget_bytes(&policy, &ControllerState::default(), sample, 0);
        budget.saturating_sub(sample.own_bytes)
    }

    /// Whether memory has become so short meanwhile that an answer should end.
    pub fn is_critical(&self) -> bool {
        let sample = self.source.borrow_mut().sample();
        sample.is_ok_and(|sample| {
            let reading = pressure(&sample);
            reading.level() == Level::Critical && reading.cause != Component::Disk
        })
    }
}

impl Room {
    /// Fails if memory limits the context that was asked for, or has no room for any conversation.
    pub fn expect_context(self, network: &Gpt, wanted: Option<u32>) -> Result<()> {
        let Some(available) = self.limited_by_bytes.map(format_bytes) else {
            return Ok(());
        };
        let needed = |tokens| format_bytes(conversation_bytes(network, tokens));
        if let Some(wanted) = wanted {
            let needed = needed(wanted as usize);
            let enough = counted(self.tokens as u64, "token", "tokens");
            return Err(TrainError::Setting {
                key: "context",
                value: wanted.to_string(),
                allowed: format!(
                    "a conversation of this length needs {needed} of memory besides the weights, but only {available} is available to Ebb, enough for {enough}; close other apps, or choose fewer tokens"
                ),
            });
        }
        if self.tokens >= LEAST_TOKENS {
            return Ok(());
        }
        let needed = needed(LEAST_TOKENS);
        Err(TrainError::NotTrainable {
            message: format!(
                "there is not enough memory for a conversation: even {LEAST_TOKENS} tokens need {needed} besides the weights, but only {available} is available to Ebb; close other apps, choose a smaller model, or quantize a model folder with --quantize"
            ),
        })
    }

    /// The end of a sentence about a conversation that is too long: what to do next.
    pub fn next_step(self, next: &str) -> String {
        match self.limited_by_bytes.map(format_bytes) {
            None => format!("; {next}"),
            Some(bytes) => format!(
                ", because only {bytes} of memory is available; {next}, or close other apps"
            ),
        }
    }
}

/// Passes the parts of an answer on, and ends the answer if memory becomes short.
pub(super) struct WatchedText<'m, F> {
    memory: &'m ContextMemory,
    on_text: F,
    parts: usize,
    /// Whether memory became short.
    pub is_short: bool,
}

impl<'m, F: FnMut(&str) -> ControlFlow<()>> WatchedText<'m, F> {
    pub fn new(memory: &'m ContextMemory, on_text: F) -> Self {
        WatchedText {
            memory,
            on_text,
            parts: 0,
            is_short: false,
        }
    }

    /// Passes the next part on.
    pub fn pass_on(&mut self, text: &str) -> ControlFlow<()> {
        self.parts += 1;
        if self.parts.is_multiple_of(PARTS_PER_READING) && self.memory.is_critical() {
            self.is_short = true;
        }
        match (self.on_text)(text) {
            ControlFlow::Continue(()) if self.is_short => ControlFlow::Break(()),
            outcome => outcome,
        }
    }
}

/// Bytes that a conversation of this length needs.
fn conversation_bytes(network: &Gpt, tokens: usize) -> u64 {
    BYTES_PER_VALUE * network.cached_values(tokens) as u64
}

/// The most tokens up to `most` whose `cost` is at most `bytes`. The cost never falls.
fn most_tokens(most: usize, bytes: u64, cost: impl Fn(usize) -> u64) -> usize {
    let (mut fits, mut exceeds) = (0, most + 1);
    while exceeds - fits > 1 {
        let middle = fits + (exceeds - fits) / 2;
        if cost(middle) <= bytes {
            fits = middle;
        } else {
            exceeds = middle;
        }
    }
    fits
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_conversation_that_fits_is_found() {
        let cost = |tokens: usize| 10 * tokens.min(50) as u64 + 3 * tokens as u64;
        for (bytes, most, expected) in [
            (0, 100, 0),
            (12, 100, 0),
            (13, 100, 1),
            (649, 100, 49),
            (650, 100, 50),
            (653, 100, 51),
            (800, 100, 100),
            (u64::MAX, 100, 100),
            (u64::MAX, 0, 0),
        ] {
            assert_eq!(most_tokens(most, bytes, cost), expected, "{bytes} {most}");
        }
    }
}
