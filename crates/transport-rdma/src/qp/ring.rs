//! [`Ring`]: which bytes of a lane's staging memory are in use.
//!
//! Bytes are taken in order and given back in order, as work requests are. A run is never split:
//! where the end is too near, it is skipped.
//!
//! ```text
//!   0                                          size
//!   |  taken  |      free       |   taken  |skip|
//!             ^ head                ^ tail        (both only ever grow; modulo size)
//! ```

/// Runs begin at multiples of this: words are read in them.
const ALIGN: usize = 8;

/// What is in use of a memory of `size` bytes.
#[derive(Debug)]
pub(crate) struct Ring {
    size: usize,
    head: u64,
    tail: u64,
}

impl Ring {
    /// # Panics
    /// If `size` is zero or no multiple of eight.
    pub(crate) fn new(size: usize) -> Self {
        assert!(size > 0 && size.is_multiple_of(ALIGN), "{size} bytes of staging memory");
        Self { size, head: 0, tail: 0 }
    }

    /// Bytes of the memory.
    pub(crate) fn size(&self) -> usize {
        self.size
    }

    /// Where `len` bytes would begin, and the head behind them; `None` while there is no room.
    fn place(&self, len: usize) -> Option<(usize, u64)> {
        let len = len.checked_next_multiple_of(ALIGN).filter(|len| *len <= self.size)?;
        let at = (self.head % self.size as u64) as usize;
        let (at, skipped) = if len <= self.size - at { (at, 0) } else { (0, self.size - at) };
        let head = self.head + (skipped + len) as u64;
        (head - self.tail <= self.size as u64).then_some((at, head))
    }

    /// Whether there is room for `len` bytes.
    pub(crate) fn fits(&self, len: usize) -> bool {
        self.place(len).is_some()
    }

    /// Takes `len` bytes: where they begin. `None` while there is no room for them.
    pub(crate) fn take(&mut self, len: usize) -> Option<usize> {
        let (at, head) = self.place(len)?;
        self.head = head;
        Some(at)
    }

    /// What [`give_back`](Self::give_back) takes to give back all that has been taken so far.
    pub(crate) fn mark(&self) -> u64 {
        self.head
    }

    /// Gives back what had been taken when [`mark`](Self::mark) said `mark`.
    pub(crate) fn give_back(&mut self, mark: u64) {
        self.tail = self.tail.max(mark);
        if self.tail == self.head {
            // Nothing is in use: the next run need not skip anything.
            self.head = self.head.next_multiple_of(self.size as u64);
            self.tail = self.head;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::VecDeque;

    proptest! {
        #[test]
        fn runs_in_use_never_overlap(steps in proptest::collection::vec((0usize..300, any::<bool>()), 1..200)) {
            let mut ring = Ring::new(512);
            let mut used: VecDeque<(usize, usize, u64)> = VecDeque::new();
            for (len, give_back) in steps {
                if let Some(at) = ring.take(len) {
                    prop_assert!(at % ALIGN == 0 && at + len <= 512);
                    let apart = |(from, to, _): &(usize, usize, u64)| at + len <= *from || *to <= at || len == 0 || from == to;
                    prop_assert!(used.iter().all(apart), "{at} + {len} among {used:?}");
                    used.push_back((at, at + len, ring.mark()));
                }
                if give_back && let Some((.., mark)) = used.pop_front() {
                    ring.give_back(mark);
                }
            }
        }

        #[test]
        fn an_empty_ring_has_room_for_all(lens in proptest::collection::vec(0usize..=512, 1..50)) {
            let mut ring = Ring::new(512);
            for len in lens {
                prop_assert!(ring.take(len).is_some());
                ring.give_back(ring.mark());
            }
        }
    }
}
