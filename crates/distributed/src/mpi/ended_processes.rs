//! Continues without processes that have ended, with the fault tolerance of Open MPI 5. All calls
//! are made by the thread that initialized MPI.

use super::library::{FaultFunctions, Handle, MpiLibrary, Status};
use crate::error::{GroupError, Result};
use std::ffi::c_int;
use std::time::{Duration, Instant};

/// How often the library is asked whether a process has ended.
const INTERVAL: Duration = Duration::from_millis(20);
/// Pause between two looks at an agreement.
const NAP: Duration = Duration::from_millis(1);

/// Notices that processes have ended, and leaves them out.
pub(super) struct EndedProcesses {
    functions: FaultFunctions,
    asked_at: Instant,
    /// A process that is left must agree within this time.
    patience: Duration,
}

/// The processes that are left.
pub(super) struct Remaining {
    /// Their communicator.
    pub(super) world: Handle,
    /// Their numbers in the one before, in order.
    pub(super) ranks: Vec<usize>,
}

impl EndedProcesses {
    pub(super) fn new(functions: FaultFunctions, patience: Duration) -> Self {
        EndedProcesses {
            functions,
            asked_at: Instant::now(),
            patience,
        }
    }

    /// As [`EndedProcesses::are_there`], now and then: otherwise false.
    pub(super) fn are_newly_there(&mut self, library: &MpiLibrary, world: Handle) -> Result<bool> {
        if self.asked_at.elapsed() < INTERVAL {
            return Ok(false);
        }
        self.asked_at = Instant::now();
        self.are_there(library, world)
    }

    /// Whether a process of `world` has ended, or another process has noticed that and revoked it.
    pub(super) fn are_there(&self, library: &MpiLibrary, world: Handle) -> Result<bool> {
        let mut is_revoked = 0;
        // SAFETY: the communicator is valid, and the flag lives during the call.
        library.check(unsafe { (self.functions.is_revoked)(world, &mut is_revoked) })?;
        if is_revoked != 0 {
            return Ok(true);
        }
        let mut failed = std::ptr::null_mut();
        // SAFETY: as above; the group is freed below.
        library.check(unsafe { (self.functions.failed)(world, &mut failed) })?;
        Ok(self.take_size(library, failed)? > 0)
    }

    /// Leaves out the processes that have ended. All processes that are left call it.
    ///
    /// # Errors
    /// One of them does not answer, or the library fails.
    pub(super) fn leave_out(&self, library: &MpiLibrary, world: Handle) -> Result<Remaining> {
        // SAFETY: the communicator is valid. The others notice, and come here, too. It is no error
        // if another process has revoked it before.
        unsafe { (self.functions.revoke)(world) };
        self.agree(library, world)?;
        let mut next = std::ptr::null_mut();
        // SAFETY: all processes that are left have agreed, and make the same call now.
        library.check(unsafe { (self.functions.shrink)(world, &mut next) })?;
        library.return_errors(next)?;
        let ranks = self.former_ranks(library, world, next)?;
        Ok(Remaining { world: next, ranks })
    }

    /// Waits until all processes that are left have come here. The call that follows would wait
    /// without an end, and use a core meanwhile.
    fn agree(&self, library: &MpiLibrary, world: Handle) -> Result<()> {
        // If a process does not answer, the library keeps the flag until this process ends.
        let flag = Box::into_raw(Box::new(1));
        let mut request = std::ptr::null_mut();
        // SAFETY: the flag is never freed before the request is complete.
        library.check(unsafe { (self.functions.start_agreement)(world, flag, &mut request) })?;
        let began = Instant::now();
        while began.elapsed() < self.patience {
            let (mut done, mut status) = (0, Status::default());
            // SAFETY: the request was started above.
            let code = unsafe { (library.functions.test)(&mut request, &mut done, &mut status) };
            // The code is that of the processes that have ended, also if the others agree.
            if code != 0 || done != 0 {
                // SAFETY: the request is complete.
                drop(unsafe { Box::from_raw(flag) });
                return Ok(());
            }
            std::thread::sleep(NAP);
        }
        Err(GroupError::Connection(
            "after a process has ended, another one does not answer".to_owned(),
        ))
    }

    /// The numbers that the processes of `next` have in `before`.
    fn former_ranks(
        &self,
        library: &MpiLibrary,
        before: Handle,
        next: Handle,
    ) -> Result<Vec<usize>> {
        let mut groups = [std::ptr::null_mut(); 2];
        for (world, group) in [before, next].into_iter().zip(&mut groups) {
            // SAFETY: the communicator is valid; the group is freed below.
            library.check(unsafe { (self.functions.comm_group)(world, group) })?;
        }
        let [mut before, mut next] = groups;
        let mut size = 0;
        // SAFETY: the group is valid, and the number lives during the call.
        library.check(unsafe { (self.functions.group_size)(next, &mut size) })?;
        let ranks: Vec<c_int> = (0..size).collect();
        let mut former = ranks.clone();
        // SAFETY: both lists have `size` numbers.
        let code = unsafe {
            let (ranks, former) = (ranks.as_ptr(), former.as_mut_ptr());
            (self.functions.translate_ranks)(next, size, ranks, before, former)
        };
        library.check(code)?;
        for group in [&mut before, &mut next] {
            // SAFETY: it is not used any more.
            library.check(unsafe { (self.functions.free_group)(group) })?;
        }
        let former = former.into_iter().map(usize::try_from);
        let former: std::result::Result<Vec<usize>, _> = former.collect();
        former.map_err(|_| {
            GroupError::Connection(
                "a process of the new group was not in the previous group".to_owned(),
            )
        })
    }

    /// The size of a group, which is freed.
    fn take_size(&self, library: &MpiLibrary, mut group: Handle) -> Result<c_int> {
        let mut size = 0;
        // SAFETY: the group is valid, and not used afterwards.
        let codes = unsafe {
            [
                (self.functions.group_size)(group, &mut size),
                (self.functions.free_group)(&mut group),
            ]
        };
        for code in codes {
            library.check(code)?;
        }
        Ok(size)
    }
}
