//! Arguments about tables beside photographs alone. Knows no command's work.

use clap::Args;
use dataset::TableOptions;

/// How numbers beside photographs are read and learnt.
#[derive(Args, Default)]
pub struct Numbers {
    /// Columns of a table beside photographs to learn, with commas between; absent, every column of numbers
    #[arg(long, value_name = "COLUMNS")]
    pub targets: Option<String>,
    /// How much the numbers count beside the classes; 1 when absent
    #[arg(long, value_name = "WEIGHT")]
    pub target_weight: Option<f64>,
    /// fixed, or uncertainty: how much each counts is learnt
    #[arg(long)]
    pub loss_balance: Option<String>,
    /// Column by which photographs stay together on one side of the split; none keeps nothing together
    #[arg(long, value_name = "COLUMN")]
    pub group_by: Option<String>,
}

impl Numbers {
    /// How tables are read.
    pub fn table(&self) -> TableOptions {
        trainer::table_options(&runlog::RunConfig {
            targets: self.targets.clone(),
            group_by: self.group_by.clone(),
            ..runlog::RunConfig::default()
        })
    }
}
