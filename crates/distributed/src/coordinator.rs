//! Distributes the samples of a step among ranks. A pure state machine: messages and times come in,
//! answers go out.
//!
//! Each step begins with one range of samples per rank, as long as its speed in the last steps
//! suggests. A rank claims from the front of its own range, so it knows what to load in advance.
//! When its range is empty, it claims from the back of the range that would be finished last. A
//! rank whose memory is short claims less or nothing, and the others process its samples. Towards
//! the end of a step claims become smaller, so that no rank waits long for another one. They become
//! only so small that the time which each micro-batch costs besides its samples stays below the
//! time that a smaller claim can save.

use crate::error::Result;
use crate::group::{Claim, ClaimRequest, Ended, Share, disagreement};
use micro_batch_time::MicroBatchTime;
use std::collections::VecDeque;
use std::ops::Range;

mod micro_batch_time;

/// Weight of the newest step in the speed of a rank.
const NEW_SPEED: f64 = 0.3;
/// What a rank may claim of the samples that it will probably still process.
const CLAIM_SHARE: f64 = 0.5;
/// Claims become at most this much smaller than the rank asks for.
const SMALLEST_CLAIM: u32 = 8;
/// If no rank divides its range, the ranges of the last step are kept as long as other ones would
/// shorten the step by at most this fraction: a range of one more sample may need a second
/// micro-batch.
const KEPT_RANGES: f64 = 0.05;

/// Distributes the samples of one step after the other.
#[derive(Debug)]
pub struct Coordinator {
    /// Number of the step since the start of the group; 0 before the first one.
    round: u64,
    samples: u32,
    confirmed: u32,
    ranks: Vec<RankState>,
    /// Samples that were given back.
    returned: Vec<Range<u32>>,
    ledger: Vec<Share>,
    /// Recorded ledgers that the next steps repeat.
    recorded: VecDeque<Vec<Share>>,
    /// In a step that repeats a recorded one: what each rank has still to claim.
    assigned: Option<Vec<VecDeque<Range<u32>>>>,
    /// Rank 0 knows that the step is complete.
    is_complete: bool,
    is_stopping: bool,
}

/// What the coordinator knows about one rank.
#[derive(Debug, Clone, Default)]
struct RankState {
    /// Samples of its own range that no rank has claimed.
    open: Range<u32>,
    work: Option<Work>,
    /// Samples per second in the last steps; 0 if unknown.
    speed: f64,
    /// Seconds that its micro-batches take.
    time: MicroBatchTime,
    /// Samples of its range when the step began.
    share: u32,
    /// The largest micro-batch that it has asked for in the last step in which it asked.
    asked: u32,
    /// Samples confirmed in this step, and the seconds that they took.
    done: f64,
    busy_s: f64,
    /// Whether it has asked for samples in this step.
    has_claimed: bool,
    /// Whether it was given samples in the last step.
    was_active: bool,
}

/// Samples that a rank is processing.
#[derive(Debug, Clone)]
struct Work {
    samples: Range<u32>,
    since_s: f64,
}

impl RankState {
    /// Samples per second, measured in this step if possible; 0 if unknown.
    fn current_speed(&self) -> f64 {
        if self.busy_s > 0.0 {
            self.done / self.busy_s
        } else {
            self.speed
        }
    }

    /// Learns the speed from the step that ends, and forgets the step.
    fn end_step(&mut self) {
        self.was_active = self.busy_s > 0.0;
        if self.was_active {
            let newest = self.done / self.busy_s;
            self.speed = if self.speed > 0.0 {
                self.speed + NEW_SPEED * (newest - self.speed)
            } else {
                newest
            };
        } else {
            // It rests, and will probably process little of the next step.
            self.speed *= 1.0 - NEW_SPEED;
        }
        self.time.end_step();
        (self.done, self.busy_s) = (0.0, 0.0);
        self.has_claimed = false;
        self.work = None;
    }

    /// Seconds until its own range would be finished; infinite if it does not work at all.
    fn rest_s(&self) -> f64 {
        let speed = self.current_speed();
        if self.work.is_none() || speed <= 0.0 {
            return f64::INFINITY;
        }
        f64::from(len(&self.open)) / speed
    }
}

fn len(range: &Range<u32>) -> u32 {
    range.end - range.start
}

impl Coordinator {
    /// Coordinates `size` ranks. No step has begun.
    pub fn new(size: usize) -> Self {
        Coordinator {
            round: 0,
            samples: 0,
            confirmed: 0,
            ranks: vec![RankState::default(); size],
            returned: Vec::new(),
            ledger: Vec::new(),
            recorded: VecDeque::new(),
            assigned: None,
            is_complete: true,
            is_stopping: false,
        }
    }

    /// Coordinates the ranks that are left, given by their former numbers, from a first step on.
    /// What is known of their speeds stays, and so does a stop.
    pub fn with_ranks(&self, left: &[usize]) -> Self {
        let mut next = Coordinator::new(left.len());
        for (state, &rank) in next.ranks.iter_mut().zip(left) {
            let former = &self.ranks[rank];
            state.speed = former.current_speed();
            state.was_active = former.was_active || former.busy_s > 0.0;
            state.time = former.time.clone();
        }
        next.is_stopping = self.is_stopping;
        next
    }

    /// Makes the next steps repeat recorded ones: each rank claims what it processed then, in the
    /// same order, however much it asks for. So the sums have the same bits.
    pub fn replay(&mut self, ledgers: Vec<Vec<Share>>) {
        self.recorded = ledgers.into();
    }

    /// Answers a claim of `rank` in step `round`, counted from 1, whose effective batch has
    /// `samples`. The first claim of a step begins it. `now_s` is the time since any fixed moment.
    ///
    /// # Errors
    /// The claim does not fit the state: ranks are at different steps, or disagree about the size
    /// of the batch.
    pub fn claim(
        &mut self,
        rank: usize,
        round: u64,
        samples: u32,
        request: ClaimRequest,
        now_s: f64,
    ) -> Result<Claim> {
        if round == self.round + 1 && self.is_complete {
            self.begin(samples)?;
        }
        if round != self.round {
            return Err(disagreement(format!(
                "rank {rank} is at step {round} of this session, and rank 0 is at step {}",
                self.round
            )));
        }
        if samples != self.samples {
            return Err(disagreement(format!(
                "at rank 0, the effective batch has {} samples, but {samples} at rank {rank}",
                self.samples
            )));
        }
        self.end_work(rank, request.ended, now_s)?;
        self.is_stopping |= request.stop;
        if self.confirmed == self.samples {
            return Ok(self.complete(rank));
        }
        if self.is_stopping {
            return Ok(Claim::Stop);
        }
        if request.at_most == 0 {
            return Ok(Claim::Wait);
        }
        let state = &mut self.ranks[rank];
        state.asked = if state.has_claimed {
            state.asked.max(request.at_most)
        } else {
            request.at_most
        };
        state.has_claimed = true;
        let Some(samples) = self.take(rank, request.at_most) else {
            return Ok(Claim::Wait);
        };
        self.ranks[rank].work = Some(Work {
            samples: samples.clone(),
            since_s: now_s,
        });
        let next = match &self.assigned {
            Some(assigned) => assigned[rank].front().cloned().unwrap_or(0..0),
            None => self.ranks[rank].open.clone(),
        };
        Ok(Claim::Samples { samples, next })
    }

    /// Which rank processed which samples, in the order of confirmation.
    pub fn ledger(&self) -> &[Share] {
        &self.ledger
    }

    /// Samples per second of each rank in the last steps; 0 if unknown.
    pub fn speeds(&self) -> Vec<f64> {
        self.ranks.iter().map(|rank| rank.speed).collect()
    }

    fn begin(&mut self, samples: u32) -> Result<()> {
        self.round += 1;
        for rank in &mut self.ranks {
            rank.end_step();
        }
        (self.samples, self.confirmed) = (samples, 0);
        self.is_complete = false;
        self.returned.clear();
        self.ledger.clear();
        let mut first = 0;
        let shares = self.undivided_shares(samples);
        let shares = shares.unwrap_or_else(|| shares_by_speed(samples, &self.speeds()));
        for (rank, share) in self.ranks.iter_mut().zip(shares) {
            (rank.open, rank.share) = (first..first + share, share);
            first += share;
        }
        self.assigned = match self.recorded.pop_front() {
            Some(ledger) => Some(self.assign(ledger)?),
            None => None,
        };
        Ok(())
    }

    /// The samples of each rank if no rank divides its range further than into the micro-batches
    /// that it asks for. `None` if some do, because their claims follow the speeds anyway, or if
    /// some rest.
    fn undivided_shares(&self, samples: u32) -> Option<Vec<u32>> {
        let is_undivided =
            |rank: &RankState| rank.was_active && rank.time.least_samples() >= rank.share;
        if !self.ranks.iter().all(is_undivided) {
            return None;
        }
        let seconds = |shares: &[u32]| {
            let each = shares.iter().zip(&self.ranks);
            let seconds = each.map(|(share, rank)| rank.time.seconds(*share, rank.asked));
            seconds.fold(0.0, f64::max)
        };
        let by_speed = shares_by_speed(samples, &self.speeds());
        let asked: Vec<u32> = self.ranks.iter().map(|rank| rank.asked).collect();
        let capped = capped(&by_speed, &asked);
        let best = if seconds(&capped) < seconds(&by_speed) {
            capped
        } else {
            by_speed
        };
        let kept: Vec<u32> = self.ranks.iter().map(|rank| rank.share).collect();
        let is_kept = kept.iter().sum::<u32>() == samples
            && seconds(&kept) * (1.0 - KEPT_RANGES) <= seconds(&best);
        Some(if is_kept { kept } else { best })
    }

    /// What each rank claims in a step that repeats a recorded one.
    fn assign(&self, ledger: Vec<Share>) -> Result<Vec<VecDeque<Range<u32>>>> {
        let mut assigned = vec![VecDeque::new(); self.ranks.len()];
        let mut is_whole = true;
        let mut processed = vec![false; self.samples as usize];
        for Share { rank, samples } in ledger {
            let range = samples.start as usize..samples.end as usize;
            // False if a sample is not in the step, or was processed twice.
            is_whole &= processed.get_mut(range).is_some_and(|processed| {
                let is_new = processed.iter().all(|is_processed| !is_processed);
                processed.fill(true);
                is_new
            });
            let claims = assigned.get_mut(rank).ok_or_else(|| {
                disagreement(format!(
                    "rank {rank} of the recorded run is missing: this group has {} ranks",
                    self.ranks.len()
                ))
            })?;
            claims.push_back(samples);
        }
        if !is_whole || processed.contains(&false) {
            return Err(disagreement(format!(
                "the recorded run processed different samples in this step than this run, whose step has {} samples",
                self.samples
            )));
        }
        Ok(assigned)
    }

    fn end_work(&mut self, rank: usize, ended: Option<Ended>, now_s: f64) -> Result<()> {
        if ended == Some(Ended::Retracted) {
            self.retract(rank);
            return Ok(());
        }
        let state = &mut self.ranks[rank];
        let (work, ended) = match (state.work.take(), ended) {
            (None, None) => return Ok(()),
            (Some(work), Some(ended)) => (work, ended),
            _ => {
                return Err(disagreement(format!(
                    "rank {rank} reported the end of a micro-batch that it never began, or began one before the previous one had ended"
                )));
            }
        };
        match ended {
            Ended::GivenBack | Ended::Retracted => self.give_back(rank, work.samples),
            Ended::Confirmed => {
                let count = len(&work.samples);
                let seconds = (now_s - work.since_s).max(1e-6);
                state.time.add(f64::from(count), seconds);
                state.done += f64::from(count);
                state.busy_s += seconds;
                self.confirmed += count;
                self.ledger.push(Share {
                    rank,
                    samples: work.samples,
                });
            }
        }
        Ok(())
    }

    /// Takes samples of `rank` back for others. In a step that repeats a recorded one, only the
    /// rank itself can claim them again.
    fn give_back(&mut self, rank: usize, samples: Range<u32>) {
        match &mut self.assigned {
            Some(assigned) => assigned[rank].push_front(samples),
            None => self.returned.push(samples),
        }
    }

    /// Takes back all samples of `rank`, unless the step is complete: then its sum is needed.
    fn retract(&mut self, rank: usize) {
        if let Some(work) = self.ranks[rank].work.take() {
            self.give_back(rank, work.samples);
        }
        if self.is_complete {
            return;
        }
        let ledger = std::mem::take(&mut self.ledger);
        let (retracted, kept) = ledger.into_iter().partition(|share| share.rank == rank);
        self.ledger = kept;
        let retracted: Vec<Share> = retracted;
        for share in retracted.into_iter().rev() {
            self.confirmed -= len(&share.samples);
            self.give_back(rank, share.samples);
        }
    }

    /// The answer once all samples are confirmed. Rank 0 gets it first: until then it may still
    /// stop the group, and afterwards it does not.
    fn complete(&mut self, rank: usize) -> Claim {
        if self.is_stopping && !self.is_complete {
            return Claim::Stop;
        }
        self.is_complete |= rank == 0;
        if self.is_complete {
            Claim::Complete
        } else {
            Claim::Wait
        }
    }

    /// Takes the next samples for `rank`.
    fn take(&mut self, rank: usize, at_most: u32) -> Option<Range<u32>> {
        if let Some(assigned) = &mut self.assigned {
            return assigned[rank].pop_front();
        }
        let most = self.limit(rank, at_most);
        if let Some(range) = self.returned.last_mut() {
            let taken = range.start..range.start + most.min(len(range));
            range.start = taken.end;
            if len(range) == 0 {
                self.returned.pop();
            }
            return Some(taken);
        }
        let least = self.ranks[rank].time.least_samples();
        let own = &mut self.ranks[rank].open;
        if len(own) > 0 {
            let rest = len(own).saturating_sub(most);
            let count = if (1..least).contains(&rest) {
                // Equal claims: a last one of few samples would cost more than it saves.
                len(own).div_ceil(len(own).div_ceil(most))
            } else {
                most.min(len(own))
            };
            let taken = own.start..own.start + count;
            own.start = taken.end;
            return Some(taken);
        }
        let last = self.finishes_last()?;
        let open = &mut self.ranks[last].open;
        let taken = open.end - most.min(len(open))..open.end;
        open.end = taken.start;
        Some(taken)
    }

    /// The rank whose own range would be finished last; `None` if all ranges are empty.
    fn finishes_last(&self) -> Option<usize> {
        let open = self.ranks.iter().enumerate();
        let open = open.filter(|(_, rank)| !rank.open.is_empty());
        let rest = |rank: &RankState| (rank.rest_s(), len(&rank.open));
        let last = open.max_by(|(_, a), (_, b)| {
            let ((a_s, a), (b_s, b)) = (rest(a), rest(b));
            a_s.total_cmp(&b_s).then(a.cmp(&b))
        });
        last.map(|(index, _)| index)
    }

    /// The most samples that `rank` may claim now.
    fn limit(&self, rank: usize, at_most: u32) -> u32 {
        let is_active = |rank: &&RankState| rank.has_claimed || rank.was_active;
        let active: f64 = (self.ranks.iter().filter(is_active))
            .map(|rank| rank.speed)
            .sum();
        let own = self.ranks[rank].speed;
        let known = own > 0.0 && active > 0.0;
        let share = if known {
            own / active
        } else {
            1.0 / self.ranks.len() as f64
        };
        if share >= 1.0 {
            return at_most;
        }
        let ranges = self.ranks.iter().map(|rank| &rank.open);
        let open: u32 = ranges.chain(&self.returned).map(len).sum();
        let most = (CLAIM_SHARE * share * f64::from(open)).ceil() as u32;
        let least = at_most
            .div_ceil(SMALLEST_CLAIM)
            .max(self.ranks[rank].time.least_samples());
        most.max(least).min(at_most)
    }
}

/// The shares with at most as many samples as each rank asks for, if the others have room for the
/// rest.
fn capped(shares: &[u32], asked: &[u32]) -> Vec<u32> {
    let pairs = shares.iter().zip(asked);
    let mut rest: u32 = pairs
        .clone()
        .map(|(share, asked)| share.saturating_sub(*asked))
        .sum();
    let capped = pairs.map(|(share, asked)| {
        let added = asked.saturating_sub(*share).min(rest);
        rest -= added;
        (*share).min(*asked) + added
    });
    let capped: Vec<u32> = capped.collect();
    if rest > 0 { shares.to_vec() } else { capped }
}

/// Cuts `samples` into shares in proportion to `speeds`. Ranks of unknown speed get the share of an
/// average one. The shares differ from the exact ones by less than 1.
fn shares_by_speed(samples: u32, speeds: &[f64]) -> Vec<u32> {
    let known: Vec<f64> = speeds.iter().copied().filter(|s| *s > 0.0).collect();
    let average = if known.is_empty() {
        1.0
    } else {
        known.iter().sum::<f64>() / known.len() as f64
    };
    let weight = |speed: f64| if speed > 0.0 { speed } else { average };
    let total: f64 = speeds.iter().map(|speed| weight(*speed)).sum();
    let (mut exact, mut before) = (0.0, 0);
    let shares = speeds.iter().map(|speed| {
        exact += weight(*speed);
        let end = (f64::from(samples) * exact / total).round() as u32;
        let end = end.clamp(before, samples);
        end - std::mem::replace(&mut before, end)
    });
    let mut shares: Vec<u32> = shares.collect();
    // Rounding of the sums must not lose a sample.
    if let Some(last) = shares.last_mut() {
        *last += samples - before;
    }
    shares
}

#[cfg(test)]
mod tests;
