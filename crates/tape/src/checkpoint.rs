//! Activation checkpointing: a block runs forward without recording and again, recorded, when its gradient is needed.

use crate::error::Result;
use crate::tape::{Tape, Value};

impl Tape<'_> {
    /// Runs `block` on `x` and keeps only `x` for backward, which runs the block once more.
    ///
    /// Saved: `x` (shared with whoever made it). Time: one more forward pass of the block. `block` must be a function of
    /// its input and the parameters alone, so that the second run repeats the first.
    pub fn checkpoint<F>(&self, x: &Value, block: F) -> Result<Value>
    where
        F: Fn(&Tape, &Value) -> Result<Value> + 'static,
    {
        self.poll()?;
        let quiet = Tape::forward_only(self.parameters(), self.cancel().clone(), self.kernels());
        let y = block(&quiet, &Value::constant(x.tensor().clone()))?
            .tensor()
            .clone();
        if !self.recording() {
            return Ok(Value::constant(y));
        }
        let (input, id) = (x.tensor().clone(), x.id());
        let parameters = self.parameters().clone();
        let (cancel, kernels) = (self.cancel().clone(), self.kernels());
        Ok(self.push(y, &[x.tensor()], move |gradient, sink| {
            let again = Tape::record(&parameters, cancel, kernels);
            // What needs no gradient gets none the second time either.
            let x = match id {
                Some(_) => again.variable(input),
                None => Value::constant(input),
            };
            let y = block(&again, &x)?;
            let walked = again.walk_back(vec![(y, gradient)], &[x])?;
            for (index, gradient) in walked.parameters.into_iter().enumerate() {
                if let Some(gradient) = gradient {
                    sink.give(Some(index), gradient)?;
                }
            }
            match walked.inputs.into_iter().flatten().next() {
                Some(gradient) => sink.give(id, gradient),
                None => Ok(()),
            }
        }))
    }
}
