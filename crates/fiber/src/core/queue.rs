//! The run queue: a ring of pointers to control blocks, first in, first out.
//!
//! It has room for every block of the thread, and a block is queued at most once (see `block.rs`),
//! so `push` never has to ask whether there is room.

use std::cell::{Cell, UnsafeCell};
use std::ptr::NonNull;

pub(crate) struct Queue<T> {
    /// A power of two of entries; those from `head` to `tail`, modulo the length, are queued.
    ring: UnsafeCell<Box<[*const T]>>,
    /// The length less one.
    mask: Cell<usize>,
    head: Cell<usize>,
    tail: Cell<usize>,
}

impl<T> Queue<T> {
    pub(crate) fn new() -> Queue<T> {
        let ring = vec![std::ptr::null::<T>(); 64].into_boxed_slice();
        Queue {
            mask: Cell::new(ring.len() - 1),
            ring: UnsafeCell::new(ring),
            head: Cell::new(0),
            tail: Cell::new(0),
        }
    }

    #[inline(always)]
    pub(crate) fn is_empty(&self) -> bool {
        self.head.get() == self.tail.get()
    }

    /// Adds a block of the queue's own scheduler, which is not queued, at the end. The core
    /// has made room for the block with `reserve`.
    #[inline(always)]
    pub(crate) fn push(&self, block: &T) {
        let tail = self.tail.get();
        debug_assert!(tail.wrapping_sub(self.head.get()) <= self.mask.get(), "no room was made");
        // SAFETY: the cell is touched by this thread alone, in these methods, none of which calls
        // out; the masked index is below the length, a power of two, of which the mask is one less.
        unsafe {
            let ring = &mut *self.ring.get();
            *ring.get_unchecked_mut(tail & self.mask.get()) = block;
        }
        self.tail.set(tail.wrapping_add(1));
    }

    /// The block that has waited longest. It stays first whatever is pushed.
    #[inline(always)]
    pub(crate) fn first(&self) -> Option<NonNull<T>> {
        if self.is_empty() {
            return None;
        }
        // SAFETY: only this thread touches the cell, and no method calls out, as in `push`; the
        // mask is the length less one.
        let block = unsafe {
            let ring = &*self.ring.get();
            *ring.get_unchecked(self.head.get() & self.mask.get())
        };
        NonNull::new(block.cast_mut())
    }

    /// The position of the first block. Blocks keep theirs, and it grows by one from each to the
    /// next.
    #[inline(always)]
    pub(crate) fn position(&self) -> usize {
        self.head.get()
    }

    /// Takes out what `first` returned. The queue is not empty.
    #[inline(always)]
    pub(crate) fn remove_first(&self) {
        debug_assert!(!self.is_empty(), "nothing to remove");
        self.head.set(self.head.get().wrapping_add(1));
    }

    /// Makes room for `blocks` entries.
    #[cold]
    pub(crate) fn reserve(&self, blocks: usize) {
        // SAFETY: only this thread touches the cell, and no method calls out, as in `push`.
        let ring = unsafe { &mut *self.ring.get() };
        if blocks <= ring.len() {
            return;
        }
        let mut larger = vec![std::ptr::null(); blocks.next_power_of_two()].into_boxed_slice();
        let mut position = self.head.get();
        while position != self.tail.get() {
            larger[position & (larger.len() - 1)] = ring[position & (ring.len() - 1)];
            position = position.wrapping_add(1);
        }
        self.mask.set(larger.len() - 1);
        *ring = larger;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::block::Block;

    fn pop(queue: &Queue<Block>) -> Option<NonNull<Block>> {
        let first = queue.first()?;
        queue.remove_first();
        Some(first)
    }

    #[test]
    fn keeps_the_order_while_it_wraps_and_grows() {
        let blocks: Vec<Block> =
            (0..300).map(|index| Block::new(index, std::ptr::null())).collect();
        let queue = Queue::new();
        for block in &blocks[..50] {
            queue.push(block);
        }
        for block in &blocks[..40] {
            assert_eq!(pop(&queue), Some(NonNull::from(block)));
        }
        for block in &blocks[50..90] {
            queue.push(block);
        }
        queue.reserve(300);
        for block in &blocks[90..] {
            queue.push(block);
        }
        for block in &blocks[40..] {
            assert_eq!(pop(&queue), Some(NonNull::from(block)));
        }
        assert!(queue.is_empty());
        assert_eq!(pop(&queue), None);
    }
}
