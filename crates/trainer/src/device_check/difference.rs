//! How much a device differs from the CPU.

/// The largest relative difference, and the output that has it.
pub(super) struct Difference {
    pub relative: f64,
    pub of: String,
}

impl From<(f64, String)> for Difference {
    fn from(found: (f64, String)) -> Self {
        let (relative, of) = found;
        Difference { relative, of }
    }
}
