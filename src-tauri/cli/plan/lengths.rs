//! What fits at which length of the texts, for pretrained language models. The planned length is
//! measured, and others as long as there is time. The rest follow from the planned one: attention
//! is computed in blocks, so the memory of a micro-batch is proportional to its tokens.

use super::Device;
use super::answer::{Answer, Row};
use super::planned_machine::PlannedMachine;
use crate::cli::failure::Failure;
use crate::cli::output::out;
use dataset::Task;
use runlog::{RunConfig, format_bytes, format_count, format_duration};
use trainer::estimate::MemoryEstimate;
use trainer::{Estimate, ModelBuilder};

/// Lengths in the table, in tokens.
const LENGTHS: [u32; 5] = [512, 1024, 2048, 4096, 8192];

/// The lengths to list, shortest first, with the planned one; that one alone if the user chose it,
/// and for other tasks than language models from pretrained weights.
pub(super) fn listed(config: &RunConfig, plan: &trainer::Plan) -> Vec<u32> {
    let mut lengths = vec![plan.input_size];
    if let (Task::LanguageModel, None, Some(pretrained)) =
        (plan.task(), config.tokens, &plan.pretrained)
    {
        let allowed = LENGTHS
            .into_iter()
            .filter(|tokens| pretrained.accepts_input_size(*tokens));
        lengths.extend(allowed);
        lengths.sort_unstable();
        lengths.dedup();
    }
    lengths
}

/// The estimate of the planned length, from which those of others follow.
pub(super) struct ByLength(MemoryEstimate);

impl ByLength {
    /// Also estimates all blocks checkpointed, if the longest text needs that and the user has not
    /// chosen a number of blocks.
    pub fn new(
        config: &RunConfig,
        builder: &ModelBuilder,
        device: &Device,
        machine: &PlannedMachine,
        planned: &MemoryEstimate,
    ) -> Result<Self, Failure> {
        let longest = listed(config, builder.plan()).into_iter().max();
        let longest = planned.at_length(longest.unwrap_or(planned.resolution));
        let estimate = Estimate::new(longest, device.data).corrected(machine.correction.factor);
        let fits = Row::new(estimate, machine).suggested.is_ok();
        let planned = planned.clone();
        Ok(ByLength(if fits || config.checkpoint_blocks.is_some() {
            planned
        } else {
            planned.with_all_blocks(builder.plan())?
        }))
    }

    /// The estimate of texts of this length.
    pub fn at(&self, tokens: u32) -> MemoryEstimate {
        self.0.at_length(tokens)
    }
}

/// The time of a step of a row, relative to one of the planned length without checkpointed blocks;
/// `None` if nothing fits.
pub(super) fn relative_step_time(plan: &trainer::Plan, row: &Row) -> Option<f64> {
    let blocks = row.suggested.as_ref().ok()?.checkpoint_blocks;
    let mut variants = row.need.variants.iter();
    let variant = variants.find(|variant| variant.checkpoint_blocks == blocks)?;
    let relative = plan.relative_sample_time(row.memory.resolution);
    Some(relative * (1.0 + variant.extra_time_fraction))
}

/// Prints the largest micro-batch of each length.
pub(super) fn print(answer: &Answer, step_seconds: &[Option<f64>]) {
    out!("");
    out!("Largest micro-batch that fits at each text length");
    out!(
        "  {:>7} {:>12} {:>10}  time per step",
        "tokens",
        "micro-batch",
        "memory"
    );
    for (place, row) in answer.rows.iter().enumerate() {
        let mark = if row.memory.is_measured() { ' ' } else { '~' };
        let tokens = format!("{mark}{}", format_count(row.memory.resolution.into()));
        match &row.suggested {
            Ok(found) => {
                let seconds = step_seconds.get(place).copied().flatten();
                let time = seconds.map_or_else(|| "not known".to_owned(), in_words);
                let memory = format_bytes(found.predicted_peak_bytes);
                out!(
                    "  {tokens:>7} {:>12} {memory:>10}  {time}",
                    found.micro_batch
                );
            }
            Err(no) => {
                let memory = format_bytes(no.least.0);
                out!(
                    "  {tokens:>7} {:>12} {memory:>10}  one sample does not fit",
                    "none"
                );
            }
        }
    }
    let planned = format_count(answer.chosen().memory.resolution.into());
    if answer.rows.iter().any(|row| !row.memory.is_measured()) {
        out!(
            "  ~ Ebb did not measure this length; it calculates the memory from the measurement at {planned} tokens"
        );
    }
    if step_seconds.iter().any(Option::is_some) {
        out!("  Ebb calculates the time from a micro-batch measured at {planned} tokens");
    } else {
        out!(
            "  Ebb measures the time only if this machine trains on its CPU and the planned length fits"
        );
    }
}

fn in_words(seconds: f64) -> String {
    if seconds < 10.0 {
        format!("{seconds:.2} s")
    } else {
        format_duration(seconds)
    }
}
