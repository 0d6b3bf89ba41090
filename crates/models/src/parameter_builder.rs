//! Creates named parameters. Initial values depend only on the seed and the name, so neither the
//! order of creation nor the device changes them.

use candle_core::{DType, Device};
use std::sync::Arc;
use tape::{ParameterId, Parameters, Result, Rng};

/// Adds parameters under a name prefix, as candle's `VarBuilder` does for weights that exist.
pub struct ParameterBuilder<'a> {
    parameters: &'a mut Parameters,
    prefix: String,
    stream: Rng,
    dtype: DType,
    device: &'a Device,
    initial: InitialValues,
    adapter: Option<AdapterShape>,
}

/// Only linear maps below this prefix get adapters.
const ADAPTED: &str = "blocks.";
/// Names of the linear maps of blocks.
const MAPS: [&str; 9] = [
    "query",
    "key",
    "value",
    "qkv",
    "projection",
    "gate",
    "up",
    "gate_up",
    "down",
];

/// Sizes of low-rank adapters, and the maps that get one.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct AdapterShape {
    /// Rows of `A`.
    pub rank: usize,
    /// The adapter's term is multiplied by `alpha / rank`, so that a learning rate that suits one
    /// rank suits others.
    pub alpha: f64,
    /// Whether it is multiplied by `alpha / sqrt(rank)` instead, so that adapters of a high rank
    /// learn faster (Kalajdzievski 2023, <https://arxiv.org/abs/2312.03732>).
    pub is_rank_stabilized: bool,
    /// Whether the norms of the weight's rows are trained separately (DoRA, Liu et al. 2024).
    pub is_weight_decomposed: bool,
    /// Fraction of the adapter's inputs that are zero in training, at least 0 and below 1.
    pub dropout: f64,
    /// The maps that get an adapter.
    pub targets: AdapterTargets,
}

/// The linear maps of a block that get adapters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AdapterTargets(u16);

impl AdapterShape {
    /// Adapters of all maps.
    pub const fn new(rank: usize, alpha: f64) -> Self {
        AdapterShape {
            rank,
            alpha,
            is_rank_stabilized: false,
            is_weight_decomposed: false,
            dropout: 0.0,
            targets: AdapterTargets::ALL,
        }
    }

    /// The factor of the adapter's term.
    pub(crate) fn factor(self) -> f64 {
        let rank = self.rank.max(1) as f64;
        self.alpha
            / if self.is_rank_stabilized {
                rank.sqrt()
            } else {
                rank
            }
    }
}

impl AdapterTargets {
    /// All of them.
    pub const ALL: Self = AdapterTargets(u16::MAX);

    /// The maps with these names in Ebb.
    pub(crate) fn from_names<'n>(names: impl IntoIterator<Item = &'n str>) -> Self {
        let bits = names.into_iter().filter_map(bit);
        AdapterTargets(bits.fold(0, |all, bit| all | bit))
    }

    /// Whether a map of a block, `blocks.0.up`, gets an adapter.
    fn contains(self, map: &str) -> bool {
        let name = map.rsplit('.').next().and_then(bit);
        self == AdapterTargets::ALL || name.is_some_and(|bit| self.0 & bit != 0)
    }
}

fn bit(map: &str) -> Option<u16> {
    let place = MAPS.iter().position(|name| *name == map)?;
    Some(1 << place)
}

/// Which parameters get random initial values.
#[derive(Clone, Copy)]
enum InitialValues {
    Random,
    /// None: the network is only built for its shapes.
    Zeros,
    /// Those directly below one of these names; all others are zero.
    RandomUnder(&'static [&'static str]),
}

impl<'a> ParameterBuilder<'a> {
    /// A builder at the root of all names.
    pub fn new(
        parameters: &'a mut Parameters,
        seed: u64,
        dtype: DType,
        device: &'a Device,
    ) -> Self {
        ParameterBuilder {
            parameters,
            prefix: String::new(),
            stream: Rng::new(seed).site("parameters"),
            dtype,
            device,
            initial: InitialValues::Random,
            adapter: None,
        }
    }

    /// Adds an adapter of this shape to the linear maps of the blocks that it names.
    pub(crate) fn with_adapters(self, adapter: Option<AdapterShape>) -> Self {
        ParameterBuilder { adapter, ..self }
    }

    /// Fills all parameters with zeros, which takes neither time nor memory.
    pub fn with_zeros(self) -> Self {
        ParameterBuilder {
            initial: InitialValues::Zeros,
            ..self
        }
    }

    /// Draws initial values only for parameters directly below one of these names. All others are
    /// zero, to be filled with pretrained weights.
    pub(crate) fn with_random_under(self, names: &'static [&'static str]) -> Self {
        ParameterBuilder {
            initial: InitialValues::RandomUnder(names),
            ..self
        }
    }

    /// Calls `build` with `name` added to the prefix.
    pub fn within<R>(
        &mut self,
        name: &str,
        build: impl FnOnce(&mut ParameterBuilder) -> Result<R>,
    ) -> Result<R> {
        let prefix = self.full_name(name);
        let mut inner = ParameterBuilder {
            parameters: self.parameters,
            prefix,
            stream: self.stream,
            dtype: self.dtype,
            device: self.device,
            initial: self.initial,
            adapter: self.adapter,
        };
        build(&mut inner)
    }

    /// Shape of the adapter for the linear map that is built here, if it gets one.
    pub(crate) fn adapter_shape(&self) -> Option<AdapterShape> {
        let is_adapted = |shape: &AdapterShape| {
            self.prefix.starts_with(ADAPTED) && shape.targets.contains(&self.prefix)
        };
        self.adapter.filter(is_adapted)
    }

    /// Like [`ParameterBuilder::normal`], for parameters that no pretrained weights contain: they
    /// are random unless all values are zero.
    pub(crate) fn new_normal(
        &mut self,
        name: &str,
        shape: &[usize],
        deviation: f64,
    ) -> Result<ParameterId> {
        let initial = self.initial;
        if let InitialValues::RandomUnder(_) = initial {
            self.initial = InitialValues::Random;
        }
        let id = self.normal(name, shape, deviation);
        self.initial = initial;
        id
    }

    /// The current prefix: `blocks.0.up`.
    pub fn prefix(&self) -> Arc<str> {
        self.prefix.as_str().into()
    }

    /// Adds a parameter with truncated normal values.
    pub fn normal(&mut self, name: &str, shape: &[usize], deviation: f64) -> Result<ParameterId> {
        let name = self.full_name(name);
        if !self.is_random() {
            return self.zeros(name, shape);
        }
        let values = self
            .stream
            .site(&name)
            .truncated_normal(shape.iter().product(), deviation);
        self.parameters
            .add(name, values, shape, self.dtype, self.device)
    }

    /// Adds a parameter that is `value` everywhere.
    pub fn constant(&mut self, name: &str, shape: &[usize], value: f64) -> Result<ParameterId> {
        if !self.is_random() {
            let name = self.full_name(name);
            return self.zeros(name, shape);
        }
        let values = vec![value; shape.iter().product()];
        self.parameters
            .add(self.full_name(name), values, shape, self.dtype, self.device)
    }

    /// Adds a parameter with these values, [values].
    pub(crate) fn vector(&mut self, name: &str, values: Vec<f64>) -> Result<ParameterId> {
        let (name, shape) = (self.full_name(name), [values.len()]);
        if let InitialValues::Zeros = self.initial {
            return self.zeros(name, &shape);
        }
        self.parameters
            .add(name, values, &shape, self.dtype, self.device)
    }

    fn is_random(&self) -> bool {
        match self.initial {
            InitialValues::Random => true,
            InitialValues::Zeros => false,
            InitialValues::RandomUnder(names) => names.contains(&&*self.prefix),
        }
    }

    fn zeros(&mut self, name: String, shape: &[usize]) -> Result<ParameterId> {
        let (dtype, device) = (self.dtype, self.device);
        match self.initial {
            InitialValues::RandomUnder(_) => {
                self.parameters.add_placeholder(name, shape, dtype, device)
            }
            _ => self.parameters.add_zeros(name, shape, dtype, device),
        }
    }

    fn full_name(&self, name: &str) -> String {
        if self.prefix.is_empty() {
            name.to_owned()
        } else {
            format!("{}.{name}", self.prefix)
        }
    }
}
