//! The thread that exchanges messages with other ranks. Rank 0 answers claims on it while its
//! training thread computes. No other thread uses the transport, and a training thread that waits
//! for an answer uses no processor time.

use crate::coordinator::Coordinator;
use crate::error::{GroupError, Member, Result};
use crate::group::{Claim, ClaimRequest, RoundedSum, Share, Values, disagreement};
use crate::message::Message;
use crate::rounded_sum::RunningSum;
use crate::transport::Transport;
use std::collections::VecDeque;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender};
use std::time::{Duration, Instant};

/// During a sum the messenger looks at the network for this long without a pause: each look
/// advances the sum by a part, and the training waits for it.
const SUM_LOOKS: Duration = Duration::from_millis(1);
/// Pause after these looks. If other programs use all cores, a thread that pauses runs again sooner
/// than one that yields.
const SUM_NAP: Duration = Duration::from_micros(50);
/// Shortest pause otherwise. Pauses grow with the time in which nothing has happened.
const SHORTEST_NAP: Duration = Duration::from_micros(50);
/// Longest pause of a rank that has waited for less than a quarter of a second.
const LONGEST_NAP: Duration = Duration::from_millis(2);
/// Longest pause of the coordinator while others may ask it at any time.
const LONGEST_COORDINATOR_NAP: Duration = Duration::from_millis(4);
/// Longest pause of a rank that only has to answer pings, or that nothing has reached for long.
const LONGEST_IDLE_NAP: Duration = Duration::from_millis(10);
/// After it began to wait, or after a message, a rank that waits looks for this long without a
/// pause: most answers come within this time, and a step on a GPU takes only a few milliseconds.
const LOOKS: Duration = Duration::from_micros(200);
/// The fraction of the time without events that the next pause lasts: at first, and if nothing has
/// happened for long.
const NAP_DIVISOR: u32 = 16;
const IDLE_NAP_DIVISOR: u32 = 100;
/// The same for the coordinator: after one message, others often follow soon.
const COORDINATOR_NAP_DIVISOR: u32 = 10;
/// The fraction of the usual time between two claims that a pause of the coordinator lasts. A claim
/// waits for half a pause on average.
const CLAIM_NAP_DIVISOR: u32 = 24;
/// The usual time between two claims is a running mean. The newest time has a weight of one divided
/// by this number.
const NEW_GAP_DIVISOR: u32 = 4;

/// When a rank counts as lost.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Timing {
    /// Interval of the pings of rank 0.
    pub(crate) ping: Duration,
    /// A rank without any message for this long is lost.
    pub(crate) silence: Duration,
    /// A rank that does not answer an urgent ping within this time is lost.
    pub(crate) urgent: Duration,
}

/// Pings within the time after which a silent rank is lost.
const PINGS: u32 = 12;

impl Timing {
    /// A rank without any message for `silence` is lost.
    pub(crate) fn with_silence(silence: Duration) -> Self {
        Timing {
            ping: silence / PINGS,
            silence,
            urgent: Duration::from_millis(400),
        }
    }
}

/// What the training thread asks for. It sends the next command after the reply, except for
/// `Members`, `Replay`, `Fail` and an unanswered `CheckAlive`, which have none.
pub(crate) enum Command {
    /// Names of the ranks for messages.
    Members(Vec<Member>),
    /// Recorded ledgers that the next steps repeat.
    Replay(Vec<Vec<Share>>),
    Claim {
        round: u64,
        samples: u32,
        request: ClaimRequest,
    },
    Gather(Vec<u8>),
    Sum(Values),
    RoundedSum(Vec<f32>),
    /// Continues without ranks that have ended.
    Rejoin,
    Fail(String),
    CheckFailure,
    CheckAlive {
        is_answered: bool,
    },
    Leave,
}

/// What the training thread gets.
pub(crate) enum Reply {
    /// The ledger is that of a complete step at rank 0.
    Claim(Claim, Vec<Share>),
    Gathered(Vec<Vec<u8>>),
    Sum(Values),
    RoundedSum(RoundedSum),
    /// The number of this rank, and the ranks that are left.
    Rejoined(usize, Vec<Member>),
    /// The group is not broken.
    Alive,
    Left,
}

/// What the training thread waits for.
#[derive(Debug, Clone, Copy, PartialEq)]
enum WaitingFor {
    Claim,
    Gather,
    Sum,
    Rejoin,
    Alive,
    Leave,
}

/// The state of the thread.
pub(crate) struct Messenger {
    transport: Box<dyn Transport>,
    timing: Timing,
    /// The ranks, with the numbers that they had when the group began.
    members: Vec<Member>,
    /// Ranks that were left out because they have ended.
    left_out: Vec<Member>,
    commands: Receiver<Command>,
    replies: Sender<Result<Reply>>,
    waiting: Option<WaitingFor>,
    /// At rank 0: the step of its newest claim.
    round: u64,
    /// Used by rank 0.
    coordinator: Coordinator,
    /// At rank 0: what ranks have passed to the running gather.
    gathered: Vec<Option<Vec<u8>>>,
    rounded_sum: Option<RunningSum>,
    /// By rank: what it has sent for rounded sums that this rank has not summed. A rank can be one
    /// sum ahead.
    sum_parts: Vec<VecDeque<Vec<u8>>>,
    /// At rank 0: which ranks are ready to disconnect.
    leaving: Vec<bool>,
    lost: Vec<bool>,
    /// When each rank sent its newest message.
    message_at: Vec<Instant>,
    pinged_at: Instant,
    /// When an urgent check began.
    check_began: Option<Instant>,
    failure: Option<GroupError>,
    /// The failure is that ranks have ended, and the others can continue without them.
    can_rejoin: bool,
    /// At rank 0: which ranks are ready to continue.
    rejoining: Vec<bool>,
    started_at: Instant,
    /// When the training thread asked for something, or another rank sent something.
    active_at: Instant,
    /// When another rank sent its newest message, and the usual time between two.
    asked_at: Instant,
    gap: Duration,
    has_ended: bool,
}

impl Messenger {
    /// A messenger that serves the training thread through these channels.
    pub(crate) fn new(
        transport: Box<dyn Transport>,
        timing: Timing,
        commands: Receiver<Command>,
        replies: Sender<Result<Reply>>,
    ) -> Self {
        let (size, now) = (transport.size(), Instant::now());
        let member = |rank| Member {
            rank,
            host: String::new(),
        };
        Messenger {
            transport,
            timing,
            members: (0..size).map(member).collect(),
            left_out: Vec::new(),
            commands,
            replies,
            waiting: None,
            round: 0,
            coordinator: Coordinator::new(size),
            gathered: vec![None; size],
            rounded_sum: None,
            sum_parts: vec![VecDeque::new(); size],
            leaving: vec![false; size],
            lost: vec![false; size],
            message_at: vec![now; size],
            pinged_at: now,
            check_began: None,
            failure: None,
            can_rejoin: false,
            rejoining: vec![false; size],
            started_at: now,
            active_at: now,
            asked_at: now,
            gap: Duration::ZERO,
            has_ended: false,
        }
    }

    /// Serves until the rank has left the group.
    pub(crate) fn run(mut self) {
        let mut is_abandoned = false;
        while !self.has_ended {
            let nap = self.nap();
            let served = match self.commands.recv_timeout(nap) {
                Ok(command) => self.serve(command),
                Err(RecvTimeoutError::Timeout) => {
                    if nap.is_zero() {
                        std::thread::yield_now();
                    }
                    Ok(())
                }
                Err(RecvTimeoutError::Disconnected) if is_abandoned => {
                    std::thread::sleep(nap);
                    Ok(())
                }
                Err(RecvTimeoutError::Disconnected) => {
                    is_abandoned = true;
                    self.fail("the training thread ended unexpectedly".to_owned());
                    self.serve(Command::Leave)
                }
            };
            self.handle(served);
            let exchanged = self.exchange();
            self.handle(exchanged);
            // Also if the connection fails: a rank that is silent must be found.
            let checked = self.check_others();
            self.handle(checked);
        }
    }

    fn handle(&mut self, outcome: Result<()>) {
        if let Err(error) = outcome {
            self.leave_out_or_break(error);
        }
    }

    fn rank(&self) -> usize {
        self.transport.rank()
    }

    fn is_coordinator(&self) -> bool {
        self.rank() == 0
    }

    fn nap(&self) -> Duration {
        if self.waiting == Some(WaitingFor::Sum) {
            return SUM_NAP;
        }
        let quiet = self.active_at.elapsed();
        let nap = if self.waiting.is_some() || self.transport.is_busy() {
            if quiet < LOOKS {
                return Duration::ZERO;
            }
            (quiet / NAP_DIVISOR).clamp(SHORTEST_NAP, LONGEST_NAP)
        } else if self.is_coordinator() {
            let usual = self.gap.max(self.asked_at.elapsed()) / CLAIM_NAP_DIVISOR;
            let nap = usual.min(quiet / COORDINATOR_NAP_DIVISOR);
            nap.clamp(SHORTEST_NAP, LONGEST_COORDINATOR_NAP)
        } else {
            (quiet / NAP_DIVISOR).clamp(SHORTEST_NAP, LONGEST_IDLE_NAP)
        };
        let silence = self.active_at.max(self.asked_at).elapsed();
        nap.max(LONGEST_IDLE_NAP.min(silence / IDLE_NAP_DIVISOR))
    }

    /// Records that another rank has sent something.
    fn note_message(&mut self, from: usize) {
        let now = Instant::now();
        let newest = now - std::mem::replace(&mut self.asked_at, now);
        self.gap = self.gap * (NEW_GAP_DIVISOR - 1) / NEW_GAP_DIVISOR + newest / NEW_GAP_DIVISOR;
        self.active_at = now;
        self.message_at[from] = now;
    }

    fn reply(&mut self, reply: Result<Reply>) {
        self.waiting = None;
        // The training thread may have panicked.
        let _ = self.replies.send(reply);
    }

    fn send(&mut self, to: usize, message: &Message) -> Result<()> {
        if to == self.rank() || self.lost[to] {
            return Ok(());
        }
        self.transport.send(to, message.to_bytes())
    }

    /// Sends a message to all other ranks. Those that cannot be reached are skipped.
    fn send_to_all(&mut self, message: &Message) {
        for to in 0..self.members.len() {
            let _ = self.send(to, message);
        }
    }

    /// Starts what the training thread asks for.
    fn serve(&mut self, command: Command) -> Result<()> {
        // Rank 0 answers its own claims at once: nothing follows from them, except that the others
        // claim too when a step begins.
        let follows = match &command {
            Command::Claim { round, .. } if self.is_coordinator() => {
                *round != std::mem::replace(&mut self.round, *round)
            }
            _ => true,
        };
        if follows {
            self.active_at = Instant::now();
        }
        match command {
            Command::Members(members) => self.members = members,
            Command::Replay(ledgers) => self.coordinator.replay(ledgers),
            Command::Fail(message) => self.fail(message),
            Command::Rejoin => self.rejoin()?,
            Command::Leave => {
                self.waiting = Some(WaitingFor::Leave);
                self.leave()?;
            }
            other => match self.failure.clone() {
                None => self.start(other)?,
                Some(_) if matches!(other, Command::CheckAlive { is_answered: false }) => {}
                Some(failure) => self.reply(Err(failure)),
            },
        }
        Ok(())
    }

    fn start(&mut self, command: Command) -> Result<()> {
        match command {
            Command::Claim {
                round,
                samples,
                request,
            } => {
                self.waiting = Some(WaitingFor::Claim);
                if self.is_coordinator() {
                    let claim = self.coordinate(0, round, samples, request)?;
                    self.reply_claim(claim);
                    return Ok(());
                }
                let claim = Message::Claim {
                    round,
                    samples,
                    request,
                };
                self.send(0, &claim)
            }
            Command::Gather(bytes) => {
                self.waiting = Some(WaitingFor::Gather);
                if self.is_coordinator() {
                    return self.gather(0, bytes);
                }
                self.send(0, &Message::Gather(bytes))
            }
            Command::Sum(values) => {
                self.waiting = Some(WaitingFor::Sum);
                self.transport.begin_sum(values)
            }
            Command::RoundedSum(values) => self.begin_rounded_sum(values),
            Command::CheckFailure => {
                self.reply(Ok(Reply::Alive));
                Ok(())
            }
            Command::CheckAlive { is_answered } => {
                if is_answered {
                    self.waiting = Some(WaitingFor::Alive);
                }
                self.check_began = Some(Instant::now());
                self.ping()
            }
            Command::Members(_)
            | Command::Replay(_)
            | Command::Rejoin
            | Command::Fail(_)
            | Command::Leave => Ok(()),
        }
    }

    fn coordinate(
        &mut self,
        rank: usize,
        round: u64,
        samples: u32,
        request: ClaimRequest,
    ) -> Result<Claim> {
        let now_s = self.started_at.elapsed().as_secs_f64();
        self.coordinator.claim(rank, round, samples, request, now_s)
    }

    fn reply_claim(&mut self, claim: Claim) {
        let ledger = if self.is_coordinator() && claim == Claim::Complete {
            self.coordinator.ledger().to_vec()
        } else {
            Vec::new()
        };
        self.reply(Ok(Reply::Claim(claim, ledger)));
    }

    /// Takes what `rank` passes to a gather, and answers all ranks once all have passed theirs.
    fn gather(&mut self, rank: usize, bytes: Vec<u8>) -> Result<()> {
        if self.gathered[rank].replace(bytes).is_some() {
            return Err(disagreement(format!(
                "rank {rank} is ahead of the other ranks"
            )));
        }
        if self.gathered.iter().any(Option::is_none) {
            return Ok(());
        }
        let all: Vec<Vec<u8>> = self.gathered.iter_mut().filter_map(Option::take).collect();
        let message = Message::Gathered(all);
        for to in 1..self.members.len() {
            self.send(to, &message)?;
        }
        if let Message::Gathered(all) = message {
            self.reply(Ok(Reply::Gathered(all)));
        }
        Ok(())
    }

    /// The other ranks, in order.
    fn others(&self) -> impl Iterator<Item = usize> + use<> {
        let rank = self.rank();
        (0..self.members.len()).filter(move |other| *other != rank)
    }

    fn begin_rounded_sum(&mut self, values: Vec<f32>) -> Result<()> {
        self.waiting = Some(WaitingFor::Sum);
        let mut sum = RunningSum::new(self.rank(), self.members.len(), values);
        for to in self.others() {
            self.send(to, &Message::SumPart(sum.take_part(to)))?;
        }
        self.rounded_sum = Some(sum);
        self.advance_rounded_sum()
    }

    /// Sums the chunk of this rank once all parts are there, and replies once all chunks are.
    fn advance_rounded_sum(&mut self) -> Result<()> {
        let Some(mut sum) = self.rounded_sum.take() else {
            return Ok(());
        };
        let has_parts = self.others().all(|rank| !self.sum_parts[rank].is_empty());
        if has_parts && !sum.has_own_sum() {
            let parts = self
                .others()
                .filter_map(|rank| self.sum_parts[rank].pop_front());
            let message = Message::ChunkSum(sum.add_parts(parts.collect())?);
            for to in self.others() {
                self.send(to, &message)?;
            }
        }
        if sum.is_complete() {
            self.reply(Ok(Reply::RoundedSum(sum.finish())));
        } else {
            self.rounded_sum = Some(sum);
        }
        Ok(())
    }

    /// Handles what has arrived, and advances a sum.
    fn exchange(&mut self) -> Result<()> {
        self.receive_all()?;
        let began = Instant::now();
        while self.waiting == Some(WaitingFor::Sum) && began.elapsed() < SUM_LOOKS {
            if self.rounded_sum.is_some() {
                self.receive_all()?;
            } else if let Some(sum) = self.transport.poll_sum()? {
                self.reply(Ok(Reply::Sum(sum)));
            }
        }
        Ok(())
    }

    fn receive_all(&mut self) -> Result<()> {
        while !self.has_ended
            && let Some((from, bytes)) = self.transport.receive()?
        {
            self.note_message(from);
            self.receive(from, Message::from_bytes(&bytes)?)?;
        }
        Ok(())
    }

    fn receive(&mut self, from: usize, message: Message) -> Result<()> {
        match message {
            Message::Ping => self.send(from, &Message::Pong)?,
            Message::Pong => {}
            Message::Claim {
                round,
                samples,
                request,
            } if self.failure.is_none() => {
                let claim = self.coordinate(from, round, samples, request)?;
                self.send(from, &Message::Answer(claim))?;
            }
            Message::Gather(bytes) if self.failure.is_none() => self.gather(from, bytes)?,
            Message::Answer(claim) if self.waiting == Some(WaitingFor::Claim) => {
                self.reply_claim(claim);
            }
            Message::Gathered(all) if self.waiting == Some(WaitingFor::Gather) => {
                self.reply(Ok(Reply::Gathered(all)));
            }
            // The sender may have continued before this rank.
            Message::SumPart(bytes) if self.failure.is_none() || self.can_rejoin => {
                self.sum_parts[from].push_back(bytes);
                self.advance_rounded_sum()?;
            }
            Message::ChunkSum(bytes) if self.failure.is_none() => {
                // No other rank can finish a sum that this one has not begun.
                if let Some(sum) = &mut self.rounded_sum {
                    sum.receive_sum(from, &bytes)?;
                }
                self.advance_rounded_sum()?;
            }
            // The failure of this rank or of another one has been reported.
            Message::Claim { .. }
            | Message::Gather(_)
            | Message::Answer(_)
            | Message::Gathered(_)
            | Message::SumPart(_)
            | Message::ChunkSum(_) => {}
            Message::Rejoin => self.note_rejoin(from)?,
            Message::Rejoined => self.complete_rejoin(),
            Message::Failed { rank, message } => {
                let member = self.named(rank);
                self.break_group(GroupError::Failed { member, message });
            }
            Message::Lost { rank } => {
                let member = self.named(rank);
                self.break_group(GroupError::Lost(member));
            }
            Message::Leave => {
                self.leaving[from] = true;
                self.refuse_rejoin();
                self.end_if_all_leave();
            }
            Message::AllLeave => self.end(),
        }
        Ok(())
    }

    fn member(&self, rank: usize) -> Member {
        self.members.get(rank).cloned().unwrap_or(Member {
            rank,
            host: String::new(),
        })
    }

    /// The rank that had this number when the group began.
    fn named(&self, rank: u32) -> Member {
        let rank = rank as usize;
        let mut known = self.members.iter().chain(&self.left_out);
        let known = known.find(|member| member.rank == rank);
        known.cloned().unwrap_or(Member {
            rank,
            host: String::new(),
        })
    }

    fn peers(&self) -> std::ops::Range<usize> {
        if self.is_coordinator() {
            1..self.members.len()
        } else {
            0..1
        }
    }

    fn ping(&mut self) -> Result<()> {
        self.pinged_at = Instant::now();
        for to in self.peers() {
            self.send(to, &Message::Ping)?;
        }
        Ok(())
    }

    /// Pings, and finds ranks that are silent.
    fn check_others(&mut self) -> Result<()> {
        if self.has_ended {
            return Ok(());
        }
        let pinged = if self.is_coordinator() && self.pinged_at.elapsed() >= self.timing.ping {
            self.ping()
        } else {
            Ok(())
        };
        let silent = self.peers().find(|&rank| {
            !self.lost[rank] && self.message_at[rank].elapsed() >= self.timing.silence
        });
        if let Some(rank) = silent {
            return Err(GroupError::Silent {
                member: self.member(rank),
                seconds: self.message_at[rank].elapsed().as_secs(),
            });
        }
        pinged?;
        let Some(began) = self.check_began else {
            return Ok(());
        };
        let unanswered = self.peers().find(|&rank| self.message_at[rank] < began);
        match unanswered {
            None => {
                self.check_began = None;
                if self.waiting == Some(WaitingFor::Alive) {
                    self.reply(Ok(Reply::Alive));
                }
                Ok(())
            }
            Some(rank) if began.elapsed() >= self.timing.urgent => {
                self.check_began = None;
                Err(GroupError::Lost(self.member(rank)))
            }
            Some(_) => Ok(()),
        }
    }

    /// This rank ends the run with an error.
    fn fail(&mut self, message: String) {
        if self.failure.is_some() {
            return;
        }
        let member = self.member(self.rank());
        self.break_group(GroupError::Failed { member, message });
    }

    /// Records why the group is broken, and reports it to the other ranks and the training thread.
    fn break_group(&mut self, failure: GroupError) {
        self.check_began = None;
        // A rank that is lost later must not be waited for either.
        if let GroupError::Lost(member) | GroupError::Silent { member, .. } = &failure
            && let Some(rank) = self.members.iter().position(|m| m.rank == member.rank)
        {
            self.lost[rank] = true;
        }
        if std::mem::take(&mut self.can_rejoin) || self.failure.is_none() {
            self.report(&failure);
            self.failure = Some(failure.clone());
        }
        match self.waiting {
            Some(WaitingFor::Leave) => self.end_if_all_leave(),
            Some(_) => self.reply(Err(failure)),
            None => {}
        }
    }

    fn failure_message(&self, failure: &GroupError) -> Message {
        match failure {
            GroupError::Lost(member) | GroupError::Silent { member, .. } => Message::Lost {
                rank: member.rank as u32,
            },
            GroupError::Failed { member, message } => Message::Failed {
                rank: member.rank as u32,
                message: message.clone(),
            },
            other => Message::Failed {
                rank: self.member(self.rank()).rank as u32,
                message: other.to_string(),
            },
        }
    }

    /// Tells rank 0 that this one is ready to disconnect.
    fn leave(&mut self) -> Result<()> {
        let rank = self.rank();
        self.leaving[rank] = true;
        self.send(0, &Message::Leave)?;
        self.refuse_rejoin();
        self.end_if_all_leave();
        Ok(())
    }

    /// After an error: leaves out the ranks that have ended, if the transport can continue without
    /// them. Otherwise the group is broken.
    fn leave_out_or_break(&mut self, error: GroupError) {
        if !matches!(error, GroupError::Connection(_) | GroupError::Lost(_)) {
            return self.break_group(error);
        }
        match self.transport.leave_out_ended() {
            Ok(Some(left)) => self.continue_with(&left),
            Ok(None) => self.break_group(error),
            Err(error) => {
                // Nothing can be sent or received any more.
                let others = self.others();
                others.for_each(|rank| self.lost[rank] = true);
                self.break_group(match error {
                    GroupError::Lost(member) => GroupError::Lost(self.named(member.rank as u32)),
                    error => error,
                });
            }
        }
    }

    /// Forgets what is under way, and the ranks that are not `left`. The calls of the training
    /// thread fail until it rejoins.
    fn continue_with(&mut self, left: &[usize]) {
        let (size, now) = (left.len(), Instant::now());
        let is_left = |rank: &usize| left.contains(rank);
        let ended = (0..self.members.len()).filter(|rank| !is_left(rank));
        let ended: Vec<Member> = ended.map(|rank| self.member(rank)).collect();
        self.members = left.iter().map(|&rank| self.member(rank)).collect();
        self.coordinator = self.coordinator.with_ranks(left);
        self.gathered = vec![None; size];
        self.rounded_sum = None;
        self.sum_parts = vec![VecDeque::new(); size];
        self.leaving = vec![false; size];
        self.lost = vec![false; size];
        self.rejoining = vec![false; size];
        self.message_at = vec![now; size];
        self.check_began = None;
        let Some(newest) = ended.last().cloned() else {
            return;
        };
        self.left_out.extend(ended);
        // A message about an earlier failure may be lost.
        if let Some(failure) = self.failure.clone().filter(|_| !self.can_rejoin) {
            self.report(&failure);
        } else {
            self.failure = Some(GroupError::Lost(newest));
            self.can_rejoin = true;
        }
        match (self.waiting, self.failure.clone()) {
            (Some(WaitingFor::Leave), _) => {
                // Rank 0 has not ended: an error reaches this rank again.
                let _ = self.leave();
            }
            (Some(_), Some(failure)) => self.reply(Err(failure)),
            _ => {}
        }
    }

    /// The training thread continues without ranks that have ended.
    fn rejoin(&mut self) -> Result<()> {
        let Some(failure) = self.failure.clone() else {
            self.reply(Err(disagreement("no rank has ended")));
            return Ok(());
        };
        self.waiting = Some(WaitingFor::Rejoin);
        if !self.can_rejoin {
            self.reply(Err(failure));
            return Ok(());
        }
        if self.is_coordinator() {
            return self.note_rejoin(0);
        }
        self.send(0, &Message::Rejoin)
    }

    /// Records that a rank is ready to continue. Once all are, all continue.
    fn note_rejoin(&mut self, rank: usize) -> Result<()> {
        self.rejoining[rank] = true;
        if self.leaving.contains(&true) {
            self.refuse_rejoin();
        }
        match self.failure.clone() {
            Some(failure) if !self.can_rejoin => self.send(rank, &self.failure_message(&failure)),
            _ if self.rejoining.iter().all(|is_ready| *is_ready) => {
                for to in 1..self.members.len() {
                    self.send(to, &Message::Rejoined)?;
                }
                self.complete_rejoin();
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn complete_rejoin(&mut self) {
        if self.waiting == Some(WaitingFor::Rejoin) && self.can_rejoin {
            self.failure = None;
            self.can_rejoin = false;
            self.reply(Ok(Reply::Rejoined(self.rank(), self.members.clone())));
        }
    }

    /// At rank 0: no rank can continue any more, because one of them leaves.
    fn refuse_rejoin(&mut self) {
        if self.is_coordinator()
            && self.can_rejoin
            && let Some(failure) = self.failure.clone()
        {
            self.break_group(failure);
        }
    }

    /// Reports to the other ranks why the group is broken.
    fn report(&mut self, failure: &GroupError) {
        let message = self.failure_message(failure);
        if self.is_coordinator() {
            self.send_to_all(&message);
        } else {
            let _ = self.send(0, &message);
        }
    }

    /// Ends the connection once all ranks that are left are ready.
    fn end_if_all_leave(&mut self) {
        if self.waiting != Some(WaitingFor::Leave) {
            return;
        }
        if !self.is_coordinator() {
            // Without rank 0, no rank waits for another one.
            if self.lost[0] {
                self.end();
            }
            return;
        }
        if (0..self.members.len()).all(|rank| self.leaving[rank] || self.lost[rank]) {
            self.send_to_all(&Message::AllLeave);
            self.end();
        }
    }

    fn end(&mut self) {
        self.has_ended = true;
        let is_whole = self.lost.iter().all(|is_lost| !is_lost);
        let left = match self.failure.clone().filter(|_| !is_whole) {
            Some(failure) => Err(failure),
            None => Ok(Reply::Left),
        };
        if is_whole {
            self.transport.disconnect();
            self.reply(left);
        } else {
            // The connection may wait for machines that no longer answer.
            self.reply(left);
            self.transport.abort();
        }
    }
}

#[cfg(test)]
mod tests;
