//! How the arguments of [plain calls](trust_core::PlainCall) lie after their word.
//!
//! ```text
//!   without a payload   | arguments |
//!   with one            | its length, 0 | arguments, to a multiple of 16 | payload |
//!   with code           | lengths of payload and code | digest | arguments, to a multiple of 16
//!                       | payload, to a multiple of 8 | code |
//! ```

use std::mem::MaybeUninit;

use jam_abi::code;
use jam_abi::entry::Part;

use crate::error::Refusal;
use crate::plain_bytes::Value;
use crate::receiver::Failure;

/// What is in front of a payload: `M` is what only some calls have. It has padding, so it is zeroed, and
/// written through pointers only.
#[repr(C, align(16))]
struct Front<M, A> {
    payload_len: u64,
    code_len: u64,
    more: M,
    args: A,
}

/// Hands the front of a call to `send`.
#[inline(always)]
pub(super) fn with_front<M: Part, A: Part, R>(
    payload_len: usize,
    code_len: usize,
    more: M,
    args: A,
    send: impl FnOnce(&[u8]) -> R,
) -> R {
    let mut front = MaybeUninit::<Front<M, A>>::uninit();
    let place = front.as_mut_ptr();
    // Receivers look there.
    const {
        assert!(std::mem::offset_of!(Front<M, A>, more) == 16);
        assert!(std::mem::offset_of!(Front<M, A>, args) == 16 + M::BYTES);
    }
    let (more, args) = (Value::new(more), Value::new(args));
    // SAFETY: inside the place; a part has no padding.
    unsafe {
        place.write_bytes(0, 1);
        (&raw mut (*place).payload_len).write(payload_len as u64);
        (&raw mut (*place).code_len).write(code_len as u64);
        let to = (&raw mut (*place).more).cast::<u8>();
        std::ptr::copy_nonoverlapping(more.as_ptr(), to, M::BYTES);
        let to = (&raw mut (*place).args).cast::<u8>();
        std::ptr::copy_nonoverlapping(args.as_ptr(), to, A::BYTES);
    }
    #[allow(clippy::disallowed_methods, reason = "a value of this thread")]
    // SAFETY: all bytes were zeroed, and only bytes have been written over them since.
    send(unsafe { std::slice::from_raw_parts(place.cast::<u8>(), size_of::<Front<M, A>>()) })
}

/// The parts of a call that has a front.
pub(super) struct CallParts<'b, M: Part> {
    pub(super) more: Value<M>,
    /// As many bytes as the arguments have.
    pub(super) args: &'b [u8],
    pub(super) payload: &'b [u8],
    code_len: u64,
    /// What follows the payload.
    rest: &'b [u8],
}

impl<'b, M: Part> CallParts<'b, M> {
    /// Takes a call apart whose bytes a peer has chosen.
    #[inline(always)]
    pub(super) fn of<A: Part>(bytes: &'b [u8]) -> Result<Self, Box<Failure>> {
        let Some((front, rest)) = bytes.split_at_checked(size_of::<Front<M, A>>()) else {
            return Err(too_short(code::ARGS_LENGTH));
        };
        let (lens, parts) = front.split_at(16);
        let (more, args) = parts.split_at(M::BYTES);
        let len_at = |at: usize| lens[at..].first_chunk().map_or(0, |len| u64::from_le_bytes(*len));
        let payload_len = usize::try_from(len_at(0)).ok().filter(|len| *len <= rest.len());
        match (Value::of_bytes(more), payload_len) {
            (Some(more), Some(len)) => {
                let (payload, rest) = rest.split_at(len);
                let args = &args[..A::BYTES];
                Ok(CallParts { more, args, payload, code_len: len_at(8), rest })
            }
            _ => Err(too_short(code::PAYLOAD_LENGTH)),
        }
    }

    /// The code that the call carries.
    #[inline(always)]
    pub(super) fn code(&self) -> Result<&'b [u8], Box<Failure>> {
        let padding = self.payload.len().next_multiple_of(8) - self.payload.len();
        let len = usize::try_from(self.code_len).ok();
        let code = self.rest.get(padding..).and_then(|code| code.get(..len?));
        code.ok_or_else(|| {
            let (rest, wanted) = (self.rest.len(), self.code_len);
            let reason = format!("the call has {rest} bytes of {wanted} of code");
            Box::new(Refusal::Malformed { reason }.into())
        })
    }
}

#[cold]
pub(super) fn too_short(code: u32) -> Box<Failure> {
    Box::new(Refusal::Entry { code }.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A call of these parts as it arrives.
    fn call(payload: &[u8], code: &[u8]) -> Vec<u8> {
        with_front(payload.len(), code.len(), [7_u8; 16], [3_u32, 4, 5], |front| {
            let mut bytes = front.to_vec();
            bytes.extend(payload);
            bytes.resize(bytes.len().next_multiple_of(8), 0);
            bytes.extend(code);
            bytes
        })
    }

    #[test]
    fn the_parts_of_a_call_come_back() {
        for (payload, code) in [(0, 0), (0, 9), (1, 9), (8, 1), (15, 0), (16, 700)] {
            let (payload, code) = (vec![1; payload], vec![2; code]);
            let bytes = call(&payload, &code);
            let call = CallParts::<[u8; 16]>::of::<[u32; 3]>(&bytes).unwrap();
            assert_eq!((call.more.get(), call.payload), ([7; 16], &payload[..]));
            assert_eq!(Value::<[u32; 3]>::of_bytes(call.args).unwrap().get(), [3, 4, 5]);
            assert_eq!(call.code().unwrap(), code);
        }
    }

    #[test]
    fn lengths_beyond_the_bytes_are_refused() {
        let whole = call(&[1; 20], &[2; 30]);
        let part = |len: usize| {
            let call = CallParts::<[u8; 16]>::of::<[u32; 3]>(&whole[..len])?;
            call.code().map(<[u8]>::len)
        };
        for len in 0..whole.len() {
            assert!(part(len).is_err(), "{len}");
        }
        assert_eq!(part(whole.len()), Ok(30));
        for at in [0, 8] {
            for len in [51, 1 << 40, u64::MAX - 7, u64::MAX] {
                let mut bytes = whole.clone();
                bytes[at..at + 8].copy_from_slice(&u64::to_le_bytes(len));
                let call = CallParts::<[u8; 16]>::of::<[u32; 3]>(&bytes);
                assert!(call.and_then(|call| call.code().map(|_| ())).is_err(), "{at} {len}");
            }
        }
    }
}
