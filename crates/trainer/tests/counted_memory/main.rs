//! Tests that count the bytes on the heap. A program of their own, because its allocator counts.
//! The count is the process's, and nextest runs each test in its own process.

// A helper that fails fails the test.
#![allow(clippy::unwrap_used)]

#[path = "../support/noise_images.rs"]
mod noise_images;
#[path = "../support/mod.rs"]
mod support;
#[path = "../support/temporary_folder.rs"]
mod temporary_folder;

mod device_recovery;
mod group_start_memory;
mod memory_leaks;
mod pause_and_save_memory;
mod text_memory;

use tape::counting_allocator::CountingAllocator;

#[global_allocator]
static ALLOCATOR: CountingAllocator<std::alloc::System> = CountingAllocator(std::alloc::System);
