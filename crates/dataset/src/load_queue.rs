//! A queue of requested items in order: waiting, being loaded, or ready. Limits how many are loaded
//! before they are taken.

use std::collections::VecDeque;

/// Requested items of type `T`, each identified by epoch and index.
#[derive(Debug)]
pub(crate) struct Queue<T> {
    /// The next item to take is first.
    slots: VecDeque<Slot<T>>,
    /// Ticket of the first slot: the number of items that were taken or cleared so far.
    first: u64,
    /// All slots before this one are being loaded or ready, so the search for work starts here.
    started: usize,
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
    Waiting,
    Loading,
    Ready(T),
}

/// An item to load. Its ticket is returned with the loaded item.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Work {
    pub ticket: u64,
    pub epoch: u64,
    pub index: u32,
}

impl<T> Queue<T> {
    /// An empty queue whose first `depth` items may be loaded.
    pub(crate) fn new(depth: usize) -> Self {
        Self {
            slots: VecDeque::new(),
            first: 0,
            started: 0,
            depth: depth.max(1),
        }
    }

    /// Requests an item.
    pub(crate) fn push(&mut self, epoch: u64, index: u32) {
        self.slots.push_back(Slot {
            epoch,
            index,
            state: State::Waiting,
        });
    }

    /// Number of items that were requested and not taken.
    pub(crate) fn len(&self) -> usize {
        self.slots.len()
    }

    /// Number of items that may be loaded before they are taken.
    pub(crate) fn depth(&self) -> usize {
        self.depth
    }

    /// The next item to load; `None` if enough are loaded or being loaded.
    pub(crate) fn next_work(&mut self) -> Option<Work> {
        let end = self.depth.min(self.slots.len());
        while self.started < end {
            let index = self.started;
            self.started += 1;
            let slot = &mut self.slots[index];
            if matches!(slot.state, State::Waiting) {
                slot.state = State::Loading;
                return Some(Work {
                    ticket: self.first + index as u64,
                    epoch: slot.epoch,
                    index: slot.index,
                });
            }
        }
        None
    }

    /// Stores a loaded item. An item that was cleared is dropped. An item beyond the depth is
    /// dropped and loaded again later.
    pub(crate) fn finish(&mut self, ticket: u64, item: T) {
        let Some(index) = ticket.checked_sub(self.first) else {
            return;
        };
        let index = index as usize;
        if index < self.depth {
            self.slots[index].state = State::Ready(item);
        } else {
            self.slots[index].state = State::Waiting;
            self.started = self.started.min(index);
        }
    }

    /// Takes the next item if it is ready.
    pub(crate) fn take(&mut self) -> Option<T> {
        let slot = self
            .slots
            .pop_front_if(|slot| matches!(slot.state, State::Ready(_)))?;
        self.first += 1;
        self.started = self.started.saturating_sub(1);
        match slot.state {
            State::Ready(item) => Some(item),
            State::Waiting | State::Loading => None,
        }
    }

    /// Changes the depth. Items beyond it are dropped and loaded again; the order stays.
    pub(crate) fn set_depth(&mut self, depth: usize) {
        self.depth = depth.max(1);
        for slot in self.slots.iter_mut().skip(self.depth) {
            if matches!(slot.state, State::Ready(_)) {
                slot.state = State::Waiting;
            }
        }
        self.started = self.started.min(self.depth);
    }

    /// Drops all requests.
    pub(crate) fn clear(&mut self) {
        self.first += self.slots.len() as u64;
        self.slots.clear();
        self.started = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn queue(count: u32, depth: usize) -> Queue<u32> {
        let mut queue = Queue::new(depth);
        (0..count).for_each(|index| queue.push(0, index));
        queue
    }

    fn next(queue: &mut Queue<u32>) -> Option<(u64, u32)> {
        queue.next_work().map(|work| (work.ticket, work.index))
    }

    #[test]
    fn nothing_is_loaded_beyond_the_depth() {
        let mut queue = queue(5, 2);
        assert_eq!(next(&mut queue), Some((0, 0)));
        assert_eq!(next(&mut queue), Some((1, 1)));
        assert_eq!(next(&mut queue), None);
        queue.finish(1, 11);
        assert_eq!((queue.take(), queue.len()), (None, 5));
        queue.finish(0, 10);
        assert_eq!((queue.take(), next(&mut queue)), (Some(10), Some((2, 2))));
        assert_eq!((next(&mut queue), queue.len()), (None, 4));
        assert_eq!((queue.take(), queue.take()), (Some(11), None));
    }

    #[test]
    fn items_beyond_a_smaller_depth_are_loaded_again_in_order() {
        let mut queue = queue(6, 4);
        let work: Vec<Work> = std::iter::from_fn(|| queue.next_work()).collect();
        assert_eq!(work.len(), 4);
        for ticket in [0, 1, 2] {
            queue.finish(ticket, ticket as u32);
        }
        queue.set_depth(1);
        // It was being loaded beyond the depth.
        queue.finish(3, 3);
        assert_eq!(next(&mut queue), None);
        for index in 0..6u32 {
            if index > 0 {
                assert_eq!(next(&mut queue), Some((index.into(), index)));
                queue.finish(index.into(), index);
            }
            assert_eq!(next(&mut queue), None);
            assert_eq!(queue.take(), Some(index));
        }
        assert_eq!(queue.len(), 0);
    }

    #[test]
    fn items_being_loaded_while_the_depth_changes_are_loaded_once() {
        let mut queue = queue(4, 3);
        while queue.next_work().is_some() {}
        queue.set_depth(1);
        queue.set_depth(4);
        assert_eq!((next(&mut queue), next(&mut queue)), (Some((3, 3)), None));
        for ticket in [2, 0, 3, 1] {
            queue.finish(ticket, ticket as u32);
        }
        let taken: Vec<u32> = std::iter::from_fn(|| queue.take()).collect();
        assert_eq!(taken, [0, 1, 2, 3]);
    }

    #[test]
    fn cleared_items_never_arrive() {
        let mut queue = queue(3, 8);
        assert_eq!(next(&mut queue), Some((0, 0)));
        queue.clear();
        queue.push(1, 7);
        queue.finish(0, 99);
        assert_eq!((queue.take(), next(&mut queue)), (None, Some((3, 7))));
        queue.finish(3, 5);
        assert_eq!(queue.take(), Some(5));
    }
}
