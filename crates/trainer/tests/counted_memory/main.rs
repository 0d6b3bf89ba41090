//! Tests that count the bytes on the heap. A program of their own, because its allocator counts.
//! The count is the process's, and nextest runs each test in its own process.

// A helper that fails fails the test.
#![allow(clippy::unwrap_used)]

#[path = "../support/noise_images.rs"]
mod noise_images;
#[path = "../support/mod.rs"]
mod support;

mod device_recovery;
mod memory_leaks;
mod text_memory;

use tape::counting_allocator::CountingAllocator;

#[global_allocator]
static ALLOCATOR: CountingAllocator<std::alloc::System> = CountingAllocator(std::alloc::System);
