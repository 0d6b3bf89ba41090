//! A group whose ranks are threads of this process, for tests. Messages take random time by a seed,
//! and a rank can die.

use crate::connected_group::ConnectedGroup;
use crate::error::{GroupError, Result};
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
    /// A rank that dies, and after how many messages.
    pub death: Option<(usize, u64)>,
}

impl Default for ThreadOptions {
    fn default() -> Self {
        ThreadOptions {
            seed: 0,
            max_delay: Duration::ZERO,
            silence: Duration::from_secs(60),
            death: None,
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
        let timing = Timing {
            ping: self.options.silence / 12,
            silence: self.options.silence,
            ..Timing::default()
        };
        let connect = move || -> Result<Box<dyn Transport>> { Ok(Box::new(self.transport())) };
        Ok(Box::new(ConnectedGroup::start(connect, timing)?))
    }

    fn transport(self) -> Threads {
        let dies = self.options.death.filter(|(rank, _)| *rank == self.rank);
        Threads {
            rank: self.rank,
            random: Random::new(self.options.seed * 1000 + self.rank as u64),
            max_delay: self.options.max_delay,
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
    /// The running sums, by their number.
    sums: Mutex<BTreeMap<u64, Sum>>,
}

/// A message under way.
#[derive(Debug)]
struct Letter {
    arrives_at: Instant,
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
    rank: usize,
    random: Random,
    max_delay: Duration,
    /// Messages until the rank dies, if it does.
    messages_left: Option<u64>,
    round: u64,
    shared: Arc<Shared>,
}

impl Threads {
    fn is_dead(&self) -> bool {
        self.messages_left == Some(0)
    }
}

impl Transport for Threads {
    fn rank(&self) -> usize {
        self.rank
    }

    fn size(&self) -> usize {
        self.shared.mailboxes.len()
    }

    fn send(&mut self, to: usize, bytes: Vec<u8>) -> Result<()> {
        if self.is_dead() {
            return Ok(());
        }
        if let Some(left) = &mut self.messages_left {
            *left -= 1;
        }
        let delay = self.max_delay.mul_f64(self.random.unit());
        let mut mailbox = lock(&self.shared.mailboxes[to]);
        // Messages of one sender never overtake each other.
        let earlier = mailbox.iter().rev().find(|letter| letter.from == self.rank);
        let earliest = earlier.map(|letter| letter.arrives_at);
        mailbox.push_back(Letter {
            arrives_at: (Instant::now() + delay).max(earliest.unwrap_or_else(Instant::now)),
            from: self.rank,
            bytes,
        });
        Ok(())
    }

    fn receive(&mut self) -> Result<Option<(usize, Vec<u8>)>> {
        if self.is_dead() {
            return Ok(None);
        }
        let (mut mailbox, now) = (lock(&self.shared.mailboxes[self.rank]), Instant::now());
        let arrived = mailbox.iter().position(|letter| letter.arrives_at <= now);
        let letter = arrived.and_then(|index| mailbox.remove(index));
        Ok(letter.map(|letter| (letter.from, letter.bytes)))
    }

    fn is_busy(&self) -> bool {
        false
    }

    fn begin_sum(&mut self, values: Values) -> Result<()> {
        self.round += 1;
        if !self.is_dead() {
            let mut sums = lock(&self.shared.sums);
            let sum = sums.entry(self.round).or_default();
            sum.passed.insert(self.rank, values);
        }
        Ok(())
    }

    fn poll_sum(&mut self) -> Result<Option<Values>> {
        let mut sums = lock(&self.shared.sums);
        let size = self.shared.mailboxes.len();
        let Some(sum) = sums.get_mut(&self.round) else {
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
            sums.remove(&self.round);
        }
        Ok(Some(result))
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
