//! Players: threads of hosts, each attached to its rack, the first of which receives.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use gossamer::jam::mailbox::{
    JamSender, Mailbox, MailboxBuilder, Outcome, ReactiveMailbox, Sender,
};
use gossamer_jam_tests::Table;
use gossamer_segment::{Attached, Segments};
use transport_api::conformance::{Make, Rack, within};

/// How long anything may take before it counts as hung; an emulated guest is slow.
pub(crate) const DEADLINE: Duration =
    Duration::from_secs(if cfg!(feature = "rdma") { 120 } else { 20 });

/// A thread of a host that takes part in a test.
pub(crate) struct Player {
    pub(crate) segments: Segments,
    attached: Attached,
    stage: Arc<Stage>,
    players: usize,
    meetings: Cell<usize>,
}

#[derive(Default)]
struct Stage {
    arrived: AtomicUsize,
    /// Players whose scripts have ended.
    ended: AtomicUsize,
    has_failed: AtomicBool,
}

type Script = Box<dyn FnOnce(&Player) + Send>;

/// Boxes a script, so that scripts of different types can be in one list.
pub(crate) fn script(script: impl FnOnce(&Player) + Send + 'static) -> Script {
    Box::new(script)
}

/// Runs `scripts`, each on a host of its own.
pub(crate) fn play<const N: usize>(make: Make, scripts: [Script; N]) {
    within(2 * DEADLINE, move || play_in(&make(N as u32, N as u32), scripts));
}

pub(crate) fn play_in<const N: usize>(rack: &Rack, scripts: [Script; N]) {
    let hosts: Vec<_> = rack.hosts.iter().map(|host| Segments::new(host.clone())).collect();
    let stage = Arc::new(Stage::default());
    thread::scope(|scope| {
        for (number, script) in scripts.into_iter().enumerate() {
            let (segments, stage) = (hosts[number].clone(), stage.clone());
            scope.spawn(move || {
                let _failure = NoteFailure(stage.clone());
                let attached = segments.attach(number as u32).expect("a thread of the rack");
                let meetings = Cell::new(0);
                let player = Player { segments, attached, stage, players: N, meetings };
                script(&player);
                player.stage.ended.fetch_add(1, Ordering::AcqRel);
                // Other players may still need this thread's polls.
                player.until("the end of the others", || player.have_ended(N));
            });
        }
    });
}

/// Marks the play as failed if this player panics, so that the others stop waiting.
struct NoteFailure(Arc<Stage>);

impl Drop for NoteFailure {
    fn drop(&mut self) {
        if thread::panicking() {
            self.0.has_failed.store(true, Ordering::Relaxed);
        }
    }
}

impl Player {
    /// Does `step` until it returns true, and polls in between.
    pub(crate) fn until(&self, what: &str, mut step: impl FnMut() -> bool) {
        let start = Instant::now();
        while !step() {
            let has_failed = self.stage.has_failed.load(Ordering::Relaxed);
            assert!(!has_failed, "another player failed while this one waited for {what}");
            assert!(start.elapsed() < DEADLINE, "waited in vain for {what}");
            if !self.attached.poll() {
                thread::yield_now();
            }
        }
    }

    /// Waits until every player has come to as many meetings as this one.
    pub(crate) fn meet(&self) {
        let number = self.meetings.get() + 1;
        self.meetings.set(number);
        self.stage.arrived.fetch_add(1, Ordering::AcqRel);
        let all = || self.stage.arrived.load(Ordering::Acquire) >= number * self.players;
        self.until("the other players", all);
    }

    /// Waits until the scripts of all other players have ended.
    pub(crate) fn outlast_others(&self) {
        self.until("the others", || self.others_have_ended());
    }

    pub(crate) fn others_have_ended(&self) -> bool {
        self.have_ended(self.players - 1)
    }

    fn have_ended(&self, players: usize) -> bool {
        self.stage.ended.load(Ordering::Acquire) >= players
    }

    /// A mailbox that runs jams on a table.
    pub(crate) fn export(&self, builder: MailboxBuilder) -> ReactiveMailbox {
        let mailbox = builder.export(&self.segments).expect("a mailbox");
        ReactiveMailbox::new(mailbox).with(Table::new(1 << 16))
    }

    pub(crate) fn open(&self, name: &str) -> JamSender {
        JamSender::new(self.open_raw(name)).expect("a sender")
    }

    pub(crate) fn open_raw(&self, name: &str) -> Sender {
        let options = Sender::options(&self.segments).timeout(DEADLINE / 2);
        options.open(name).expect("an open mailbox")
    }

    /// Runs frames until the scripts of all other players have ended.
    pub(crate) fn serve_each(
        &self,
        inbox: &mut ReactiveMailbox,
        mut each: impl FnMut(&mut ReactiveMailbox, Outcome),
    ) {
        self.until("the other players", || {
            while let Some(outcome) = inbox.poll().expect("a frame") {
                each(inbox, outcome);
            }
            self.others_have_ended()
        });
    }

    /// As [`serve_each`](Self::serve_each); no frame may fail.
    pub(crate) fn serve(&self, inbox: &mut ReactiveMailbox) {
        self.serve_each(inbox, |_, outcome| outcome.into_result().expect("a jam runs"));
    }
}

/// Dimensions that most tests take.
pub(crate) fn small(name: &str) -> MailboxBuilder {
    Mailbox::builder(name).banks(2).frames(4).frame_bytes(4096).senders(4)
}
