//! Matrix product: `y = a b`, with `a` [.., m, k] and `b` [.., k, n] of the same leading axes.
//!
//! Backward: `da = dy bᵀ`, `db = aᵀ dy`. Saved: `a` if `b` needs a gradient, and `b` if `a` does,
//! unless it is cheap to recompute.

use super::{expect_filled, misfit};
use crate::cpu::{Float, Matrix, Product, View, buffer, threads, to_tensor, with_float};
use crate::error::Result;
use crate::kernels::copies::contiguous;
use crate::ops::stock_product;
use crate::saved_input::held;
use crate::tape::{Tape, Value};
use candle_core::Tensor;
use rayon::prelude::*;

/// The operand that is transposed.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Across {
    Neither,
    First,
    Second,
}

impl Tape<'_> {
    /// `a b` over the last two axes.
    pub fn matmul(&self, a: &Value, b: &Value) -> Result<Value> {
        self.poll()?;
        expect_fit(a, b)?;
        expect_filled("matmul", "a", a)?;
        expect_filled("matmul", "b", b)?;
        let fused = self.fuses(a.tensor());
        let (left, right) = (contiguous(a.tensor())?, contiguous(b.tensor())?);
        let y = multiply(&left, &right, Across::Neither, fused)?;
        if !self.records(&[a, b]) {
            return Ok(Value::constant(y));
        }
        let (a_id, b_id) = (a.id(), b.id());
        let saved_a = b_id.is_some().then(|| a.saved_input());
        let saved_b = a_id.is_some().then(|| b.saved_input());
        let saved = held([&saved_a, &saved_b]);
        Ok(
            self.push(y, &saved.iter().collect::<Vec<_>>(), move |dy, sink| {
                let dy = contiguous(&dy)?;
                if let Some(b) = saved_b {
                    sink.add_owned(a_id, multiply(&dy, &b.get()?, Across::Second, fused)?)?;
                }
                if let Some(a) = saved_a {
                    sink.add_owned(b_id, multiply(&a.get()?, &dy, Across::First, fused)?)?;
                }
                Ok(())
            }),
        )
    }
}

/// Fails if the operands do not fit, with both shapes.
fn expect_fit(a: &Value, b: &Value) -> Result<()> {
    let refuse =
        |what: &str, value: &Value, expected: String| Err(misfit("matmul", what, expected, value));
    let [lead @ .., _, inner] = a.dims() else {
        return refuse("a", a, "at least two axes".to_owned());
    };
    let fits = match b.dims() {
        [others @ .., k, _] => others == lead && k == inner,
        _ => false,
    };
    if fits {
        return Ok(());
    }
    let lead: String = lead.iter().map(|n| format!("{n}, ")).collect();
    let expected = format!(
        "[{lead}{inner}, any] to match the first operand {:?}",
        a.dims()
    );
    refuse("b", b, expected)
}

/// `a b` with one of them transposed. Both are contiguous, with the same leading axes.
fn multiply(a: &Tensor, b: &Tensor, across: Across, fused: bool) -> Result<Tensor> {
    if !fused {
        return Ok(match across {
            Across::Neither => stock_product(a, b)?,
            Across::First => stock_product(&contiguous(&a.t()?)?, b)?,
            Across::Second => stock_product(a, &contiguous(&b.t()?)?)?,
        });
    }
    with_float!("matmul", a, T => {
        let (left, right) = (View::<T>::new("matmul", a)?, View::<T>::new("matmul", b)?);
        batched::<T>(&left, a.dims(), &right, b.dims(), across)
    })
}

fn batched<T: Float>(
    a: &[T],
    a_dims: &[usize],
    b: &[T],
    b_dims: &[usize],
    across: Across,
) -> Result<Tensor> {
    let rank = a_dims.len();
    let (a_rows, a_columns) = (a_dims[rank - 2], a_dims[rank - 1]);
    let (b_rows, b_columns) = (b_dims[rank - 2], b_dims[rank - 1]);
    let (m, n) = match across {
        Across::Neither => (a_rows, b_columns),
        Across::First => (a_columns, b_columns),
        Across::Second => (a_rows, b_rows),
    };
    let one = |i: usize, y: &mut [T], parallel: bool| {
        let a = Matrix::rows(&a[i * a_rows * a_columns..], a_rows, a_columns);
        let b = Matrix::rows(&b[i * b_rows * b_columns..], b_rows, b_columns);
        let (a, b) = match across {
            Across::Neither => (a, b),
            Across::First => (a.transposed(), b),
            Across::Second => (a, b.transposed()),
        };
        Product::new().parallel(parallel).write(y, n, a, b);
    };
    let batch = a.len() / (a_rows * a_columns);
    let mut y = buffer::<T>(batch * m * n);
    // Each element is the same sum either way; only the thread that computes it differs.
    if batch < threads() {
        let each = y.chunks_exact_mut(m * n).enumerate();
        each.for_each(|(i, y)| one(i, y, true));
    } else {
        let each = y.par_chunks_exact_mut(m * n).enumerate();
        each.for_each(|(i, y)| one(i, y, false));
    }
    to_tensor(y, &[&a_dims[..rank - 2], &[m, n]].concat())
}
