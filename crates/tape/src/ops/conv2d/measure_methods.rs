//! Times both methods of convolutions on a device, for the choice between them.

use super::gpu::{self, Method};
use crate::convert_dtype::host_tensor;
use crate::device_sync::synchronize;
use crate::error::Result;
use crate::kernels::convolution_choice::{ConvolutionPass, TYPICAL, TypicalConvolution};
use crate::kernels::{KernelGroup, copies, run_on};
use crate::objective_c::guarded;
use crate::rng::Rng;
use candle_core::{DType, Device, Tensor};
use std::time::Instant;

/// Launches per measurement, and measurements, of which the fastest counts.
const LAUNCHES: u32 = 2;
const TRIES: usize = 3;

/// The products of the typical convolution with this index that are faster without columns, by the
/// names that [`crate::kernels::use_direct_convolutions`] takes. Empty if the device has no kernels
/// for one of the methods, or too little memory.
///
/// # Errors
/// The device failed.
pub fn faster_convolutions(index: usize, dtype: DType, device: &Device) -> Result<Vec<String>> {
    match TYPICAL.get(index) {
        Some(typical) => guarded(|| faster(typical, dtype, device)),
        None => Ok(Vec::new()),
    }
}

/// The operands of a convolution.
struct Operands {
    x: Tensor,
    weight: Tensor,
    dy: Tensor,
}

impl Operands {
    fn new(typical: &TypicalConvolution, dtype: DType, device: &Device) -> Result<Self> {
        let TypicalConvolution {
            samples,
            channels,
            out,
            side,
            kernel,
            ..
        } = *typical;
        let (height, width) = typical.window().out();
        let weight = drawn(&[out, channels, kernel, kernel], dtype, device)?;
        // Every sample is the same: that takes a part of the time.
        let repeated = |sizes: [usize; 3]| -> Result<Tensor> {
            let one = drawn(&[1, sizes[0], sizes[1], sizes[2]], dtype, device)?;
            let all = one.broadcast_as((samples, sizes[0], sizes[1], sizes[2]))?;
            copies::contiguous(&all)
        };
        Ok(Operands {
            x: repeated([channels, side, side])?,
            weight,
            dy: repeated([out, height, width])?,
        })
    }
}

/// Values of a short random stream. Zeros would be faster.
fn drawn(shape: &[usize], dtype: DType, device: &Device) -> Result<Tensor> {
    let stream = Rng::new(3);
    let some: Vec<f64> = (0..4093).map(|i| stream.uniform(i) * 2.0 - 1.0).collect();
    let count = shape.iter().product();
    let values = some.iter().copied().cycle().take(count).collect();
    host_tensor(values, shape, dtype, device)
}

fn faster(typical: &TypicalConvolution, dtype: DType, device: &Device) -> Result<Vec<String>> {
    let operands = match Operands::new(typical, dtype, device) {
        Ok(operands) => operands,
        Err(error) if error.is_memory() => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let both = [KernelGroup::Conv2d, KernelGroup::DirectConv2d];
    if !both.iter().all(|&group| run_on(group, &operands.x)) {
        return Ok(Vec::new());
    }
    let mut faster = Vec::new();
    for pass in ConvolutionPass::ALL {
        let seconds = |method| fastest(device, || compute(typical, &operands, pass, method));
        let [columns, direct] = [Method::Columns, Method::Direct].map(seconds);
        if is_faster(direct, columns)? {
            faster.push(typical.name(pass, dtype));
        }
    }
    Ok(faster)
}

/// Whether the first time is shorter. A method that fails is not faster.
///
/// # Errors
/// The device failed, other than for lack of memory.
fn is_faster(direct: Result<f64>, columns: Result<f64>) -> Result<bool> {
    match (direct, columns) {
        (Ok(direct), Ok(columns)) => Ok(direct < columns),
        (Err(error), _) | (_, Err(error)) => {
            if error.device_fault().is_some() && !error.is_memory() {
                return Err(error);
            }
            Ok(false)
        }
    }
}

fn compute(
    typical: &TypicalConvolution,
    operands: &Operands,
    pass: ConvolutionPass,
    method: Method,
) -> Result<Tensor> {
    let (window, Operands { x, weight, dy }) = (typical.window(), operands);
    match pass {
        ConvolutionPass::Forward => gpu::forward(&window, x, weight, method),
        ConvolutionPass::InputGradient => gpu::input_gradient(&window, weight, dy, method),
        ConvolutionPass::WeightGradient => gpu::weight_gradient(&window, x, dy, method),
    }
}

/// Seconds of the fastest of several measurements. Kernels are compiled before the first.
fn fastest(device: &Device, work: impl Fn() -> Result<Tensor>) -> Result<f64> {
    work()?;
    let mut fastest = f64::INFINITY;
    for _ in 0..TRIES {
        synchronize(device)?;
        let begun = Instant::now();
        for _ in 0..LAUNCHES {
            work()?;
        }
        synchronize(device)?;
        fastest = fastest.min(begun.elapsed().as_secs_f64() / f64::from(LAUNCHES));
    }
    Ok(fastest)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::TapeError;
    use crate::kernels::emulator;
    use crate::kernels::{take_used, use_direct_convolutions};

    const SMALL: TypicalConvolution = TypicalConvolution {
        samples: 2,
        channels: 3,
        out: 4,
        side: 6,
        kernel: 3,
        stride: 1,
    };

    #[test]
    fn both_methods_are_measured_where_kernels_exist() {
        let measure = || faster(&SMALL, DType::F32, &Device::Cpu).expect("it runs");
        assert!(measure().is_empty(), "a CPU has no kernels to choose from");
        take_used();
        let found = emulator::with(measure);
        assert!(found.len() <= 3);
        let all = ConvolutionPass::ALL.map(|pass| SMALL.name(pass, DType::F32));
        assert!(found.iter().all(|name| all.contains(name)), "{found:?}");
        let used = take_used();
        assert!(used.contains(&(KernelGroup::DirectConv2d, "f32")));
        assert!(used.contains(&(KernelGroup::Conv2d, "f32")));
    }

    #[test]
    fn the_choice_decides_how_a_product_is_computed() {
        // Nothing else in these tests chooses products in f16.
        let typical = &TYPICAL[2];
        let operands = Operands::new(&SMALL, DType::F16, &Device::Cpu).expect("small");
        let direct_is_used = |pass| {
            take_used();
            let run = || compute(&SMALL, &operands, pass, Method::Measured);
            emulator::with(run).expect("it runs");
            take_used().contains(&(KernelGroup::DirectConv2d, "f16"))
        };
        assert!(!ConvolutionPass::ALL.into_iter().any(direct_is_used));
        let forward =
            |typical: &TypicalConvolution| typical.name(ConvolutionPass::Forward, DType::F16);
        use_direct_convolutions(&TYPICAL.iter().map(forward).collect::<Vec<_>>());
        let [output, others @ ..] = ConvolutionPass::ALL.map(direct_is_used);
        assert!(output && others == [false, false]);
        use_direct_convolutions(&[forward(typical)]);
        assert!(
            !direct_is_used(ConvolutionPass::Forward),
            "it is like another one"
        );
        use_direct_convolutions(&[]);
    }

    #[test]
    fn a_method_that_fails_is_not_faster() {
        let compiler = || Err(TapeError::Device("it does not compile".to_owned()));
        let memory = || Err(TapeError::Memory("full".to_owned()));
        let faster = |direct, columns| is_faster(direct, columns).expect("the device works");
        assert!(faster(Ok(1.0), Ok(2.0)));
        assert!(!faster(Ok(2.0), Ok(1.0)));
        assert!(!faster(compiler(), Ok(1.0)));
        assert!(!faster(Ok(1.0), memory()));
        let lost = Err(TapeError::Lost("reset".to_owned()));
        assert!(is_faster(lost, Ok(1.0)).is_err());
    }
}
