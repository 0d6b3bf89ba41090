//! The low-rank term of an adapter (LoRA, Hu et al. 2021): `y + f (x Aᵀ) Bᵀ`, with `x` [..,
//! inputs], `A` [rank, inputs], `B` [outputs, rank] and a constant `f`.
//!
//! A GPU adds the term to `y` in place, and applies `f` to the narrow product `h = f x Aᵀ`; the CPU
//! composes the term of other operations. Backward: `dB = dyᵀ h`, `dh = f dy B`, `dA = dhᵀ x`, `dx
//! = dh A`, and `dy` itself for `y`. Saved: `h` [.., rank], and `x` if it is not cheap to
//! recompute.

use super::linear::{add_input_gradient, add_weight_gradient};
use super::{Form, count_composed, expect_shape};
use crate::error::Result;
use crate::gradients::Gradients;
use crate::kernels::copies::contiguous;
use crate::kernels::matmul::{add_product, product};
use crate::kernels::{KernelGroup, run_on};
use crate::saved_input::SavedInput;
use crate::tape::{Tape, Value};
use candle_core::{Shape, Tensor};

const OP: &str = "add_low_rank";

/// The matrices and the factor of a low-rank term.
#[derive(Debug, Clone, Copy)]
pub struct LowRankTerm<'a> {
    /// `A` [rank, inputs].
    pub down: &'a Value,
    /// `B` [outputs, rank].
    pub up: &'a Value,
    /// `f`.
    pub factor: f64,
}

impl Tape<'_> {
    /// `y` [.., outputs] plus the term of `x` [.., inputs]. On a GPU, the sum overwrites `y`, which
    /// must be the output of an operation that nothing else reads.
    pub fn add_low_rank(&self, y: Value, x: &Value, term: &LowRankTerm) -> Result<Value> {
        let inputs = *x.dims().last().unwrap_or(&0);
        let rank = term.down.dims().first().copied().unwrap_or(0);
        let outputs = *y.dims().last().unwrap_or(&0);
        expect_shape(OP, "the first matrix", term.down, &[rank, inputs])?;
        expect_shape(OP, "the second matrix", term.up, &[outputs, rank])?;
        let leading = &x.dims()[..x.dims().len().saturating_sub(1)];
        expect_shape(OP, "the sum", &y, &[leading, &[outputs]].concat())?;
        let is_alike = [&y, term.down, term.up]
            .iter()
            .all(|value| value.tensor().dtype() == x.tensor().dtype());
        let fits =
            is_alike && y.tensor().is_contiguous() && run_on(KernelGroup::Accumulate, x.tensor());
        if self.form_that_fits(KernelGroup::Linear, x.tensor(), fits) == Form::Device {
            return self.add_in_place(&y, x, term);
        }
        let added = self.linear(&self.linear(x, term.down, None)?, term.up, None)?;
        self.add(&y, &self.scale(&added, term.factor)?)
    }

    fn add_in_place(&self, y: &Value, x: &Value, term: &LowRankTerm) -> Result<Value> {
        self.poll()?;
        let (down, up) = (term.down.tensor(), term.up.tensor());
        let inputs = down.dim(1)?;
        let rows = x.tensor().elem_count() / inputs.max(1);
        let flat = contiguous(x.tensor())?.reshape((rows, inputs))?;
        let h = scaled(product(&flat, &down.t()?)?, term.factor)?;
        let sum = y.tensor().clone();
        add_product(&sum.reshape((rows, up.dim(0)?))?, &h, &up.t()?)?;
        if !self.records(&[y, x, term.down, term.up]) {
            return Ok(Value::constant(sum));
        }
        let past = Past {
            ids: [y, x, term.down, term.up].map(Value::id),
            x: term.down.id().is_some().then(|| x.saved_input()),
            h: term.up.id().is_some().then_some(h),
            down: down.clone(),
            up: up.clone(),
            factor: term.factor,
            shape: x.tensor().shape().clone(),
            sizes: (rows, inputs),
        };
        let saved: Vec<Tensor> = past.saved();
        let saved: Vec<&Tensor> = saved.iter().collect();
        Ok(self.push(sum, &saved, move |dy, sink| past.backward(dy, sink)))
    }
}

/// The tensors of the backward pass.
struct Past {
    /// Of `y`, `x`, `A` and `B`.
    ids: [Option<usize>; 4],
    x: Option<SavedInput>,
    h: Option<Tensor>,
    down: Tensor,
    up: Tensor,
    factor: f64,
    shape: Shape,
    /// Rows and inputs.
    sizes: (usize, usize),
}

impl Past {
    fn saved(&self) -> Vec<Tensor> {
        let x = self.x.iter().flat_map(SavedInput::tensors);
        let matrices = [&self.down, &self.up];
        x.chain(&self.h).chain(matrices).cloned().collect()
    }

    fn backward(self, dy: Tensor, sink: &mut Gradients) -> Result<()> {
        let ((rows, inputs), [y_id, x_id, down_id, up_id]) = (self.sizes, self.ids);
        let flat = contiguous(&dy)?.reshape((rows, self.up.dim(0)?))?;
        if let Some(h) = &self.h {
            add_weight_gradient(sink, up_id, &flat, h, Form::Device)?;
        }
        if x_id.is_some() || down_id.is_some() {
            let dh = scaled(product(&flat, &self.up)?, self.factor)?;
            if let Some(x) = &self.x {
                let x = x.get()?.reshape((rows, inputs))?;
                add_weight_gradient(sink, down_id, &dh, &x, Form::Device)?;
            }
            if x_id.is_some() {
                let operands = [&dh, &self.down];
                add_input_gradient(sink, x_id, operands, &self.shape, Form::Device)?;
            }
        }
        sink.add_shared(y_id, dy)
    }
}

/// `x` times a factor.
fn scaled(x: Tensor, factor: f64) -> Result<Tensor> {
    if factor == 1.0 {
        return Ok(x);
    }
    count_composed(true, &x);
    Ok((x * factor)?)
}
