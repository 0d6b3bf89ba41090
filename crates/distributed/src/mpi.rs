//! Ranks that a launcher of MPI started. Messages and sums are those of the MPI library of the
//! machine. Only this file and its folder know MPI.

mod ended_processes;
mod launcher;
mod library;

use crate::connected_group::ConnectedGroup;
use crate::error::{GroupError, Member, Result};
use crate::group::{Group, Values};
use crate::messenger::Timing;
use crate::patience::patience;
use crate::transport::Transport;
use ended_processes::EndedProcesses;
use launcher::Launcher;
use library::{ANY_SOURCE, Handle, IN_PLACE, MpiLibrary, Status};
use std::collections::VecDeque;
use std::ffi::{c_int, c_void};
use std::mem::ManuallyDrop;
use std::ops::RangeInclusive;
use std::time::{Duration, Instant};

/// Marks the messages of this crate.
const TAG: c_int = 7;
/// Fewest and most values of one bucket: 256 kB to 4 MB in f32. Larger buckets would wait longer
/// for the pauses of the messenger, and many small ones would not be summed at the same time.
const BUCKET_VALUES: RangeInclusive<usize> = 1 << 16..=1 << 20;
/// Longest wait until the last messages have been sent, and the pause between two looks.
const LAST_SENDS: Duration = Duration::from_secs(1);
const NAP: Duration = Duration::from_millis(1);
/// Buckets that are summed at the same time.
const BUCKETS_AT_ONCE: usize = 8;

/// Joins the group that a launcher such as `mpirun` started this process for. Returns `None`, and
/// loads nothing, if no launcher did or if it started a single process. Returns once all ranks have
/// joined. A process joins once.
///
/// # Errors
/// No MPI library can be used, or it is not that of the launcher. A rank runs another version. The
/// [patience](crate::patience()) is not a number.
pub fn join_launched() -> Result<Option<Box<dyn Group>>> {
    let launcher = Launcher::detect(|name| std::env::var(name).ok())?;
    let Some(launcher) = launcher.filter(|launcher| launcher.size > 1) else {
        return Ok(None);
    };
    let silence = patience()?;
    let connect =
        move || -> Result<Box<dyn Transport>> { Ok(Box::new(Mpi::connect(launcher, silence)?)) };
    // Other launchers end all processes if one ends before it has joined.
    let joins_within = launcher.tolerates_faults.then_some(silence);
    let group = ConnectedGroup::start(connect, Timing::with_silence(silence), joins_within)?;
    Ok(Some(Box::new(group)))
}

/// The MPI library that [`join_launched`] would load, without connecting to anything.
///
/// # Errors
/// There is none, and why.
pub fn find_library() -> Result<String> {
    MpiLibrary::find()
}

/// Whether a group can continue without a process that has ended, if it uses the library that
/// [`find_library`] names and the launcher lets it.
pub fn tolerates_faults() -> bool {
    MpiLibrary::tolerates_faults()
}

/// The ranks of MPI's world.
struct Mpi {
    launcher: Launcher,
    library: MpiLibrary,
    /// The communicator of all ranks that are left.
    world: Handle,
    /// `None` if the group cannot continue without a process that has ended.
    ended: Option<EndedProcesses>,
    rank: usize,
    size: usize,
    /// Messages whose bytes the library still reads.
    sends: VecDeque<Transfer>,
    /// A message whose bytes the library still writes.
    receive: Option<Transfer>,
    sum: Option<RunningSum>,
}

/// A message under way. Its bytes belong to the library until the request is complete.
struct Transfer {
    request: Handle,
    peer: usize,
    bytes: ManuallyDrop<Vec<u8>>,
}

/// A sum in buckets. Each bucket is summed at one rank, its owner, and then sent to all, so that
/// all ranks get the same bits. Requests start in the same order on all ranks, as MPI requires: the
/// sum of bucket `i + BUCKETS_AT_ONCE` after the spread of bucket `i`.
struct RunningSum {
    /// They belong to the library until all requests are complete.
    values: ManuallyDrop<Values>,
    /// The first of the values.
    first: *mut c_void,
    value_bytes: usize,
    kind: Handle,
    /// Values of each bucket but the last.
    bucket_values: usize,
    /// Requests of sums and spreads, by bucket.
    sums: Vec<Handle>,
    spreads: Vec<Handle>,
}

impl RunningSum {
    fn buckets(&self) -> usize {
        self.values.len().div_ceil(self.bucket_values)
    }

    /// Start and number of values of a bucket.
    fn bucket(&self, index: usize) -> (*mut c_void, c_int) {
        let start = index * self.bucket_values;
        let count = self.bucket_values.min(self.values.len() - start);
        let start = self.first.wrapping_byte_add(start * self.value_bytes);
        (start, count as c_int)
    }
}

impl Mpi {
    /// Joins the processes of the launcher. If one of them ends, the others must agree about that
    /// within `silence`.
    fn connect(launcher: Launcher, silence: Duration) -> Result<Self> {
        let mut library = MpiLibrary::load(launcher.is_open_mpi)?;
        let (functions, world) = (&library.functions, library.objects.world);
        let (mut rank, mut size) = (0, 0);
        // SAFETY: MPI is initialized, and both numbers live during the calls.
        let codes = unsafe {
            [
                (functions.comm_rank)(world, &mut rank),
                (functions.comm_size)(world, &mut size),
            ]
        };
        for code in codes {
            library.check(code)?;
        }
        let size = usize::try_from(size).unwrap_or(0);
        // With the library of another MPI, each process would train alone.
        if size != launcher.size {
            return Err(GroupError::Unavailable(format!(
                "the launcher started {} processes, but {} sees {size}: the launcher and the library belong to different MPI installations; use the mpirun of the library, or set EBB_MPI to the path of the launcher's library",
                launcher.size, library.name
            )));
        }
        let functions = library.fault_functions.take();
        let functions = functions.filter(|_| launcher.tolerates_faults);
        Ok(Mpi {
            launcher,
            world,
            ended: functions.map(|functions| EndedProcesses::new(functions, silence)),
            rank: usize::try_from(rank).unwrap_or(0),
            size,
            library,
            sends: VecDeque::new(),
            receive: None,
            sum: None,
        })
    }

    /// Whether a request is complete. Also advances the others.
    fn is_complete(&self, request: &mut Handle) -> Result<bool> {
        let (mut flag, mut status) = (0, Status::default());
        // SAFETY: the request was started by this library and is tested until it is complete.
        let code = unsafe { (self.library.functions.test)(request, &mut flag, &mut status) };
        self.library.check(code)?;
        Ok(flag != 0)
    }

    /// Frees the bytes of messages that have been sent.
    fn finish_sends(&mut self) -> Result<()> {
        while let Some(mut send) = self.sends.pop_front() {
            if !self.is_complete(&mut send.request)? {
                self.sends.push_front(send);
                return Ok(());
            }
            drop(ManuallyDrop::into_inner(send.bytes));
        }
        Ok(())
    }

    /// Starts to receive the next message, if there is one.
    fn start_receive(&mut self) -> Result<()> {
        let (functions, objects) = (&self.library.functions, &self.library.objects);
        let (mut flag, mut status) = (0, Status::default());
        // SAFETY: the flag and the status live during the call.
        let code =
            unsafe { (functions.probe)(ANY_SOURCE, TAG, self.world, &mut flag, &mut status) };
        self.library.check(code)?;
        if flag == 0 {
            return Ok(());
        }
        let mut count = 0;
        // SAFETY: the status is that of the message which was found.
        let code = unsafe { (functions.count)(&status, objects.byte, &mut count) };
        self.library.check(code)?;
        let mut bytes = ManuallyDrop::new(vec![0u8; usize::try_from(count).unwrap_or(0)]);
        let mut request = std::ptr::null_mut();
        // SAFETY: the buffer has the length of the message, and lives until the request is complete
        // or the process ends.
        let code = unsafe {
            (functions.start_receive)(
                bytes.as_mut_ptr().cast(),
                count,
                objects.byte,
                status.source,
                TAG,
                self.world,
                &mut request,
            )
        };
        self.library.check(code)?;
        self.receive = Some(Transfer {
            request,
            peer: usize::try_from(status.source).unwrap_or(0),
            bytes,
        });
        Ok(())
    }

    fn start_bucket_sum(&self, sum: &mut RunningSum) -> Result<()> {
        let index = sum.sums.len();
        let (start, count) = sum.bucket(index);
        let owner = index % self.size;
        let (from, to) = if owner == self.rank {
            (IN_PLACE, start)
        } else {
            (start.cast_const(), std::ptr::null_mut())
        };
        let (objects, mut request) = (&self.library.objects, std::ptr::null_mut());
        // SAFETY: the bucket lies in the values, which stay where they are until all requests are
        // complete or the process ends. No other request uses the bucket at the same time.
        let code = unsafe {
            (self.library.functions.start_reduce)(
                from,
                to,
                count,
                sum.kind,
                objects.sum,
                owner as c_int,
                self.world,
                &mut request,
            )
        };
        self.library.check(code)?;
        sum.sums.push(request);
        Ok(())
    }

    fn start_bucket_spread(&self, sum: &mut RunningSum) -> Result<()> {
        let index = sum.spreads.len();
        let (start, count) = sum.bucket(index);
        let (owner, mut request) = (index % self.size, std::ptr::null_mut());
        // SAFETY: as for the sum of the bucket, which is complete at this rank.
        let code = unsafe {
            (self.library.functions.start_broadcast)(
                start,
                count,
                sum.kind,
                owner as c_int,
                self.world,
                &mut request,
            )
        };
        self.library.check(code)?;
        sum.spreads.push(request);
        Ok(())
    }

    /// Starts what can start. Returns whether all buckets are summed and spread.
    fn advance(&self, sum: &mut RunningSum) -> Result<bool> {
        loop {
            let spread = sum.spreads.len();
            while sum.sums.len() < sum.buckets().min(spread + BUCKETS_AT_ONCE) {
                self.start_bucket_sum(sum)?;
            }
            if spread == sum.buckets() {
                break;
            }
            if !self.is_complete(&mut sum.sums[spread])? {
                return Ok(false);
            }
            self.start_bucket_spread(sum)?;
        }
        for request in &mut sum.spreads {
            // A complete request stays complete.
            if !self.is_complete(request)? {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

impl Transport for Mpi {
    fn rank(&self) -> usize {
        self.rank
    }

    fn size(&self) -> usize {
        self.size
    }

    fn send(&mut self, to: usize, bytes: Vec<u8>) -> Result<()> {
        self.finish_sends()?;
        let count = c_int::try_from(bytes.len())
            .map_err(|_| GroupError::Connection("a message is larger than 2 GB".to_owned()))?;
        let (objects, mut request) = (&self.library.objects, std::ptr::null_mut());
        let bytes = ManuallyDrop::new(bytes);
        // SAFETY: the bytes live until the request is complete or the process ends.
        let code = unsafe {
            (self.library.functions.start_send)(
                bytes.as_ptr().cast(),
                count,
                objects.byte,
                to as c_int,
                TAG,
                self.world,
                &mut request,
            )
        };
        self.library.check(code)?;
        self.sends.push_back(Transfer {
            request,
            peer: to,
            bytes,
        });
        Ok(())
    }

    fn receive(&mut self) -> Result<Option<(usize, Vec<u8>)>> {
        if let Some(ended) = &mut self.ended
            && ended.are_newly_there(&self.library, self.world)?
        {
            return Err(GroupError::Connection("a process has ended".to_owned()));
        }
        self.finish_sends()?;
        if self.receive.is_none() {
            self.start_receive()?;
        }
        let Some(mut receive) = self.receive.take() else {
            return Ok(None);
        };
        if self.is_complete(&mut receive.request)? {
            return Ok(Some((
                receive.peer,
                ManuallyDrop::into_inner(receive.bytes),
            )));
        }
        self.receive = Some(receive);
        Ok(None)
    }

    fn is_busy(&self) -> bool {
        !self.sends.is_empty() || self.receive.is_some()
    }

    fn begin_sum(&mut self, mut values: Values) -> Result<()> {
        let objects = &self.library.objects;
        let (first, value_bytes, kind) = match &mut values {
            Values::Single(values) => (values.as_mut_ptr().cast(), 4, objects.float),
            Values::Double(values) => (values.as_mut_ptr().cast(), 8, objects.double),
        };
        let bucket_values = values.len() / BUCKETS_AT_ONCE;
        self.sum = Some(RunningSum {
            bucket_values: bucket_values.clamp(*BUCKET_VALUES.start(), *BUCKET_VALUES.end()),
            values: ManuallyDrop::new(values),
            first,
            value_bytes,
            kind,
            sums: Vec::new(),
            spreads: Vec::new(),
        });
        Ok(())
    }

    fn poll_sum(&mut self) -> Result<Option<Values>> {
        let Some(mut sum) = self.sum.take() else {
            return Ok(None);
        };
        if self.advance(&mut sum)? {
            return Ok(Some(ManuallyDrop::into_inner(sum.values)));
        }
        self.sum = Some(sum);
        Ok(None)
    }

    fn leave_out_ended(&mut self) -> Result<Option<Vec<usize>>> {
        // If this fails, it is not tried again.
        let Some(ended) = self.ended.take() else {
            return Ok(None);
        };
        if !ended.are_there(&self.library, self.world)? {
            self.ended = Some(ended);
            return Ok(None);
        }
        let remaining = ended.leave_out(&self.library, self.world)?;
        // The bytes of what was under way belong to the library until the process ends.
        self.sends.clear();
        (self.receive, self.sum) = (None, None);
        if remaining.ranks.first() != Some(&0) {
            return Err(GroupError::Lost(Member {
                rank: 0,
                host: String::new(),
            }));
        }
        let rank = remaining.ranks.iter().position(|rank| *rank == self.rank);
        self.rank = rank.unwrap_or(0);
        self.size = remaining.ranks.len();
        self.world = remaining.world;
        self.ended = Some(ended);
        Ok(Some(remaining.ranks))
    }

    fn disconnect(&mut self) {
        // If processes have ended before, the library may wait for them here without an end (Open
        // MPI 5.0.11). Nothing is left to do but to send the last messages.
        if self.size < self.launcher.size {
            let began = Instant::now();
            while !self.sends.is_empty() && began.elapsed() < LAST_SENDS {
                if self.finish_sends().is_err() {
                    return;
                }
                std::thread::sleep(NAP);
            }
            return;
        }
        // SAFETY: all ranks have left, and nothing is under way but messages that no one waits for.
        unsafe { (self.library.functions.finalize)() };
    }

    fn abort(&mut self) {
        // A launcher that tolerates faults can wait for itself without an end if several processes
        // ask it to end all (Open MPI 5.0.11), so rank 0 alone asks. It ends ranks that are silent;
        // those that have noticed a failure end by themselves.
        if self.launcher.tolerates_faults && self.rank != 0 {
            return;
        }
        // SAFETY: the library is initialized. It ends the processes that are left.
        unsafe { (self.library.functions.abort)(self.world, 1) };
    }
}
