//! What must hold for whatever peers write into a mailbox, and into a sender's segment, and for the bytes
//! of their calls of trustees ([`plain_call`]): the body of a fuzz target. `jam_frame` of the crate `mailbox` has the frames themselves.
//!
//! Only there when the crate is built for fuzzing (`cargo xtask fuzz`), and in its own tests, which run it
//! on its committed corpus, `fuzz/corpus/jam_call`.

use std::sync::OnceLock;

use jam_abi::Call;
use jam_format::{Digest, MAX_PROVEN_BYTES, MAX_REPLY_BYTES, Parsed};

use crate::error::Refusal;
use crate::inject::fuzzing::plain_call;
use crate::mailbox::form::{
    ENTRY_BYTES, Form, REPORT_BYTES, SenderReport, decode_entry, encode_entry,
};
use crate::policy::Policy;
use crate::receiver::Receiver;
use crate::shape::Shape;

/// Bytes of the input before the code.
const HEAD: usize = 1 + 4 + 2 + 2 + REPORT_BYTES;

/// Admits whatever comes, and has memory for little of it: nothing that is linked here runs.
fn receiver() -> &'static Receiver {
    static RECEIVER: OnceLock<Receiver> = OnceLock::new();
    RECEIVER.get_or_init(|| {
        let receiver = Receiver::new(0);
        receiver.set_policy(Policy::AnyPeer);
        receiver
    })
}

/// A form, a report and the head of an entry have one encoding; what has the claimed digest and is a blob
/// is linked or refused; lengths are accepted only as its types have them; and so it is with plain calls.
///
/// The input: a byte whose lowest bit says that the claimed digest is that of the code; the kind of a
/// frame (4 bytes); the lengths of arguments and payload (2 each); a report, or the head of an entry; code,
/// or the bytes of a plain call.
///
/// # Panics
/// When that does not hold.
pub fn jam_call(data: &[u8]) {
    let _linked = link(data);
}

/// Whether the code of an input was linked, or why not; `None` for one that is too short.
fn link(data: &[u8]) -> Option<Result<(), Refusal>> {
    let (head, code) = data.split_first_chunk::<HEAD>()?;
    let word = |at: usize| u16::from_le_bytes([head[at], head[at + 1]]);
    let kind = u32::from(word(1)) | u32::from(word(3)) << 16;
    if let Some(form) = Form::decode(kind) {
        assert_eq!(form.encode(), kind, "a form has two encodings");
    }
    let rest = head.last_chunk::<REPORT_BYTES>().expect("the end of the head");
    if let Some(report) = SenderReport::decode(rest)
        && report.last_failure.is_some()
    {
        assert_eq!(report.encode(), *rest, "a report has two encodings");
    }
    let claimed = match head[0] & 1 {
        0 => Digest::from_bytes(*rest.first_chunk().expect("16 bytes")),
        _ => Digest::of(code),
    };
    let entry = rest.first_chunk::<ENTRY_BYTES>().expect("the head of an entry");
    if let Some(len) = decode_entry(entry, &claimed) {
        assert!(len <= MAX_PROVEN_BYTES, "an entry of {len} bytes");
        assert_eq!(encode_entry(&claimed, len)[..24], entry[..24], "an entry has two encodings");
    }
    plain_call(code);
    let linked = receiver().receive(code, claimed);
    if let Err(refusal) = &linked {
        assert!(!refusal.to_string().is_empty());
    }
    assert!(linked.is_err() || claimed == Digest::of(code), "other code than was claimed");
    if let Ok(blob) = Parsed::parse(code) {
        check_lengths(&blob, usize::from(word(5)), usize::from(word(7)));
    }
    Some(linked)
}

fn check_lengths(blob: &Parsed<'_>, args_len: usize, payload_len: usize) {
    let call = Call {
        property: std::ptr::null_mut(),
        args: std::ptr::dangling(),
        args_len,
        payload: std::ptr::dangling(),
        payload_len,
        reply: std::ptr::dangling_mut(),
        reply_capacity: MAX_REPLY_BYTES,
        reply_len: 0,
        context: std::ptr::dangling(),
        count: 1,
        done: 0,
        step: 0,
    };
    let element = blob.element_bytes() as usize;
    let is_whole = payload_len.checked_rem(element).map_or(payload_len == 0, |rest| rest == 0);
    let fits = args_len == blob.args_bytes() as usize
        && is_whole
        && blob.reply_bytes() as usize <= MAX_REPLY_BYTES;
    assert_eq!(Shape::of(blob).check_lengths(&call).is_ok(), fits, "{call:?}");
}

#[cfg(test)]
mod tests {
    use fuzz_corpus::Corpus;
    use jam_format::{Blob, Import, Machine};

    use super::*;
    use crate::inject::fuzzing::{call_with_code, is_call};
    use crate::mailbox::failure::FailureKind;

    #[test]
    fn the_corpus_does_no_harm() {
        Corpus::of("jam_call").run(jam_call);
    }

    /// Where a format changes, its seeds have to be written again: a target that refuses all of them at
    /// once has nothing to begin with.
    #[test]
    fn seeds_reach_the_linker() {
        let corpus = Corpus::of("jam_call");
        let linked = |name: &str| link(&corpus.seed(name)).expect("as long as a head");
        for name in ["linked", "imports", "entry", "lengths"] {
            match linked(name) {
                Ok(()) => assert_eq!(Machine::CURRENT, Some(Machine::X86_64)),
                // The seeds are for one machine.
                Err(Refusal::Machine { .. }) => assert_ne!(Machine::CURRENT, Some(Machine::X86_64)),
                Err(refusal) => panic!("{name}: {refusal}: run write_seeds"),
            }
        }
        assert!(matches!(linked("cut"), Err(Refusal::Malformed { .. })), "{:?}", linked("cut"));
        if Machine::CURRENT == Some(Machine::X86_64) {
            let (forged, missing) = (linked("forged"), linked("missing"));
            assert!(matches!(forged, Err(Refusal::Digest { .. })), "{forged:?}");
            assert!(matches!(missing, Err(Refusal::MissingSymbol { .. })), "{missing:?}");
        }
        for name in ["plain", "plain-code", "plain-payload"] {
            assert!(is_call(&corpus.seed(name)[HEAD..]), "{name}: run write_seeds");
        }
        let report = corpus.seed("report");
        let report = report[HEAD - REPORT_BYTES..].first_chunk().expect("a report");
        assert!(SenderReport::decode(report).is_some_and(|it| it.last_failure.is_some()));
        let entry = corpus.seed("entry");
        let code = &entry[HEAD..];
        let head = entry[HEAD - REPORT_BYTES..].first_chunk().expect("the head of an entry");
        assert_eq!(decode_entry(head, &Digest::of(code)), Some(code.len()));
    }

    fn input(
        first: u8,
        kind: u32,
        lens: (u16, u16),
        rest: [u8; REPORT_BYTES],
        code: &[u8],
    ) -> Vec<u8> {
        let (args, payload) = (lens.0.to_le_bytes(), lens.1.to_le_bytes());
        [&[first][..], &kind.to_le_bytes(), &args, &payload, &rest, code].concat()
    }

    #[test]
    #[ignore = "writes seeds: cargo test -p gossamer-jam --lib write_seeds -- --ignored"]
    fn write_seeds() {
        let put = |name: &str, bytes: Vec<u8>| Corpus::of("jam_call").write(name, bytes);
        let (zero, form) = ([0; REPORT_BYTES], Form { is_local: false, place: 3 }.encode());
        let plain = Blob {
            name: "answer",
            text: &[0xc3; 70],
            args_bytes: 8,
            element_bytes: 4,
            reply_bytes: 8,
            ..Blob::new(Machine::X86_64)
        };
        let code = plain.encode().expect("a blob");
        for (name, payload, code_len) in
            [("plain", 20, 30), ("plain-code", 0, 9), ("plain-payload", 16, 0)]
        {
            let call = call_with_code(&[1; 20][..payload], &[2; 30][..code_len]);
            put(&format!("{name}-cut"), input(1, form, (0, 0), zero, &call[..call.len() - 1]));
            put(name, input(1, form, (0, 0), zero, &call));
        }
        put("linked", input(1, form, (8, 12), zero, &code));
        put("lengths", input(1, form, (7, 11), zero, &code));
        put("forged", input(0, form, (8, 0), zero, &code));
        put("cut", input(1, 2, (8, 0), zero, &code[..code.len() - 1]));
        let imports =
            [Import { name: "memcpy", signature: 0 }, Import { name: "table_slot", signature: 7 }];
        let with = |imports| Blob { imports, data: &[0; 16], ..plain.clone() };
        put("imports", input(1, 1, (8, 0), zero, &with(&imports[..1]).encode().expect("a blob")));
        put("missing", input(1, 1, (8, 0), zero, &with(&imports).encode().expect("a blob")));
        let last_failure = Some((3, FailureKind::Symbol));
        let report = SenderReport { handled: 9, failed: 1, last_failure };
        put("report", input(0, 0, (0, 0), report.encode(), &[]));
        let mut entry = zero;
        entry[..ENTRY_BYTES].copy_from_slice(&encode_entry(&Digest::of(&code), code.len()));
        put("entry", input(1, form, (8, 0), entry, &code));
    }
}
