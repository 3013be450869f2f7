//! Signed code in mailboxes: a sender that writes over its code while the receiver verifies the signature of
//! that code, and code that is signed after it was sent.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, Once};

use gossamer::jam::{LoadedJam, Mode, Proof, Refusal, Sendable, Verifier};
use jam_format::{ElementKind, Machine, NewElement, encode_package};
use transport_api::conformance::Make;

use crate::hostile::{FRAME_AT, single, trusting};
use crate::play::{Jams, WITHIN, play, script, small};
use crate::signed::signed_with;

/// Writes over the frame of a mailbox.
type Overwrite = Box<dyn Fn() + Send>;
/// By the signature of the package whose code comes there, until it is verified.
static OVERWRITE: Mutex<Vec<(String, Overwrite)>> = Mutex::new(Vec::new());

/// Believes every signature, and writes over the frame meanwhile.
struct Overwriting;

impl Verifier for Overwriting {
    fn verify(&self, proof: &Proof<'_>) -> Result<String, Refusal> {
        let (mut frames, signature) = (OVERWRITE.lock().unwrap(), proof.signature().signature);
        let at = frames.iter().position(|(name, _)| name.as_bytes() == signature);
        let (name, overwrite) = frames.swap_remove(at.expect("a frame of this test"));
        overwrite();
        Ok(name)
    }
}

/// A jam that no other test has, so that it comes from a sender and is verified: its name, its blob, and a
/// package of it that is signed with its name.
fn one() -> (String, Vec<u8>, Vec<u8>) {
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    static VERIFIER: Once = Once::new();
    VERIFIER.call_once(|| gossamer::jam::receiver().set_verifier(Overwriting));
    let name = format!("verified_{}", NUMBER.fetch_add(1, Ordering::Relaxed));
    let machine = Machine::CURRENT.expect("a machine that jams are built for");
    let (kind, bytes) = (ElementKind::Jam, trusting(&name));
    let elements = [NewElement { kind, machine, name: &name, bytes: &bytes }];
    let package = encode_package("one", &elements).expect("a package");
    let package = signed_with(&package, name.as_bytes());
    (name, bytes, package)
}

/// A peer writes over code whose digest was found right: what runs is what the digest is of.
pub(crate) fn code_that_changes_while_it_is_verified_runs_as_it_was(make: Make) {
    let (name, _, package) = one();
    let package = gossamer::jam::Package::parse(&package).expect("a package");
    let jam: LoadedJam<(), u64, u32, ()> = package.find(&name).expect("a jam");
    let receiver = script(move |player| {
        let mut inbox = player.export_mailbox(single("verified"));
        let memory = inbox.mailbox().segment().memory().clone();
        let overwrite = move || memory.write_from(FRAME_AT, &vec![0xcc; memory.len() - FRAME_AT]);
        OVERWRITE.lock().unwrap().push((name.clone(), Box::new(overwrite)));
        player.meet();
        player.serve(&mut inbox);
        let is_left = OVERWRITE.lock().unwrap().iter().any(|(left, _)| *left == name);
        assert!(!is_left, "the code was verified, and written over meanwhile");
        let stats = inbox.stats();
        assert_eq!((stats.ran(), stats.failed(), stats.arrived()), (1, 0, 1));
    });
    let sender = script(move |player| {
        player.meet();
        let mut sender = player.open_mailbox("verified");
        sender.send(&jam.in_mode(Mode::Injected), 1, &[]).expect("a call");
        assert_eq!(sender.close(WITHIN).expect("all calls run").handled, 1);
    });
    play(make, [receiver, sender]);
}

/// The signature does not change the digest by which a sender knows code that it has sent.
pub(crate) fn code_that_is_signed_later_runs(make: Make) {
    type Trusting = LoadedJam<(), u64, u32, ()>;
    let receiver = script(move |player| {
        let mut inbox = player.export_mailbox(small("signed_later"));
        player.meet();
        player.serve_each(&mut inbox, |_, _| ());
        assert_eq!((inbox.stats().ran(), inbox.stats().failed()), (2, 2));
    });
    let sender = script(move |player| {
        player.meet();
        let mut sender = player.open_mailbox("signed_later");
        // Once the code is in a frame, once the receiver reads it at the sender.
        for (failed, mode) in [(1, Mode::Automatic), (2, Mode::Cached)] {
            let (name, blob, package) = one();
            let package = gossamer::jam::Package::parse(&package).expect("a package");
            let unsigned = Trusting::from_blob(&blob).expect("a jam");
            let signed: Trusting = package.find(&name).expect("a jam");
            sender.send(&unsigned.in_mode(mode), 1, &[]).expect("a call");
            assert_eq!(sender.flush(WITHIN).expect("it is refused").failed, failed);
            OVERWRITE.lock().unwrap().push((name, Box::new(|| ())));
            sender.send(&signed.in_mode(mode), 1, &[]).expect("a call");
            assert_eq!(sender.flush(WITHIN).expect("it runs").failed, failed, "{mode:?}");
        }
    });
    play(make, [receiver, sender]);
}
