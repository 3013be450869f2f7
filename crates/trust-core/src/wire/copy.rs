//! Copies of a payload, out of the reach of the peer that wrote it.

use primitive::SharedBytes;

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
        let mut bytes = vec![0; len];
        buffer.read_into(at, &mut bytes);
        read(&bytes)
    }
}
