//! The processor's full vector width for plain loops. Code inside [`wide`] is compiled for AVX-512,
//! AVX2 and the baseline, and the widest version that this machine supports is selected at run
//! time. Everything inside must be inlined; the closure must say so itself, `wide(#[inline(always)]
//! || ..)`, because a large closure is otherwise left at the baseline, which is four times slower.

/// Runs `work` with the widest vectors of this machine. The results are the same for every width.
#[inline(always)]
pub(crate) fn wide<R>(work: impl FnOnce() -> R) -> R {
    pulp::Arch::new().dispatch(work)
}
