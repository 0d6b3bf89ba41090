//! What came of a run, and the sizes it went through. It judges nothing.

/// What came of ten minutes.
#[derive(Debug, Default)]
pub struct Outcome {
    pub killed: u32,
    pub refused: u32,
    pub cancels: u32,
    pub parks: u32,
    pub changes: u32,
    pub most_changes_in_a_minute: usize,
    pub over_s: f64,
    pub critical_s: f64,
    pub of_oracle: f64,
    pub first_critical_s: Option<f64>,
    /// `(second, micro-batch decided)`
    pub sizes: Vec<(f64, u32)>,
}

impl Outcome {
    pub fn size_at(&self, second: f64) -> u32 {
        self.sizes
            .iter()
            .rev()
            .find(|(t, _)| *t <= second)
            .map_or(0, |(_, m)| *m)
    }
    pub fn first_size_below(&self, size: u32, from: f64) -> Option<f64> {
        self.sizes
            .iter()
            .find(|(t, m)| *t >= from && *m < size)
            .map(|(t, _)| *t)
    }
    pub fn first_size_from(&self, size: u32, from: f64) -> Option<f64> {
        self.sizes
            .iter()
            .find(|(t, m)| *t >= from && *m >= size)
            .map(|(t, _)| *t)
    }
}
