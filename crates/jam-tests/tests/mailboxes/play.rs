//! What players do with mailboxes that run jams: the first of them receives.

use std::time::Duration;

use gossamer::jam::mailbox::{
    JamSender, Mailbox, MailboxBuilder, Outcome, ReactiveMailbox, Sender,
};
use gossamer_jam_tests::Table;
pub(crate) use gossamer_segment::conformance::player::{Player, bounded, play, play_in, script};

/// How long a sender waits for its receiver; an emulated guest is slow.
pub(crate) const WITHIN: Duration =
    Duration::from_secs(if cfg!(feature = "rdma") { 100 } else { 20 });

/// What players do with mailboxes that run jams.
pub(crate) trait Jams {
    /// A mailbox that runs jams on a table.
    fn export_mailbox(&self, builder: MailboxBuilder) -> ReactiveMailbox;

    fn open_mailbox(&self, name: &str) -> JamSender;

    fn open_raw(&self, name: &str) -> Sender;

    /// Runs frames until the scripts of all other players have ended.
    fn serve_each(
        &self,
        inbox: &mut ReactiveMailbox,
        each: impl FnMut(&mut ReactiveMailbox, Outcome),
    );

    /// As [`serve_each`](Self::serve_each); no frame may fail.
    fn serve(&self, inbox: &mut ReactiveMailbox) {
        self.serve_each(inbox, |_, outcome| outcome.into_result().expect("a jam runs"));
    }
}

impl Jams for Player {
    fn export_mailbox(&self, builder: MailboxBuilder) -> ReactiveMailbox {
        let mailbox = builder.export(&self.segments).expect("a mailbox");
        ReactiveMailbox::new(mailbox).with(Table::new(1 << 16))
    }

    fn open_mailbox(&self, name: &str) -> JamSender {
        JamSender::new(self.open_raw(name)).expect("a sender")
    }

    fn open_raw(&self, name: &str) -> Sender {
        let options = Sender::options(&self.segments).timeout(WITHIN);
        options.open(name).expect("an open mailbox")
    }

    fn serve_each(
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
}

/// Dimensions that most tests take.
pub(crate) fn small(name: &str) -> MailboxBuilder {
    Mailbox::builder(name).banks(2).frames(4).frame_bytes(4096).senders(4)
}
