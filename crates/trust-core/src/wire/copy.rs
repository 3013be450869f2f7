//! Copies of a payload, out of the reach of the peer that wrote it.

use std::cell::Cell;

use primitive::SharedBytes;

thread_local! {
    /// Memory for the payload that is being read, so that none allocates. It grows up to the size of a
    /// slot; what is read inside another payload's reading finds it taken, and allocates.
    static ROOM: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// Payloads and encoded values of up to this many bytes stay on the stack.
pub(crate) const STACK_BYTES: usize = 128;

/// Hands `len` bytes from byte `at` of `buffer` to `read`, after copying them out of the peer's
/// reach.
#[inline(always)]
pub(crate) fn copied_out<R>(
    buffer: &SharedBytes,
    at: usize,
    len: usize,
    read: impl FnOnce(&[u8]) -> R,
) -> R {
    if len <= STACK_BYTES {
        let mut bytes = [0; STACK_BYTES];
        buffer.read_into(at, &mut bytes[..len]);
        read(&bytes[..len])
    } else {
        let room = copy_of(buffer, at, len);
        let result = read(&room[..len]);
        keep(room);
        result
    }
}

/// The thread's room, with a copy in front.
#[cfg_attr(optimised, inline)]
fn copy_of(buffer: &SharedBytes, at: usize, len: usize) -> Vec<u8> {
    let mut room = ROOM.try_with(Cell::take).unwrap_or_default();
    if room.len() < len {
        room.resize(len.next_power_of_two(), 0);
    }
    buffer.read_into(at, &mut room[..len]);
    room
}

/// Puts the thread's room back.
#[cfg_attr(optimised, inline)]
fn keep(room: Vec<u8>) {
    // The thread ends: so does its room.
    let _ = ROOM.try_with(|place| place.set(room));
}
