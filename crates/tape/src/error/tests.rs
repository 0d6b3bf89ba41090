//! Errors as candle and Metal word them, and the faults that they are.

use super::*;
use candle_core::MetalError;

/// The error that candle returns if a Metal command buffer or allocation fails with `message`.
fn metal(message: &str) -> TapeError {
    candle_core::Error::from(MetalError::from(message.to_owned())).into()
}

/// The error of a command buffer, with Metal's description.
fn command_buffer(description: &str) -> TapeError {
    metal(&format!(
        "Command buffer had following error: {description}"
    ))
}

/// The versions whose sources write the texts below.
const VERSIONS: [(&str, &str); 3] = [
    ("candle-core", "0.11.1"),
    ("candle-metal-kernels", "0.11.1"),
    ("cudarc", "0.19.10"),
];

/// A text of a library beside its source, with a value for what the source inserts into it.
struct SourceText {
    source: &'static str,
    text: &'static str,
    value: &'static str,
    fault: Option<DeviceFault>,
    is_deferred: bool,
}

/// The texts by which faults are told apart, and those that must not be taken for a fault.
const TEXTS: [SourceText; 9] = [
    SourceText {
        source: "candle-metal-kernels/src/err.rs: CommandBufferError, of cb_error in commands.rs",
        text: "Command buffer had following error: {0}",
        value: "Caused GPU Timeout Error (00000002:kIOGPUCommandBufferCallbackErrorTimeout)",
        fault: Some(DeviceFault::TooLong),
        is_deferred: true,
    },
    SourceText {
        source: "candle-metal-kernels/src/metal/commands.rs: cb_error without an NSError",
        text: "Command buffer had following error: {0}",
        value: "unknown error",
        fault: Some(DeviceFault::Lost),
        is_deferred: true,
    },
    SourceText {
        source: "candle-metal-kernels/src/metal/device.rs: new_buffer",
        text: "Failed to create metal resource: {0}",
        value: "Buffer",
        fault: Some(DeviceFault::Memory),
        is_deferred: false,
    },
    SourceText {
        source: "candle-metal-kernels/src/metal/commands.rs: create_command_buffer",
        text: "Failed to create metal resource: {0}",
        value: "CommandBuffer",
        fault: Some(DeviceFault::Memory),
        is_deferred: true,
    },
    SourceText {
        source: "candle-metal-kernels/src/err.rs: LoadLibraryError",
        text: "Error while loading library: {0}",
        value: "program_source:1:1: error: unknown type name",
        fault: None,
        is_deferred: false,
    },
    SourceText {
        source: "candle-metal-kernels/src/err.rs: FailedToCreatePipeline",
        text: "Failed to create pipeline",
        value: "",
        fault: None,
        is_deferred: false,
    },
    SourceText {
        source: "candle-metal-kernels/src/err.rs: LockError",
        text: "Could not lock resource: {0}",
        value: "poisoned lock: another task failed inside",
        fault: None,
        is_deferred: false,
    },
    SourceText {
        source: "cudarc/src/driver/result.rs: Display of DriverError",
        text: "DriverError({0}, \"out of memory\")",
        value: "CUDA_ERROR_OUT_OF_MEMORY",
        fault: Some(DeviceFault::Memory),
        is_deferred: false,
    },
    SourceText {
        source: "cudarc/src/cublas/result.rs: Display of CublasError",
        text: "CublasError({0})",
        value: "CUBLAS_STATUS_ALLOC_FAILED",
        fault: Some(DeviceFault::Memory),
        is_deferred: false,
    },
];

#[test]
fn the_texts_of_the_libraries_are_classified_and_of_the_versions_in_use() {
    for SourceText {
        source,
        text,
        value,
        fault,
        is_deferred,
    } in TEXTS
    {
        let error = metal(&text.replace("{0}", value));
        assert_eq!(error.device_fault(), fault, "{source}: {error}");
        assert_eq!(error.is_deferred_fault(), is_deferred, "{source}: {error}");
    }
    // candle-core/src/error.rs: Metal
    let wrapped = candle_core::Error::from(MetalError::from("text".to_owned())).to_string();
    assert!(wrapped.starts_with("Metal error text"), "{wrapped}");
    let lock = concat!(env!("CARGO_MANIFEST_DIR"), "/../../Cargo.lock");
    let lock = std::fs::read_to_string(lock).expect("the workspace has a lock file");
    for (name, version) in VERSIONS {
        let entry = format!("name = \"{name}\"\nversion = \"{version}\"\n");
        assert!(
            lock.contains(&entry),
            "{name} is no longer {version}: compare these texts with its sources"
        );
    }
}

#[test]
fn a_refused_allocation_is_a_memory_fault() {
    for error in [
        metal("Failed to create metal resource: Buffer"),
        command_buffer(
            "Insufficient Memory (00000008:kIOGPUCommandBufferCallbackErrorOutOfMemory)",
        ),
        candle_core::Error::msg("DriverError(CUDA_ERROR_OUT_OF_MEMORY, \"out of memory\")").into(),
        candle_core::Error::msg("CublasError(CUBLAS_STATUS_ALLOC_FAILED)").into(),
    ] {
        assert_eq!(error.device_fault(), Some(DeviceFault::Memory), "{error}");
        assert!(error.is_memory() && matches!(error, TapeError::Memory(_)));
    }
}

#[test]
fn a_refused_allocation_is_reported_at_once_and_a_failed_command_buffer_later() {
    assert!(!metal("Failed to create metal resource: Buffer").is_deferred_fault());
    let late = "Insufficient Memory (00000008:kIOGPUCommandBufferCallbackErrorOutOfMemory)";
    assert!(command_buffer(late).is_deferred_fault());
    let late = "Caused GPU Timeout Error (00000002:kIOGPUCommandBufferCallbackErrorTimeout)";
    assert!(command_buffer(late).is_deferred_fault());
    assert!(!TapeError::Cancelled.is_deferred_fault());
}

#[test]
fn work_that_the_watchdog_stopped_took_too_long() {
    for description in [
        "Impacting Interactivity (0000000e:kIOGPUCommandBufferCallbackErrorImpactingInteractivity)",
        "Caused GPU Timeout Error (00000002:kIOGPUCommandBufferCallbackErrorTimeout)",
        "Caused GPU Timeout Error (00000002:kIOAccelCommandBufferCallbackErrorTimeout)",
        "Caused GPU Hang Error (00000003:kIOGPUCommandBufferCallbackErrorHang)",
        "Discarded (victim of GPU error/recovery) (00000005:kIOGPUCommandBufferCallbackErrorInnocentVictim)",
        "Die GPU hat zu lange gebraucht (00000002:kIOGPUCommandBufferCallbackErrorTimeout)",
    ] {
        let error = command_buffer(description);
        assert_eq!(error.device_fault(), Some(DeviceFault::TooLong), "{error}");
        assert!(!error.is_memory() && error.to_string().contains(description));
    }
}

#[test]
fn a_device_that_ignores_work_is_lost() {
    for error in [
        command_buffer(
            "Ignored (for causing prior/excessive GPU errors) (00000004:kIOGPUCommandBufferCallbackErrorSubmissionsIgnored)",
        ),
        command_buffer(
            "Caused GPU Address Fault Error (0000000b:kIOGPUCommandBufferCallbackErrorPageFault)",
        ),
        command_buffer(
            "Invalid Resource (00000009:kIOGPUCommandBufferCallbackErrorInvalidResource)",
        ),
        command_buffer("Internal Error (0000000e:Internal Error)"),
        command_buffer("Unbekannter Fehler (000000ff:kIOGPUCommandBufferCallbackErrorNew)"),
        candle_core::Error::msg("DriverError(CUDA_ERROR_LAUNCH_TIMEOUT, \"timed out\")").into(),
        candle_core::Error::msg("DriverError(CUDA_ERROR_ILLEGAL_ADDRESS, \"illegal\")").into(),
    ] {
        assert_eq!(error.device_fault(), Some(DeviceFault::Lost), "{error}");
        assert!(!error.is_memory());
    }
}

#[test]
fn the_most_severe_of_several_faults_is_reported() {
    let error = command_buffer(
        "Caused GPU Timeout Error (00000002:kIOGPUCommandBufferCallbackErrorTimeout); \
         Ignored (for causing prior/excessive GPU errors) (00000004:kIOGPUCommandBufferCallbackErrorSubmissionsIgnored)",
    );
    assert_eq!(error.device_fault(), Some(DeviceFault::Lost));
}

#[test]
fn a_mistake_in_the_request_is_no_fault_of_the_device() {
    let mismatch = candle_core::Tensor::new(&[1.0f32], &candle_core::Device::Cpu)
        .and_then(|x| x.reshape((2, 2)))
        .expect_err("four values are missing");
    for error in [
        TapeError::from(mismatch),
        metal("Metal contiguous to_dtype F64 F32 not implemented"),
        TapeError::Cancelled,
        TapeError::Device("there is no device `tpu`".to_owned()),
    ] {
        assert_eq!(error.device_fault(), None, "{error}");
    }
}

#[test]
fn an_exception_of_the_system_is_a_lost_device() {
    let error = TapeError::Exception("-[MTLBuffer contents]: invalid".to_owned());
    assert_eq!(error.device_fault(), Some(DeviceFault::Lost));
    assert!(error.is_exception() && error.is_deferred_fault());
    let text = error.to_string();
    assert!(text.contains("invalid"), "{text}");
}

/// The same errors as candle builds them, where its Metal backend is compiled.
#[cfg(target_os = "macos")]
#[test]
fn errors_of_candles_metal_kernels_are_classified() {
    use candle_metal_kernels::MetalKernelError;
    let classified = |error: MetalKernelError| {
        TapeError::from(candle_core::Error::from(MetalError::from(error))).device_fault()
    };
    for (error, text) in [
        (
            MetalKernelError::CommandBufferError("why".to_owned()),
            "Command buffer had following error: why",
        ),
        (
            MetalKernelError::FailedToCreateResource("Buffer".to_owned()),
            "Failed to create metal resource: Buffer",
        ),
    ] {
        assert_eq!(error.to_string(), text);
    }
    let buffer = MetalKernelError::FailedToCreateResource("Buffer".to_owned());
    assert_eq!(classified(buffer), Some(DeviceFault::Memory));
    let timeout = "Caused GPU Timeout Error (00000002:kIOGPUCommandBufferCallbackErrorTimeout)";
    let timeout = MetalKernelError::CommandBufferError(timeout.to_owned());
    assert_eq!(classified(timeout), Some(DeviceFault::TooLong));
}
