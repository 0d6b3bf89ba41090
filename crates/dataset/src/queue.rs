//! Samples on their way, in the order asked for: wanted, at work, or made. Bounds how many are begun before they are taken.
//! Knows no thread and no clock.

use std::collections::VecDeque;

/// Things of type `T` on their way, each asked for by epoch and index.
#[derive(Debug)]
pub(crate) struct Queue<T> {
    /// From the next one to hand out on.
    slots: VecDeque<Slot<T>>,
    /// Ticket of the first slot: how many were handed out or forgotten since the start.
    first: u64,
    /// Every slot before this one is begun; the search for work starts here.
    begun: usize,
    depth: usize,
}

#[derive(Debug)]
struct Slot<T> {
    epoch: u64,
    index: u32,
    state: State<T>,
}

#[derive(Debug)]
enum State<T> {
    Wanted,
    AtWork,
    Made(T),
}

/// Something to make. The ticket comes back with what was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Work {
    pub ticket: u64,
    pub epoch: u64,
    pub index: u32,
}

impl<T> Queue<T> {
    /// An empty queue, of which the first `depth` may be begun.
    pub(crate) fn new(depth: usize) -> Self {
        Self {
            slots: VecDeque::new(),
            first: 0,
            begun: 0,
            depth: depth.max(1),
        }
    }

    pub(crate) fn want(&mut self, epoch: u64, index: u32) {
        self.slots.push_back(Slot {
            epoch,
            index,
            state: State::Wanted,
        });
    }

    /// Asked for and not handed out.
    pub(crate) fn len(&self) -> usize {
        self.slots.len()
    }

    pub(crate) fn depth(&self) -> usize {
        self.depth
    }

    /// The next one to make, unless enough are begun.
    pub(crate) fn begin(&mut self) -> Option<Work> {
        let end = self.depth.min(self.slots.len());
        while self.begun < end {
            let place = self.begun;
            self.begun += 1;
            let slot = &mut self.slots[place];
            if matches!(slot.state, State::Wanted) {
                slot.state = State::AtWork;
                return Some(Work {
                    ticket: self.first + place as u64,
                    epoch: slot.epoch,
                    index: slot.index,
                });
            }
        }
        None
    }

    /// Takes in what was made. What was forgotten meanwhile is dropped; what lies beyond the depth now is made again later.
    pub(crate) fn finish(&mut self, ticket: u64, made: T) {
        let Some(place) = ticket.checked_sub(self.first) else {
            return;
        };
        let place = place as usize;
        if place < self.depth {
            self.slots[place].state = State::Made(made);
        } else {
            self.slots[place].state = State::Wanted;
            self.begun = self.begun.min(place);
        }
    }

    /// Hands the next one out, if it is made.
    pub(crate) fn take(&mut self) -> Option<T> {
        let slot = self
            .slots
            .pop_front_if(|slot| matches!(slot.state, State::Made(_)))?;
        self.first += 1;
        self.begun = self.begun.saturating_sub(1);
        match slot.state {
            State::Made(made) => Some(made),
            State::Wanted | State::AtWork => None,
        }
    }

    /// Another depth. What is made beyond it is dropped and will be made again: the order stays.
    pub(crate) fn set_depth(&mut self, depth: usize) {
        self.depth = depth.max(1);
        for slot in self.slots.iter_mut().skip(self.depth) {
            if matches!(slot.state, State::Made(_)) {
                slot.state = State::Wanted;
            }
        }
        self.begun = self.begun.min(self.depth);
    }

    /// Drops everything that was asked for.
    pub(crate) fn forget(&mut self) {
        self.first += self.slots.len() as u64;
        self.slots.clear();
        self.begun = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn queue(count: u32, depth: usize) -> Queue<u32> {
        let mut queue = Queue::new(depth);
        (0..count).for_each(|index| queue.want(0, index));
        queue
    }

    fn begin(queue: &mut Queue<u32>) -> Option<(u64, u32)> {
        queue.begin().map(|work| (work.ticket, work.index))
    }

    #[test]
    fn nothing_is_begun_beyond_the_depth() {
        let mut queue = queue(5, 2);
        assert_eq!(begin(&mut queue), Some((0, 0)));
        assert_eq!(begin(&mut queue), Some((1, 1)));
        assert_eq!(begin(&mut queue), None);
        queue.finish(1, 11);
        assert_eq!((queue.take(), queue.len()), (None, 5));
        queue.finish(0, 10);
        assert_eq!((queue.take(), begin(&mut queue)), (Some(10), Some((2, 2))));
        assert_eq!((begin(&mut queue), queue.len()), (None, 4));
        assert_eq!((queue.take(), queue.take()), (Some(11), None));
    }

    #[test]
    fn a_shorter_depth_drops_what_lies_beyond_and_makes_it_again_in_order() {
        let mut queue = queue(6, 4);
        let work: Vec<Work> = std::iter::from_fn(|| queue.begin()).collect();
        assert_eq!(work.len(), 4);
        for ticket in [0, 1, 2] {
            queue.finish(ticket, ticket as u32);
        }
        queue.set_depth(1);
        // It was at work beyond the depth.
        queue.finish(3, 3);
        assert_eq!(begin(&mut queue), None);
        for index in 0..6u32 {
            if index > 0 {
                assert_eq!(begin(&mut queue), Some((index.into(), index)));
                queue.finish(index.into(), index);
            }
            assert_eq!(begin(&mut queue), None);
            assert_eq!(queue.take(), Some(index));
        }
        assert_eq!(queue.len(), 0);
    }

    #[test]
    fn what_is_at_work_beyond_a_depth_that_grew_again_is_made_once() {
        let mut queue = queue(4, 3);
        while queue.begin().is_some() {}
        queue.set_depth(1);
        queue.set_depth(4);
        assert_eq!((begin(&mut queue), begin(&mut queue)), (Some((3, 3)), None));
        for ticket in [2, 0, 3, 1] {
            queue.finish(ticket, ticket as u32);
        }
        let taken: Vec<u32> = std::iter::from_fn(|| queue.take()).collect();
        assert_eq!(taken, [0, 1, 2, 3]);
    }

    #[test]
    fn what_was_forgotten_never_arrives() {
        let mut queue = queue(3, 8);
        assert_eq!(begin(&mut queue), Some((0, 0)));
        queue.forget();
        queue.want(1, 7);
        queue.finish(0, 99);
        assert_eq!((queue.take(), begin(&mut queue)), (None, Some((3, 7))));
        queue.finish(3, 5);
        assert_eq!(queue.take(), Some(5));
    }
}
