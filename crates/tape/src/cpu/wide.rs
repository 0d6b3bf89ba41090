//! The processor's full vector width for plain loops: code called inside [`wide`] is compiled for AVX-512, AVX2 and the
//! baseline, and the widest that this machine has is taken at run time. Everything inside must be inlined to profit: the closure
//! says so itself, `wide(#[inline(always)] || ..)`, since a large one is left as it is, for the baseline, which is four times slower.

/// Runs `work` with the widest vectors of this machine. The results are the same for every width.
#[inline(always)]
pub(crate) fn wide<R>(work: impl FnOnce() -> R) -> R {
    pulp::Arch::new().dispatch(work)
}
