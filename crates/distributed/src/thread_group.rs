//! A group whose ranks are threads of this process, for tests. Messages take random time by a seed,
//! and a rank can die.

use crate::connected_group::ConnectedGroup;
use crate::error::{GroupError, Member, Result};
use crate::group::{Group, Values, disagreement};
use crate::messenger::Timing;
use crate::random::Random;
use crate::transport::Transport;
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How the ranks of a group of threads behave.
#[derive(Debug, Clone, Copy)]
pub struct ThreadOptions {
    /// Seed of the delays.
    pub seed: u64,
    /// A message arrives after at most this time.
    pub max_delay: Duration,
    /// A rank without any message for this long is lost.
    pub silence: Duration,
    /// A rank that dies, and after how many messages; sums count too if the group tolerates deaths.
    pub death: Option<(usize, u64)>,
    /// Another rank that dies.
    pub second_death: Option<(usize, u64)>,
    /// The others notice a death by themselves, and can continue without the rank, as with a
    /// library that tolerates faults. Otherwise a dead rank is only silent.
    pub tolerates_deaths: bool,
}

impl Default for ThreadOptions {
    fn default() -> Self {
        ThreadOptions {
            seed: 0,
            max_delay: Duration::ZERO,
            silence: Duration::from_secs(60),
            death: None,
            second_death: None,
            tolerates_deaths: false,
        }
    }
}

/// One rank of a group of threads, to be moved into its thread.
#[derive(Debug)]
pub struct ThreadRank {
    rank: usize,
    options: ThreadOptions,
    shared: Arc<Shared>,
}

/// The ranks of a group of `size` threads.
pub fn thread_ranks(size: usize, options: ThreadOptions) -> Vec<ThreadRank> {
    let shared = Arc::new(Shared {
        mailboxes: (0..size).map(|_| Mutex::default()).collect(),
        sums: Mutex::default(),
        groups: Mutex::new(vec![(0..size).collect()]),
        deaths: Mutex::default(),
    });
    let rank = |rank| ThreadRank {
        rank,
        options,
        shared: Arc::clone(&shared),
    };
    (0..size).map(rank).collect()
}

impl ThreadRank {
    /// Joins the group. Returns once all ranks have joined.
    ///
    /// # Errors
    /// A rank died.
    pub fn join(self) -> Result<Box<dyn Group>> {
        let timing = Timing::with_silence(self.options.silence);
        let connect = move || -> Result<Box<dyn Transport>> { Ok(Box::new(self.transport())) };
        Ok(Box::new(ConnectedGroup::start(connect, timing, None)?))
    }

    fn transport(self) -> Threads {
        let deaths = [self.options.death, self.options.second_death];
        let mut dies = deaths.into_iter().flatten();
        let dies = dies.find(|(rank, _)| *rank == self.rank);
        let mut random = Random::new(self.options.seed * 1000 + self.rank as u64);
        Threads {
            number: self.rank,
            members: (0..self.shared.mailboxes.len()).collect(),
            epoch: 0,
            max_delay: self.options.max_delay,
            notices_after: self.options.max_delay.mul_f64(random.unit()),
            random,
            tolerates_deaths: self.options.tolerates_deaths,
            messages_left: dies.map(|(_, messages)| messages),
            round: 0,
            shared: self.shared,
        }
    }
}

/// What the ranks share.
#[derive(Debug)]
struct Shared {
    mailboxes: Vec<Mutex<VecDeque<Letter>>>,
    /// The running sums, by their epoch and number.
    sums: Mutex<BTreeMap<(usize, u64), Sum>>,
    /// By epoch: the ranks of the group. An epoch ends when ranks are left out.
    groups: Mutex<Vec<Vec<usize>>>,
    /// When ranks died, if the others notice it.
    deaths: Mutex<BTreeMap<usize, Instant>>,
}

/// A message under way.
#[derive(Debug)]
struct Letter {
    arrives_at: Instant,
    /// The epoch of its sender.
    epoch: usize,
    from: usize,
    bytes: Vec<u8>,
}

/// One sum: what ranks have passed, and how many have taken the result.
#[derive(Debug, Default)]
struct Sum {
    passed: BTreeMap<usize, Values>,
    result: Option<Values>,
    taken: usize,
}

/// A panic of another rank leaves the shared state valid: only whole values are written.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The transport of one rank.
struct Threads {
    /// Its number when the group began.
    number: usize,
    /// The ranks of the group, with the numbers that they had when it began.
    members: Vec<usize>,
    /// How many times ranks were left out.
    epoch: usize,
    random: Random,
    max_delay: Duration,
    /// This rank notices the death of another one after this time.
    notices_after: Duration,
    tolerates_deaths: bool,
    /// Messages until the rank dies, if it does.
    messages_left: Option<u64>,
    round: u64,
    shared: Arc<Shared>,
}

impl Threads {
    fn is_dead(&self) -> bool {
        self.messages_left == Some(0)
    }

    /// Counts a message or a sum, after which the rank may die.
    fn count_message(&mut self) {
        if let Some(left) = &mut self.messages_left {
            *left -= 1;
        }
        if self.is_dead() && self.tolerates_deaths {
            lock(&self.shared.deaths).insert(self.number, Instant::now());
        }
    }

    /// The present number of the rank that had this one when the group began.
    fn position(&self, number: usize) -> Option<usize> {
        self.members.iter().position(|member| *member == number)
    }

    /// The error if a rank has died, or has left this rank behind.
    fn check_deaths(&self) -> Result<()> {
        let has_next = lock(&self.shared.groups).len() > self.epoch + 1;
        let deaths = lock(&self.shared.deaths);
        let notices = |(dead, at): &(&usize, &Instant)| {
            self.position(**dead).is_some() && at.elapsed() >= self.notices_after
        };
        if has_next || deaths.iter().any(|death| notices(&death)) {
            return Err(GroupError::Connection("a rank has ended".to_owned()));
        }
        Ok(())
    }
}

impl Transport for Threads {
    fn rank(&self) -> usize {
        self.position(self.number).unwrap_or(0)
    }

    fn size(&self) -> usize {
        self.members.len()
    }

    fn send(&mut self, to: usize, bytes: Vec<u8>) -> Result<()> {
        if self.is_dead() {
            return Ok(());
        }
        self.count_message();
        let delay = self.max_delay.mul_f64(self.random.unit());
        let mut mailbox = lock(&self.shared.mailboxes[self.members[to]]);
        // Messages of one sender never overtake each other.
        let mut earlier = mailbox.iter().rev();
        let earlier = earlier.find(|letter| letter.from == self.number);
        let earliest = earlier.map(|letter| letter.arrives_at);
        mailbox.push_back(Letter {
            arrives_at: (Instant::now() + delay).max(earliest.unwrap_or_else(Instant::now)),
            epoch: self.epoch,
            from: self.number,
            bytes,
        });
        Ok(())
    }

    fn receive(&mut self) -> Result<Option<(usize, Vec<u8>)>> {
        // The thread of a dead rank ends sooner if its messenger knows of no other rank.
        if self.is_dead() && self.tolerates_deaths && self.number > 0 {
            return Err(GroupError::Lost(Member {
                rank: 0,
                host: String::new(),
            }));
        }
        if self.is_dead() {
            return Ok(None);
        }
        self.check_deaths()?;
        let (mut mailbox, now) = (lock(&self.shared.mailboxes[self.number]), Instant::now());
        mailbox.retain(|letter| letter.epoch >= self.epoch);
        let has_arrived = |letter: &Letter| letter.epoch == self.epoch && letter.arrives_at <= now;
        let arrived = mailbox.iter().position(has_arrived);
        let letter = arrived.and_then(|index| mailbox.remove(index));
        let letter = letter.and_then(|letter| Some((self.position(letter.from)?, letter.bytes)));
        Ok(letter)
    }

    fn is_busy(&self) -> bool {
        false
    }

    fn begin_sum(&mut self, values: Values) -> Result<()> {
        self.round += 1;
        if !self.is_dead() {
            let mut sums = lock(&self.shared.sums);
            let sum = sums.entry((self.epoch, self.round)).or_default();
            sum.passed.insert(self.number, values);
            drop(sums);
            if self.tolerates_deaths {
                self.count_message();
            }
        }
        Ok(())
    }

    fn poll_sum(&mut self) -> Result<Option<Values>> {
        let mut sums = lock(&self.shared.sums);
        let (size, round) = (self.members.len(), (self.epoch, self.round));
        let Some(sum) = sums.get_mut(&round) else {
            return Ok(None);
        };
        if sum.passed.len() == size && sum.result.is_none() {
            sum.result = Some(sum_of(std::mem::take(&mut sum.passed))?);
        }
        let Some(result) = &sum.result else {
            return Ok(None);
        };
        let result = result.clone();
        sum.taken += 1;
        if sum.taken == size {
            sums.remove(&round);
        }
        Ok(Some(result))
    }

    fn leave_out_ended(&mut self) -> Result<Option<Vec<usize>>> {
        if self.is_dead() || !self.tolerates_deaths {
            return Ok(None);
        }
        let mut groups = lock(&self.shared.groups);
        if groups.len() == self.epoch + 1 {
            let deaths = lock(&self.shared.deaths);
            let members = self.members.iter().copied();
            let left: Vec<usize> = members.filter(|rank| !deaths.contains_key(rank)).collect();
            if left.len() == self.members.len() {
                return Ok(None);
            }
            groups.push(left);
        }
        let next = groups[self.epoch + 1].clone();
        if next.first() != self.members.first() {
            return Err(GroupError::Lost(Member {
                rank: 0,
                host: String::new(),
            }));
        }
        drop(groups);
        let left = next
            .iter()
            .filter_map(|rank| self.position(*rank))
            .collect();
        (self.members, self.epoch, self.round) = (next, self.epoch + 1, 0);
        Ok(Some(left))
    }

    fn disconnect(&mut self) {}

    fn abort(&mut self) {}
}

/// The sum in the order of ranks.
fn sum_of(passed: BTreeMap<usize, Values>) -> Result<Values> {
    fn add<T: Copy + std::ops::AddAssign>(sum: &mut [T], values: &[T]) -> Option<()> {
        if sum.len() != values.len() {
            return None;
        }
        for (sum, value) in sum.iter_mut().zip(values) {
            *sum += *value;
        }
        Some(())
    }
    let mut passed = passed.into_values();
    let mut sum = passed.next().ok_or(GroupError::Left)?;
    for values in passed {
        let added = match (&mut sum, &values) {
            (Values::Single(sum), Values::Single(values)) => add(sum, values),
            (Values::Double(sum), Values::Double(values)) => add(sum, values),
            _ => None,
        };
        added.ok_or_else(|| disagreement("the values to sum differ in number or type"))?;
    }
    Ok(sum)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the ranks of a group report that wait for a silent rank for these many seconds.
    fn join_with_silences(seconds: &[u64]) -> Vec<Option<String>> {
        let mut ranks = thread_ranks(seconds.len(), ThreadOptions::default());
        for (rank, seconds) in ranks.iter_mut().zip(seconds) {
            rank.options.silence = Duration::from_secs(*seconds);
        }
        let join = |rank: ThreadRank| {
            let group = rank.join();
            let error = group.as_ref().err().map(GroupError::to_string);
            if let Ok(mut group) = group {
                group.leave().expect("all ranks leave");
            }
            error
        };
        std::thread::scope(|scope| {
            let start = |rank| scope.spawn(move || join(rank));
            let threads: Vec<_> = ranks.into_iter().map(start).collect();
            let joined = threads.into_iter().map(|thread| thread.join());
            joined.collect::<std::thread::Result<_>>()
        })
        .expect("no rank panics")
    }

    #[test]
    fn ranks_that_wait_for_different_times_are_refused() {
        assert_eq!(join_with_silences(&[7, 7, 7]), [None, None, None]);
        let host = crate::host_name::host_name();
        let expected = format!(
            "the machines disagree: rank 0 ({host}) treats a silent machine as failed after 60 s, but rank 2 ({host}) after 5 s; set EBB_GROUP_PATIENCE to the same number everywhere"
        );
        for error in join_with_silences(&[60, 60, 5]) {
            assert_eq!(error.as_deref(), Some(&*expected));
        }
    }
}
