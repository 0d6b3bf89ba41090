//! The exponential moving average of the parameters, which a run with `ema_decay` evaluates,
//! predicts with and saves.

use crate::error::{Result, TrainError};
use candle_core::Tensor;
use std::collections::HashMap;
use std::path::Path;
use tape::Parameters;
use tape::device::{copy, with_autorelease_pool};
use tape::optim::{average, average_together};

/// Averaged parameters, under the names of the parameters.
pub struct WeightEma {
    decay: f64,
    /// The averages now.
    pub parameters: Parameters,
}

impl WeightEma {
    /// Starts the average at a copy of the parameters.
    pub fn new(decay: f64, parameters: &Parameters) -> Result<Self> {
        let mut own = parameters.clone();
        for index in 0..own.len() {
            let tensor = copy(&own.at(index).tensor)?;
            own.set(index, tensor)?;
        }
        Ok(WeightEma {
            decay,
            parameters: own,
        })
    }

    /// An average with the same decay that starts at these parameters.
    pub fn restarted(&self, parameters: &Parameters) -> Result<Self> {
        WeightEma::new(self.decay, parameters)
    }

    /// Moves the average towards the parameters after step `step`, counted from 1. Early steps move
    /// it faster, so that it does not stay near the initial parameters.
    pub fn follow(&mut self, parameters: &Parameters, step: u64) -> Result<()> {
        let decay = self.decay.min((1.0 + step as f64) / (10.0 + step as f64));
        with_autorelease_pool(|| self.approach(parameters, decay))
    }

    fn approach(&mut self, parameters: &Parameters, decay: f64) -> Result<()> {
        let pairs = self.parameters.iter().zip(parameters.iter());
        let pairs: Vec<_> = pairs.map(|(a, p)| (&a.tensor, &p.tensor)).collect();
        if average_together(&pairs, decay)? {
            return Ok(());
        }
        for index in 0..self.parameters.len() {
            let mut tensor = self.parameters.at(index).tensor.clone();
            average(&mut tensor, &parameters.at(index).tensor, decay)?;
            self.parameters.set(index, tensor)?;
        }
        Ok(())
    }
}

/// Replaces `parameters` by saved tensors of the same names.
///
/// # Errors
/// A tensor is missing, has another shape or type, or belongs to another model.
pub fn fill(
    parameters: &mut Parameters,
    mut saved: HashMap<String, Tensor>,
    path: &Path,
) -> Result<()> {
    let misfit = |what: String| TrainError::TensorMismatch {
        path: path.to_owned(),
        problem: what,
    };
    for index in 0..parameters.len() {
        let parameter = parameters.at(index);
        let name = parameter.name.clone();
        let tensor = saved
            .remove(&name)
            .filter(|t| t.dtype() == parameter.tensor.dtype());
        let tensor = tensor.ok_or_else(|| misfit(format!("{name} is missing")))?;
        parameters
            .set(index, tensor)
            .map_err(|error| misfit(error.to_string()))?;
    }
    match saved.keys().next() {
        Some(extra) => Err(misfit(format!("{extra} belongs to a different model"))),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use candle_core::{DType, Device};
    use tape::fault_injection::{Fault, Injection, ScheduledFault};

    #[test]
    fn an_average_that_shares_the_memory_of_the_weights_is_an_error() {
        let mut parameters = Parameters::default();
        let values = vec![1.0, 2.0];
        parameters
            .add("weight".to_owned(), values, &[2], DType::F32, &Device::Cpu)
            .unwrap();
        let aliased = ScheduledFault {
            at: 0,
            fault: Fault::AliasedCopy,
        };
        let injection = Injection::install(vec![aliased], 3);
        let error = WeightEma::new(0.9, &parameters).err().unwrap().to_string();
        assert!(error.contains(Fault::AliasedCopy.description()), "{error}");
        assert_eq!(injection.happened(), [aliased]);
        assert!(WeightEma::new(0.9, &parameters).is_ok());
    }
}
