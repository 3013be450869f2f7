//! The parts of the program that need no process of their own: the functions that jams import.

use std::ffi::{c_int, c_void};
use std::mem::transmute;
use std::ptr;

use super::*;
use crate::layout::UNIT;

#[test]
fn the_program_fits_its_place() {
    assert!(CODE_AT + code().len() <= INITIAL_AT, "{} bytes", code().len());
    let labels = labels();
    let all = [labels.ended, labels.waited, labels.exited, labels.handler, labels.strlen];
    for label in all {
        assert!((STUB + CODE_AT as u64..TABLE).contains(&label));
    }
}

/// A copy of the program that can run here; its functions use no address.
struct Copy(*mut u8);

impl Copy {
    fn new() -> Self {
        let (access, flags) =
            (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        // SAFETY: fresh memory, longer than the program, which is written before it is executable.
        unsafe {
            let memory = libc::mmap(ptr::null_mut(), UNIT, access, flags, -1, 0);
            assert_ne!(memory, libc::MAP_FAILED);
            ptr::copy_nonoverlapping(code().as_ptr(), memory.cast(), code().len());
            assert_eq!(libc::mprotect(memory, UNIT, libc::PROT_READ | libc::PROT_EXEC), 0);
            Copy(memory.cast())
        }
    }

    fn at(&self, label: u64) -> *const u8 {
        self.0.wrapping_add((label - STUB) as usize - CODE_AT)
    }
}

impl Drop for Copy {
    fn drop(&mut self) {
        // SAFETY: mapped by `new` with this length; nothing of it runs any more.
        unsafe { libc::munmap(self.0.cast(), UNIT) };
    }
}

type CopyFn = unsafe extern "C" fn(*mut c_void, *const c_void, usize) -> *mut c_void;
type SetFn = unsafe extern "C" fn(*mut c_void, c_int, usize) -> *mut c_void;
type CompareFn = unsafe extern "C" fn(*const c_void, *const c_void, usize) -> c_int;
type LengthFn = unsafe extern "C" fn(*const c_void) -> usize;

const LENGTHS: [usize; 8] = [0, 1, 7, 8, 9, 64, 100, 1000];

#[test]
fn memory_is_copied_and_filled() {
    let (program, labels) = (Copy::new(), labels());
    let from: Vec<u8> = (0..1000).map(|i| (i * 7 + 1) as u8).collect();
    for len in LENGTHS {
        for label in [labels.memcpy, labels.memmove] {
            // SAFETY: a function of these types.
            let copy = unsafe { transmute::<*const u8, CopyFn>(program.at(label)) };
            let mut to = vec![0_u8; 1002];
            // SAFETY: both are as long.
            let end = unsafe { copy(to[1..].as_mut_ptr().cast(), from.as_ptr().cast(), len) };
            assert_eq!(end, to[1..].as_mut_ptr().cast());
            assert_eq!((&to[1..=len], to[0], to[len + 1]), (&from[..len], 0, 0), "{len}");
        }
        // SAFETY: a function of these types.
        let set = unsafe { transmute::<*const u8, SetFn>(program.at(labels.memset)) };
        let mut to = vec![1_u8; 1002];
        // SAFETY: it is as long.
        let end = unsafe { set(to[1..].as_mut_ptr().cast(), 0x1a5, len) };
        assert_eq!(end, to[1..].as_mut_ptr().cast());
        assert!(to[1..=len].iter().all(|byte| *byte == 0xa5) && to[0] == 1 && to[len + 1] == 1);
    }
}

#[test]
fn memory_is_moved_to_where_it_overlaps() {
    let (program, labels) = (Copy::new(), labels());
    // SAFETY: a function of these types.
    let memmove = unsafe { transmute::<*const u8, CopyFn>(program.at(labels.memmove)) };
    for len in LENGTHS {
        for (to, from) in [(0, 3), (3, 0), (5, 5), (0, 900), (900, 0)] {
            let mut found: Vec<u8> = (0..2000).map(|i| (i % 251) as u8).collect();
            let mut expected = found.clone();
            expected.copy_within(from..from + len, to);
            let base = found.as_mut_ptr();
            // SAFETY: inside the vector.
            unsafe { memmove(base.add(to).cast(), base.add(from).cast(), len) };
            assert_eq!(found, expected, "{len} bytes from {from} to {to}");
        }
    }
}

#[test]
fn memory_is_compared_and_text_is_measured() {
    let (program, labels) = (Copy::new(), labels());
    // SAFETY: functions of these types.
    let (compare, length) = unsafe {
        let compare = transmute::<*const u8, CompareFn>(program.at(labels.memcmp));
        (compare, transmute::<*const u8, LengthFn>(program.at(labels.strlen)))
    };
    for len in LENGTHS {
        let left = vec![0x80_u8; len];
        let mut right = left.clone();
        let mut said = |at: usize, byte| {
            right[at] = byte;
            // SAFETY: both are as long.
            let said = unsafe { compare(left.as_ptr().cast(), right.as_ptr().cast(), len) };
            right[at] = 0x80;
            said.signum()
        };
        if let Some(last) = len.checked_sub(1) {
            assert_eq!([said(last, 0x80), said(last, 0x7f), said(0, 0xff)], [0, 1, -1], "{len}");
        }
        let mut text = left.clone();
        text.extend([0, 1]);
        // SAFETY: it has a zero.
        assert_eq!(unsafe { length(text.as_ptr().cast()) }, len);
    }
}
