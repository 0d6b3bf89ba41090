//! Kinks: for developers who compare two runs in different precisions. A ReLU has a kink at zero,
//! max pooling wherever two values of a window are equal. Between its kinks a network is smooth and
//! has one gradient. Two runs whose values differ by rounding may fall on different sides of a
//! kink; both gradients are then right, but they differ. So one run records the side of every value
//! in a [`KinkLog`], and a second run follows it and counts where it would have gone the other way,
//! and how far from the kink.
//!
//! Huber's slope has no jump, and hard Gumbel choices are not recorded. Training never uses a log.

use crate::error::{Result, TapeError};
use std::cell::{Cell, RefCell};
use std::ops::Range;
use std::rc::Rc;

/// The side of every kink that one run took, recorded by
/// [`Tape::recording_kinks`](crate::Tape::recording_kinks) for
/// [`Tape::following_kinks`](crate::Tape::following_kinks).
#[derive(Debug, Clone, Default)]
pub struct KinkLog(Rc<RefCell<Ledger>>);

/// What a tape does with a log.
#[derive(Debug, Clone, Copy)]
pub enum KinkUse<'a> {
    /// It records the side that it takes of every kink.
    Record(&'a KinkLog),
    /// It takes the recorded sides instead of its own, forward and backward.
    Follow(&'a KinkLog),
}

#[derive(Debug, Default)]
struct Ledger {
    sites: Vec<Site>,
    divergence: KinkDivergence,
}

/// One operation with kinks, in the order of the forward pass.
#[derive(Debug)]
struct Site {
    kink: Kink,
    /// One byte per value, samples outermost.
    ways: Vec<u8>,
}

/// The operation that has a kink.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kink {
    /// `max(x, 0)`; the byte is 1 if the value passes.
    Relu,
    /// The largest value of a window; the byte is its place in the window.
    MaxPool,
}

/// How a run that followed a log differed from it.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct KinkDivergence {
    /// Values compared.
    pub compared: u64,
    /// Values that the run would have sent the other way.
    pub differing: u64,
    /// The largest distance of these from their kink, relative to the root mean square of all
    /// values at that operation; infinite if one of them is NaN.
    pub farthest: f64,
    /// The operation with that distance, counted over the operations with kinks in forward order.
    pub farthest_at: usize,
}

impl KinkLog {
    /// True if no operation had a kink.
    pub fn is_empty(&self) -> bool {
        self.0.borrow().sites.is_empty()
    }

    /// The divergence of the last run that followed this log.
    pub fn divergence(&self) -> KinkDivergence {
        self.0.borrow().divergence
    }
}

/// A tape's position in a log.
#[derive(Debug, Clone)]
pub(crate) struct KinkCursor {
    log: KinkLog,
    follows: bool,
    /// The next operation with kinks.
    next: Cell<usize>,
    /// The samples that a checkpointed block is working on; `None` means all.
    samples: Option<Range<usize>>,
    /// The second run of a checkpointed block: the first one has recorded or counted everything.
    recomputing: bool,
}

impl KinkCursor {
    /// Empties `log` and records into it.
    pub fn recording(log: &KinkLog) -> Self {
        *log.0.borrow_mut() = Ledger::default();
        KinkCursor::new(log, false)
    }

    /// Follows `log` and resets the divergence counters.
    pub fn following(log: &KinkLog) -> Self {
        log.0.borrow_mut().divergence = KinkDivergence::default();
        KinkCursor::new(log, true)
    }

    fn new(log: &KinkLog, follows: bool) -> Self {
        KinkCursor {
            log: log.clone(),
            follows,
            next: Cell::new(0),
            samples: None,
            recomputing: false,
        }
    }

    /// True if the run takes the sides of a recorded run instead of its own.
    pub fn follows(&self) -> bool {
        self.follows
    }

    /// The cursor of a checkpointed block that works on `samples` of `all`.
    pub fn within(&self, samples: &Range<usize>, all: usize) -> Self {
        let mut inner = self.clone();
        if samples.len() < all {
            let before = self.samples.as_ref().map_or(0, |outer| outer.start);
            inner.samples = Some(before + samples.start..before + samples.end);
        }
        inner
    }

    /// This cursor for the second run of a checkpointed block.
    pub fn recomputing(self) -> Self {
        KinkCursor {
            recomputing: true,
            ..self
        }
    }

    /// Moves behind a checkpointed block, to the position of its cursor.
    pub fn advance_to(&self, inner: &KinkCursor) {
        self.next.set(inner.next.get());
    }

    /// Steps to the next operation; returns its number and the range of its values that these
    /// `count` values are.
    fn step(&self, count: usize) -> (usize, Range<usize>) {
        let at = self.next.replace(self.next.get() + 1);
        let from = match &self.samples {
            Some(samples) => count / samples.len().max(1) * samples.start,
            None => 0,
        };
        (at, from..from + count)
    }

    /// Records for `count` inputs of the operation that has just run on which side of the kink each
    /// one was.
    pub fn record(
        &self,
        kink: Kink,
        count: usize,
        ways: impl FnOnce() -> Result<Vec<u8>>,
    ) -> Result<()> {
        let (at, places) = self.step(count);
        if self.recomputing {
            return Ok(());
        }
        let ways = ways()?;
        let sites = &mut self.log.0.borrow_mut().sites;
        if sites.len() == at {
            sites.push(Site {
                kink,
                ways: Vec::new(),
            });
        }
        match sites.get_mut(at) {
            Some(site) if (site.kink, site.ways.len()) == (kink, places.start) => {
                site.ways.extend(ways);
                Ok(())
            }
            _ => Err(TapeError::DifferentRun { at }),
        }
    }

    /// The sides that the recorded run took at the operation that begins, for its `count` values.
    ///
    /// # Errors
    /// The recorded run did something else at this point.
    pub fn recorded(&self, kink: Kink, count: usize) -> Result<Vec<u8>> {
        let (at, places) = self.step(count);
        let ledger = self.log.0.borrow();
        let site = ledger.sites.get(at).filter(|site| {
            let whole = self.samples.is_some() || site.ways.len() == count;
            site.kink == kink && whole
        });
        let ways = site.and_then(|site| site.ways.get(places));
        Ok(ways.ok_or(TapeError::DifferentRun { at })?.to_vec())
    }

    /// Counts `compared` values of the operation that has just run on `values`, and the distances
    /// from the kink of those that would have gone the other way.
    pub fn count_divergence(
        &self,
        compared: usize,
        values: &[f64],
        distances: impl IntoIterator<Item = f64>,
    ) {
        if self.recomputing {
            return;
        }
        let squares: f64 = values.iter().map(|v| v * v).sum();
        let scale = (squares / values.len().max(1) as f64).sqrt();
        let divergence = &mut self.log.0.borrow_mut().divergence;
        divergence.compared += compared as u64;
        for distance in distances {
            divergence.differing += 1;
            let relative = distance / scale.max(f64::MIN_POSITIVE);
            let relative = if relative.is_nan() {
                f64::INFINITY
            } else {
                relative
            };
            if relative > divergence.farthest {
                (divergence.farthest, divergence.farthest_at) = (relative, self.next.get() - 1);
            }
        }
    }
}

/// The side of `max(x, 0)`, from `x` or from its result: 1 if the value passes. NaN passes.
pub(crate) fn relu_way(x: f64) -> u8 {
    u8::from(x.is_nan() || x > 0.0)
}
