//! Makes named parameters. The first values depend on seed and name alone, so neither order nor device changes them.

use candle_core::{DType, Device};
use std::sync::Arc;
use tape::{ParameterId, Parameters, Result, Stream};

/// Adds parameters under a name prefix.
pub struct Builder<'a> {
    parameters: &'a mut Parameters,
    prefix: String,
    stream: Stream,
    dtype: DType,
    device: &'a Device,
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
            stream: Stream::new(seed).site("parameters"),
            dtype,
            device,
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
        };
        build(&mut inner)
    }

    /// The name that parameters begin with here: `blocks.0.up`.
    pub fn prefix(&self) -> Arc<str> {
        self.prefix.as_str().into()
    }

    /// Truncated normal values.
    pub fn normal(&mut self, name: &str, shape: &[usize], deviation: f64) -> Result<ParameterId> {
        let name = self.full(name);
        let values = self
            .stream
            .site(&name)
            .truncated_normal(shape.iter().product(), deviation);
        self.parameters
            .add(name, values, shape, self.dtype, self.device)
    }

    /// One value everywhere.
    pub fn constant(&mut self, name: &str, shape: &[usize], value: f64) -> Result<ParameterId> {
        let values = vec![value; shape.iter().product()];
        self.parameters
            .add(self.full(name), values, shape, self.dtype, self.device)
    }

    fn full(&self, name: &str) -> String {
        if self.prefix.is_empty() {
            name.to_owned()
        } else {
            format!("{}.{name}", self.prefix)
        }
    }
}
