//! Concatenation along any axis. The backward pass splits the gradient. Nothing is saved.

use super::{expect_shape, misfit};
use crate::error::{Result, TapeError};
use crate::kernels::copies::contiguous;
use crate::tape::{Tape, Value};
use candle_core::Tensor;

impl Tape<'_> {
    /// Joins values along the first axis.
    pub fn concat(&self, parts: &[&Value]) -> Result<Value> {
        self.poll()?;
        if let Some((first, rest)) = parts.split_first() {
            for part in rest {
                let after = part.dims().first().copied().unwrap_or(0);
                let mut expected = first.dims().to_vec();
                expected.iter_mut().take(1).for_each(|n| *n = after);
                expect_shape("concat", "a later part", part, &expected)?;
            }
        }
        let tensors: Vec<&Tensor> = parts.iter().map(|v| v.tensor()).collect();
        let joined = self.copies().joined(&tensors, 0)?;
        if !self.records(parts) {
            return Ok(Value::constant(joined));
        }
        let spans: Vec<_> = parts.iter().map(|v| (v.id(), v.dims()[0])).collect();
        Ok(self.push(joined, &[], move |dy, sink| {
            let mut start = 0;
            for (id, len) in spans {
                sink.add_shared(id, contiguous(&dy.narrow(0, start, len)?)?)?;
                start += len;
            }
            Ok(())
        }))
    }

    /// Joins `parts` along `axis`. All other axes must be equal.
    pub fn concat_along(&self, parts: &[&Value], axis: usize) -> Result<Value> {
        self.poll()?;
        let Some((first, rest)) = parts.split_first() else {
            return Err(TapeError::Number {
                op: "concat_along",
                what: "the number of parts".to_owned(),
                expected: "at least one",
                found: 0.0,
            });
        };
        if axis >= first.dims().len() {
            let expected = format!("an axis {axis}");
            return Err(misfit("concat_along", "the first part", expected, first));
        }
        for part in rest {
            let mut expected = first.dims().to_vec();
            expected[axis] = part.dims().get(axis).copied().unwrap_or(expected[axis]);
            expect_shape("concat_along", "a later part", part, &expected)?;
        }
        let copies = self.copies();
        let tensors = parts
            .iter()
            .map(|part| copies.contiguous(part.tensor()))
            .collect::<Result<Vec<Tensor>>>()?;
        let joined = copies.joined(&tensors.iter().collect::<Vec<_>>(), axis)?;
        if !self.records(parts) {
            return Ok(Value::constant(joined));
        }
        let spans: Vec<_> = parts.iter().map(|v| (v.id(), v.dims()[axis])).collect();
        Ok(self.push(joined, &[], move |dy, sink| {
            let mut start = 0;
            for (id, len) in spans {
                sink.add_shared(id, copies.contiguous(&dy.narrow(axis, start, len)?)?)?;
                start += len;
            }
            Ok(())
        }))
    }
}
