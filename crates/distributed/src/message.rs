//! Messages between ranks, and their bytes: little-endian, one byte for the kind first.

use crate::error::Result;
use crate::group::{Claim, ClaimRequest, Ended, disagreement};
use std::ops::Range;

/// A message between two ranks: between rank 0 and another one, except for parts of sums.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Message {
    /// To rank 0: a claim in step `round` with an effective batch of `samples`.
    Claim {
        round: u64,
        samples: u32,
        request: ClaimRequest,
    },
    /// From rank 0: the answer to a claim.
    Answer(Claim),
    /// To rank 0: what a rank passes to a gather.
    Gather(Vec<u8>),
    /// From rank 0: what all ranks passed.
    Gathered(Vec<Vec<u8>>),
    /// From rank 0: answer with a `Pong`.
    Ping,
    Pong,
    /// A rank ended the run with an error.
    Failed {
        rank: u32,
        message: String,
    },
    /// From rank 0: a rank ended, or is silent.
    Lost {
        rank: u32,
    },
    /// To rank 0: a rank is ready to disconnect.
    Leave,
    /// From rank 0: all ranks are ready to disconnect.
    AllLeave,
    /// To the rank that sums a chunk of a rounded sum: the sender's values of it.
    SumPart(Vec<u8>),
    /// From the rank that has summed a chunk of a rounded sum: the sum.
    ChunkSum(Vec<u8>),
    /// To rank 0: a rank is ready to continue without those that have ended.
    Rejoin,
    /// From rank 0: all ranks that are left continue.
    Rejoined,
}

impl Message {
    /// The bytes of the message.
    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        let mut to = Writer(Vec::new());
        match self {
            Message::Claim {
                round,
                samples,
                request,
            } => {
                to.byte(0);
                to.u64(*round);
                to.u32(*samples);
                to.u32(request.at_most);
                to.byte(match request.ended {
                    None => 0,
                    Some(Ended::Confirmed) => 1,
                    Some(Ended::GivenBack) => 2,
                    Some(Ended::Retracted) => 3,
                });
                to.byte(u8::from(request.stop));
            }
            Message::Answer(claim) => {
                to.byte(1);
                to.claim(claim);
            }
            Message::Gather(bytes) => {
                to.byte(2);
                to.bytes(bytes);
            }
            Message::Gathered(all) => {
                to.byte(3);
                to.u32(all.len() as u32);
                all.iter().for_each(|bytes| to.bytes(bytes));
            }
            Message::Ping => to.byte(4),
            Message::Pong => to.byte(5),
            Message::Failed { rank, message } => {
                to.byte(6);
                to.u32(*rank);
                to.bytes(message.as_bytes());
            }
            Message::Lost { rank } => {
                to.byte(7);
                to.u32(*rank);
            }
            Message::Leave => to.byte(8),
            Message::AllLeave => to.byte(9),
            Message::SumPart(bytes) => {
                to.byte(10);
                to.bytes(bytes);
            }
            Message::ChunkSum(bytes) => {
                to.byte(11);
                to.bytes(bytes);
            }
            Message::Rejoin => to.byte(12),
            Message::Rejoined => to.byte(13),
        }
        to.0
    }

    /// Reads a message.
    ///
    /// # Errors
    /// Another version of Ebb wrote it.
    pub(crate) fn from_bytes(bytes: &[u8]) -> Result<Message> {
        let mut from = Reader(bytes);
        let message = from.message();
        let is_whole = from.0.is_empty();
        message.filter(|_| is_whole).ok_or_else(|| {
            disagreement("a message cannot be read; run the same version of Ebb on all machines")
        })
    }
}

struct Writer(Vec<u8>);

impl Writer {
    fn byte(&mut self, value: u8) {
        self.0.push(value);
    }

    fn u32(&mut self, value: u32) {
        self.0.extend(value.to_le_bytes());
    }

    fn u64(&mut self, value: u64) {
        self.0.extend(value.to_le_bytes());
    }

    fn bytes(&mut self, bytes: &[u8]) {
        self.u64(bytes.len() as u64);
        self.0.extend(bytes);
    }

    fn range(&mut self, range: &Range<u32>) {
        self.u32(range.start);
        self.u32(range.end);
    }

    fn claim(&mut self, claim: &Claim) {
        match claim {
            Claim::Samples { samples, next } => {
                self.byte(0);
                self.range(samples);
                self.range(next);
            }
            Claim::Wait => self.byte(1),
            Claim::Complete => self.byte(2),
            Claim::Stop => self.byte(3),
        }
    }
}

struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    fn byte(&mut self) -> Option<u8> {
        Some(self.take(1)?[0])
    }

    fn u32(&mut self) -> Option<u32> {
        Some(u32::from_le_bytes(self.take(4)?.try_into().ok()?))
    }

    fn u64(&mut self) -> Option<u64> {
        Some(u64::from_le_bytes(self.take(8)?.try_into().ok()?))
    }

    fn bytes(&mut self) -> Option<Vec<u8>> {
        let count = usize::try_from(self.u64()?).ok()?;
        Some(self.take(count)?.to_vec())
    }

    fn range(&mut self) -> Option<Range<u32>> {
        let range = self.u32()?..self.u32()?;
        (range.start <= range.end).then_some(range)
    }

    fn claim(&mut self) -> Option<Claim> {
        Some(match self.byte()? {
            0 => Claim::Samples {
                samples: self.range().filter(|samples| !samples.is_empty())?,
                next: self.range()?,
            },
            1 => Claim::Wait,
            2 => Claim::Complete,
            3 => Claim::Stop,
            _ => return None,
        })
    }

    fn request(&mut self) -> Option<ClaimRequest> {
        Some(ClaimRequest {
            at_most: self.u32()?,
            ended: match self.byte()? {
                0 => None,
                1 => Some(Ended::Confirmed),
                2 => Some(Ended::GivenBack),
                3 => Some(Ended::Retracted),
                _ => return None,
            },
            stop: self.byte()? != 0,
        })
    }

    fn message(&mut self) -> Option<Message> {
        Some(match self.byte()? {
            0 => Message::Claim {
                round: self.u64()?,
                samples: self.u32()?,
                request: self.request()?,
            },
            1 => Message::Answer(self.claim()?),
            2 => Message::Gather(self.bytes()?),
            3 => {
                let count = self.u32()?;
                Message::Gathered((0..count).map(|_| self.bytes()).collect::<Option<_>>()?)
            }
            4 => Message::Ping,
            5 => Message::Pong,
            6 => Message::Failed {
                rank: self.u32()?,
                message: String::from_utf8_lossy(&self.bytes()?).into_owned(),
            },
            7 => Message::Lost { rank: self.u32()? },
            8 => Message::Leave,
            9 => Message::AllLeave,
            10 => Message::SumPart(self.bytes()?),
            11 => Message::ChunkSum(self.bytes()?),
            12 => Message::Rejoin,
            13 => Message::Rejoined,
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;

    fn messages() -> Vec<Message> {
        let request = |ended, stop| Message::Claim {
            round: 1 << 40,
            samples: 4096,
            request: ClaimRequest {
                at_most: 17,
                ended,
                stop,
            },
        };
        vec![
            request(None, false),
            request(Some(Ended::Confirmed), true),
            request(Some(Ended::GivenBack), false),
            request(Some(Ended::Retracted), false),
            Message::Answer(Claim::Samples {
                samples: 3..9,
                next: 9..9,
            }),
            Message::Answer(Claim::Wait),
            Message::Answer(Claim::Complete),
            Message::Answer(Claim::Stop),
            Message::Gather(vec![1, 2, 3]),
            Message::Gathered(vec![Vec::new(), vec![9; 300]]),
            Message::Ping,
            Message::Pong,
            Message::Failed {
                rank: 7,
                message: "the disk is full".to_owned(),
            },
            Message::Lost { rank: 2 },
            Message::Leave,
            Message::AllLeave,
            Message::SumPart(vec![1, 2, 3, 4]),
            Message::ChunkSum(Vec::new()),
            Message::Rejoin,
            Message::Rejoined,
        ]
    }

    #[test]
    fn every_message_is_read_as_it_was_written() {
        for message in messages() {
            let read = Message::from_bytes(&message.to_bytes());
            assert_eq!(read, Ok(message));
        }
    }

    #[test]
    fn damaged_messages_are_errors() {
        let mut random = Random::new(3);
        for message in messages() {
            let bytes = message.to_bytes();
            for end in 0..bytes.len() {
                assert!(Message::from_bytes(&bytes[..end]).is_err(), "{message:?}");
            }
            for _ in 0..200 {
                let mut changed = bytes.clone();
                let at = random.below(bytes.len() as u64) as usize;
                changed[at] = random.next() as u8;
                // It is an error or another message, but never a panic.
                let _ = Message::from_bytes(&changed);
            }
        }
        assert!(Message::from_bytes(&[200]).is_err());
        let endless = [&[2u8][..], &u64::MAX.to_le_bytes()].concat();
        assert!(Message::from_bytes(&endless).is_err());
    }
}
