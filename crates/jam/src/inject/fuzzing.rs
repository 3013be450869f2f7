//! What must hold for the bytes of a [plain call](trust_core::PlainCall), which a peer may choose: part of
//! the fuzz target `jam_call`.

use jam_abi::entry::Part;
use jam_format::Digest;

use crate::inject::layout::{CallParts, with_front};
use crate::plain_bytes::Value;

/// Takes the bytes apart as calls with code and calls by handle do: what is accepted lies inside them, and
/// has one encoding.
///
/// # Panics
/// When that does not hold.
pub(crate) fn plain_call(bytes: &[u8]) {
    check::<[u8; Digest::BYTES], [u32; 3]>(bytes);
    check::<(), u64>(bytes);
    check::<(), ()>(bytes);
}

fn check<M: Part, A: Part>(bytes: &[u8]) {
    let Ok(call) = CallParts::<M>::of::<A>(bytes) else { return };
    let args = Value::<A>::of_bytes(call.args).expect("as many bytes as the arguments have");
    let Ok(code) = call.code() else { return };
    let (payload, code_len) = (call.payload.len(), code.len());
    with_front(payload, code_len, call.more.get(), args.get(), |front| {
        // The lengths, and the parts after them, up to padding.
        let parts = 16 + M::BYTES + A::BYTES;
        assert_eq!(front[..parts], bytes[..parts], "a call has two encodings");
        let (payload_at, code_at) = (front.len(), (front.len() + payload).next_multiple_of(8));
        assert_eq!(call.payload, &bytes[payload_at..][..payload]);
        // Without code, nothing follows the payload.
        if code_len > 0 {
            assert_eq!(code, &bytes[code_at..][..code_len]);
        }
    });
}

/// Whether these are the bytes of a [`call_with_code`].
#[cfg(test)]
pub(crate) fn is_call(bytes: &[u8]) -> bool {
    let call = CallParts::<[u8; Digest::BYTES]>::of::<[u32; 3]>(bytes);
    call.is_ok_and(|call| call.code().is_ok())
}

/// A call with code, as a sender makes it.
#[cfg(test)]
pub(crate) fn call_with_code(payload: &[u8], code: &[u8]) -> Vec<u8> {
    with_front(payload.len(), code.len(), [7; Digest::BYTES], [3_u32, 4, 5], |front| {
        let mut bytes = [front, payload].concat();
        bytes.resize(bytes.len().next_multiple_of(8), 0);
        [bytes, code.to_vec()].concat()
    })
}
