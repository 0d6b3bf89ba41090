//! Time series at full resolution: times are stored as `f64`, values as `f32`.

/// Times and columns of a series.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Columns<'a, const N: usize> {
    pub at_ms: &'a [f64],
    pub values: [&'a [f32]; N],
}

/// `N` values at each time, in milliseconds. Times never decrease.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Series<const N: usize> {
    at_ms: Vec<f64>,
    values: [Vec<f32>; N],
}

impl<const N: usize> Default for Series<N> {
    fn default() -> Self {
        Series {
            at_ms: Vec::new(),
            values: std::array::from_fn(|_| Vec::new()),
        }
    }
}

impl<const N: usize> Series<N> {
    /// Appends a point. A time before the last one is replaced by the last one.
    pub fn push(&mut self, at_ms: f64, values: [f64; N]) {
        let last = self.at_ms.last().copied().unwrap_or(at_ms);
        self.at_ms.push(at_ms.max(last));
        for (column, value) in self.values.iter_mut().zip(values) {
            column.push(value as f32);
        }
    }

    pub fn len(&self) -> usize {
        self.at_ms.len()
    }

    pub fn at_ms(&self) -> &[f64] {
        &self.at_ms
    }

    pub fn column(&self, index: usize) -> &[f32] {
        &self.values[index]
    }

    pub fn columns(&self) -> [&[f32]; N] {
        std::array::from_fn(|index| self.values[index].as_slice())
    }

    /// Times and columns.
    pub fn all(&self) -> Columns<'_, N> {
        Columns {
            at_ms: &self.at_ms,
            values: self.columns(),
        }
    }

    pub fn last(&self) -> Option<(f64, [f64; N])> {
        let at = self.len().checked_sub(1)?;
        Some((
            self.at_ms[at],
            std::array::from_fn(|index| f64::from(self.values[index][at])),
        ))
    }

    /// Keeps the first `len` points.
    pub fn truncate(&mut self, len: usize) {
        self.at_ms.truncate(len);
        for column in &mut self.values {
            column.truncate(len);
        }
    }

    /// Removes the points up to `at_ms`.
    pub fn drop_until(&mut self, at_ms: f64) {
        let first = self.at_ms.partition_point(|at| *at <= at_ms);
        self.at_ms.drain(..first);
        for column in &mut self.values {
            column.drain(..first);
        }
    }

    /// Removes the points after `at_ms`.
    pub fn truncate_after(&mut self, at_ms: f64) {
        self.truncate(self.at_ms.partition_point(|at| *at <= at_ms));
    }
}
