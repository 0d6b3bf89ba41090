//! The host's side of a device: waiting for it, and copying from it. Every wait for a device and
//! every copy from it passes through [`synchronize`], on every device, because an error of earlier
//! work is reported only there.

use crate::command_buffer_budget;
use crate::error::Result;
use crate::fault_injection;
use crate::metal_peak_memory::note_peak;
use crate::objective_c::guarded;
use candle_core::{Device, Tensor, WithDType};

/// Waits until the device has done everything that was asked of it.
///
/// # Errors
/// Any work since the last call failed, even if later work succeeded: results since then cannot be
/// trusted. If several parts failed, the error is the most severe one that candle reports.
#[expect(clippy::disallowed_methods, reason = "this is the place that waits")]
pub fn synchronize(device: &Device) -> Result<()> {
    note_peak(device);
    let outcome = guarded(|| {
        wait(|| {
            device.synchronize()?;
            fault_injection::synchronized()
        })
    });
    if device.is_metal() {
        command_buffer_budget::awaited();
    }
    outcome
}

/// Makes sure that work whose failure must not be confused with that of later work, such as an
/// update of the weights, has not failed. On CUDA this returns at once: after a fault, CUDA refuses
/// all work of the process, so the next wait reports it, and the device is lost in either case.
///
/// # Errors
/// As [`synchronize`].
pub fn confirm(device: &Device) -> Result<()> {
    match device {
        Device::Cuda(_) => Ok(()),
        _ => synchronize(device),
    }
}

/// True if a wait for the device may report one of several failures and forget the others: on
/// Metal, candle returns the error of one command buffer. After any failure that is reported late,
/// a page fault may have damaged every tensor.
pub fn forgets_failures(device: &Device) -> bool {
    device.is_metal() || fault_injection::forgets_failures()
}

/// On Metal, candle's wait returns at the first failed command buffer: it forgets the others, but
/// keeps the fences of the failed ones and the unused buffers. Another wait releases these.
fn wait(mut until_done: impl FnMut() -> Result<()>) -> Result<()> {
    until_done().or_else(|error| more_severe(Err(error), until_done()))
}

/// The error of the more severe fault, or the first one.
fn more_severe<R>(first: Result<R>, second: Result<()>) -> Result<R> {
    match (first, second) {
        (Err(first), Err(second)) if second.device_fault() > first.device_fault() => Err(second),
        (Ok(_), Err(second)) => Err(second),
        (first, _) => first,
    }
}

/// Copies a tensor to the CPU; a tensor on the CPU is returned as it is.
///
/// # Errors
/// As [`synchronize`]: the values that a failed computation left behind are not returned.
pub fn to_host(tensor: &Tensor) -> Result<Tensor> {
    // Before the copy, for which candle frees the unused buffers of its pool.
    note_peak(tensor.device());
    // candle waits for the copy only. A failure of earlier work shows in `synchronize`, which then
    // has nothing left to wait for.
    let copied = guarded(|| {
        fault_injection::begin()?;
        Ok(fault_injection::copied_to_host(
            tensor.to_device(&Device::Cpu)?,
        ))
    });
    more_severe(copied, synchronize(tensor.device()))
}

/// The values of a tensor of type `T`, in row-major order.
///
/// # Errors
/// As [`to_host`], or the tensor is of another type.
#[expect(
    clippy::disallowed_methods,
    reason = "the tensor is on the CPU, and its device has finished its work"
)]
pub fn read<T: WithDType>(tensor: &Tensor) -> Result<Vec<T>> {
    Ok(to_host(tensor)?.flatten_all()?.to_vec1()?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::{DeviceFault, TapeError};
    use candle_core::DType;

    fn too_long() -> TapeError {
        TapeError::TooLong("watchdog".to_owned())
    }

    #[test]
    fn a_failed_wait_is_repeated_until_nothing_is_left() {
        let mut outcomes = vec![Ok(()), Err(too_long())];
        let outcome = wait(|| outcomes.pop().expect("at most two waits"));
        assert_eq!(
            outcome.map_err(|error| error.device_fault()),
            Err(Some(DeviceFault::TooLong))
        );
        assert!(outcomes.is_empty(), "fences and buffers were released");
        let mut waits = 0;
        let outcome = wait(|| {
            waits += 1;
            Ok(())
        });
        assert!(outcome.is_ok() && waits == 1);
    }

    #[test]
    fn the_most_severe_fault_is_reported() {
        let lost = || TapeError::Lost("ignored".to_owned());
        for mut outcomes in [
            [Err(lost()), Err(too_long())],
            [Err(too_long()), Err(lost())],
        ] {
            let mut next = outcomes.iter_mut();
            let outcome = wait(|| match next.next() {
                Some(outcome) => std::mem::replace(outcome, Ok(())),
                None => Ok(()),
            });
            let fault = outcome.map_err(|error| error.device_fault());
            assert_eq!(fault, Err(Some(DeviceFault::Lost)));
        }
    }

    #[test]
    fn values_are_not_returned_if_earlier_work_failed() {
        let values = more_severe(Ok(vec![1.0]), Err(too_long()));
        assert!(values.is_err_and(|error| error.device_fault() == Some(DeviceFault::TooLong)));
        let mistake = TapeError::Device("a mistake".to_owned());
        let copy = more_severe::<()>(Err(mistake), Err(too_long()));
        assert!(copy.is_err_and(|error| error.device_fault().is_some()));
    }

    #[test]
    fn values_are_read_in_row_major_order() {
        let x = Tensor::new(&[[1.0f32, 2.0, 3.0], [4.0, 5.0, 6.0]], &Device::Cpu).expect("small");
        let columns = x.t().and_then(|x| x.narrow(0, 1, 2)).expect("two rows");
        let values = read::<f32>(&columns).expect("numbers");
        assert_eq!(values, [2.0, 5.0, 3.0, 6.0]);
        assert!(read::<u8>(&columns).is_err(), "another type");
        assert_eq!(to_host(&x).expect("there").dtype(), DType::F32);
    }
}
