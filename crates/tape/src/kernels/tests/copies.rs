//! Copies between layouts give the bits of candle's, in every element type and for every layout.

use crate::kernels::{copies, emulator};
use candle_core::{CpuStorage, D, DType, Device, Storage, Tensor};

/// Values with distinct bits, among which are all kinds of NaN.
fn drawn(shape: &[usize], dtype: DType) -> Tensor {
    let count = shape.iter().product::<usize>() as u32;
    let bits = (1..=count).flat_map(|i| match dtype {
        DType::F32 => i.wrapping_mul(2_654_435_761).to_le_bytes().to_vec(),
        _ => (i.wrapping_mul(40_503) as u16).to_le_bytes().to_vec(),
    });
    Tensor::from_raw_buffer(&bits.collect::<Vec<u8>>(), dtype, shape, &Device::Cpu)
        .expect("as many as the shape has")
}

pub(super) fn bits(x: &Tensor) -> Vec<u32> {
    let x = x.force_contiguous().expect("memory");
    let (guard, _) = x.storage_and_layout();
    match &*guard {
        Storage::Cpu(CpuStorage::F32(x)) => x.iter().map(|v| v.to_bits()).collect(),
        Storage::Cpu(CpuStorage::BF16(x)) => x.iter().map(|v| v.to_bits().into()).collect(),
        Storage::Cpu(CpuStorage::F16(x)) => x.iter().map(|v| v.to_bits().into()).collect(),
        _ => panic!("another type"),
    }
}

fn same(what: &str, found: &Tensor, expected: &Tensor) {
    assert!(found.is_contiguous(), "{what}");
    assert_eq!(found.dims(), expected.dims(), "{what}");
    assert_eq!(bits(found), bits(expected), "{what}");
}

const TYPES: [DType; 3] = [DType::F32, DType::BF16, DType::F16];

/// A view of a tensor of this shape.
type View = (
    &'static [usize],
    fn(&Tensor) -> candle_core::Result<Tensor>,
    &'static str,
);

const VIEWS: [View; 13] = [
    (&[7, 5], |x| x.t(), "strided_copy"),
    (&[33, 70], |x| x.t(), "transposed_copy"),
    (
        &[2, 40, 5, 7],
        |x| x.permute((0, 2, 3, 1)),
        "transposed_copy",
    ),
    (
        &[2, 5, 7, 40],
        |x| x.permute((0, 3, 1, 2)),
        "transposed_copy",
    ),
    (
        &[3, 17, 2, 19],
        |x| x.permute((2, 3, 0, 1)),
        "transposed_copy",
    ),
    (
        &[2, 3, 2, 4, 3, 4],
        |x| x.permute((0, 2, 4, 1, 3, 5)),
        "strided_copy",
    ),
    (&[5, 12], |x| x.narrow(1, 4, 4), "strided_copy"),
    (&[5, 12], |x| x.narrow(1, 3, 4), "strided_copy"),
    (
        &[4, 6, 8],
        |x| x.narrow(1, 1, 3)?.narrow(2, 2, 5),
        "strided_copy",
    ),
    (
        &[40, 50],
        |x| x.narrow(1, 7, 33)?.narrow(0, 2, 37)?.t(),
        "transposed_copy",
    ),
    (&[3, 1, 8], |x| x.broadcast_as((3, 5, 8)), "strided_copy"),
    (&[30, 1], |x| x.broadcast_as((30, 50)), "strided_copy"),
    (&[1, 6, 1, 5], |x| x.transpose(1, D::Minus1), "strided_copy"),
];

#[test]
fn a_view_of_any_layout_is_copied_bit_by_bit() {
    for dtype in TYPES {
        for (shape, view, kernel) in VIEWS {
            let x = view(&drawn(shape, dtype)).expect("a view");
            let found = emulator::with(|| copies::try_contiguous(&x)).expect("it is copied");
            let found = found.expect("a kernel fits");
            let expected = x.force_contiguous().expect("memory");
            same(&format!("{dtype:?} {shape:?}"), &found, &expected);
            let name = format!("{kernel}_{}", crate::kernels::suffix(dtype));
            assert!(emulator::launched().contains(&name), "{name} {shape:?}");
        }
    }
}

#[test]
fn tensors_are_joined_along_any_axis() {
    for dtype in TYPES {
        for sizes in [[4, 8, 12], [1, 3, 2], [5, 0, 4]] {
            for axis in 0..3 {
                let part = |size: usize| {
                    let mut shape = [3, 4, 8];
                    shape[axis] = size;
                    drawn(&shape, dtype)
                };
                let parts = sizes.map(part);
                let parts: Vec<&Tensor> = parts.iter().collect();
                let found = emulator::with(|| copies::try_joined(&parts, axis)).expect("they fit");
                let expected = copies::joined_by_candle(&parts, axis).expect("they fit");
                let what = format!("{dtype:?} {sizes:?} along {axis}");
                same(&what, &found.expect("a kernel fits"), &expected);
            }
        }
    }
}

#[test]
fn strided_parts_are_joined_without_another_copy() {
    for dtype in TYPES {
        let a = drawn(&[40, 3, 20], dtype).transpose(0, 2).expect("a view");
        let b = drawn(&[1, 3, 40], dtype);
        let b = b.broadcast_as((6, 3, 40)).expect("a view");
        let found = emulator::with(|| copies::try_joined(&[&b, &a], 0)).expect("they fit");
        let expected = copies::joined_by_candle(&[&b, &a], 0).expect("they fit");
        same("a view", &found.expect("a kernel fits"), &expected);
    }
}

#[test]
fn zeros_surround_any_axis() {
    for dtype in TYPES {
        let turned = drawn(&[8, 4, 3], dtype).transpose(0, 2).expect("a view");
        for x in [drawn(&[3, 4, 8], dtype), drawn(&[2, 3, 5], dtype), turned] {
            for axis in 0..3 {
                for zeros in [(1, 2), (4, 4), (0, 3), (8, 0)] {
                    let found = emulator::with(|| copies::padded(&x, axis, zeros.0, zeros.1));
                    let found = found.expect("it fits").expect("a kernel fits");
                    let dense = x.force_contiguous().expect("memory");
                    let expected = dense.pad_with_zeros(axis, zeros.0, zeros.1);
                    let what = format!("{dtype:?} {:?} {axis} {zeros:?}", x.dims());
                    same(&what, &found, &expected.expect("it fits"));
                }
            }
        }
    }
}

#[test]
fn what_no_kernel_can_copy_is_left_to_candle() {
    let none = |outcome: crate::Result<Option<Tensor>>| outcome.expect("no error").is_none();
    let wide = drawn(&[2, 2, 2, 2, 2, 2, 2], DType::F32);
    let reversed = wide.permute([6, 5, 4, 3, 2, 1, 0]).expect("a view");
    let (a, b) = (drawn(&[2, 3], DType::F32), drawn(&[2, 4], DType::F32));
    let half = drawn(&[2, 3], DType::F16);
    let doubles = a.to_dtype(DType::F64).expect("a cast");
    emulator::with(|| {
        assert!(none(copies::try_contiguous(&reversed)), "seven axes");
        assert!(none(copies::try_contiguous(&doubles)), "f64");
        assert!(none(copies::try_joined(&[&a, &b], 0)), "other sizes");
        assert!(none(copies::try_joined(&[&a, &half], 0)), "other types");
        assert!(none(copies::try_joined(&[&a, &a], 2)), "no such axis");
        assert!(none(copies::try_joined(&[], 0)), "no part");
        assert!(none(copies::padded(&a, 2, 1, 1)), "no such axis");
        // Too many elements for 32 bits, in a view of a single one.
        let zero = Tensor::zeros(1, DType::F32, &Device::Cpu).expect("small");
        let huge = zero.broadcast_as((1 << 16, 1 << 16)).expect("a view");
        assert!(none(copies::try_contiguous(&huge)), "2^32 elements");
        assert!(
            none(copies::try_joined(&[&huge, &huge], 0)),
            "2^33 elements"
        );
        assert!(none(copies::padded(&huge, 0, 1, 0)), "2^32 elements");
    });
    assert!(none(copies::try_contiguous(&a)), "there is no GPU");
}
