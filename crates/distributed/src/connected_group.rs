//! The side of the training thread: a call is a command to the messenger and waits for its reply.

use crate::error::{GroupError, Member, Result};
use crate::group::{Claim, ClaimRequest, Group, RoundedSum, Share, Values, disagreement};
use crate::messenger::{Command, Messenger, Reply, Timing};
use crate::patience::PATIENCE_VARIABLE;
use crate::transport::Transport;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Changes with the messages. Ranks with another protocol are refused.
const PROTOCOL: u32 = 5;
/// How often a waiting call looks at the condition of [`Group::check_when`].
const CHECK_INTERVAL: Duration = Duration::from_millis(50);
/// Time between two checks whether all ranks are alive.
const ALIVE_INTERVAL: Duration = Duration::from_secs(1);
/// Longest wait until the connection of a group that has lost machines has ended.
const ABORTS_WITHIN: Duration = Duration::from_secs(2);
/// Number of values of the self-test.
const TESTED_VALUES: usize = 5;

/// A group whose ranks are connected by a transport.
pub(crate) struct ConnectedGroup {
    rank: usize,
    members: Vec<Member>,
    commands: Sender<Command>,
    replies: Receiver<Result<Reply>>,
    messenger: Option<JoinHandle<()>>,
    /// Number of the step since the start, from 1; its number of samples.
    round: u64,
    samples: u32,
    ledger: Vec<Share>,
    check: Option<Box<dyn Fn() -> bool + Send>>,
    checked_at: Option<Instant>,
}

impl ConnectedGroup {
    /// Connects this rank. `connect` runs on the thread that then owns the transport. Returns once
    /// all ranks are connected and the sums of the transport have proved right.
    ///
    /// # Errors
    /// The transport cannot connect, or takes longer than `joins_within`, or sums wrongly. Ranks
    /// have different protocols.
    pub(crate) fn start(
        connect: impl FnOnce() -> Result<Box<dyn Transport>> + Send + 'static,
        timing: Timing,
        joins_within: Option<Duration>,
    ) -> Result<Self> {
        let (commands, received) = channel();
        let (answer, replies) = channel();
        let (connected, is_connected) = channel();
        let silence = timing.silence;
        let serve = move || match connect() {
            Ok(transport) => {
                let _ = connected.send(Ok((transport.rank(), transport.size())));
                Messenger::new(transport, timing, received, answer).run();
            }
            Err(error) => {
                let _ = connected.send(Err(error));
            }
        };
        let messenger = std::thread::Builder::new().name("messenger".to_owned());
        let messenger = messenger.spawn(serve).map_err(|error| {
            GroupError::Unavailable(format!("no thread can be started: {error}"))
        })?;
        let (rank, size) = wait_until_connected(&is_connected, joins_within)?;
        let member = |rank| Member {
            rank,
            host: String::new(),
        };
        let mut group = ConnectedGroup {
            rank,
            members: (0..size).map(member).collect(),
            commands,
            replies,
            messenger: Some(messenger),
            round: 0,
            samples: 0,
            ledger: Vec::new(),
            check: None,
            checked_at: None,
        };
        group.introduce(silence)?;
        group.test_sums()?;
        Ok(group)
    }

    /// Exchanges protocols, host names, and the time after which a silent rank is lost.
    fn introduce(&mut self, silence: Duration) -> Result<()> {
        let host = crate::host_name::host_name();
        let protocol = PROTOCOL.to_le_bytes();
        let silence_ms = silence.as_millis() as u64;
        let mine = [&protocol[..], &silence_ms.to_le_bytes(), host.as_bytes()].concat();
        let mut silences_ms = Vec::with_capacity(self.size());
        for (rank, bytes) in self.gather(mine)?.into_iter().enumerate() {
            let (protocol, rest) = bytes.split_first_chunk().unwrap_or((&[0; 4], &[]));
            if *protocol != PROTOCOL.to_le_bytes() {
                return Err(disagreement(format!(
                    "rank {rank} runs a different version of Ebb; install the same version everywhere"
                )));
            }
            let (silence_ms, host) = rest.split_first_chunk().unwrap_or((&[0; 8], &[]));
            silences_ms.push(u64::from_le_bytes(*silence_ms));
            self.members[rank].host = String::from_utf8_lossy(host).into_owned();
        }
        self.compare_silences(&silences_ms)?;
        self.send(Command::Members(self.members.clone()))
    }

    /// A rank that waits for less long than another one would leave it alone with a rank that
    /// still counts as alive there.
    fn compare_silences(&self, silences_ms: &[u64]) -> Result<()> {
        let first = silences_ms.first().copied().unwrap_or(0);
        let Some(other) = silences_ms.iter().position(|silence| *silence != first) else {
            return Ok(());
        };
        let seconds = |ms: u64| ms as f64 / 1e3;
        Err(disagreement(format!(
            "{} treats a silent machine as failed after {} s, but {} after {} s; set {PATIENCE_VARIABLE} to the same number everywhere",
            self.members[0],
            seconds(first),
            self.members[other],
            seconds(silences_ms[other])
        )))
    }

    /// Sums known numbers of both types: a library that was loaded wrongly fails here, not in the
    /// training.
    fn test_sums(&mut self) -> Result<()> {
        let value = |index: usize, rank: usize| (index * 100 + rank + 1) as f64;
        let of_rank = |rank| (0..TESTED_VALUES).map(move |index| value(index, rank));
        let mine: Vec<f64> = of_rank(self.rank).collect();
        let expected = |index| (0..self.members.len()).map(|rank| value(index, rank)).sum();
        let expected: Vec<f64> = (0..TESTED_VALUES).map(expected).collect();
        let single = |values: &[f64]| values.iter().map(|v| *v as f32).collect();
        let tests = [
            (
                Values::Single(single(&mine)),
                Values::Single(single(&expected)),
            ),
            (Values::Double(mine), Values::Double(expected)),
        ];
        for (values, expected) in tests {
            let sum = self.sum(values)?;
            if sum != expected {
                return Err(GroupError::Unavailable(format!(
                    "the machines get a wrong sum ({sum:?} instead of {expected:?}), so they cannot train together; check the MPI library of each machine"
                )));
            }
        }
        Ok(())
    }

    fn send(&self, command: Command) -> Result<()> {
        self.commands.send(command).map_err(|_| GroupError::Left)
    }

    fn call(&mut self, command: Command) -> Result<Reply> {
        self.send(command)?;
        loop {
            match self.replies.recv_timeout(CHECK_INTERVAL) {
                Ok(reply) => return reply,
                Err(RecvTimeoutError::Disconnected) => return Err(GroupError::Left),
                Err(RecvTimeoutError::Timeout) => self.check_if_interrupted()?,
            }
        }
    }

    fn check_if_interrupted(&mut self) -> Result<()> {
        let is_recent = (self.checked_at).is_some_and(|at| at.elapsed() < ALIVE_INTERVAL);
        if is_recent || !self.check.as_ref().is_some_and(|check| check()) {
            return Ok(());
        }
        self.checked_at = Some(Instant::now());
        self.send(Command::CheckAlive { is_answered: false })
    }
}

/// The number of this rank and of all ranks, once it is connected.
fn wait_until_connected(
    is_connected: &Receiver<Result<(usize, usize)>>,
    joins_within: Option<Duration>,
) -> Result<(usize, usize)> {
    let Some(most) = joins_within else {
        return is_connected.recv().unwrap_or(Err(GroupError::Left));
    };
    match is_connected.recv_timeout(most) {
        Ok(connected) => connected,
        Err(RecvTimeoutError::Disconnected) => Err(GroupError::Left),
        Err(RecvTimeoutError::Timeout) => Err(GroupError::Unavailable(format!(
            "not all processes of the group have joined it within {} s; one of them has probably ended",
            most.as_secs()
        ))),
    }
}

/// The error for a reply of another kind, which the messenger never sends.
fn unexpected<T>() -> Result<T> {
    Err(disagreement(
        "another machine sent an unexpected reply; run the same version of Ebb on all machines",
    ))
}

impl Group for ConnectedGroup {
    fn rank(&self) -> usize {
        self.rank
    }

    fn size(&self) -> usize {
        self.members.len()
    }

    fn member(&self, rank: usize) -> Member {
        self.members[rank].clone()
    }

    fn gather(&mut self, mine: Vec<u8>) -> Result<Vec<Vec<u8>>> {
        match self.call(Command::Gather(mine))? {
            Reply::Gathered(all) => Ok(all),
            _ => unexpected(),
        }
    }

    fn begin_step(&mut self, samples: u32) {
        self.round += 1;
        self.samples = samples;
    }

    fn claim(&mut self, request: ClaimRequest) -> Result<Claim> {
        let command = Command::Claim {
            round: self.round,
            samples: self.samples,
            request,
        };
        match self.call(command)? {
            Reply::Claim(claim, ledger) => {
                if claim == Claim::Complete {
                    self.ledger = ledger;
                }
                Ok(claim)
            }
            _ => unexpected(),
        }
    }

    fn sum(&mut self, values: Values) -> Result<Values> {
        if values.is_empty() {
            return Ok(values);
        }
        match self.call(Command::Sum(values))? {
            Reply::Sum(sum) => Ok(sum),
            _ => unexpected(),
        }
    }

    fn sum_rounded(&mut self, values: Vec<f32>) -> Result<RoundedSum> {
        match self.call(Command::RoundedSum(values))? {
            Reply::RoundedSum(sum) => Ok(sum),
            _ => unexpected(),
        }
    }

    fn replay(&mut self, ledgers: Vec<Vec<Share>>) {
        // A messenger that has ended makes the next call fail.
        let _ = self.send(Command::Replay(ledgers));
    }

    fn ledger(&self) -> Vec<Share> {
        self.ledger.clone()
    }

    fn check_when(&mut self, check: Box<dyn Fn() -> bool + Send>) {
        self.check = Some(check);
    }

    fn check_failure(&mut self) -> Result<()> {
        self.check_if_interrupted()?;
        match self.call(Command::CheckFailure)? {
            Reply::Alive => Ok(()),
            _ => unexpected(),
        }
    }

    fn check_alive(&mut self) -> Result<()> {
        match self.call(Command::CheckAlive { is_answered: true })? {
            Reply::Alive => Ok(()),
            _ => unexpected(),
        }
    }

    fn rejoin(&mut self) -> Result<()> {
        match self.call(Command::Rejoin)? {
            Reply::Rejoined(rank, members) => {
                (self.rank, self.members) = (rank, members);
                (self.round, self.samples) = (0, 0);
                self.ledger.clear();
                Ok(())
            }
            _ => unexpected(),
        }
    }

    fn fail(&mut self, message: &str) {
        // A messenger that has ended has no one to inform.
        let _ = self.send(Command::Fail(message.to_owned()));
    }

    fn leave(&mut self) -> Result<()> {
        let left = match self.call(Command::Leave) {
            Ok(Reply::Left) => Ok(()),
            Ok(_) => unexpected(),
            Err(error) => Err(error),
        };
        if let Some(messenger) = self.messenger.take() {
            // It has ended, or ends now, unless the connection waits for machines that are lost.
            let began = Instant::now();
            while !messenger.is_finished() && (left.is_ok() || began.elapsed() < ABORTS_WITHIN) {
                std::thread::sleep(Duration::from_millis(1));
            }
            if messenger.is_finished() {
                let _ = messenger.join();
            }
        }
        left
    }
}
