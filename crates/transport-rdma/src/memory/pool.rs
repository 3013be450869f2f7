//! [`Memory`]: the memory that a process registers, cut from few large blocks of huge pages.
//!
//! ```text
//!   block (whole huge pages)
//!   | sleep flags | staging memory of all lanes | region | region |   | region |    ...free... |
//! ```
//!
//! Each region has a registration of its own, of exactly its bytes. A piece is never reused, so that
//! memory is always zeroed; a block is unmapped when all its pieces are dropped.

use std::io;
use std::sync::{Mutex, PoisonError};

use primitive::SharedBytes;

use crate::memory::pages;

/// Alignment of pieces: two cache lines, which processors fetch together.
const ALIGN: usize = 128;

/// Memory to register.
#[derive(Default)]
pub(crate) struct Memory {
    /// The rest of the block that pieces are cut from.
    left: Mutex<Option<SharedBytes>>,
}

impl Memory {
    /// Bytes that a piece of `len` bytes takes up.
    pub(crate) fn taken_by(len: usize) -> Option<usize> {
        len.max(1).checked_next_multiple_of(ALIGN)
    }

    /// A zeroed piece of `len` bytes that overlaps no other.
    ///
    /// # Errors
    /// The error of the system if it has no memory.
    pub(crate) fn take(&self, len: usize) -> io::Result<SharedBytes> {
        let taken = Self::taken_by(len).ok_or(io::ErrorKind::OutOfMemory)?;
        let mut left = self.left.lock().unwrap_or_else(PoisonError::into_inner);
        let block = match left.take() {
            Some(block) if block.len() >= taken => block,
            other => {
                *left = other;
                let (block, pages) = pages::map(taken)?;
                tracing::debug!(bytes = block.len(), %pages, "mapped memory for RDMA devices");
                block
            }
        };
        let rest = block.slice(taken, block.len() - taken);
        // The largest rest serves longest.
        if left.as_ref().is_none_or(|other| other.len() < rest.len()) {
            *left = Some(rest);
        }
        Ok(block.slice(0, len))
    }
}

#[cfg(test)]
mod tests {
    use primitive::sync::Ordering;

    use super::*;
    use crate::memory::pages::HUGE;

    #[test]
    fn small_pieces_are_cut_from_one_block_and_do_not_overlap() {
        let memory = Memory::default();
        let pieces: Vec<_> = [1, 8, 129, 4096].map(|len| memory.take(len).unwrap()).into();
        let starts = [0, 128, 256, 512];
        for (piece, start) in pieces.iter().zip(starts) {
            assert!(pieces[0].begins_at(start, piece), "{piece:?}");
        }
        assert_eq!(pieces.iter().map(SharedBytes::len).collect::<Vec<_>>(), [1, 8, 129, 4096]);
        assert_eq!(memory.take(0).unwrap().len(), 0);
    }

    #[test]
    fn a_large_piece_has_a_block_and_small_ones_go_on_in_the_largest_rest() {
        let memory = Memory::default();
        let small = memory.take(HUGE / 2).unwrap();
        let large = memory.take(3 * HUGE - 128).unwrap();
        large.store(3 * HUGE - 136, 1, Ordering::Relaxed);
        assert!(small.begins_at(HUGE / 2, &memory.take(8).unwrap()), "the rest was larger");
        let next = memory.take(HUGE / 2).unwrap();
        assert_eq!(next.load(0, Ordering::Relaxed), 0);
        assert!(next.begins_at(HUGE / 2, &memory.take(8).unwrap()), "a new block");
        assert!(memory.take(usize::MAX).is_err());
    }
}
