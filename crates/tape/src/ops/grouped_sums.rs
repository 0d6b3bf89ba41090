//! Adds rows to rows of a sum on a GPU, several to the same one, in an order that only the indices
//! determine: the rows for one place are added in runs, and the runs in order. Nothing is added
//! atomically.

use crate::error::Result;
use crate::kernels::{multi_tensor, row_kernels};
use candle_core::Tensor;

/// Rows per run: the rows for a frequent place are summed in parallel.
const RUN: usize = 64;

/// Adds each row of `dy` [rows, width] to row `place(row)` of `sums` [places, width] in f32, in
/// place. `order` lists the rows; those for one place are neighbors.
pub(super) fn add_rows(
    sums: &Tensor,
    dy: &Tensor,
    order: Vec<u32>,
    place: impl Fn(u32) -> u32,
) -> Result<()> {
    let (mut begins, mut firsts, mut places) = (Vec::new(), Vec::new(), Vec::new());
    let mut begin = 0;
    for (at, &row) in order.iter().enumerate() {
        let own = place(row);
        let is_new = places.last() != Some(&own);
        if is_new {
            firsts.push(begins.len() as u32);
            places.push(own);
        }
        if is_new || at - begin == RUN {
            begins.push(at as u32);
            begin = at;
        }
    }
    firsts.push(begins.len() as u32);
    begins.push(order.len() as u32);
    let sizes = [order.len(), begins.len(), firsts.len(), places.len()];
    // One copy to the device for all four lists.
    let all = Tensor::new([order, begins, firsts, places].concat(), sums.device())?;
    let at = |i: usize| all.narrow(0, sizes[..i].iter().sum(), sizes[i]);
    let runs = row_kernels::run_sums(dy, &at(0)?, &at(1)?)?;
    multi_tensor::add_runs(&runs, &at(2)?, &at(3)?, sums)
}
