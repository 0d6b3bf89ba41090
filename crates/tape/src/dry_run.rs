//! Dry runs: the operations of a micro-batch run as usual, and every buffer is allocated and freed,
//! but matrix products are skipped. They take most of the time, and their results do not affect
//! memory. The allocations of the thread are recorded, together with the beginnings of operations.
//!
//! The engine asks this module in three places only: the counting allocator reports blocks, the CPU
//! kernels ask for the number of threads, and a tape marks its operations.

use std::cell::{Cell, RefCell};
use std::ptr;

/// Smaller allocations are not recorded: they do not add up to anything.
const MIN_BYTES: usize = 1024;
/// Capacity of one recording. It reserves 32 MB, of which only the used part is ever touched.
const MAX_EVENTS: usize = 1 << 20;

/// A block of the heap.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HeapBlock {
    /// Size in bytes.
    pub bytes: u64,
    /// Its address, unique among the blocks in use.
    pub number: usize,
    /// The pool thread, from 0, that allocates or frees it in a real run. Allocators keep separate
    /// arenas per thread.
    pub thread: usize,
}

/// One event of a recording.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HeapEvent {
    /// A block was allocated.
    Allocated(HeapBlock),
    /// A block was freed, by any thread.
    Freed(HeapBlock),
    /// The next operation of the tape begins, forward or backward.
    Operation,
}

/// The recording in progress. Its buffer is allocated up front, because recording must not
/// allocate.
struct Recorder {
    events: RefCell<Vec<HeapEvent>>,
    threads: usize,
    /// The pool thread whose work is being done.
    thread: Cell<usize>,
}

impl Recorder {
    fn push(&self, event: HeapEvent) {
        // The borrow never fails: nothing allocates while it is held.
        if let Ok(mut events) = self.events.try_borrow_mut()
            && events.len() < events.capacity()
        {
            events.push(event);
        }
    }
}

thread_local! {
    /// The recording of this thread, or null. A plain pointer has no destructor, so an allocator
    /// may read it at any time in the life of a thread.
    static RECORDER: Cell<*const Recorder> = const { Cell::new(ptr::null()) };
}

/// Clears the pointer even if the work panics.
struct Recording;

impl Drop for Recording {
    fn drop(&mut self) {
        RECORDER.set(ptr::null());
    }
}

fn with_recorder<R>(use_it: impl FnOnce(&Recorder) -> R) -> Option<R> {
    let recorder = RECORDER.try_with(Cell::get).ok()?;
    // SAFETY: set by `dry_run` on this very thread and cleared before the recorder it points to is
    // dropped.
    unsafe { recorder.as_ref() }.map(use_it)
}

/// Runs `work` on this thread as a dry run for a pool of `threads` threads and returns the recorded
/// heap events. The list is empty if the binary does not use `CountingAllocator` as its allocator.
/// All of `work` must run on this thread: call this inside a pool of one.
pub fn dry_run<R>(threads: usize, work: impl FnOnce() -> R) -> (R, Vec<HeapEvent>) {
    let recorder = Recorder {
        events: RefCell::new(Vec::with_capacity(MAX_EVENTS)),
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

/// True if this thread is in a dry run.
pub(crate) fn is_active() -> bool {
    threads().is_some()
}

/// The number of threads that the dry run of this thread is for; `None` outside a dry run.
pub(crate) fn threads() -> Option<usize> {
    with_recorder(|recorder| recorder.threads)
}

/// Records that the tape's next operation begins.
pub(crate) fn mark_operation() {
    with_recorder(|recorder| recorder.push(HeapEvent::Operation));
}

/// Runs `work` for another thread of the pool: a dry run attributes its allocations to that thread.
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

/// Records an allocation; a null pointer is ignored.
pub(crate) fn record_alloc(pointer: *mut u8, bytes: usize) {
    if bytes >= MIN_BYTES && !pointer.is_null() {
        with_recorder(|recorder| {
            let block = block(pointer, bytes, recorder.thread.get());
            recorder.push(HeapEvent::Allocated(block));
        });
    }
}

/// Records that a block is freed.
pub(crate) fn record_free(pointer: *mut u8, bytes: usize) {
    if bytes >= MIN_BYTES {
        with_recorder(|recorder| {
            let block = block(pointer, bytes, recorder.thread.get());
            recorder.push(HeapEvent::Freed(block));
        });
    }
}
