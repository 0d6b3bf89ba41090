//! What the tape records and computes: values, gradients, memory and errors. One topic per file,
//! all in one program, so that candle is linked once.

mod activation_checkpointing_peak_memory;
mod activation_checkpointing_samples;
mod attention;
mod cancel;
mod candle_nn_reference;
mod casts;
mod convolutions;
mod fault_injection;
mod finite_differences;
mod gradient_ownership;
mod half_precision;
mod invalid_operands;
mod invalid_shapes;
mod kinks;
mod losses;
mod nan;
mod noise;
mod quantized;
mod recording;
mod saved_bytes;
mod saved_limit;

use tape::counting_allocator::CountingAllocator;

#[global_allocator]
static ALLOCATOR: CountingAllocator<std::alloc::System> = CountingAllocator(std::alloc::System);
