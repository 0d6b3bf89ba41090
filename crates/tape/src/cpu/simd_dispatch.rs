//! The processor's full vector width for plain loops. Code inside [`wide`] is compiled for AVX-512,
//! AVX2 and the baseline, and the widest version that this machine supports is selected at run
//! time. Everything inside must be inlined; the closure must say so itself, `wide(#[inline(always)]
//! || ..)`, because a large closure is otherwise left at the baseline, which is four times slower.

use crate::cpu::threads::skips_arithmetic;

/// Runs `work` with the widest vectors of this machine. The results are the same for every width.
/// In a dry run, `work` does not run: buffers keep their zeros, and so does the result.
#[inline(always)]
pub(crate) fn wide<R: Default>(work: impl FnOnce() -> R) -> R {
    if skips_arithmetic() {
        return R::default();
    }
    pulp::Arch::new().dispatch(work)
}
