//! Makes named parameters. The first values depend on seed and name alone, so neither order nor device changes them.

use super::adapter::{Adapter, AdapterShape};
use candle_core::{DType, Device};
use std::sync::Arc;
use tape::{ParameterId, Parameters, Result, Rng};

/// Adds parameters under a name prefix.
pub struct Builder<'a> {
    parameters: &'a mut Parameters,
    prefix: String,
    stream: Rng,
    dtype: DType,
    device: &'a Device,
    first: First,
    adapter: Option<AdapterShape>,
}

/// What the maps of a network that can be adapted stand under.
const ADAPTED: &str = "blocks.";

/// First values.
#[derive(Clone, Copy)]
enum First {
    /// As training begins with them.
    Drawn,
    /// None: the network is built for its shapes.
    Zeros,
    /// As training begins with them under these names, none elsewhere.
    DrawnUnder(&'static [&'static str]),
}

impl<'a> Builder<'a> {
    /// A builder at the root of the names.
    pub fn new(
        parameters: &'a mut Parameters,
        seed: u64,
        dtype: DType,
        device: &'a Device,
    ) -> Self {
        Builder {
            parameters,
            prefix: String::new(),
            stream: Rng::new(seed).site("parameters"),
            dtype,
            device,
            first: First::Drawn,
            adapter: None,
        }
    }

    /// Builds an adapter beside every linear map of the blocks, where a shape is given.
    pub fn adapting(self, adapter: Option<AdapterShape>) -> Self {
        Builder { adapter, ..self }
    }

    /// Builds for the shapes alone: all values are zero and take neither time nor memory.
    pub fn of_zeros(self) -> Self {
        Builder {
            first: First::Zeros,
            ..self
        }
    }

    /// Draws first values for what stands directly under one of these names only; all others are zero, to be filled with
    /// weights that were published.
    pub fn drawn_under(self, names: &'static [&'static str]) -> Self {
        Builder {
            first: First::DrawnUnder(names),
            ..self
        }
    }

    /// Builds something under `name`.
    pub fn within<R>(
        &mut self,
        name: &str,
        build: impl FnOnce(&mut Builder) -> Result<R>,
    ) -> Result<R> {
        let prefix = self.full(name);
        let mut inner = Builder {
            parameters: self.parameters,
            prefix,
            stream: self.stream,
            dtype: self.dtype,
            device: self.device,
            first: self.first,
            adapter: self.adapter,
        };
        build(&mut inner)
    }

    /// The adapter of the map that is built here, where maps are adapted.
    pub(super) fn adapter(&mut self, outputs: usize, inputs: usize) -> Result<Option<Adapter>> {
        match self.adapter {
            Some(shape) if self.prefix.starts_with(ADAPTED) => {
                Adapter::build(self, shape, [outputs, inputs]).map(Some)
            }
            _ => Ok(None),
        }
    }

    /// First values that are drawn wherever the network is more than its shapes: nobody published any.
    pub(super) fn fresh_normal(
        &mut self,
        name: &str,
        shape: &[usize],
        deviation: f64,
    ) -> Result<ParameterId> {
        let first = self.first;
        if let First::DrawnUnder(_) = first {
            self.first = First::Drawn;
        }
        let built = self.normal(name, shape, deviation);
        self.first = first;
        built
    }

    /// The name that parameters begin with here: `blocks.0.up`.
    pub fn prefix(&self) -> Arc<str> {
        self.prefix.as_str().into()
    }

    /// Truncated normal values.
    pub fn normal(&mut self, name: &str, shape: &[usize], deviation: f64) -> Result<ParameterId> {
        let name = self.full(name);
        if !self.draws() {
            return self.zeros(name, shape);
        }
        let values = self
            .stream
            .site(&name)
            .truncated_normal(shape.iter().product(), deviation);
        self.parameters
            .add(name, values, shape, self.dtype, self.device)
    }

    /// One value everywhere.
    pub fn constant(&mut self, name: &str, shape: &[usize], value: f64) -> Result<ParameterId> {
        if !self.draws() {
            let name = self.full(name);
            return self.zeros(name, shape);
        }
        let values = vec![value; shape.iter().product()];
        self.parameters
            .add(self.full(name), values, shape, self.dtype, self.device)
    }

    fn draws(&self) -> bool {
        match self.first {
            First::Drawn => true,
            First::Zeros => false,
            First::DrawnUnder(names) => names.contains(&&*self.prefix),
        }
    }

    fn zeros(&mut self, name: String, shape: &[usize]) -> Result<ParameterId> {
        self.parameters
            .add_zeros(name, shape, self.dtype, self.device)
    }

    fn full(&self, name: &str) -> String {
        if self.prefix.is_empty() {
            name.to_owned()
        } else {
            format!("{}.{name}", self.prefix)
        }
    }
}
