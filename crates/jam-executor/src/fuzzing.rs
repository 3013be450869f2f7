//! What must hold for whatever a jam leaves in the memory of its call: the body of the fuzz target
//! `jam_claims`.
//!
//! Only there when the crate is built for fuzzing (`cargo xtask fuzz`), and in its own tests, which
//! run it on its committed corpus, `fuzz/corpus/jam_claims`.

use primitive::SharedBytes;

use crate::claims::{Claims, log};
use crate::code::Linked;
use crate::layout::{CALL, STACK, Sizes, TEXT, UNIT, call};

const SIZES: Sizes = Sizes { payload: UNIT, stack: UNIT, scratch: UNIT };

thread_local! {
    static MEMORY: SharedBytes = SharedBytes::heap(SIZES.total());
}

/// The bytes, at the start of the call and of the stack, are read as claims: one kind of end, with
/// texts of limited length, and as many lines as the log has room for.
///
/// # Panics
/// When that does not hold.
pub fn jam_claims(data: &[u8]) {
    let data = &data[..data.len().min(UNIT)];
    MEMORY.with(|memory| {
        for start in [CALL, STACK] {
            let at = SIZES.offset_of(start);
            memory.write_from(at, &[0; UNIT]);
            memory.write_from(at, data);
        }
        let claims = Claims::read(memory, &SIZES);
        let panic = claims.panic(memory, &SIZES);
        assert!(claims.code().is_none() || panic.is_none(), "it both returned and panicked");
        if let Some(panic) = panic {
            // A byte that is not UTF-8 becomes a character of three.
            assert!(panic.message.len().max(panic.file.len()) <= 3 * 4096, "a text without limit");
        }
        let linked = Linked { entry: TEXT, text: TEXT, text_end: TEXT + 64, signature: 0 };
        let (_, fault) = claims.fault(None, &linked, &SIZES);
        assert!(fault.offset.is_none_or(|offset| offset < 64), "an offset outside of its text");
        assert!(!fault.to_string().is_empty());
        let mut bytes = 0;
        log(memory, &SIZES, |line| bytes += 4 + line.len().div_ceil(3));
        assert!(bytes <= call::LOG_BYTES, "more lines than there is room for");
    });
}

#[cfg(test)]
mod tests {
    use fuzz_corpus::Corpus;

    use super::*;
    use crate::claims::Cause;
    use crate::layout::kind;

    #[test]
    fn the_corpus_does_no_harm() {
        Corpus::of("jam_claims").run(jam_claims);
    }

    /// Where the layout of a call changes, its seeds have to be written again: what they claim is to be
    /// more than a crash without a reason.
    #[test]
    fn seeds_claim_what_their_names_say() {
        let corpus = Corpus::of("jam_claims");
        let linked = Linked { entry: TEXT, text: TEXT, text_end: TEXT + 64, signature: 0 };
        MEMORY.with(|memory| {
            let read = |name: &str| {
                let at = SIZES.offset_of(CALL);
                memory.write_from(at, &[0; UNIT]);
                memory.write_from(at, &corpus.seed(name));
                Claims::read(memory, &SIZES)
            };
            assert_eq!(read("returned").code(), Some(0));
            let mut lines = Vec::new();
            log(memory, &SIZES, |line| lines.push(line.to_owned()));
            assert_eq!(lines, ["hi"]);
            assert!(read("panicked").panic(memory, &SIZES).is_some_and(|panic| panic.line == 3));
            assert!(read("wild-panic").panic(memory, &SIZES).is_some());
            for (name, cause) in [
                ("fault", Cause::Crash),
                ("overflow", Cause::StackOverflow),
                ("denied", Cause::SystemCall(41)),
            ] {
                let (found, fault) = read(name).fault(None, &linked, &SIZES);
                assert_eq!(
                    (found, fault.offset.is_some()),
                    (cause, true),
                    "{name}: run write_seeds"
                );
            }
        });
    }

    #[test]
    #[ignore = "writes seeds: cargo test -p gossamer-jam-executor --lib write_seeds -- --ignored"]
    fn write_seeds() {
        let corpus = Corpus::of("jam_claims");
        let put = |name: &str, kind: u32, words: [u64; 6], used: u64, lines: &[u8]| {
            let mut bytes = vec![0; call::LOG];
            bytes[call::KIND..][..4].copy_from_slice(&kind.to_ne_bytes());
            for (index, word) in words.iter().enumerate() {
                bytes[call::WORDS + 8 * index..][..8].copy_from_slice(&word.to_ne_bytes());
            }
            bytes[call::LOG_USED..][..8].copy_from_slice(&used.to_ne_bytes());
            bytes.extend(lines);
            corpus.write(name, bytes);
        };
        put("returned", kind::RETURNED, [0; 6], 6, b"\x02\0\0\0hi");
        put("panicked", kind::PANICKED, [STACK + 1, 7, CALL + 64, 2, 3, 4], 0, b"");
        put("wild-panic", kind::PANICKED, [u64::MAX, u64::MAX, TEXT - 1, 9, 0, 0], u64::MAX, b"");
        put("fault", kind::SIGNALLED, [11, 1, 8, 0, TEXT + 4, STACK], 0, b"");
        put("overflow", kind::SIGNALLED, [11, 1, STACK - 8, 0, TEXT + 4, STACK], 0, b"");
        put("denied", kind::SIGNALLED, [31, 1, 0, 41, TEXT + 63, STACK], 0, b"");
        put("wild-log", 77, [0; 6], 3072, b"\xff\xff\xff\xff");
        corpus.write("short", [0, 1, 2]);
    }
}
