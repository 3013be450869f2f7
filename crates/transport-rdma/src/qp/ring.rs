//! [`Ring`]: which bytes of a queue pair's staging memory are in use.
//!
//! Runs of bytes are allocated and freed in order, as work requests are. A run is never split: if it
//! does not fit before the end, the rest is skipped.
//!
//! ```text
//!   0                                          size
//!   | in use  |      free       |  in use  |skip|
//!             ^ head                ^ tail        (both only ever grow; modulo size)
//! ```

/// Runs begin at multiples of this, and take multiples of it: words are read in them.
pub(crate) const ALIGN: usize = 8;

/// The allocator of a memory of `size` bytes.
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

    /// The offset at which `len` bytes would begin, and the head behind them; `None` if there is no
    /// room.
    fn find(&self, len: usize) -> Option<(usize, u64)> {
        let len = len.checked_next_multiple_of(ALIGN).filter(|len| *len <= self.size)?;
        let at = (self.head % self.size as u64) as usize;
        let (at, skipped) = if len <= self.size - at { (at, 0) } else { (0, self.size - at) };
        let head = self.head + (skipped + len) as u64;
        (head - self.tail <= self.size as u64).then_some((at, head))
    }

    /// Whether there is room for `len` bytes.
    pub(crate) fn fits(&self, len: usize) -> bool {
        self.find(len).is_some()
    }

    /// Allocates `len` bytes and returns their offset; `None` if there is no room.
    pub(crate) fn allocate(&mut self, len: usize) -> Option<usize> {
        let (at, head) = self.find(len)?;
        self.head = head;
        Some(at)
    }

    /// A mark with which [`free`](Self::free) frees all that has been allocated so far.
    pub(crate) fn mark(&self) -> u64 {
        self.head
    }

    /// Frees what had been allocated when [`mark`](Self::mark) returned `mark`.
    pub(crate) fn free(&mut self, mark: u64) {
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
    use std::collections::VecDeque;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn runs_in_use_never_overlap(steps in proptest::collection::vec((0usize..300, any::<bool>()), 1..200)) {
            let mut ring = Ring::new(512);
            let mut used: VecDeque<(usize, usize, u64)> = VecDeque::new();
            for (len, free) in steps {
                if let Some(at) = ring.allocate(len) {
                    prop_assert!(at % ALIGN == 0 && at + len <= 512);
                    let apart = |(from, to, _): &(usize, usize, u64)| at + len <= *from || *to <= at || len == 0 || from == to;
                    prop_assert!(used.iter().all(apart), "{at} + {len} among {used:?}");
                    used.push_back((at, at + len, ring.mark()));
                }
                if free && let Some((.., mark)) = used.pop_front() {
                    ring.free(mark);
                }
            }
        }

        #[test]
        fn an_empty_ring_has_room_for_all(lens in proptest::collection::vec(0usize..=512, 1..50)) {
            let mut ring = Ring::new(512);
            for len in lens {
                prop_assert!(ring.allocate(len).is_some());
                ring.free(ring.mark());
            }
        }
    }
}
