//! [`Handles`]: short names of linked jams. Who has sent code once names it so from then on.
//!
//! ```text
//!   63    56 55               11   10    9          0
//!   | host  | number           | local | index       |
//!     of the sender, not part of the handle
//! ```
//!
//! The index is a place in the table of the receiver. The number is that of the linking and comes
//! only once, so that a handle of what was evicted since is found to be that, whatever is in its place.
//! A jam that is linked again because of new symbols keeps its handle. A Local Function has the index
//! of the program's table, and bits of its digest.
//!
//! A handle is checked as all that a peer sends: it finds the jam that has this very handle, or none.

use std::ptr;

use jam_format::Digest;
use parking_lot::Mutex;
use primitive::limits::HOSTS;
use primitive::sync::{AtomicPtr, Ordering};

use crate::link::Linked;

/// Jams that have handles at a time, at most; others are named by their digests.
const PLACES: usize = 1 << LOCAL_BIT;
const LOCAL_BIT: u32 = 10;
const NUMBER_SHIFT: u32 = LOCAL_BIT + 1;
const HOST_SHIFT: u32 = 56;
const HANDLE_MASK: u64 = (1 << HOST_SHIFT) - 1;
/// The largest number. 2^45 linkings of two microseconds take two years; then there are no new handles.
const MAX_NUMBER: u64 = HANDLE_MASK >> NUMBER_SHIFT;

const _: () = assert!(HOSTS <= 1 << (64 - HOST_SHIFT));

/// What has which handle, at one receiver.
pub(crate) struct Handles {
    places: Box<[AtomicPtr<Linked>; PLACES]>,
    free: Mutex<Free>,
}

struct Free {
    places: Vec<usize>,
    /// The number of the next linking.
    number: u64,
}

impl Handles {
    pub(crate) fn new() -> Self {
        let places = Box::new(std::array::from_fn(|_| AtomicPtr::new(ptr::null_mut())));
        // The last one is taken first.
        let free = Free { places: (0..PLACES).rev().collect(), number: 1 };
        Self { places, free: Mutex::new(free) }
    }

    /// What is in the place that the handle names: perhaps another jam, or null.
    #[inline(always)]
    pub(crate) fn find(&self, handle: u64) -> *mut Linked {
        self.place(handle).load(Ordering::Acquire)
    }

    /// The place that the handle names.
    #[inline(always)]
    pub(crate) fn place(&self, handle: u64) -> &AtomicPtr<Linked> {
        &self.places[handle as usize % PLACES]
    }

    /// A handle: `before`, if that is one and its place is free. 0 if there is none left.
    pub(crate) fn take(&self, before: u64) -> u64 {
        let mut free = self.free.lock();
        let place = before as usize % PLACES;
        if before != 0
            && let Some(at) = free.places.iter().rposition(|free| *free == place)
        {
            free.places.remove(at);
            return before;
        }
        if free.number > MAX_NUMBER {
            return 0;
        }
        let Some(place) = free.places.pop() else { return 0 };
        let handle = free.number << NUMBER_SHIFT | place as u64;
        free.number += 1;
        handle
    }

    /// Has the handle find a jam that has it.
    pub(crate) fn set(&self, handle: u64, linked: *mut Linked) {
        if handle != 0 {
            self.places[handle as usize % PLACES].store(linked, Ordering::Release);
        }
    }

    /// Gives a handle up: it finds nothing from now on.
    pub(crate) fn free(&self, handle: u64) {
        if handle != 0 {
            let place = handle as usize % PLACES;
            self.places[place].store(ptr::null_mut(), Ordering::Release);
            self.free.lock().places.push(place);
        }
    }
}

/// Whether the handle is of a Local Function.
#[inline(always)]
pub(crate) fn is_local(handle: u64) -> bool {
    handle & 1 << LOCAL_BIT != 0
}

/// The handle of the Local Function at `place` of the program's table; 0 if it has none.
#[inline(always)]
pub(crate) fn of_local(place: usize, digest: &Digest) -> u64 {
    if place >= PLACES {
        return 0;
    }
    let number = u128::from_le_bytes(*digest.as_bytes()) as u64 & MAX_NUMBER;
    number << NUMBER_SHIFT | 1 << LOCAL_BIT | place as u64
}

/// The place of a Local Function with this handle.
#[inline(always)]
pub(crate) fn local_place(handle: u64) -> usize {
    handle as usize % PLACES
}

/// A handle beside the number of the sending host, as calls carry it.
pub(crate) fn word(handle: u64, host: u32) -> u64 {
    handle | u64::from(host) << HOST_SHIFT
}

/// The handle and the number of the host in a word.
#[inline(always)]
pub(crate) fn of_word(word: u64) -> (u64, u32) {
    (word & HANDLE_MASK, (word >> HOST_SHIFT) as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_handle_comes_twice_unless_it_is_asked_for() {
        let handles = Handles::new();
        let all: Vec<u64> = (0..PLACES).map(|_| handles.take(0)).collect();
        assert!(all.iter().all(|handle| *handle != 0 && !is_local(*handle)));
        assert_eq!(handles.take(0), 0, "all places are taken");
        handles.free(all[3]);
        handles.free(all[5]);
        assert_eq!(handles.take(all[3]), all[3], "it is linked again");
        let other = handles.take(0);
        assert_ne!(other, all[5]);
        assert_eq!(other as usize % PLACES, all[5] as usize % PLACES);
        handles.free(other);
        assert_ne!(handles.take(all[3]), all[3], "its place is another's");
    }

    #[test]
    fn numbers_are_not_used_again() {
        let handles = Handles::new();
        handles.free.lock().number = MAX_NUMBER;
        let last = handles.take(0);
        assert_eq!(of_word(word(last, 255)), (last, 255));
        assert_eq!(handles.take(0), 0);
        handles.free(last);
        assert_eq!(handles.take(0), 0, "there is room, but no number");
    }

    #[test]
    fn handles_of_local_functions_are_of_one_function() {
        let (one, other) = (Digest::of(b"one"), Digest::of(b"other"));
        let handle = of_local(7, &one);
        assert!(is_local(handle) && local_place(handle) == 7);
        assert_ne!(handle, of_local(7, &other));
        assert_eq!(of_local(PLACES, &one), 0);
        assert_eq!(of_word(word(handle, 3)), (handle, 3));
    }
}
