//! Arguments of the developers' commands `ebb verify-split` and `ebb bench`.

use clap::{Args, ValueEnum};

#[derive(Args)]
pub struct VerifySplit {
    /// Run (its id, the beginning of its name, or its path), or folder with one sub-folder of
    /// images per class
    #[arg(value_name = "RUN|FOLDER", required_unless_present = "workload")]
    pub target: Option<String>,
    /// Workload of `ebb bench` to check instead of a run or folder: gpt, gpt125m, resnet18,
    /// resnet50, convnext_tiny, vit_tiny or bert_mini
    #[arg(long, conflicts_with = "target")]
    pub workload: Option<String>,
    /// Number of samples in the effective batch [default: as in the run; 16 for a workload]
    #[arg(long, value_name = "SAMPLES", value_parser = clap::value_parser!(u32).range(1..=65_536))]
    pub effective_batch: Option<u32>,
    /// Splits of the batch to check, such as 5+5+5+1,8+8: sizes joined with +, splits separated by
    /// commas. Or a number N: check the standard splits and N random ones [default: 4]
    #[arg(long)]
    pub splits: Option<String>,
    /// Number of blocks of the workload to checkpoint (their activations are recomputed in the
    /// backward pass)
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
    /// Device: auto, metal, cuda or cpu
    #[arg(long)]
    pub device: Option<String>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Args)]
pub struct Bench {
    /// Workloads: gpt, gpt125m, resnet18, resnet50, convnext_tiny, vit_tiny, bert_mini or all;
    /// separate several with commas
    #[arg(long, default_value = "all", value_delimiter = ',')]
    pub workload: Vec<String>,
    /// Batch sizes (samples per training step), separated by commas
    #[arg(long, default_value = "8", value_delimiter = ',')]
    pub batch: Vec<usize>,
    /// Samples per micro-batch [default: the whole batch]
    #[arg(long)]
    pub micro: Option<usize>,
    /// Number of blocks to checkpoint (their activations are recomputed in the backward pass)
    #[arg(long, value_name = "BLOCKS", default_value_t = 0)]
    pub checkpoint_blocks: usize,
    /// Keep the optimizer's moments in a memory-mapped file, as training does before it suspends
    #[arg(long, conflicts_with_all = ["kernels", "gradients"])]
    pub moments_in_file: bool,
    /// Data type: f32, bf16 or f16; bf16 and f16 are slow on the CPU
    #[arg(long, value_name = "TYPE", default_value = "f32")]
    pub precision: String,
    /// Steps to measure, after two warm-up steps
    #[arg(long, default_value_t = 8)]
    pub steps: usize,
    /// Number of threads for the CPU kernels
    #[arg(long)]
    pub threads: Option<usize>,
    /// Device: auto, metal, cuda or cpu
    #[arg(long, default_value = "auto")]
    pub device: String,
    /// Use candle's stock operations instead of Ebb's own GPU kernels
    #[arg(long)]
    pub composed: bool,
    /// Compute all f32 matrix products with cuBLAS in f32; by default, a Hopper GPU computes large
    /// ones on its tensor cores, as sums of bf16 products
    #[arg(long)]
    pub plain_products: bool,
    /// How a GPU computes convolutions: columns (im2col), direct (without columns, which needs less
    /// memory), or measured (for each shape, the faster of these two)
    #[arg(long, value_name = "METHOD", value_enum, default_value = "measured")]
    pub convolutions: Convolutions,
    /// Instead of training steps, measure the bandwidth of memory-bound GPU kernels and of a plain
    /// copy
    #[arg(long)]
    pub kernels: bool,
    /// Instead of measuring speed, compare the gradients of one micro-batch with gradients computed
    /// on the CPU in f64
    #[arg(long, conflicts_with = "kernels")]
    pub gradients: bool,
    /// Print one JSON line per workload and batch size
    #[arg(long)]
    pub json: bool,
}

/// How a GPU computes convolutions.
#[derive(Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub enum Convolutions {
    /// The faster method for each shape, as measured on this GPU
    #[default]
    Measured,
    /// With columns in memory (im2col)
    Columns,
    /// Without columns
    Direct,
}

impl Convolutions {
    /// Its name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Convolutions::Measured => "measured",
            Convolutions::Columns => "columns",
            Convolutions::Direct => "direct",
        }
    }
}
