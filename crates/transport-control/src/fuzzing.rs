//! What must hold for any messages that peers send: the body of a fuzz target.
//!
//! Only there when the crate is built for fuzzing (`cargo xtask fuzz`), and in its own tests, which
//! run it on its committed corpus, `fuzz/corpus/control_plane`.

use std::time::{Duration, Instant};

use primitive::limits::PENDING_REQUESTS;
use transport_api::{HostId, RegionKey};

use crate::config::{Config, CutOff, Goodbye, Reach};
use crate::control::Control;
use crate::message::Message;
use crate::output::Output;
use crate::testing::{SimExport, SimMedium};

const LOCAL: HostId = HostId(0);
const PEERS: [HostId; 2] = [HostId(1), HostId(2)];

/// A control plane whose peers send anything at any time: nothing ends twice, what a peer makes it
/// keep is bounded, a lost peer is sent nothing, and each message has one encoding.
///
/// The bytes are a script, which begins at the time `now`, of what the host does and of messages that arrive.
///
/// # Panics
/// When that does not hold.
pub fn control_plane(now: Instant, data: &[u8]) {
    let mut script = Script(data);
    let (goodbye, cut_off) = match script.byte() {
        Some(0) => (Goodbye::Message, CutOff::AtEnd),
        Some(2) => (Goodbye::Message, CutOff::AtStop),
        Some(_) => (Goodbye::DataPath, CutOff::AtEnd),
        None => return,
    };
    let config = Config {
        local: LOCAL,
        hosts: 3,
        loss_bound: Some(Duration::from_secs(1)),
        reach: Reach::Direct,
        cut_off,
        goodbye,
        revocation_timeout: None,
    };
    let mut host = Host {
        control: Control::new(now, config),
        now,
        requests: 0,
        ended: Vec::new(),
        inhibited: Vec::new(),
    };
    PEERS.iter().for_each(|peer| host.control.connected(*peer, now));
    while let Some(step) = script.byte() {
        host.step(step, &mut script);
        // Imports are in two tables, for each of two peers. Each step may begin a revocation, which
        // waits for threads of this host.
        let limit = 4 * PENDING_REQUESTS + host.requests as usize;
        assert!(host.control.kept_for_peers() <= limit, "a peer has no limit");
    }
    let mut ended = host.ended;
    let count = ended.len();
    ended.sort_unstable();
    ended.dedup();
    assert_eq!(ended.len(), count, "a request ends twice");
}

/// The host under test.
struct Host {
    control: Control<SimMedium>,
    now: Instant,
    requests: u64,
    ended: Vec<u64>,
    /// Epochs that have not quiesced.
    inhibited: Vec<u64>,
}

impl Host {
    fn step(&mut self, step: u8, script: &mut Script<'_>) {
        let (now, peer) = (self.now, PEERS[usize::from(step >> 7)]);
        let key = RegionKey(u64::from(script.byte().unwrap_or(0) % 4));
        let control = &mut self.control;
        self.requests += 1;
        match step & 0x0f {
            0 => drop(control.export(key, |_| SimExport { only: None })),
            1 => drop(control.export(key, |_| SimExport { only: Some(peer) })),
            2 => drop(control.revoke(now, key, None, Some(self.requests))),
            3 => drop(control.begin_import(now, self.requests, peer, key, Duration::from_secs(1))),
            4 => drop(control.begin_import(now, self.requests, LOCAL, key, Duration::from_secs(1))),
            5 => control.set_writable(peer, key.0.is_multiple_of(2)),
            6 => self.now += Duration::from_millis(100 * key.0),
            7 => control.leave(now, self.requests),
            8 => control.left(peer),
            9 => {
                let epoch = self.inhibited.pop().unwrap_or(key.0);
                control.quiesced(epoch);
            }
            10 => self.poll(),
            11 => control.closing(now, peer),
            15 => control.stopped(peer),
            // A message whose fields are likely to mean something.
            12 => {
                let mut bytes = vec![script.byte().unwrap_or(0) % 12];
                bytes.extend(script.word());
                bytes.extend(script.bytes());
                self.receive(peer, &bytes);
            }
            // The same import again and again.
            13 => {
                for number in 0..PENDING_REQUESTS as u64 / 2 {
                    let number = number + self.requests * PENDING_REQUESTS as u64;
                    let import = Message::Import { number, key, timeout: 1000 };
                    self.control.handle(self.now, peer, import, None);
                }
            }
            _ => {
                let bytes = script.bytes();
                self.receive(peer, bytes);
            }
        }
    }

    fn receive(&mut self, from: HostId, bytes: &[u8]) {
        if let Ok(message) = Message::decode(bytes) {
            let mut again = Vec::new();
            message.encode(&mut again);
            assert_eq!(again, bytes, "a message has two encodings");
        }
        self.control.receive(self.now, from, bytes, None);
    }

    fn poll(&mut self) {
        while let Some(output) = self.control.poll(self.now) {
            match output {
                Output::Send { to, message, .. } => {
                    let is_last = matches!(message, Message::GivenUp(_));
                    assert!(is_last || self.control.is_open(to), "{message:?} to a lost peer");
                }
                Output::Imported { requester, .. }
                | Output::ImportFailed { requester, .. }
                | Output::Departed { requester }
                | Output::Revoked { requester: Some(requester), .. } => self.ended.push(requester),
                Output::Inhibit { epoch, .. } => self.inhibited.push(epoch),
                _ => {}
            }
        }
    }
}

/// What is left of a script.
struct Script<'a>(&'a [u8]);

impl<'a> Script<'a> {
    fn byte(&mut self) -> Option<u8> {
        let (first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(*first)
    }

    /// A small number, as a field of eight bytes.
    fn word(&mut self) -> [u8; 8] {
        u64::from(self.byte().unwrap_or(0)).to_le_bytes()
    }

    /// As many bytes as the next one says.
    fn bytes(&mut self) -> &'a [u8] {
        let count = usize::from(self.byte().unwrap_or(0)).min(self.0.len());
        let (bytes, rest) = self.0.split_at(count);
        self.0 = rest;
        bytes
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::PathBuf;

    use proptest::collection::vec;
    use proptest::prelude::*;
    use transport_api::Rights;

    use super::*;
    use crate::message::{Descriptor, Opaque, Refusal};

    fn corpus() -> PathBuf {
        PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/control_plane")
    }

    #[test]
    fn the_corpus_is_handled() {
        let mut count = 0;
        for entry in fs::read_dir(corpus()).expect("a committed corpus") {
            let path = entry.expect("an entry").path();
            println!("{}", path.display());
            control_plane(Instant::now(), &fs::read(path).expect("a seed"));
            count += 1;
        }
        assert!(count > 0, "no seeds");
    }

    proptest! {
        #[test]
        fn any_script_is_handled(script in vec(any::<u8>(), 0..400)) {
            control_plane(Instant::now(), &script);
        }
    }

    #[test]
    #[ignore = "writes seeds: cargo test -p gossamer-transport-control --lib write_seeds -- --ignored"]
    fn write_seeds() {
        let opaque = Opaque::new(&[7; 12]).expect("few bytes");
        let region = Descriptor { generation: 0, rights: Rights::ALL, len: 64, opaque };
        let (number, key) = (1, RegionKey(1));
        let messages = [
            ("heartbeat", Message::Heartbeat),
            ("import", Message::Import { number, key, timeout: 500 }),
            ("cancel", Message::CancelImport { number }),
            ("imported", Message::Imported { number, region }),
            ("refused", Message::Refused { number, refusal: Refusal::Unknown }),
            ("revoke", Message::Revoke { number, key, generation: 0 }),
            ("quiesced", Message::Quiesced { number: 2 }),
            ("leave", Message::Leave),
            ("leave-seen", Message::LeaveSeen),
            ("given-up", Message::GivenUp("it was silent".into())),
        ];
        fs::create_dir_all(corpus()).expect("a folder");
        let arrives = |message: &Message| {
            let mut bytes = Vec::new();
            message.encode(&mut bytes);
            [&[14, 0, bytes.len() as u8], &bytes[..]].concat()
        };
        // Imports the region, then exports and revokes one of its own, and polls.
        let begin = [0, 3, 1, 10, 0, 0, 1, 2, 1, 10, 0];
        let mut all = begin.to_vec();
        for (name, message) in &messages {
            let script = [&begin[..], &arrives(message), &[10, 0, 9, 1, 9, 0, 10, 0]].concat();
            fs::write(corpus().join(name), script).expect("a seed");
            all.extend(arrives(message));
        }
        fs::write(corpus().join("all"), all).expect("a seed");
        fs::write(corpus().join("flood"), [1, 5, 1, 13, 1, 13, 1, 13, 1, 10, 0]).expect("a seed");
    }
}
