//! What of published weights trains, and how the rest is held: a new head alone, the last blocks, everything, or adapters
//! beside what stands still. Refuses to know architectures beyond the names of their parameters.

use crate::error::Result;
use crate::models::{AdapterShape, is_adapter};
use tape::{Bits, ParameterId, Parameters};

/// Which of the published weights train. A new head always does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Trains {
    /// None of them.
    Head,
    /// The last so many blocks, and what stands behind them.
    Last(u32),
    /// All of them.
    #[default]
    All,
}

/// What trains, and how the rest is held.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Tuning {
    /// Which of the published weights train.
    pub trains: Trains,
    /// What is built beside every linear map of the blocks.
    pub adapter: Option<AdapterShape>,
    /// Bits of each value of a frozen matrix in memory.
    pub bits: Option<Bits>,
}

/// Where a network's last norm stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LastNorm {
    /// Under the name `norm`.
    Norm,
    /// In the last block; what is called `norm` stands before the first.
    InBlock,
}

/// The blocks of a network, as far as a tuning depends on them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Depth {
    pub blocks: usize,
    pub last_norm: LastNorm,
    /// Its token embeddings are looked up and nothing else.
    pub looks_up: bool,
}

impl Tuning {
    /// The parameter of this name trains.
    pub(super) fn trains(&self, name: &str, depth: Depth) -> bool {
        if is_adapter(name) || name.starts_with("head.") {
            return true;
        }
        let last = match self.trains {
            Trains::Head => return false,
            Trains::All => return true,
            Trains::Last(last) => last as usize,
        };
        match name.strip_prefix("blocks.") {
            Some(rest) => {
                let block = rest.split('.').next().and_then(|n| n.parse::<usize>().ok());
                block.is_some_and(|block| block + last >= depth.blocks)
            }
            None if name.starts_with("norm.") => depth.last_norm == LastNorm::Norm,
            None => name.starts_with("pooler."),
        }
    }

    /// The bits that a parameter is held in, where it is a frozen matrix that has a form for them.
    pub(super) fn bits_of(
        &self,
        parameters: &Parameters,
        id: ParameterId,
        dims: usize,
        depth: Depth,
    ) -> Option<Bits> {
        let name = parameters.name(id);
        let is_map = name.starts_with("blocks.") || (depth.looks_up && name == "embedding.weight");
        self.bits
            .filter(|_| is_map && dims == 2 && !parameters.trains(id))
    }

    /// Holds parameters that nothing was read into yet as they will be held: for a forecast.
    pub(super) fn hold(&self, parameters: &mut Parameters, depth: Depth) -> Result<()> {
        for id in parameters.ids() {
            let dims = parameters.whole(id)?.dims().len();
            if let Some(bits) = self.bits_of(parameters, id, dims, depth) {
                parameters.quantize(id, bits)?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_blocks_train_with_what_stands_behind_them() {
        let check = |trains: Trains, last_norm: LastNorm, name: &str, expected: bool| {
            let tuning = Tuning {
                trains,
                ..Tuning::default()
            };
            let depth = Depth {
                blocks: 12,
                last_norm,
                looks_up: true,
            };
            assert_eq!(tuning.trains(name, depth), expected, "{trains:?} {name}");
        };
        for (name, expected) in [
            ("head.weight", true),
            ("pooler.bias", true),
            ("blocks.11.qkv.weight", true),
            ("blocks.10.norm1.bias", true),
            ("blocks.9.up.weight", false),
            ("blocks.1.up.weight", false),
            ("embedding.weight", false),
            ("positions", false),
        ] {
            check(Trains::Last(2), LastNorm::Norm, name, expected);
            check(Trains::Head, LastNorm::Norm, name, name == "head.weight");
            check(Trains::All, LastNorm::Norm, name, true);
        }
        check(Trains::Last(1), LastNorm::Norm, "norm.weight", true);
        check(Trains::Last(1), LastNorm::InBlock, "norm.weight", false);
        check(
            Trains::Head,
            LastNorm::Norm,
            "blocks.0.up.lora_A.weight",
            true,
        );
    }
}
