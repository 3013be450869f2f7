//! The run queue: an intrusive FIFO list of control blocks. It also counts how many fibers a round of the
//! scheduler has resumed.
//!
//! It is two lists, so that pushing and taking touch different words: `take` removes from the first; `push`
//! appends to the second, which becomes the first when that is empty:
//!
//! ```text
//!   first --> block --> block --> null      pushed --> block --> block --> (not written yet)
//!                                                                  ^ last
//! ```

use std::cell::Cell;
use std::hint::cold_path;
use std::ptr::{self, NonNull};
use std::rc::Rc;

/// What can be queued.
pub(crate) trait Linked {
    /// What is queued behind it.
    fn next(&self) -> &Link<Self>;
}

/// Where the next block is.
pub(crate) type Link<T> = Cell<*const T>;

pub(crate) struct Queue<T> {
    /// The block that has waited longest, if it is in the first list.
    first: Link<T>,
    /// The first block of the second list.
    pushed: Link<T>,
    /// The link of the last block of the second list; that list's own while it is empty.
    last: Cell<*const Link<T>>,
    /// How many fibers may still be taken in this round.
    left: Cell<usize>,
    /// How many might when it began.
    limit: Cell<usize>,
}

impl<T: Linked> Queue<T> {
    /// An empty queue. In an `Rc`, because `last` points into it: moving a `Box` would invalidate that
    /// pointer.
    pub(crate) fn new() -> Rc<Queue<T>> {
        let queue = Rc::new(Queue {
            first: Cell::new(ptr::null()),
            pushed: Cell::new(ptr::null()),
            last: Cell::new(ptr::null()),
            left: Cell::new(0),
            limit: Cell::new(0),
        });
        queue.last.set(&queue.pushed);
        queue
    }

    #[inline(always)]
    pub(crate) fn is_empty(&self) -> bool {
        self.first.get().is_null() && !self.has_pushed()
    }

    /// Whether the second list has any.
    #[inline(always)]
    fn has_pushed(&self) -> bool {
        !ptr::eq(self.last.get(), &self.pushed)
    }

    /// Adds a block at the end.
    ///
    /// # Safety
    /// The block is not queued, here or elsewhere, and stays in place as long as this queue is used.
    #[inline(always)]
    pub(crate) unsafe fn push(&self, block: &T) {
        // SAFETY: `last` is the link of this queue, which does not move (`new`), or that of a block that was
        // pushed, which stays in place, as its caller has promised.
        unsafe { (*self.last.get()).set(block) };
        self.last.set(block.next());
    }

    /// Begins a round, in which [`take`](Self::take) returns at most `limit` blocks.
    pub(crate) fn begin_round(&self, limit: usize) {
        self.left.set(limit);
        self.limit.set(limit);
    }

    /// Ends a round: no block is taken until the next begins.
    pub(crate) fn end_round(&self) {
        self.limit.set(self.taken());
        self.left.set(0);
    }

    /// How many blocks were taken in this round.
    pub(crate) fn taken(&self) -> usize {
        self.limit.get() - self.left.get()
    }

    /// Takes out the block that has waited longest, if the round is not over.
    #[inline(always)]
    pub(crate) fn take(&self) -> Option<NonNull<T>> {
        let first = match NonNull::new(self.first.get().cast_mut()) {
            Some(first) => first,
            None => {
                cold_path();
                self.begin_second_list()?
            }
        };
        let (left, is_over) = self.left.get().overflowing_sub(1);
        self.left.set(left);
        if is_over {
            cold_path();
            self.left.set(0);
            return None;
        }
        // SAFETY: a block of the first list, which stays in place, as the caller of `push` has promised.
        self.first.set(unsafe { first.as_ref() }.next().get());
        Some(first)
    }

    /// Makes the second list the first, which is empty, and returns its first block, if it has any.
    #[inline(always)]
    fn begin_second_list(&self) -> Option<NonNull<T>> {
        if !self.has_pushed() {
            return None;
        }
        // SAFETY: as in `push`.
        unsafe { (*self.last.get()).set(ptr::null()) };
        self.last.set(&self.pushed);
        let first = self.pushed.get();
        self.first.set(first);
        NonNull::new(first.cast_mut())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Numbered(usize, Link<Numbered>);

    impl Linked for Numbered {
        fn next(&self) -> &Link<Numbered> {
            &self.1
        }
    }

    fn blocks(count: usize) -> Vec<Numbered> {
        (0..count).map(|number| Numbered(number, Cell::new(ptr::null()))).collect()
    }

    fn push_all(queue: &Queue<Numbered>, blocks: &[Numbered]) {
        // SAFETY: the blocks of a test are pushed once before they are taken, and outlive its queue's use.
        blocks.iter().for_each(|block| unsafe { queue.push(block) });
    }

    fn take_all(queue: &Queue<Numbered>) -> Vec<usize> {
        // SAFETY: as in `push_all`.
        std::iter::from_fn(|| queue.take()).map(|block| unsafe { block.as_ref() }.0).collect()
    }

    #[test]
    fn keeps_the_order_whatever_is_pushed_meanwhile() {
        let (queue, blocks) = (Queue::new(), blocks(6));
        assert!(queue.is_empty());
        queue.begin_round(2);
        push_all(&queue, &blocks[..4]);
        assert_eq!(take_all(&queue), [0, 1]);
        push_all(&queue, &blocks[4..]);
        push_all(&queue, &blocks[..2]);
        assert_eq!((queue.taken(), queue.take()), (2, None));
        queue.begin_round(usize::MAX);
        assert_eq!((take_all(&queue), queue.taken()), (vec![2, 3, 4, 5, 0, 1], 6));
        assert!(queue.is_empty());
        push_all(&queue, &blocks[..1]);
        assert!(!queue.is_empty());
        assert_eq!(take_all(&queue), [0]);
    }

    #[test]
    fn a_round_that_has_ended_takes_none_and_keeps_its_count() {
        let (queue, blocks) = (Queue::new(), blocks(3));
        push_all(&queue, &blocks);
        assert_eq!(queue.take(), None, "no round has begun");
        queue.begin_round(3);
        assert!(queue.take().is_some());
        queue.end_round();
        assert_eq!((queue.taken(), queue.take()), (1, None));
        assert!(!queue.is_empty());
        queue.begin_round(1);
        assert_eq!((take_all(&queue), queue.taken()), (vec![1], 1));
    }
}
