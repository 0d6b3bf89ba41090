//! The device that fails on purpose keeps to the rules of Metal: garbage until the device is
//! synchronized, and one report, late.

// A helper that fails fails the test.
#![allow(clippy::unwrap_used)]
#![allow(
    clippy::disallowed_methods,
    reason = "the tests look at values that the device has not confirmed"
)]

use candle_core::{DType, Device, Tensor};
use std::panic::catch_unwind;
use std::sync::atomic::{AtomicU32, Ordering};
use tape::counting_allocator::release;
use tape::device::{
    DevicePreference, convert, copy, discard, select_device, synchronize, take_peak_bytes,
    upload_as, with_autorelease_pool,
};
use tape::fault_injection::{Fault, Injection, ScheduledFault};
use tape::inplace::{add_assign, to_f64};
use tape::{Cancel, DeviceFault, Kernels, Parameters, Tape, Value};

const CPU: Device = Device::Cpu;

fn install(faults: &[(u64, Fault)]) -> Injection {
    let fault = |&(at, fault): &(u64, Fault)| ScheduledFault { at, fault };
    Injection::install(faults.iter().map(fault).collect(), 7)
}

fn parameters() -> Parameters {
    let mut parameters = Parameters::default();
    let values = (1..=6).map(f64::from).collect();
    parameters
        .add("weight".to_owned(), values, &[2, 3], DType::F64, &CPU)
        .unwrap();
    parameters
}

/// The product, its weight gradient, and the sum of the gradient and ones.
fn computed() -> tape::Result<[Vec<f64>; 3]> {
    let parameters = parameters();
    let tape = Tape::record(&parameters, Cancel::default(), Kernels::Fused);
    let weight = tape.parameter(parameters.ids().next().unwrap());
    let x = Value::constant(Tensor::new(&[[1.0, 2.0, 3.0]], &CPU)?);
    let y = tape.linear(&x, &weight, None)?;
    let root = tape.total(&y)?.sum;
    let gradient = tape.backward(vec![(root, 1.0)])?[0].clone().unwrap();
    let mut sum = Tensor::ones((2, 3), DType::F64, &CPU)?;
    add_assign(&mut sum, &gradient)?;
    // `to_f64` would wait for the device, which ends the garbage.
    let values = |tensor: &Tensor| tensor.flatten_all()?.to_vec1::<f64>();
    Ok([values(y.tensor())?, values(&gradient)?, values(&sum)?])
}

fn right() -> [Vec<f64>; 3] {
    [
        vec![14.0, 32.0],
        vec![1.0, 2.0, 3.0, 1.0, 2.0, 3.0],
        vec![2.0, 3.0, 4.0, 2.0, 3.0, 4.0],
    ]
}

#[test]
fn without_faults_nothing_changes() {
    assert_eq!(computed().unwrap(), right());
    let injection = install(&[]);
    assert_eq!(computed().unwrap(), right());
    assert!(injection.dispatches() >= 6);
    synchronize(&CPU).unwrap();
}

#[test]
fn garbage_until_the_device_is_synchronized_and_one_report() {
    let count = {
        let injection = install(&[]);
        computed().unwrap();
        injection.dispatches()
    };
    for at in 0..count {
        let _injection = install(&[(at, Fault::OutOfMemory)]);
        let found = computed().expect("it is reported later");
        assert_ne!(found, right(), "dispatch {at}");
        assert!(found.iter().flatten().all(|v| v.is_finite()));
        let error = synchronize(&CPU).unwrap_err();
        assert!(error.is_memory(), "{error}");
        synchronize(&CPU).expect("reported once");
        assert_eq!(computed().unwrap(), right());
    }
}

#[test]
fn a_page_fault_damages_a_parameter_and_an_earlier_failure_hides_it() {
    let report = |faults: &[(u64, Fault)]| {
        let _injection = install(faults);
        let parameters = parameters();
        let weight = |id: usize| {
            let values = parameters.at(id).tensor.flatten_all();
            values.and_then(|values| values.to_vec1::<f64>()).unwrap()
        };
        let before = weight(0);
        let tape = Tape::forward_only(&parameters, Cancel::default(), Kernels::Fused);
        let value = tape.parameter(parameters.ids().next().unwrap());
        tape.relu(&tape.relu(&value).unwrap()).unwrap();
        let reported = synchronize(&CPU).map_err(|error| error.device_fault());
        synchronize(&CPU).unwrap();
        (reported, weight(0) == before)
    };
    assert_eq!(report(&[]), (Ok(()), true));
    let lost = Err(Some(DeviceFault::Lost));
    assert_eq!(report(&[(1, Fault::PageFault)]), (lost, false));
    let too_long = Err(Some(DeviceFault::TooLong));
    assert_eq!(report(&[(0, Fault::Timeout)]), (too_long, true));
    let both = [(0, Fault::Timeout), (1, Fault::PageFault)];
    assert_eq!(report(&both), (too_long, false));
}

#[test]
fn an_immediate_fault_fails_the_call_and_leaves_no_garbage() {
    for fault in [Fault::AllocationRefused, Fault::TooManyThreads] {
        let injection = install(&[(2, fault)]);
        let error = computed().unwrap_err();
        assert!(error.to_string().contains(fault.description()), "{error}");
        assert_eq!(injection.garbage_results(), 0);
        synchronize(&CPU).unwrap();
        assert_eq!(computed().unwrap(), right());
    }
}

#[test]
fn only_a_new_device_works_again_after_a_permanent_fault() {
    for fault in [Fault::SubmissionsIgnored, Fault::DeviceLost] {
        let _injection = install(&[(0, fault)]);
        for _ in 0..3 {
            assert_ne!(computed().unwrap(), right());
            let error = synchronize(&CPU).unwrap_err();
            assert!(error.to_string().contains(fault.description()), "{error}");
        }
        select_device(DevicePreference::Cpu).unwrap();
        assert_eq!(computed().unwrap(), right());
        synchronize(&CPU).unwrap();
    }
}

#[test]
fn values_of_failed_work_are_not_read() {
    let x = Tensor::new(&[1.0f64, 2.0], &CPU).unwrap();
    let _injection = install(&[(0, Fault::Timeout)]);
    let error = to_f64(&x).unwrap_err();
    let description = Fault::Timeout.description();
    assert!(error.to_string().contains(description), "{error}");
    assert_eq!(to_f64(&x).unwrap(), [1.0, 2.0]);
}

/// The gradient of the sum of two losses, each with these factors, and the number of waits for the
/// device until then.
fn gradient_of_losses(factors: &[f64]) -> (Vec<f64>, usize) {
    let parameters = parameters();
    let injection = install(&[]);
    injection.measure_at_waits(|| 1);
    let tape = Tape::record(&parameters, Cancel::default(), Kernels::Fused);
    let weight = tape.parameter(parameters.ids().next().unwrap());
    let x = Value::constant(Tensor::new(&[[1.0, 2.0, 3.0]], &CPU).unwrap());
    let y = tape.linear(&x, &weight, None).unwrap();
    let losses = [
        tape.cross_entropy(&y, &[1], 0.0).unwrap(),
        tape.linear_cross_entropy(&x, &weight, &[0]).unwrap(),
    ];
    let roots = losses.iter().flat_map(|loss| {
        let root = move |&factor: &f64| (loss.sum.clone(), factor);
        factors.iter().map(root)
    });
    let gradient = tape.backward(roots.collect()).unwrap()[0].clone().unwrap();
    let waits = injection.measured_at_waits().len();
    (to_f64(&gradient).unwrap(), waits)
}

#[test]
fn the_backward_pass_of_a_loss_waits_for_nothing_if_the_host_knows_its_factor() {
    let (expected, waits) = gradient_of_losses(&[2.0]);
    assert_eq!(waits, 0);
    // The sum of two factors is known to the device only.
    let (found, waits) = gradient_of_losses(&[0.5, 1.5]);
    assert_eq!((found, waits), (expected, 2));
    let (unscaled, waits) = gradient_of_losses(&[1.0]);
    let doubled: Vec<f64> = unscaled.iter().map(|value| 2.0 * value).collect();
    let (expected, _) = gradient_of_losses(&[2.0]);
    assert_eq!((doubled, waits), (expected, 0));
}

#[test]
fn in_place_passes_of_a_failed_device_leave_garbage_in_the_weights() {
    use tape::optim::{AdamWStep, adamw};
    let rule = AdamWStep {
        learning_rate: 0.1,
        beta1: 0.9,
        beta2: 0.999,
        epsilon: 1e-8,
        weight_decay: 0.0,
        step: 1,
        gradient_factor: 1.0,
    };
    let step = || {
        let zeros = || Tensor::zeros(8, DType::F32, &CPU).unwrap();
        let (mut p, mut m, mut v) = (zeros(), zeros(), zeros());
        let gradient = Tensor::ones(8, DType::F32, &CPU).unwrap();
        adamw(&mut p, &mut m, &mut v, &gradient, rule).unwrap();
        [p, m, v].map(|t| t.to_vec1::<f32>().unwrap())
    };
    let right = step();
    let _injection = install(&[(0, Fault::Timeout)]);
    assert_ne!(step(), right);
    synchronize(&CPU).unwrap_err();
    assert_eq!(step(), right);
}

#[test]
fn a_copy_that_shares_memory_is_an_error() {
    let original = Tensor::new(&[1.0f32, 2.0], &CPU).unwrap();
    let injection = install(&[(0, Fault::AliasedCopy)]);
    let error = copy(&original).unwrap_err().to_string();
    assert!(error.contains(Fault::AliasedCopy.description()), "{error}");
    assert_eq!(injection.happened().len(), 1);
    let mut own = copy(&original).unwrap();
    add_assign(&mut own, &original).unwrap();
    assert_eq!(to_f64(&own).unwrap(), [2.0, 4.0]);
    assert_eq!(to_f64(&original).unwrap(), [1.0, 2.0]);
}

#[test]
fn a_device_without_f64_converts_nothing_from_it() {
    let double = Tensor::new(&[1.0f64, 2.0], &CPU).unwrap();
    let injection = install(&[]);
    assert!(convert(&double, DType::F32).is_ok());
    injection.remove_f64();
    let error = convert(&double, DType::F32).unwrap_err().to_string();
    assert!(
        error.contains("to_dtype F64 F32 not implemented"),
        "{error}"
    );
    let single = upload_as(vec![1.0, 2.0], &[2], DType::F32, &CPU).unwrap();
    let half = convert(&single, DType::BF16).unwrap();
    assert_eq!(to_f64(&half).unwrap(), [1.0, 2.0]);
}

#[test]
fn an_exception_of_the_system_is_the_error_of_a_lost_device() {
    let injection = install(&[(0, Fault::Exception), (2, Fault::Exception)]);
    for _ in 0..2 {
        let error = with_autorelease_pool(computed).unwrap_err();
        assert_eq!(error.device_fault(), Some(DeviceFault::Lost), "{error}");
        assert!(error.is_exception() && error.is_deferred_fault());
        let text = error.to_string();
        assert!(text.contains(Fault::Exception.description()), "{text}");
        let again = synchronize(&CPU).unwrap_err();
        assert!(again.is_exception(), "this device cannot be used: {again}");
        select_device(DevicePreference::Cpu).unwrap();
    }
    assert_eq!(injection.happened().len(), 2);
    assert_eq!(with_autorelease_pool(computed).unwrap(), right());
    // A panic is no exception of the system.
    let panicked = || with_autorelease_pool(|| -> tape::Result<()> { panic!("a mistake") });
    assert!(catch_unwind(panicked).is_err());
}

#[test]
fn memory_is_returned_even_if_the_device_is_lost() {
    static PURGES: AtomicU32 = AtomicU32::new(0);
    let purge = || {
        PURGES.fetch_add(1, Ordering::Relaxed);
    };
    let _injection = install(&[(0, Fault::DeviceLost)]);
    computed().expect("it is reported later");
    let error = release(&CPU, purge).unwrap_err();
    assert_eq!(error.device_fault(), Some(DeviceFault::Lost), "{error}");
    assert_eq!(PURGES.load(Ordering::Relaxed), 1);
}

#[test]
fn the_peak_of_a_lost_device_is_forgotten() {
    let injection = install(&[]);
    injection.allocate(3000);
    synchronize(&CPU).unwrap();
    discard(CPU);
    assert_eq!(take_peak_bytes(&CPU), 0);
}

#[test]
fn the_peak_is_read_before_a_synchronization_frees_memory() {
    let injection = install(&[]);
    injection.allocate(3000);
    let x = Tensor::new(&[1.0f32], &CPU).unwrap();
    to_f64(&x).unwrap();
    injection.allocate(1000);
    synchronize(&CPU).unwrap();
    assert_eq!(take_peak_bytes(&CPU), 3000);
    assert_eq!(take_peak_bytes(&CPU), 0, "a new measurement");
}
