//! What must hold for whatever bytes senders write, in any order, at any time: the body of a fuzz target.
//!
//! Only there when the crate is built for fuzzing (`cargo xtask fuzz`), and in its own tests, which run it
//! on its committed corpus, `fuzz/corpus/jam_frame`.

use primitive::SharedBytes;
use transport_api::integrity::checksum_of;

use crate::claim::{Claim, Hello};
use crate::frame::{self, Mode, encode};
use crate::incoming::{Arrival, Incoming};
use crate::layout::{FrameKind, GEOMETRY_BYTES, Geometry, HEADER_BYTES, WORD};

/// The dimensions of the mailbox that is written to, and the epoch of its sender.
const BODY: u32 = 64;
const EPOCH: u32 = 3;

fn geometry(kind: FrameKind) -> Geometry {
    Geometry { banks: 2, frames: 2, body: BODY, senders: 1, kind, may_sleep: true }
}

/// Every poll ends, and a frame that it finds is inside its place; a geometry, a claim and a hello have
/// one encoding each.
///
/// The first byte selects the kind of frames (bit 0) and the mode (bit 1). Then come writes: a byte that
/// says where (in words of the bank set), one that says how many words, and those; if the first has its
/// highest bit set, the last word of the write is repaired to be the checksum of the others. The receiver
/// polls after each.
///
/// # Panics
/// When that does not hold.
pub fn jam_frame(data: &[u8]) {
    let Some((_, rest)) = data.split_first() else { return };
    let _which = read_claims(rest);
    let _seen = take_frames(data);
}

/// What the receiver has found: frames, and what is malformed.
type Seen = (usize, usize);

/// Writes to a bank set as the input says.
fn take_frames(data: &[u8]) -> Seen {
    let Some((first, mut rest)) = data.split_first() else { return (0, 0) };
    let kind = if first & 1 == 0 { FrameKind::Fixed } else { FrameKind::Variable };
    let mode = if first & 2 == 0 { Mode::Mapped } else { Mode::Checked };
    let geometry = geometry(kind);
    let memory = SharedBytes::heap(geometry.bytes());
    let copy = SharedBytes::heap(geometry.stride());
    let mut incoming = Incoming::new(geometry, 0, EPOCH, mode);
    let set_words = geometry.set_bytes() / WORD;
    let mut seen = (0, 0);
    while let [place, count, after @ ..] = rest {
        let len = (usize::from(*count) * WORD).min(after.len() / WORD * WORD);
        let (bytes, next) = after.split_at(len);
        let mut words: Vec<u64> =
            bytes.as_chunks().0.iter().map(|it| u64::from_le_bytes(*it)).collect();
        if place & 0x80 != 0
            && let Some((last, others)) = words.split_last_mut()
        {
            *last = checksum_of(others.len(), |at| others[at]);
        }
        let start = usize::from(place & 0x7f) * 2 % set_words;
        for (number, word) in words.iter().enumerate().take(set_words - start) {
            let at = geometry.set_at(0) + (start + number) * WORD;
            memory.store(at, *word, primitive::sync::Ordering::Release);
        }
        rest = next;
        take_all(&geometry, &mut incoming, &memory, &copy, &mut seen);
    }
    seen
}

/// Takes what is there.
fn take_all(
    geometry: &Geometry,
    incoming: &mut Incoming,
    memory: &SharedBytes,
    copy: &SharedBytes,
    (frames, malformed): &mut Seen,
) {
    // A bank set holds few frames, unless one is seen again and again.
    for _ in 0..=geometry.set_frames() {
        match incoming.poll(memory, copy) {
            Arrival::Nothing => return,
            Arrival::Malformed => {
                let reason = incoming.malformed();
                assert!(reason.len > reason.max, "{reason}");
                *malformed += 1;
                let _ = incoming.advance();
            }
            Arrival::Frame => {
                *frames += 1;
                let arrived = *incoming.arrived();
                let (payload, attachment, end) = arrived.lengths.places(incoming.mode());
                // A frame in mapped memory has no checksum.
                let checksum = if arrived.is_copied { WORD } else { 0 };
                let room = geometry.stride() - checksum;
                assert!(HEADER_BYTES <= payload && payload <= attachment && attachment <= end);
                assert!(end <= room, "a frame of {end} bytes in a place of {room}");
                let memory = if arrived.is_copied { copy } else { memory };
                let mut body = vec![0; end];
                memory.read_into(arrived.at, &mut body);
                if arrived.is_copied {
                    // Nothing changes a copy.
                    let tag = frame::tag(EPOCH, incoming.next());
                    let words = encode(tag, &arrived.header, arrived.lengths);
                    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
                    assert_eq!(body[..HEADER_BYTES], bytes, "a header has two encodings");
                }
                let _ = incoming.advance();
            }
        }
    }
    panic!("a place has a frame again after it was taken");
}

/// What a sender reads of a receiver, and a receiver of a claim; which of them there is.
fn read_claims(bytes: &[u8]) -> [bool; 2] {
    let mut are_there = [false; 2];
    if let Some(bytes) = bytes.first_chunk::<GEOMETRY_BYTES>()
        && let Some(geometry) = Geometry::decode(bytes, 1 << 20)
    {
        assert!(geometry.bytes() <= 1 << 20, "{geometry:?} is larger than its segment");
        assert_eq!(geometry.encode(), *bytes, "a geometry has two encodings");
        are_there[0] = true;
    }
    if let Some(bytes) = bytes.first_chunk::<64>() {
        let memory = SharedBytes::heap(64);
        memory.write_from(0, bytes);
        let claim = Claim(memory.load(0, primitive::sync::Ordering::Relaxed));
        if let Some(hello) = Hello::read(&memory, 0, claim) {
            assert_eq!(hello.encode(), bytes[WORD..][..hello.encode().len()], "two encodings");
            are_there[1] = true;
        }
    }
    are_there
}

#[cfg(test)]
mod tests {
    use fuzz_corpus::Corpus;

    use super::*;
    use crate::frame::{FrameHeader, Parts};
    use crate::outgoing::Outgoing;
    use crate::target::Target;

    #[test]
    fn the_corpus_does_no_harm() {
        Corpus::of("jam_frame").run(jam_frame);
    }

    /// Where a format changes, its seeds have to be written again: a target that finds nothing in any of
    /// them has nothing to begin with.
    #[test]
    fn seeds_reach_the_receiver() {
        let corpus = Corpus::of("jam_frame");
        let seen = |name: &str| take_frames(&corpus.seed(name));
        for kind in ["fixed", "variable"] {
            for mode in ["mapped", "checked"] {
                let name = format!("{kind}-{mode}");
                assert_eq!(seen(&name), (3, 0), "{name}: run write_seeds");
            }
            // Where there is no checksum, the cut is in a body.
            assert_eq!(seen(&format!("{kind}-checked-cut")), (2, 0));
        }
        // A checksum of variable length cannot be found where the lengths are wrong.
        for name in ["fixed-mapped-long", "fixed-checked-long-repaired", "variable-mapped-long"] {
            assert_eq!(seen(name), (0, 1), "{name}: run write_seeds");
        }
        assert_eq!(read_claims(&corpus.seed("geometry")[1..]), [true, false]);
        assert_eq!(read_claims(&corpus.seed("hello")[1..]), [false, true]);
    }

    /// Writes of a sender, as the fuzz target reads them.
    #[derive(Default)]
    struct Writes(std::cell::RefCell<Vec<u8>>);

    impl Target for Writes {
        type Error = std::convert::Infallible;
        fn write(&self, at: usize, bytes: &[u8], _next: usize) -> Result<(), Self::Error> {
            let word = (at - geometry(FrameKind::Fixed).set_at(0)) / WORD;
            let mut words = bytes.to_vec();
            words.resize(bytes.len().next_multiple_of(WORD), 0);
            // Places are even: an odd one is written from the word before on, which a sender never does
            // in a seed whose bodies are multiples of sixteen.
            let mut writes = self.0.borrow_mut();
            writes.extend([(word / 2) as u8, (words.len() / WORD) as u8]);
            writes.extend(words);
            Ok(())
        }
        fn signal<const N: usize>(&self, at: usize, words: &[u64; N]) -> Result<(), Self::Error> {
            let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
            self.write(at, &bytes, at)
        }
    }

    #[test]
    #[ignore = "writes seeds: cargo test -p gossamer-mailbox --lib write_seeds -- --ignored"]
    fn write_seeds() {
        let put = |name: &str, first: u8, rest: &[u8]| {
            Corpus::of("jam_frame").write(name, [&[first], rest].concat());
        };
        let flags = SharedBytes::heap(256);
        for (first, kind, mode) in [
            (0, FrameKind::Fixed, Mode::Mapped),
            (1, FrameKind::Variable, Mode::Mapped),
            (2, FrameKind::Fixed, Mode::Checked),
            (3, FrameKind::Variable, Mode::Checked),
        ] {
            let to = Writes::default();
            let mut outgoing = Outgoing::new(geometry(kind), 0, EPOCH, mode);
            for number in 0..3 {
                assert!(outgoing.may_write(&flags));
                let header = FrameHeader { kind: 7, id: [number; 16], reply: 9 };
                let body = [number; 32];
                let (args, payload) = body.split_at(usize::from(number) * 16);
                let parts = Parts { args, payload, attachment: &[] };
                let Ok(()) = outgoing.write(&to, &header, &parts);
            }
            let writes = to.0.into_inner();
            let name = format!("{kind:?}-{mode:?}").to_lowercase();
            put(&name, first, &writes);
            put(&format!("{name}-cut"), first, &writes[..writes.len() - 20]);
            // Lengths that no frame has.
            let tag = frame::tag(EPOCH, 0);
            let lengths = frame::Lengths { args: u32::MAX, payload: 8, attachment: u32::MAX - 3 };
            let words = encode(tag, &FrameHeader::default(), lengths);
            let mut long = vec![0x80, geometry(kind).stride().div_ceil(WORD) as u8];
            long.extend(words.iter().flat_map(|word| word.to_ne_bytes()));
            long.resize(2 + geometry(kind).stride(), 1);
            let at = long.len() - WORD;
            long[at..].copy_from_slice(&tag.to_ne_bytes());
            put(&format!("{name}-long-repaired"), first, &long);
            long[0] = 0;
            put(&format!("{name}-long"), first, &long);
        }
        put("geometry", 0, &geometry(FrameKind::Variable).encode());
        let claim = Claim(0).next(transport_api::HostId(2));
        let hello = Hello { claim, flags: 5, mode: Mode::Checked };
        let bytes = [&claim.0.to_ne_bytes()[..], &hello.encode(), &[0; 24]].concat();
        put("hello", 0, &bytes);
    }
}
