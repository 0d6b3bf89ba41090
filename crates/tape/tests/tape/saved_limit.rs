//! The count of saved bytes includes the second run of checkpointed blocks. It may have a limit,
//! beyond which operations fail as on a device without memory.

// A panic in a helper fails the test that called it.
#![allow(clippy::unwrap_used)]

use candle_core::{DType, Device, Tensor};
use tape::{Cancel, Kernels, Parameters, Result, Tape};

#[test]
fn a_recording_beyond_its_limit_is_out_of_memory() {
    let parameters = Parameters::default();
    for (limit, fits) in [(None, true), (Some(8 * 5), true), (Some(8 * 5 - 1), false)] {
        let tape = Tape::record_with_limit(&parameters, Cancel::default(), Kernels::Fused, limit);
        let x = tape.variable(Tensor::ones(5, DType::F64, &Device::Cpu).unwrap());
        let y = tape.gelu(&x).unwrap();
        let next = tape.scale(&y, 2.0);
        assert_eq!(next.is_ok(), fits, "{limit:?}");
        let walked = tape.backward(vec![(y, 1.0)]);
        assert_eq!(walked.is_ok(), fits, "{limit:?}: on the way back as well");
        if let Err(error) = next {
            assert!(
                error.is_memory() && error.to_string().contains("39"),
                "{error}"
            );
        }
    }
}

/// The second run of a checkpointed block saves what the first did not, in addition to what is
/// saved already.
#[test]
fn the_second_run_of_a_block_is_counted_and_limited() {
    let parameters = Parameters::default();
    let peak = |limit: Option<u64>| {
        let tape = Tape::record_with_limit(&parameters, Cancel::default(), Kernels::Fused, limit);
        let x = tape.variable(Tensor::ones((2, 5), DType::F64, &Device::Cpu).unwrap());
        let y = tape.checkpoint(&x, |t, x| t.mul(&t.tanh(x)?, &t.sigmoid(x)?));
        let root = tape.total(&y?)?.sum;
        let (before, saved_tensors) = (tape.peak_saved_bytes(), tape.saved_tensors().clone());
        tape.backward(vec![(root, 1.0)])?;
        assert_eq!(saved_tensors.bytes(), 0);
        Result::Ok((before, saved_tensors.peak_bytes()))
    };
    let (before, after) = peak(None).unwrap();
    // The input; then also both factors of the product, each of which its own function saves too.
    assert_eq!((before, after), (8 * 10, 3 * 8 * 10));
    assert!(peak(Some(after)).is_ok());
    assert!(peak(Some(after - 1)).is_err_and(|error| error.is_memory()));
}
