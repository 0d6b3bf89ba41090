//! Arguments about tables beside photographs alone. Knows no command's work.

use clap::Args;
use dataset::TableOptions;
use runlog::RunConfig;

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
    /// The same in a config.
    pub fn over(&self, config: RunConfig) -> RunConfig {
        RunConfig {
            targets: self.targets.clone(),
            target_weight: self.target_weight,
            loss_balance: self.loss_balance.clone(),
            group_by: self.group_by.clone(),
            ..config
        }
    }

    /// How tables are read.
    pub fn table(&self) -> TableOptions {
        trainer::table_options(&self.over(RunConfig::default()))
    }
}
