//! What a generated entry does: it checks the lengths of a call, calls the author's function, and
//! stores its result.

use core::marker::PhantomData;

use crate::signature::{self, UNIT};
use crate::{Abi, Call, Context, Plain, Property, code};

/// The arguments, the payload's element or the result of a jam: a plain type, or `()` for none.
///
/// # Safety
/// Every [`BYTES`](Self::BYTES) bytes, suitably aligned, are a value.
pub unsafe trait Part: Copy + 'static {
    /// The hash of the type.
    const SIGNATURE: u64;
    /// Its size in bytes.
    const BYTES: usize = size_of::<Self>();
}

// SAFETY: every bit pattern of a plain type is a value.
unsafe impl<T: Plain> Part for T {
    const SIGNATURE: u64 = T::SIGNATURE;
}

// SAFETY: no bytes are its value.
unsafe impl Part for () {
    const SIGNATURE: u64 = UNIT;
}

/// The property of a jam: `&T` or `&mut T`, where [`property!`](crate::property) declares `T`, or `()`
/// for none.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not the property of a jam",
    label = "expected `&T` or `&mut T` of a type that `jam::property!` declares, or `()`",
    note = "use the type of the jam's own source, such as `jams::NAME::Type`, or declare one of the same \
            name: `jam::property! {{ struct Type = \"crate.Type@1\"; }}`"
)]
pub trait PropertyPart {
    /// The hash of the type.
    const SIGNATURE: u64;
    /// The name of the property's type; empty for none.
    const NAME: &'static str;
}

impl PropertyPart for () {
    const SIGNATURE: u64 = UNIT;
    const NAME: &'static str = "";
}

impl<T: Property> PropertyPart for &T {
    const SIGNATURE: u64 = <Self as Abi>::SIGNATURE;
    const NAME: &'static str = T::NAME;
}

impl<T: Property> PropertyPart for &mut T {
    const SIGNATURE: u64 = <Self as Abi>::SIGNATURE;
    const NAME: &'static str = T::NAME;
}

/// The types of a jam: its property, arguments, element of the payload, and result.
#[derive(Debug)]
pub struct Types<P, A, E, R>(PhantomData<fn(P, A, E) -> R>);

impl<P: PropertyPart, A: Part, E: Part, R: Part> Types<P, A, E, R> {
    /// The signature of the entry.
    pub const SIGNATURE: u64 =
        signature::of_entry(P::SIGNATURE, A::SIGNATURE, E::SIGNATURE, R::SIGNATURE);

    /// The name of the property's type; empty for none.
    pub const PROPERTY: &'static str = P::NAME;

    /// The length of [`record`](Self::record), in bytes.
    pub const RECORD_BYTES: usize = 8 + 3 * 4 + P::NAME.len();

    /// What an object says about its entry: signature (u64), sizes of arguments, element and result
    /// (u32 each), name of the property. Little-endian, without gaps.
    ///
    /// # Panics
    /// If `N` is not [`RECORD_BYTES`](Self::RECORD_BYTES).
    pub const fn record<const N: usize>() -> [u8; N] {
        assert!(N == Self::RECORD_BYTES);
        let mut bytes = [0; N];
        let mut at = 0;
        let sizes = [A::BYTES as u32, E::BYTES as u32, R::BYTES as u32];
        let signature = Self::SIGNATURE.to_le_bytes();
        while at < N {
            bytes[at] = match at {
                0..8 => signature[at],
                8..20 => sizes[(at - 8) / 4].to_le_bytes()[at % 4],
                _ => P::NAME.as_bytes()[at - 20],
            };
            at += 1;
        }
        bytes
    }

    /// Checks the lengths of `call`; as often as it says, calls `function` with context, property,
    /// arguments and payload, and stores the result; returns a [`code`].
    ///
    /// # Safety
    /// `call` is as [`Call`] says, with a property of the type that is named [`PROPERTY`](Self::PROPERTY).
    #[inline(always)]
    pub unsafe fn enter(
        call: *mut Call,
        function: impl Fn(Context<'_>, *mut u8, A, &[E]) -> R,
    ) -> u32 {
        // SAFETY: it is a call, as the caller promises, and only this jam has it.
        let &Call { args, reply, .. } = unsafe { &*call };
        // SAFETY: as the caller promises.
        if let Err(code) = unsafe { Self::check(call) } {
            return code;
        }
        let (mut at, mut done) = (0_usize, 0);
        loop {
            // SAFETY: the lengths have been checked; there are arguments and a place for the result, as the
            // caller promises, of the first `count` calls. What the receiver reads after a panic is
            // written, and in memory, before the next call. Count and step are read in each round: a jam
            // that calls functions of the receiver has registers for little more than the rest.
            unsafe {
                one::<A, E, R>(&function, call, args.wrapping_add(at), reply.wrapping_add(at));
                done += 1;
                (&raw mut (*call).done).write_volatile(done);
                if done >= (&raw const (*call).count).read_volatile() {
                    break;
                }
                at = at.wrapping_add((&raw const (*call).step).read_volatile());
            }
            // A compiler that unrolls the loop would copy the function, and code is to be short.
            #[cfg(jam_injected)]
            // SAFETY: there are no instructions.
            unsafe {
                core::arch::asm!("", options(nomem, nostack, preserves_flags));
            }
        }
        // SAFETY: it is a call, as the caller promises.
        unsafe { (*call).reply_len = R::BYTES };
        code::DONE
    }

    /// As [`enter`](Self::enter), with less code: `function` is not part of the loop, which keeps nothing but
    /// `call`. What a compiler takes out of the loop of the other form, such as the address of an import, has
    /// no line of the source: errors of a build, which name lines, are found in this one.
    ///
    /// # Safety
    /// As for [`enter`](Self::enter).
    #[inline(always)]
    pub unsafe fn enter_apart(
        call: *mut Call,
        function: impl Fn(Context<'_>, *mut u8, A, &[E]) -> R,
    ) -> u32 {
        // SAFETY: as the caller promises.
        if let Err(code) = unsafe { Self::check(call) } {
            return code;
        }
        loop {
            // SAFETY: as in `enter`.
            unsafe {
                one_apart::<A, E, R>(&function, call);
                let done = (*call).done + 1;
                (&raw mut (*call).done).write_volatile(done);
                if done >= (*call).count {
                    break;
                }
                (*call).args = (*call).args.wrapping_add((*call).step);
                (*call).reply = (*call).reply.wrapping_add((*call).step);
            }
        }
        // SAFETY: it is a call, as the caller promises.
        unsafe { (*call).reply_len = R::BYTES };
        code::DONE
    }

    /// Checks the lengths of a call.
    ///
    /// # Safety
    /// As for [`enter`](Self::enter).
    #[inline(always)]
    unsafe fn check(call: *const Call) -> Result<(), u32> {
        // SAFETY: it is a call, as the caller promises, and only this jam has it.
        let &Call { args_len, payload_len, reply_capacity, .. } = unsafe { &*call };
        if args_len != A::BYTES {
            return Err(code::ARGS_LENGTH);
        }
        let is_whole =
            if E::BYTES == 0 { payload_len == 0 } else { payload_len.is_multiple_of(E::BYTES) };
        if !is_whole {
            return Err(code::PAYLOAD_LENGTH);
        }
        if reply_capacity < R::BYTES {
            return Err(code::REPLY_CAPACITY);
        }
        Ok(())
    }
}

/// Makes a call of a run, whose arguments are at `args`, and whose result goes to `reply`.
///
/// # Safety
/// As for [`Types::enter`], and its lengths are those of the types.
#[inline(always)]
unsafe fn one<A: Part, E: Part, R: Part>(
    function: &impl Fn(Context<'_>, *mut u8, A, &[E]) -> R,
    call: *mut Call,
    args: *const u8,
    reply: *mut u8,
) {
    // SAFETY: it is a call, as the caller promises.
    let &Call { property, payload, payload_len, context, .. } = unsafe { &*call };
    let elements = payload_len.checked_div(E::BYTES).unwrap_or(0);
    #[allow(clippy::disallowed_methods, reason = "the receiver gives the payload to this jam only")]
    // SAFETY: every bit pattern is a value, the pointers are aligned and valid for the call, as the caller
    // promises. Others may write the arguments: they are read once.
    unsafe {
        let payload = core::slice::from_raw_parts(payload.cast::<E>(), elements);
        let args = args.cast::<A>().read_volatile();
        let result = function(Context::new(&*context), property, args, payload);
        reply.cast::<R>().write_volatile(result);
    }
}

/// As [`one`], as a function of its own: of the call that is next in `call`.
///
/// # Safety
/// As for [`one`].
#[inline(never)]
unsafe fn one_apart<A: Part, E: Part, R: Part>(
    function: &impl Fn(Context<'_>, *mut u8, A, &[E]) -> R,
    call: *mut Call,
) {
    // SAFETY: it is a call, as the caller promises.
    let &Call { args, reply, .. } = unsafe { &*call };
    // SAFETY: as the caller promises.
    unsafe { one::<A, E, R>(function, call, args, reply) }
}

#[cfg(test)]
mod tests {
    use core::ptr::{null, null_mut};

    use super::*;
    use crate::{ContextData, Pointee};

    crate::property! {
        struct Table = "t@1";
    }

    type Sum = Types<&'static Table, u32, u16, i64>;

    /// # Safety
    /// None is needed: it does nothing.
    unsafe extern "C" fn log(_: *const ContextData, _: *const u8, _: usize) {}

    /// Calls a sum of the arguments and the payload, with these lengths.
    fn enter(args_len: usize, payload_len: usize, reply_capacity: usize) -> (u32, usize, i64) {
        let (args, payload, mut reply) = ([5_u32; 4], [1_u16, 2, 3, 4], [0_i64; 2]);
        let context = ContextData { sender: 9, reserved: 0, log, receiver: null_mut() };
        let mut call = Call {
            property: null_mut(),
            args: args.as_ptr().cast(),
            args_len,
            payload: payload.as_ptr().cast(),
            payload_len,
            reply: reply.as_mut_ptr().cast(),
            reply_capacity,
            reply_len: 0,
            context: &context,
            count: 1,
            done: 0,
            step: 0,
        };
        let sum = |context: Context<'_>, _: *mut u8, args: u32, payload: &[u16]| {
            let payload: i64 = payload.iter().map(|value| i64::from(*value)).sum();
            i64::from(context.sender()) + i64::from(args) + payload
        };
        // SAFETY: its pointers are valid, and it does not use the property.
        let code = unsafe { Sum::enter(&mut call, sum) };
        (code, call.reply_len, reply[0])
    }

    #[test]
    fn lengths_are_checked_and_the_result_is_stored() {
        assert_eq!(enter(4, 6, 8), (code::DONE, 8, 9 + 5 + 6));
        assert_eq!(enter(4, 0, 16), (code::DONE, 8, 9 + 5));
        assert_eq!(enter(5, 6, 8), (code::ARGS_LENGTH, 0, 0));
        assert_eq!(enter(4, 5, 8), (code::PAYLOAD_LENGTH, 0, 0));
        assert_eq!(enter(4, 6, 7), (code::REPLY_CAPACITY, 0, 0));
    }

    #[test]
    fn a_run_reads_each_of_the_arguments_once() {
        [false, true].into_iter().for_each(run_that_is_written_to);
    }

    /// A run in one form of the entry, whose arguments change during its calls.
    fn run_that_is_written_to(is_apart: bool) {
        // Results lie in front of arguments, and the last one is not of the run.
        let mut room: [i64; 8] = [-1, 7, -1, 8, -1, 9, -1, 10];
        let context = ContextData { sender: 9, reserved: 0, log, receiver: null_mut() };
        let first = room.as_mut_ptr().cast::<u8>();
        let mut call = Call {
            property: null_mut(),
            args: first.wrapping_add(8),
            args_len: 4,
            payload: first,
            payload_len: 0,
            reply: first,
            reply_capacity: 8,
            reply_len: 0,
            context: &context,
            count: 3,
            done: 0,
            step: 16,
        };
        let (call, seen) = (&raw mut call, core::cell::RefCell::new([u32::MAX; 3]));
        let note = |_: Context<'_>, _: *mut u8, args: u32, _: &[u16]| {
            // SAFETY: the entry has written it.
            let done = unsafe { (*call).done };
            // As a peer does that writes to its batch, this changes arguments while their call is under way.
            // SAFETY: they are in `room`.
            unsafe { first.wrapping_add(16 * done + 8).cast::<u32>().write_volatile(100) };
            seen.borrow_mut()[done] = args;
            i64::from(args) * 2
        };
        // SAFETY: its pointers are valid for three calls, and it does not use the property.
        let code =
            unsafe { if is_apart { Sum::enter_apart(call, note) } else { Sum::enter(call, note) } };
        assert_eq!((code, seen.into_inner()), (code::DONE, [7, 8, 9]));
        assert_eq!(room, [14, 100, 16, 100, 18, 100, -1, 10]);
    }

    #[test]
    fn a_jam_without_parts_takes_no_bytes() {
        let context = ContextData { sender: 0, reserved: 0, log, receiver: null_mut() };
        let mut room = 0_u8;
        let mut call = Call {
            property: null_mut(),
            args: null::<u8>().wrapping_add(1),
            args_len: 0,
            payload: null::<u8>().wrapping_add(1),
            payload_len: 1,
            reply: &mut room,
            reply_capacity: 0,
            reply_len: 7,
            context: &context,
            count: 1,
            done: 0,
            step: 0,
        };
        // SAFETY: no part of it is read.
        let enter =
            |call: &mut Call| unsafe { Types::<(), (), (), ()>::enter(call, |_, _, (), _| ()) };
        assert_eq!(enter(&mut call), code::PAYLOAD_LENGTH);
        call.payload_len = 0;
        assert_eq!(enter(&mut call), code::DONE);
        assert_eq!(call.reply_len, 0);
    }

    #[test]
    fn a_record_has_no_gaps() {
        let record: [u8; Sum::RECORD_BYTES] = Sum::record();
        assert_eq!(record[..8], Sum::SIGNATURE.to_le_bytes());
        assert_eq!(record[8..], *b"\x04\0\0\0\x02\0\0\0\x08\0\0\0t@1");
        let property = signature::of("&", Table::SIGNATURE);
        let entry = signature::of_entry(
            property,
            <u32 as Pointee>::SIGNATURE,
            <u16 as Pointee>::SIGNATURE,
            <i64 as Pointee>::SIGNATURE,
        );
        assert_eq!(Sum::SIGNATURE, entry);
    }
}
