//! Arguments of what measures the engine: `ebb verify-split` and `ebb bench`. Knows no command's work.

use clap::Args;

#[derive(Args)]
pub struct VerifySplit {
    /// Run (id, beginning of a name, or path), or folder with one sub-folder of photographs per class
    #[arg(value_name = "RUN|FOLDER", required_unless_present = "workload")]
    pub target: Option<String>,
    /// gpt, gpt125m, resnet18, vit_tiny or bert_mini, in the place of a run or folder
    #[arg(long, conflicts_with = "target")]
    pub workload: Option<String>,
    /// Samples of the effective batch; as the run trains when absent
    #[arg(long, value_name = "SAMPLES", value_parser = clap::value_parser!(u32).range(1..=65_536))]
    pub effective_batch: Option<u32>,
    /// Splits such as 5+5+5+1,8+8, or how many random ones beside the fixed ones
    #[arg(long)]
    pub splits: Option<String>,
    /// Blocks of the workload that keep their input only
    #[arg(
        long,
        value_name = "BLOCKS",
        default_value_t = 0,
        conflicts_with = "target"
    )]
    pub checkpoint_blocks: usize,
    /// Compute in f64, on the CPU
    #[arg(long)]
    pub double: bool,
    /// auto, metal, cuda or cpu
    #[arg(long)]
    pub device: Option<String>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Args)]
pub struct Bench {
    /// gpt, gpt125m, resnet18, vit_tiny or bert_mini; several with commas, or all
    #[arg(long, default_value = "all", value_delimiter = ',')]
    pub workload: Vec<String>,
    /// Samples a step; several with commas
    #[arg(long, default_value = "8", value_delimiter = ',')]
    pub batch: Vec<usize>,
    /// Samples a piece; the whole batch when absent
    #[arg(long)]
    pub micro: Option<usize>,
    /// Blocks that keep their input only
    #[arg(long, value_name = "BLOCKS", default_value_t = 0)]
    pub checkpoint_blocks: usize,
    /// Moments in a memory-mapped file, as under the last rung before a run parks
    #[arg(long, conflicts_with_all = ["kernels", "gradients"])]
    pub moments_in_file: bool,
    /// f32, bf16 or f16; halves are slow on the CPU
    #[arg(long, value_name = "TYPE", default_value = "f32")]
    pub precision: String,
    /// Steps measured
    #[arg(long, default_value_t = 8)]
    pub steps: usize,
    /// Threads of the CPU kernels
    #[arg(long)]
    pub threads: Option<usize>,
    /// auto, metal, cuda or cpu
    #[arg(long, default_value = "auto")]
    pub device: String,
    /// Without Ebb's own GPU kernels: every operation composed of stock ones
    #[arg(long)]
    pub composed: bool,
    /// Products of f32 by the GPU's own library, not on tensor cores as sums of bf16
    #[arg(long)]
    pub plain_products: bool,
    /// Measure the GPU's kernels that only move memory, beside a copy, in the place of workloads
    #[arg(long)]
    pub kernels: bool,
    /// Compare the gradients of one piece with the CPU's in f64, in the place of measuring steps
    #[arg(long, conflicts_with = "kernels")]
    pub gradients: bool,
    /// Print one JSON line a case
    #[arg(long)]
    pub json: bool,
}
