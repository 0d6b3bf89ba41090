//! The group of machines that trains a run. A run that trains alone has none.

mod compare_ranks;
mod all_reduce_sums;
mod device_link;
mod machine_log;
mod machine_report;
mod owner_choice;
mod owners;
mod rounding_errors;
mod share_run;
mod step_exchange;

use crate::error::{Result, TrainError};
use crate::replay::Replay;
pub(crate) use all_reduce_sums::Contribution;
use all_reduce_sums::VALUES_AT_ONCE;
pub(crate) use compare_ranks::{Subject, agree, checksum};
use distributed::{
    Claim, ClaimRequest, Group, GroupError, Member, RoundedSum, Share, SingleRank, Values,
    join_launched,
};
pub(crate) use machine_log::{MachineLog, gather_members};
pub(crate) use machine_report::MachineReport;
pub(crate) use owner_choice::{OwnerChoice, StateMemory};
pub(crate) use owners::Owners;
use runlog::{ExchangeChoice, counted};
pub(crate) use share_run::{share_checkpoint, share_run};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
pub(crate) use step_exchange::StepExchange;
use tape::Parameters;
use tape::device::{ExchangeLibrary, Nccl};

/// After this many steps, the ranks compare all weights; after every step, the norm of the
/// gradients.
const COMPARED_STEPS: u64 = 100;
/// Longest time of an exchange between devices if the patience of the group is unknown.
const USUAL_PATIENCE: Duration = Duration::from_secs(60);
/// Number of exchanges whose best time counts.
const MEASURED_EXCHANGES: usize = 4;

/// The group of machines that trains a run; by default, this machine alone. Clones share it.
///
/// All ranks start the same run. Rank 0 alone keeps the run folder: it evaluates, saves and shows
/// the run. The run folder of another rank is a scratch folder for its vocabulary and its memory
/// readings, which can be removed afterwards.
#[derive(Clone, Default)]
pub struct RunGroup(Option<Arc<Mutex<Shared>>>);

/// The group, and what this rank remembers of its steps.
struct Shared {
    group: Box<dyn Group>,
    /// Whether a claim of the newest step was answered with a stop.
    has_stopped: bool,
    /// A number that all ranks must have in common after the newest update.
    last_update: u64,
    /// After this many steps, the number depends on all weights.
    compared_steps: u64,
    /// The steps repeat those of a recorded run.
    replays: bool,
    /// What connects the devices of the ranks, and the longest time that an exchange takes.
    library: Arc<dyn ExchangeLibrary>,
    exchange_patience: Duration,
}

impl fmt::Debug for RunGroup {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "RunGroup({} of {})", self.rank(), self.size())
    }
}

impl RunGroup {
    /// A run that `group` trains.
    pub fn new(group: Box<dyn Group>) -> Self {
        RunGroup(Some(Arc::new(Mutex::new(Shared {
            group,
            has_stopped: false,
            last_update: 0,
            compared_steps: COMPARED_STEPS,
            replays: false,
            library: Arc::new(Nccl),
            exchange_patience: distributed::patience().unwrap_or(USUAL_PATIENCE),
        }))))
    }

    /// Connects the devices of the ranks by `library` instead of NCCL. An exchange that takes
    /// longer than `patience` has failed.
    pub fn exchanging_by(self, library: Arc<dyn ExchangeLibrary>, patience: Duration) -> Self {
        if let Some(mut shared) = self.lock() {
            (shared.library, shared.exchange_patience) = (library, patience);
        }
        self
    }

    /// Compares all weights of all ranks after every `steps` steps, instead of every 100.
    pub fn comparing_weights_every(self, steps: u64) -> Self {
        if let Some(mut shared) = self.lock() {
            shared.compared_steps = steps.max(1);
        }
        self
    }

    /// Joins the group that a launcher such as `mpirun` started this process for. Without a
    /// launcher, nothing is loaded and the run trains alone. The processes of a machine with
    /// several CUDA devices use one each.
    ///
    /// # Errors
    /// The group cannot be joined.
    pub fn join_launched() -> Result<Self> {
        let joined = join_launched().map_err(TrainError::from)?;
        let group = joined.map_or_else(RunGroup::default, RunGroup::new);
        tape::device::prefer_gpu(group.number_here());
        Ok(group)
    }

    /// The MPI library that [`RunGroup::join_launched`] would use on this machine, or why there is
    /// none.
    pub fn find_library() -> std::result::Result<String, String> {
        distributed::find_library().map_err(|error| error.to_string())
    }

    /// The NCCL library that a run on several NVIDIA GPUs of this machine would use, with its
    /// version, or why there is none.
    pub fn find_nccl() -> std::result::Result<String, String> {
        tape::device::find_nccl()
    }

    /// What NCCL reads from the environment, for a program that starts.
    pub const NCCL_ENVIRONMENT: [(&str, &str); 3] = tape::device::NCCL_ENVIRONMENT;

    /// The environment variable with the seconds of [`RunGroup::patience`].
    pub const PATIENCE_VARIABLE: &str = distributed::PATIENCE_VARIABLE;

    /// The time without an answer after which a machine counts as failed. A minute, unless
    /// [`RunGroup::PATIENCE_VARIABLE`] is set; an error if it is not a number of seconds.
    pub fn patience() -> std::result::Result<Duration, String> {
        distributed::patience().map_err(|error| error.to_string())
    }

    /// Number of NVIDIA GPUs of this machine that this build can use. Each rank here uses one.
    pub fn nvidia_gpus() -> usize {
        tape::device::cuda_device_count()
    }

    /// The name of this machine.
    pub fn host_name() -> String {
        distributed::host_name()
    }

    /// Whether the run trains on this machine alone.
    pub fn is_alone(&self) -> bool {
        self.0.is_none()
    }

    /// Whether this rank keeps the run folder: it does alone, and as rank 0.
    pub fn keeps_run(&self) -> bool {
        self.rank() == 0
    }

    /// Number of this rank, from 0.
    pub fn rank(&self) -> usize {
        self.lock().map_or(0, |shared| shared.group.rank())
    }

    /// Number of ranks.
    pub fn size(&self) -> usize {
        self.lock().map_or(1, |shared| shared.group.size())
    }

    /// Reports to the other ranks that this one ends the run with an error. Their own calls then
    /// fail. Does nothing if the error is theirs.
    pub fn fail(&self, message: &str) {
        if let Some(mut shared) = self.lock() {
            shared.group.fail(message);
        }
    }

    /// Waits until all ranks leave, and disconnects. If a rank was lost, the launcher may then end
    /// this process, so everything must be saved and printed before.
    ///
    /// # Errors
    /// A rank was lost.
    pub fn leave(&self) -> Result<()> {
        self.call(|group| group.leave())
    }

    /// What every rank passes, in the order of ranks.
    ///
    /// # Errors
    /// The group is broken.
    pub fn gather(&self, mine: Vec<u8>) -> Result<Vec<Vec<u8>>> {
        self.call(|group| group.gather(mine))
    }

    /// What rank 0 passes. Other ranks pass nothing.
    pub(crate) fn broadcast(&self, bytes: Vec<u8>) -> Result<Vec<u8>> {
        self.call(|group| group.broadcast(bytes))
    }

    /// The sum over all ranks: the same bits on all of them.
    pub(crate) fn sum(&self, values: Values) -> Result<Values> {
        self.call(|group| group.sum(values))
    }

    /// The sum over all ranks, exchanged in bf16: the same bits on all of them.
    fn sum_rounded(&self, values: Vec<f32>) -> Result<RoundedSum> {
        self.call(|group| group.sum_rounded(values))
    }

    /// Whether a run continues without a machine that has failed, if the launcher and the library
    /// that [`RunGroup::find_library`] names tolerate it.
    pub fn tolerates_faults() -> bool {
        distributed::tolerates_faults()
    }

    /// Continues without the ranks that have ended, after a call failed because of them. All ranks
    /// that are left call it. The step that was under way begins anew.
    ///
    /// # Errors
    /// The group cannot continue.
    pub(crate) fn rejoin(&self) -> Result<()> {
        self.call(|group| group.rejoin())
    }

    /// Whether the steps repeat those of a recorded run.
    pub(crate) fn replays(&self) -> bool {
        self.lock().is_some_and(|shared| shared.replays)
    }

    /// The number of this rank when the group began. Events name ranks by these numbers.
    pub(crate) fn number(&self) -> u32 {
        self.member(self.rank()).rank as u32
    }

    /// The ranks of the group.
    pub(crate) fn members(&self) -> Vec<Member> {
        (0..self.size()).map(|rank| self.member(rank)).collect()
    }

    /// Seconds that the ranks take to add up this many values, exchanged in this data type: the
    /// best of a few exchanges.
    ///
    /// # Errors
    /// The group is broken.
    pub fn measure_exchange(&self, values: usize, exchange: ExchangeChoice) -> Result<f64> {
        let mut best = f64::INFINITY;
        for _ in 0..MEASURED_EXCHANGES {
            self.gather(Vec::new())?;
            let began = Instant::now();
            let mut left = values;
            while left > 0 {
                let count = left.min(VALUES_AT_ONCE);
                let values = vec![0.0; count];
                match exchange {
                    ExchangeChoice::F32 => drop(self.sum(Values::Single(values))?),
                    ExchangeChoice::Bf16 => drop(self.sum_rounded(values)?),
                }
                left -= count;
            }
            best = best.min(began.elapsed().as_secs_f64());
        }
        Ok(best)
    }

    /// What connects the devices of the ranks. NCCL alone.
    fn exchange_library(&self) -> Arc<dyn ExchangeLibrary> {
        let library = self.lock().map(|shared| Arc::clone(&shared.library));
        library.unwrap_or_else(|| Arc::new(Nccl))
    }

    /// Longest time of an exchange between devices.
    fn exchange_patience(&self) -> Duration {
        self.lock()
            .map_or(USUAL_PATIENCE, |shared| shared.exchange_patience)
    }

    /// Fails if the group is already known to be broken.
    fn check_failure(&self) -> Result<()> {
        self.call(|group| group.check_failure())
    }

    /// Fails if another rank does not answer at once.
    pub(crate) fn check_alive(&self) -> Result<()> {
        self.call(|group| group.check_alive())
    }

    /// Lets waiting calls check whether all ranks are alive as soon as `check` returns true.
    pub(crate) fn check_when(&self, check: impl Fn() -> bool + Send + 'static) {
        if let Some(mut shared) = self.lock() {
            shared.group.check_when(Box::new(check));
        }
    }

    /// Number of ranks on the machine of this one, itself included.
    pub fn ranks_here(&self) -> usize {
        let Some(shared) = self.lock() else {
            return 1;
        };
        let host = |rank| shared.group.member(rank).host;
        let here = host(shared.group.rank());
        (0..shared.group.size())
            .filter(|&rank| host(rank) == here)
            .count()
    }

    /// The number of this rank among those on its machine, from 0.
    pub(crate) fn number_here(&self) -> usize {
        let Some(shared) = self.lock() else {
            return 0;
        };
        let rank = shared.group.rank();
        let here = shared.group.member(rank).host;
        (0..rank)
            .filter(|&other| shared.group.member(other).host == here)
            .count()
    }

    pub(crate) fn member(&self, rank: usize) -> Member {
        let alone = Member {
            rank,
            host: String::new(),
        };
        self.lock()
            .map_or(alone, |shared| shared.group.member(rank))
    }

    pub(crate) fn begin_step(&self, samples: usize) {
        if let Some(mut shared) = self.lock() {
            shared.has_stopped = false;
            shared.group.begin_step(samples as u32);
        }
    }

    /// Whether a claim of the newest step was answered with a stop: all ranks get this answer.
    pub(crate) fn has_stopped(&self) -> bool {
        self.lock().is_some_and(|shared| shared.has_stopped)
    }

    /// Makes the steps after `done` repeat those of a recorded run. Returns the schedule if this
    /// machine has to follow it alone.
    ///
    /// # Errors
    /// The recorded run was trained by another number of ranks.
    pub(crate) fn replay(&self, replay: Replay, done: u64) -> Result<Option<Replay>> {
        let (recorded, size) = (replay.ranks() as usize, self.size());
        if recorded != size {
            let processes = |count: usize| counted(count as u64, "process", "processes");
            let message = format!(
                "the recorded run had {}, but this run has {}; start as many processes as the recorded run had",
                processes(recorded),
                processes(size)
            );
            return Err(TrainError::NotTrainable { message });
        }
        let Some(mut shared) = self.lock() else {
            return Ok(Some(replay));
        };
        let share = |&(rank, first, count): &(u32, u32, u32)| Share {
            rank: rank as usize,
            samples: first..first.saturating_add(count),
        };
        let ledgers = replay.ledgers(done);
        let ledgers = ledgers
            .iter()
            .map(|ledger| ledger.iter().map(share).collect());
        shared.replays = true;
        shared.group.replay(ledgers.collect());
        Ok(None)
    }

    /// Who processed which samples of the newest step: rank, first sample, number of samples. Ranks
    /// have the numbers of [`RunGroup::number`]. Empty on all ranks but 0.
    pub(crate) fn ledger(&self) -> Vec<(u32, u32, u32)> {
        let Some(shared) = self.lock() else {
            return Vec::new();
        };
        let entry = |Share { rank, samples }: Share| {
            let number = shared.group.member(rank).rank as u32;
            (number, samples.start, samples.end - samples.start)
        };
        shared.group.ledger().into_iter().map(entry).collect()
    }

    /// Records what the ranks compare at the end of the next step: the norm of the gradients of
    /// this one, and now and then all weights. `step` is the number of steps done. Does nothing
    /// alone.
    ///
    /// # Errors
    /// The device failed.
    pub(crate) fn record_update(
        &self,
        parameters: &Parameters,
        step: u64,
        gradient_norm: f64,
    ) -> Result<()> {
        let compared_steps = self.lock().map(|shared| shared.compared_steps);
        let Some(compared_steps) = compared_steps else {
            return Ok(());
        };
        let mut number = gradient_norm.to_bits();
        if step.is_multiple_of(compared_steps) {
            number ^= checksum(parameters)?;
        }
        self.set_last_update(number);
        Ok(())
    }

    /// Takes over the number of rank 0 that [`RunGroup::broadcast_update`] returned.
    pub(crate) fn set_last_update(&self, number: u64) {
        if let Some(mut shared) = self.lock() {
            shared.last_update = number;
        }
    }

    /// The newest number of [`RunGroup::record_update`] at rank 0, which passes whether a
    /// checkpoint of this step exists; `None` on all ranks if it does not.
    pub(crate) fn broadcast_update(&self, is_saved: bool) -> Result<Option<u64>> {
        let mine = if is_saved {
            self.last_update().to_le_bytes().to_vec()
        } else {
            Vec::new()
        };
        let bytes = self.broadcast(mine)?;
        Ok(bytes.try_into().ok().map(u64::from_le_bytes))
    }

    /// The newest number of [`RunGroup::record_update`].
    fn last_update(&self) -> u64 {
        self.lock().map_or(0, |shared| shared.last_update)
    }

    pub(crate) fn claim(&self, request: ClaimRequest) -> Result<Claim> {
        let claim = self.call(|group| group.claim(request))?;
        if let Some(mut shared) = self.lock() {
            shared.has_stopped |= claim == Claim::Stop;
        }
        Ok(claim)
    }

    /// Calls the group. SingleRank, the call does what a group of one rank does.
    fn call<R>(
        &self,
        call: impl FnOnce(&mut dyn Group) -> std::result::Result<R, GroupError>,
    ) -> Result<R> {
        let called = match self.lock() {
            Some(mut shared) => call(&mut *shared.group),
            None => call(&mut SingleRank::default()),
        };
        called.map_err(TrainError::from)
    }

    fn lock(&self) -> Option<MutexGuard<'_, Shared>> {
        let shared = self.0.as_ref()?;
        // A call that panicked leaves a group whose next call fails.
        Some(shared.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

fn unreadable_message(error: serde_json::Error) -> TrainError {
    GroupError::Disagreement(format!("a message cannot be read ({error})")).into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use distributed::{ThreadOptions, thread_ranks};

    #[test]
    fn the_ranks_of_a_machine_have_different_numbers() {
        let numbers: Vec<usize> = std::thread::scope(|scope| {
            let ranks = thread_ranks(3, ThreadOptions::default()).into_iter();
            let threads = ranks.map(|rank| {
                scope.spawn(move || {
                    let group = RunGroup::new(rank.join().expect("all ranks join"));
                    let number = group.number_here();
                    group.leave().expect("all ranks leave");
                    number
                })
            });
            let threads: Vec<_> = threads.collect();
            let numbers = threads.into_iter().map(|thread| thread.join());
            numbers.collect::<std::thread::Result<_>>()
        })
        .expect("no rank panics");
        assert_eq!(numbers, [0, 1, 2]);
        assert_eq!(RunGroup::default().number_here(), 0);
    }
}
