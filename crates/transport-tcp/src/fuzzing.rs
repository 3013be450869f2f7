//! What must hold for whatever bytes a peer sends: the bodies of the fuzz targets.
//!
//! Only there when the crate is built for fuzzing (`cargo xtask fuzz`), and in its own tests, which
//! run every target on its committed corpus, `fuzz/corpus`.

use primitive::sync::Ordering::Relaxed;
use primitive::{CpuFeatures, SharedBytes};
use transport_api::{Event, HostId, RegionKey, Rights, ThreadId};
use transport_control::Violation;

use crate::JobId;
use crate::join::hello::{ConnectionKind, HELLO, Hello, VERDICT, VERSION, Verdict};
use crate::machine::fake::Fake;
use crate::machine::{Machine, Name, bulk};
use crate::wire::frame::{Frames, Header, Kind};

/// Bytes of a region.
const LEN: usize = 256;
const THREADS: u32 = 3;
const ALL: Name = Name { key: RegionKey(1), generation: 4 };
const READABLE: Name = Name { key: RegionKey(2), generation: 0 };

/// Bytes that may wait for a peer that asks and does not read: two windows of answers, and what one
/// input can have this side ask.
const WAITING_BYTES: usize = 4 << 20;

/// Frames come out as they were put in, however they are cut, or the connection ends.
///
/// The first byte says into pieces of what size the others are cut.
///
/// # Panics
/// When that does not hold.
pub fn frame(data: &[u8]) {
    let Some((cut, bytes)) = data.split_first() else { return };
    let (whole, ended) = frames(bytes, usize::MAX);
    let (pieces, ended_too) = frames(bytes, usize::from(*cut).max(1));
    assert_eq!(whole, pieces, "it matters how frames are cut");
    assert_eq!(ended, ended_too, "it matters how a violation is cut");
    let mut again = Vec::new();
    whole.iter().for_each(|(header, body)| header.encode_with(body, &mut again));
    assert_eq!(again, bytes[..again.len()], "a frame has two encodings");
}

type Taken = Vec<(Header, Vec<u8>)>;

fn frames(mut bytes: &[u8], cut: usize) -> (Taken, Option<Violation>) {
    let (mut frames, mut taken) = (Frames::default(), Vec::new());
    while !bytes.is_empty() {
        let (piece, rest) = bytes.split_at(bytes.len().min(cut));
        bytes = rest;
        let fed = frames.feed(piece, |header, body| {
            taken.push((header, body.to_vec()));
            Ok(())
        });
        if let Err(violation) = fed {
            return (taken, Some(violation));
        }
    }
    (taken, None)
}

/// A hello has one encoding, and a host that is welcome is of the same job and build.
///
/// # Panics
/// When that does not hold.
pub fn hello(data: &[u8]) {
    let ours = welcome();
    let ours = Hello { from: ours.to, ..ours };
    if let Some(bytes) = data.first_chunk::<HELLO>()
        && let Some(hello) = Hello::decode(bytes)
    {
        assert_eq!(hello.encode(), *bytes, "a hello has two encodings");
        if hello.objection(&ours).is_none() {
            let key = |h: &Hello| (h.job, h.build, h.cpu, h.version, h.threads);
            assert_eq!(key(&hello), key(&ours), "a stranger is welcome");
        }
    }
    if let Some(bytes) = data.first_chunk::<VERDICT>()
        && let Some(Verdict::Refused(why)) = Verdict::decode(bytes)
    {
        assert!(!why.contains(char::is_control), "a refusal that controls a terminal: {why:?}");
    }
}

/// What [`hello`] lets in.
fn welcome() -> Hello {
    let (from, to, kind) = (HostId(2), HostId(1), ConnectionKind::Thread(1));
    let (job, build, cpu) = (JobId(7), [3; 32], CpuFeatures::from_bits(5));
    Hello { version: VERSION, from, to, kind, hosts: 3, threads: 2, job, build, cpu }
}

/// A machine with a peer that says anything at any time: nothing is written where it must not be,
/// and what waits stays bounded.
///
/// The bytes are a script: of what this side does, of bytes that arrive, and of frames that arrive
/// and whose fields are likely to mean something.
///
/// # Panics
/// When that does not hold.
pub fn machine(data: &[u8]) {
    let mut script = Script(data);
    let peer = ThreadId { host: HostId(0), thread: 1 };
    let mut machine = Machine::new(peer, THREADS);
    let mut fake = Fake::new([(ALL, Rights::ALL), (READABLE, Rights::READ)], LEN);
    let mut token = 0;
    while let Some(step) = script.byte() {
        token += 1;
        let word = script.at() / 8 * 8;
        let fed = match step % 10 {
            8 => machine.feed(script.bytes(), &mut fake),
            9 => machine.feed(&script.frame(word), &mut fake),
            step => {
                act(step, word, token, &mut machine, &mut fake);
                Ok(())
            }
        };
        assert!(machine.outgoing().len() < WAITING_BYTES, "what waits to be sent is not bounded");
        if fed.is_err() {
            break;
        }
    }
    let readable = &fake.regions[1].memory;
    let is_zero = (0..LEN).step_by(8).all(|at| readable.word(at).load(Relaxed) == 0);
    assert!(is_zero, "a peer has written where it may only read");
    assert!(fake.goodbyes <= 1, "two goodbyes");
    let is_thread = |thread: &u32| *thread < THREADS;
    let threads = fake.events.iter().map(|(thread, _)| thread);
    assert!(threads.chain(&fake.woken).all(is_thread), "something for a thread that is not there");
}

/// Something that this side does.
fn act(step: u8, word: usize, token: u64, machine: &mut Machine, fake: &mut Fake) {
    let thread = word as u32 / 8 % THREADS;
    match step {
        0 => machine.fetch_add(ALL, word, 1, token),
        1 => machine.compare_swap(ALL, word, [0, token], token),
        2 => machine.read(ALL, 0, &SharedBytes::heap(LEN).slice(0, word), token),
        3 => machine.bulk(thread, token, vec![1; 8 * word]),
        4 => machine.notify(ALL, word, 8, thread, 5),
        5 => {
            let count = machine.outgoing().len().min(100 * word);
            machine.sent(count);
        }
        6 => take_events(machine, fake),
        _ if word == 0 => machine.goodbye(),
        _ => machine.forget(ALL.key),
    }
}

/// The threads take what there is for them.
fn take_events(machine: &mut Machine, fake: &mut Fake) {
    for (thread, event) in fake.events.drain(..) {
        match event {
            Event::Bulk { payload, .. } => machine.taken(thread, bulk::cost_of(payload.len())),
            Event::Notified { .. } => machine.taken(thread, bulk::cost_of(0)),
            _ => {}
        }
    }
}

/// What is left of a script. Behind its end everything is zero, or nothing.
struct Script<'a>(&'a [u8]);

impl<'a> Script<'a> {
    fn byte(&mut self) -> Option<u8> {
        let (first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(*first)
    }

    /// A place in a region.
    fn at(&mut self) -> usize {
        usize::from(self.byte().unwrap_or(0))
    }

    fn number(&mut self) -> u64 {
        u64::from(self.byte().unwrap_or(0)) | u64::from(self.byte().unwrap_or(0)) << 8
    }

    /// As many bytes as the next two say.
    fn bytes(&mut self) -> &'a [u8] {
        let count = (self.number() as usize).min(self.0.len());
        let (bytes, rest) = self.0.split_at(count);
        self.0 = rest;
        bytes
    }

    /// The bytes of a frame.
    fn frame(&mut self, at: usize) -> Vec<u8> {
        let (kind, thread) = (self.byte().unwrap_or(0), self.byte().unwrap_or(0));
        let (name, word) = (self.byte().unwrap_or(0), self.number());
        let mut bytes = Vec::new();
        let header = Header {
            thread: u16::from(thread % 4),
            key: u64::from(name % 4),
            generation: u32::from(name / 4 % 5),
            at: at as u64,
            word,
            ..Header::new(Kind::Goodbye)
        };
        header.encode(0, &mut bytes);
        let body = self.bytes();
        bytes[0] = kind % 18;
        bytes[4..8].copy_from_slice(&(body.len() as u32).to_le_bytes());
        bytes.extend_from_slice(body);
        bytes
    }
}

#[cfg(test)]
mod tests {
    use fuzz_corpus::Corpus;

    use super::*;

    #[test]
    fn the_corpus_does_no_harm() {
        Corpus::of("frame").run(frame);
        Corpus::of("hello").run(hello);
        Corpus::of("machine").run(machine);
    }

    fn framed(header: Header, body: &[u8]) -> Vec<u8> {
        let mut bytes = Vec::new();
        header.encode_with(body, &mut bytes);
        bytes
    }

    /// One frame of every kind, as a peer would send it.
    fn frames_of_every_kind() -> Vec<(Header, Vec<u8>)> {
        let on = |kind| Header { key: 1, generation: 4, word: 1, ..Header::new(kind) };
        let plain = [
            Kind::Signal,
            Kind::Read,
            Kind::Add,
            Kind::Value,
            Kind::Revoked,
            Kind::Wake,
            Kind::BulkStart,
            Kind::Grant,
            Kind::Goodbye,
            Kind::Fence,
        ];
        let with_body =
            [Kind::Write, Kind::Tagged, Kind::Swap, Kind::Data, Kind::BulkData, Kind::Control];
        let plain = plain.map(|kind| (on(kind), Vec::new()));
        let notify = (on(Kind::Notify), vec![7; 16]);
        let with_body = with_body.map(|kind| (on(kind), vec![7; 8]));
        plain.into_iter().chain(with_body).chain([notify]).collect()
    }

    /// Frames as the scripts of [`machine`] have them arrive.
    fn arrives(bytes: &[u8]) -> Vec<u8> {
        let count = (bytes.len() as u16).to_le_bytes();
        [&[8, 0], &count[..], bytes].concat()
    }

    #[test]
    #[ignore = "writes seeds: cargo test -p gossamer-transport-tcp --lib write_seeds -- --ignored"]
    fn write_seeds() {
        let put = |target: &str, name: &str, bytes: &[u8]| Corpus::of(target).write(name, bytes);
        let mut all = vec![17];
        // What this side asks, so that answers answer something; then what it is sent.
        let mut script = vec![0, 8, 2, 16, 1, 0, 3, 8];
        for (header, body) in frames_of_every_kind() {
            let (name, bytes) =
                (format!("{:?}", header.kind).to_lowercase(), framed(header, &body));
            all.extend_from_slice(&bytes);
            put("frame", &name, &[&[7], &bytes[..]].concat());
            put("machine", &name, &[&[0, 8, 2, 1], &arrives(&bytes)[..]].concat());
            if header.kind != Kind::Goodbye {
                script.extend_from_slice(&[9, 0, header.kind as u8, 0, 17, 1, 0]);
                script.extend_from_slice(&(body.len() as u16).to_le_bytes());
                script.extend_from_slice(&body);
            }
            script.extend_from_slice(&[5, 255, 6, 0]);
        }
        put("frame", "all", &all);
        put("frame", "four-gibibytes", &[&[1, 1, 0, 0, 0], &[0xff; 4][..], &[0; 32]].concat());
        put("machine", "all", &script);
        let payload = [
            framed(Header { word: 5, thread: 2, ..Header::new(Kind::BulkStart) }, &[]),
            framed(Header { thread: 2, ..Header::new(Kind::BulkData) }, &[1; 5]),
        ];
        put("machine", "payload", &[arrives(&payload.concat()), vec![6, 0, 5, 255]].concat());
        put("hello", "welcome", &welcome().encode());
        put("hello", "control", &Hello { kind: ConnectionKind::Control, ..welcome() }.encode());
        put("hello", "stranger", &Hello { job: JobId(8), ..welcome() }.encode());
        let cpu = CpuFeatures::from_bits(6);
        put("hello", "other-processor", &Hello { cpu, ..welcome() }.encode());
        put("hello", "accepted", &Verdict::Welcome.encode());
        put("hello", "refused", &Verdict::Refused("it is another build".into()).encode());
    }
}
