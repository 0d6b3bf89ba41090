//! Conversion between f64, f32, bf16 and f16. The gradient is converted back to the input's type.
//! Nothing is saved.

use crate::convert_dtype::convert;
use crate::error::{Result, TapeError};
use crate::tape::{Tape, Value};
use candle_core::DType;

impl Tape<'_> {
    /// `x` converted to `dtype`, rounded to nearest. A value of that type is returned as it is.
    pub fn cast(&self, x: &Value, dtype: DType) -> Result<Value> {
        self.poll()?;
        let from = x.tensor().dtype();
        if let Some(dtype) = [from, dtype].into_iter().find(|t| !t.is_float()) {
            return Err(TapeError::Type { op: "cast", dtype });
        }
        if from == dtype {
            return Ok(x.clone());
        }
        let y = convert(x.tensor(), dtype)?;
        self.unary(x, y, &[], move |dy| convert(&dy, from))
    }
}
