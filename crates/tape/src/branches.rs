//! Branches: which way a run went at each kink of its network. A ReLU rises or stays at zero; the largest of a window stands at one
//! place. Between its kinks a network is smooth and has one gradient. Two runs in different precisions may part where a value is
//! within rounding of a kink, and then have the gradients of two different pieces, each right for its own. So one run records its
//! branches, and another takes them in the place of its own and counts where it would have parted, and how far from the kink.
//!
//! Refuses to know precisions and which distance is rounding. Huber's slope does not jump; hard choices by Gumbel noise are not told. A tape
//! without branches does nothing of this.

use crate::error::{Result, TapeError};
use crate::inplace::to_f64;
use crate::tape::Tape;
use candle_core::Tensor;
use std::cell::{Cell, RefCell};
use std::ops::Range;
use std::rc::Rc;

/// The branches of one run, from [`Tape::recording_branches`] for [`Tape::following`].
#[derive(Debug, Clone, Default)]
pub struct Branches(Rc<RefCell<Ledger>>);

#[derive(Debug, Default)]
struct Ledger {
    sites: Vec<Site>,
    parting: Parting,
}

/// One operation with kinks, in the order of the forward pass.
#[derive(Debug)]
struct Site {
    kink: Kink,
    /// One a value, samples outermost.
    ways: Vec<u8>,
}

/// What has a kink.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kink {
    /// `max(x, 0)`: 1 where it rises.
    Rise,
    /// The largest of a window: its place.
    Largest,
}

/// Where the run that followed would have gone another way.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Parting {
    /// Branches taken.
    pub taken: u64,
    /// How many of them were not its own.
    pub other: u64,
    /// The farthest from its kink of these, over the root mean square of all values that met the kink; infinite where one is no number.
    pub farthest: f64,
    /// At which operation with kinks that was, by the order of the forward pass.
    pub farthest_at: usize,
}

impl Branches {
    /// No operation had a kink.
    pub fn is_empty(&self) -> bool {
        self.0.borrow().sites.is_empty()
    }

    /// What the last run that followed met.
    pub fn parting(&self) -> Parting {
        self.0.borrow().parting
    }
}

/// A tape's place in the branches.
#[derive(Debug, Clone)]
pub(crate) struct Course {
    branches: Branches,
    follows: bool,
    /// The next operation with kinks.
    next: Cell<usize>,
    /// Samples that a checkpointed block works at a time; all where absent.
    samples: Option<Range<usize>>,
    /// The second run of a checkpointed block: all was recorded or counted in the first.
    again: bool,
}

impl Course {
    fn of(branches: &Branches, follows: bool) -> Self {
        Course {
            branches: branches.clone(),
            follows,
            next: Cell::new(0),
            samples: None,
            again: false,
        }
    }

    /// The course of a checkpointed block that works `samples` of `all`.
    pub fn within(&self, samples: &Range<usize>, all: usize) -> Self {
        let mut inner = self.clone();
        if samples.len() < all {
            let before = self.samples.as_ref().map_or(0, |outer| outer.start);
            inner.samples = Some(before + samples.start..before + samples.end);
        }
        inner
    }

    /// The same, in the second run of a checkpointed block.
    pub fn again(self) -> Self {
        Course {
            again: true,
            ..self
        }
    }

    /// Goes on behind a checkpointed block, where `inner` ended.
    pub fn pass(&self, inner: &Course) {
        self.next.set(inner.next.get());
    }

    /// The number of the operation that begins, and which of its values these `count` are.
    fn step(&self, count: usize) -> (usize, Range<usize>) {
        let at = self.next.replace(self.next.get() + 1);
        let from = match &self.samples {
            Some(samples) => count / samples.len().max(1) * samples.start,
            None => 0,
        };
        (at, from..from + count)
    }
}

/// A run that does what the recorded one did not.
fn other_run(at: usize) -> TapeError {
    TapeError::OtherRun { at }
}

impl Tape<'_> {
    /// The same tape, which records its branches. Each operation with kinks is read back from the device: for comparisons.
    pub fn recording_branches(self, branches: &Branches) -> Self {
        *branches.0.borrow_mut() = Ledger::default();
        self.along(Some(Course::of(branches, false)))
    }

    /// The same tape, which takes these branches in the place of its own, forward and backward.
    pub fn following(self, branches: &Branches) -> Self {
        branches.0.borrow_mut().parting = Parting::default();
        self.along(Some(Course::of(branches, true)))
    }

    /// True where another run's branches are taken.
    pub(crate) fn follows(&self) -> bool {
        self.course().is_some_and(|course| course.follows)
    }

    /// Records that `max(x, 0)` rose where its result is more than zero, or no number: as backward reads it.
    pub(crate) fn record_rises(&self, y: &Tensor) -> Result<()> {
        self.record_ways(Kink::Rise, y.elem_count(), || {
            Ok(to_f64(y)?.into_iter().map(way).collect())
        })
    }

    /// Records the ways that `count` values went at the operation that has just run.
    pub(crate) fn record_ways(
        &self,
        kink: Kink,
        count: usize,
        ways: impl FnOnce() -> Result<Vec<u8>>,
    ) -> Result<()> {
        let Some(course) = self.course().filter(|course| !course.follows) else {
            return Ok(());
        };
        let (at, places) = course.step(count);
        if course.again {
            return Ok(());
        }
        let ways = ways()?;
        let sites = &mut course.branches.0.borrow_mut().sites;
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
            _ => Err(other_run(at)),
        }
    }

    /// The ways that the run which this one follows took at the operation that begins, of `count` values.
    pub(crate) fn taken(&self, kink: Kink, count: usize) -> Result<Option<Vec<u8>>> {
        let Some(course) = self.course().filter(|course| course.follows) else {
            return Ok(None);
        };
        let (at, places) = course.step(count);
        let ledger = course.branches.0.borrow();
        let site = ledger.sites.get(at).filter(|site| {
            let whole = course.samples.is_some() || site.ways.len() == count;
            site.kink == kink && whole
        });
        let ways = site.and_then(|site| site.ways.get(places));
        Ok(Some(ways.ok_or_else(|| other_run(at))?.to_vec()))
    }

    /// Counts `taken` ways at the operation that has just run on `values`, and the distances from the kink of those that were not its own.
    pub(crate) fn part(
        &self,
        taken: usize,
        values: &[f64],
        distances: impl IntoIterator<Item = f64>,
    ) {
        let Some(course) = self.course().filter(|course| !course.again) else {
            return;
        };
        let squares: f64 = values.iter().map(|v| v * v).sum();
        let scale = (squares / values.len().max(1) as f64).sqrt();
        let parting = &mut course.branches.0.borrow_mut().parting;
        parting.taken += taken as u64;
        for distance in distances {
            parting.other += 1;
            let share = distance / scale.max(f64::MIN_POSITIVE);
            let share = if share.is_nan() { f64::INFINITY } else { share };
            if share > parting.farthest {
                (parting.farthest, parting.farthest_at) = (share, course.next.get() - 1);
            }
        }
    }
}

/// Whether `max(x, 0)` rises, of `x` or of the result.
pub(crate) fn way(x: f64) -> u8 {
    // Written so that NaN rises: a comparison with it is false.
    u8::from(x.is_nan() || x > 0.0)
}
