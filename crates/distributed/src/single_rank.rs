//! A group of one rank: no thread, no library, no copies.

use crate::error::{Member, Result};
use crate::group::{Claim, ClaimRequest, Ended, Group, Share, Values};
use std::ops::Range;

/// One rank that trains alone. Claims bring the next samples, in order.
#[derive(Debug, Default)]
pub struct SingleRank {
    samples: u32,
    /// First sample that is not confirmed.
    next: u32,
    claimed: Option<Range<u32>>,
    ledger: Vec<Share>,
}

impl Group for SingleRank {
    fn rank(&self) -> usize {
        0
    }

    fn size(&self) -> usize {
        1
    }

    fn member(&self, rank: usize) -> Member {
        Member {
            rank,
            host: crate::host_name::host_name(),
        }
    }

    fn gather(&mut self, mine: Vec<u8>) -> Result<Vec<Vec<u8>>> {
        Ok(vec![mine])
    }

    fn begin_step(&mut self, samples: u32) {
        (self.samples, self.next, self.claimed) = (samples, 0, None);
        self.ledger.clear();
    }

    fn claim(&mut self, request: ClaimRequest) -> Result<Claim> {
        if request.ended == Some(Ended::Retracted) && self.next < self.samples {
            (self.next, self.claimed) = (0, None);
            self.ledger.clear();
        } else if let Some(samples) = self.claimed.take()
            && request.ended == Some(Ended::Confirmed)
        {
            self.next = samples.end;
            self.ledger.push(Share { rank: 0, samples });
        }
        if self.next == self.samples {
            return Ok(Claim::Complete);
        }
        if request.stop {
            return Ok(Claim::Stop);
        }
        if request.at_most == 0 {
            return Ok(Claim::Wait);
        }
        let end = self.samples.min(self.next.saturating_add(request.at_most));
        let samples = self.next..end;
        self.claimed = Some(samples.clone());
        Ok(Claim::Samples {
            samples,
            next: end..self.samples,
        })
    }

    fn sum(&mut self, values: Values) -> Result<Values> {
        Ok(values)
    }

    fn ledger(&self) -> Vec<Share> {
        self.ledger.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn claims_bring_the_samples_in_order() {
        let mut alone = SingleRank::default();
        alone.begin_step(10);
        let mut claim = |ended| {
            let request = ClaimRequest {
                at_most: 4,
                ended,
                stop: false,
            };
            match alone.claim(request).expect("it never fails") {
                Claim::Samples { samples, .. } => Some(samples),
                _ => None,
            }
        };
        assert_eq!(claim(None), Some(0..4));
        assert_eq!(claim(Some(Ended::Confirmed)), Some(4..8));
        assert_eq!(claim(Some(Ended::GivenBack)), Some(4..8));
        assert_eq!(claim(Some(Ended::Confirmed)), Some(8..10));
        assert_eq!(claim(Some(Ended::Confirmed)), None);
        assert_eq!(alone.ledger().len(), 3);
    }
}
