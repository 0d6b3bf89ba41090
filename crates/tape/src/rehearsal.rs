//! A rehearsal: the operations of a piece run as they will, every buffer is made and dropped, but matrix products, which take
//! most of the time and whose results decide nothing about memory, are left out. What the thread allocates meanwhile is
//! recorded, by size and between which operations. Knows no model and no batch.

use crate::error::Result;
use candle_core::Tensor;
use std::cell::{Cell, RefCell};
use std::ptr;

/// Allocations of fewer bytes are not recorded: they do not add up to anything.
const LEAST_BYTES: usize = 1024;
/// Most allocations that one recording holds: 32 MB of it, of which only what is used is ever touched.
const MOST_EVENTS: usize = 1 << 20;

/// A block of the heap.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HeapBlock {
    /// Its size.
    pub bytes: u64,
    /// Which of those in use: no two are the same at the same time.
    pub number: usize,
    /// The thread of the pool that takes it in a training; the first one is 0. Allocators give threads places of their own.
    pub thread: usize,
}

/// What happened to the heap, in order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HeapEvent {
    /// A block was taken.
    Taken(HeapBlock),
    /// A block was given back, by whatever thread.
    Given(HeapBlock),
    /// The next operation of the tape begins, forward or backward.
    Operation,
}

/// The recording in progress. Its buffer is made before the first event: recording never allocates.
struct Recorder {
    events: RefCell<Vec<HeapEvent>>,
    threads: usize,
    /// Whose work this thread does at the moment.
    thread: Cell<usize>,
}

impl Recorder {
    fn push(&self, event: HeapEvent) {
        // Never borrowed twice: nothing allocates while it is.
        if let Ok(mut events) = self.events.try_borrow_mut()
            && events.len() < events.capacity()
        {
            events.push(event);
        }
    }
}

thread_local! {
    /// The recording of this thread; null where there is none. A plain pointer needs no destructor, so that an allocator may
    /// read it at any time in a thread's life.
    static RECORDER: Cell<*const Recorder> = const { Cell::new(ptr::null()) };
}

/// Clears the pointer however the rehearsal ends.
struct Recording;

impl Drop for Recording {
    fn drop(&mut self) {
        RECORDER.set(ptr::null());
    }
}

fn with_recorder<R>(use_it: impl FnOnce(&Recorder) -> R) -> Option<R> {
    let recorder = RECORDER.try_with(Cell::get).ok()?;
    // SAFETY: set by `rehearse` on this very thread and cleared before the recorder it points to is dropped.
    unsafe { recorder.as_ref() }.map(use_it)
}

/// Runs `work` on this thread as a rehearsal for `threads` threads and gives what it allocated; empty where the binary's
/// allocator does not count. Everything must run on this thread: call it inside a pool of one.
pub fn rehearse<R>(threads: usize, work: impl FnOnce() -> R) -> (R, Vec<HeapEvent>) {
    let recorder = Recorder {
        events: RefCell::new(Vec::with_capacity(MOST_EVENTS)),
        threads,
        thread: Cell::new(0),
    };
    RECORDER.set(&raw const recorder);
    let result = {
        let _recording = Recording;
        work()
    };
    (result, recorder.events.into_inner())
}

/// The threads that this thread's rehearsal is for; nothing outside a rehearsal.
pub(crate) fn rehearsed_threads() -> Option<usize> {
    with_recorder(|recorder| recorder.threads)
}

/// `a b` of matrices, or of batches of them, by stock operations; in a rehearsal a buffer of its size.
pub(crate) fn stock_product(a: &Tensor, b: &Tensor) -> Result<Tensor> {
    if rehearsed_threads().is_none() {
        return Ok(a.matmul(b)?);
    }
    let rows = &a.dims()[..a.rank().saturating_sub(1)];
    let shape = [rows, &b.dims()[b.rank().saturating_sub(1)..]].concat();
    Ok(Tensor::zeros(shape, a.dtype(), a.device())?)
}

/// The tape's next operation begins.
pub(crate) fn operation() {
    with_recorder(|recorder| recorder.push(HeapEvent::Operation));
}

/// Does the work of another thread of the pool: in a rehearsal what it takes is that thread's.
pub(crate) fn as_thread<R>(thread: usize, work: impl FnOnce() -> R) -> R {
    let own = with_recorder(|recorder| recorder.thread.replace(thread));
    let result = work();
    if let Some(own) = own {
        with_recorder(|recorder| recorder.thread.set(own));
    }
    result
}

fn block(pointer: *mut u8, bytes: usize, thread: usize) -> HeapBlock {
    HeapBlock {
        bytes: bytes as u64,
        number: pointer.addr(),
        thread,
    }
}

/// A block was taken; nothing where there was no room.
pub(crate) fn taken(pointer: *mut u8, bytes: usize) {
    if bytes >= LEAST_BYTES && !pointer.is_null() {
        with_recorder(|recorder| {
            let block = block(pointer, bytes, recorder.thread.get());
            recorder.push(HeapEvent::Taken(block));
        });
    }
}

/// A block is given back.
pub(crate) fn given(pointer: *mut u8, bytes: usize) {
    if bytes >= LEAST_BYTES {
        with_recorder(|recorder| {
            let block = block(pointer, bytes, recorder.thread.get());
            recorder.push(HeapEvent::Given(block));
        });
    }
}
