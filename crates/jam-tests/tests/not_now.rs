//! A mailbox takes code whose signature its process could not verify a moment before. The receiver's policy
//! and its verifier are the process's, so this is a process of its own.

#[path = "common/signed.rs"]
mod signed;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use gossamer::jam::mailbox::{FailureKind, JamSender, Mailbox, ReactiveMailbox};
use gossamer::jam::{LoadedJam, Mode, Package, Proof, Refusal, Sendable, Verifier, receiver};
use gossamer_jam_tests::jams::indirect_put;
use gossamer_jam_tests::{Table, UNSEEN};
use gossamer_segment::conformance::player::{play_in, script};
use transport_api::conformance::Rack;
use transport_api::{HostId, Transport};
use transport_shm::ShmTransport;

use crate::signed::{Ann, signed};

const WITHIN: Duration = Duration::from_secs(20);

type Price = LoadedJam<&'static mut indirect_put::Table, u64, (), u64>;

/// Verifies nothing the first time, as if too many forged signatures had just come.
#[derive(Default)]
struct Busy(AtomicBool);

impl Verifier for Busy {
    fn verify(&self, proof: &Proof<'_>) -> Result<String, Refusal> {
        if !self.0.swap(true, Ordering::Relaxed) {
            return Err(Refusal::NotNow { reason: "send it again later".to_owned() });
        }
        Ann { is_revoked: false }.verify(proof)
    }
}

#[test]
fn code_that_was_not_verified_is_taken_with_the_next_frame() {
    let rack = ShmTransport::in_process(2, 2).expect("a rack");
    let hosts = rack.iter().map(|host| host.clone() as Arc<dyn Transport>).collect();
    let rack = Rack { hosts, kill: Box::new(move |HostId(host)| rack[host as usize].sever()) };
    receiver().set_verifier(Busy::default());
    let serving = script(|player| {
        let inbox = Mailbox::builder("busy").export(&player.segments).expect("a mailbox");
        let mut inbox = ReactiveMailbox::new(inbox).with(Table::new(64));
        player.meet();
        player.until("both frames", || {
            let _outcome = inbox.poll().expect("a frame or none");
            inbox.stats().ran() + inbox.stats().failed() == 2
        });
        let stats = inbox.stats();
        assert_eq!((stats.failed_by(FailureKind::Policy), stats.ran()), (1, 1), "{stats:?}");
        player.meet();
    });
    let sending = script(|player| {
        player.meet();
        let signed = signed(UNSEEN);
        let price: Price = Package::parse(&signed).unwrap().find("price").unwrap();
        let price = price.in_mode(Mode::Cached);
        let mut sender = JamSender::open(&player.segments, "busy", WITHIN).expect("a sender");
        (0..2).for_each(|_| sender.send(&price, 1, &[]).expect("a call"));
        player.meet();
    });
    play_in(&rack, [serving, sending]);
}
