//! Mailboxes between real processes that share memory: this program starts itself again as the other
//! hosts. It has a `main` of its own, because a started host must not run the tests.

#[cfg(not(loom))]
fn main() -> std::process::ExitCode {
    test::main()
}

#[cfg(loom)]
fn main() {}

#[cfg(not(loom))]
mod test {
    use std::env;
    use std::process::{Child, Command, ExitCode};
    use std::time::{Duration, Instant};

    use gossamer_segment::{Attached, Segments};
    use mailbox::{FrameHeader, Mailbox, MailboxError, Parts, Sender};
    use transport_shm::{Leader, ShmTransport};

    /// The role of a started process; unset in the process that runs the tests.
    const ROLE: &str = "GOSSAMER_TEST_ROLE";

    /// How long anything here may take before it counts as hung.
    const DEADLINE: Duration = Duration::from_secs(60);

    const BUILD: [u8; 32] = [0x3a; 32];

    type Test = (&'static str, fn());

    const TESTS: [Test; 3] = [
        ("frames_cross_processes_in_order", frames_cross_processes_in_order),
        ("the_banks_of_a_killed_sender_are_freed", the_banks_of_a_killed_sender_are_freed),
        ("a_killed_receiver_is_lost", a_killed_receiver_is_lost),
    ];

    pub(super) fn main() -> ExitCode {
        let role = env::var(ROLE);
        match role.as_deref() {
            Err(_) => cases::run_here(&TESTS, |_, test| test()),
            Ok("send") => send(&Place::join()),
            Ok("hammer") => hammer(&Place::join()),
            Ok("receive") => receive(&Place::join()),
            Ok(other) => panic!("no role {other}"),
        }
    }

    /// A process of the rack, with its only thread attached.
    struct Place {
        attached: Attached,
        segments: Segments,
    }

    impl Place {
        fn of(rack: std::sync::Arc<ShmTransport>) -> Place {
            let segments = Segments::new(rack);
            let attached = segments.attach(0).expect("a thread of the rack");
            Place { attached, segments }
        }

        fn join() -> Place {
            Place::of(ShmTransport::join_leader(&BUILD).expect("to join"))
        }

        fn open(&self) -> Sender {
            let options = Sender::options(&self.segments).timeout(DEADLINE);
            options.open("inbox").expect("an open mailbox")
        }

        fn export(&self, senders: u32) -> Mailbox {
            let builder = Mailbox::builder("inbox").banks(4).frames(8).frame_bytes(128);
            builder.senders(senders).export(&self.segments).expect("a mailbox")
        }

        /// Does `step` until it returns true, and polls in between.
        fn until(&self, what: &str, mut step: impl FnMut() -> bool) {
            let start = Instant::now();
            while !step() {
                assert!(start.elapsed() < DEADLINE, "waited in vain for {what}");
                self.attached.poll();
            }
        }
    }

    /// The other processes, which are killed and reaped even if a test fails.
    struct Children(Vec<Child>);

    impl Drop for Children {
        fn drop(&mut self) {
            for child in &mut self.0 {
                // Already dead is fine.
                let _ = child.kill();
                let _ = child.wait();
            }
        }
    }

    /// A rack of this process and one process for each role.
    fn rack_of(roles: &[&str]) -> (Place, Children) {
        let mut leader = Leader::new(roles.len() as u32 + 1).expect("a leader");
        let start = |role: &&str| {
            let mut command = Command::new(env::current_exe().expect("this program"));
            leader.spawn(command.env(ROLE, role)).expect("a child")
        };
        let children = Children(roles.iter().map(start).collect());
        (Place::of(leader.lead(1, &BUILD).expect("a rack")), children)
    }

    const EACH: u64 = 20_000;

    fn frame(from: u64, number: u64) -> (FrameHeader, [u8; 56]) {
        let header = FrameHeader { kind: from as u32, id: [7; 16], reply: number };
        (header, [(number ^ from) as u8; 56])
    }

    /// Sends frames, and waits until they are taken.
    fn send(place: &Place) -> ExitCode {
        let (mut sender, own) = (place.open(), place.segments.local().0.into());
        assert!(sender.is_mapped());
        for number in 0..EACH {
            let (header, payload) = frame(own, number);
            let (args, payload) = payload.split_at(number as usize % 57);
            let parts = Parts { args, payload, attachment: &[] };
            sender.send(&header, parts).expect("a frame");
        }
        sender.close(DEADLINE).expect("the receiver takes everything");
        ExitCode::SUCCESS
    }

    fn frames_cross_processes_in_order() {
        let (place, mut children) = rack_of(&["send", "send"]);
        let mut inbox = place.export(2);
        let mut next = [0; 3];
        while next[1..] != [EACH; 2] {
            let taken = inbox.next_timeout(DEADLINE).expect("no error").expect("a frame");
            let from = taken.sender().0 as usize;
            let (header, sent) = frame(from as u64, next[from]);
            assert_eq!(*taken.header(), header);
            let mut bytes = [0; 56];
            let (args, payload) = bytes.split_at_mut(next[from] as usize % 57);
            taken.copy_args(args);
            taken.copy_payload(payload);
            assert_eq!(bytes, sent, "frame {} of {from}", next[from]);
            next[from] += 1;
        }
        place.until("the end of the senders", || {
            assert!(inbox.poll().expect("no error").is_none());
            children.0.iter_mut().all(|child| child.try_wait().expect("a child").is_some())
        });
        for child in &mut children.0 {
            assert!(child.wait().expect("an exit").success());
        }
        assert_eq!(inbox.senders(), 0);
    }

    /// Sends until it is killed.
    fn hammer(place: &Place) -> ExitCode {
        let mut sender = place.open();
        for number in 0.. {
            let (header, payload) = frame(1, number);
            let parts = Parts { payload: &payload, ..Parts::default() };
            if sender.send(&header, parts).is_err() {
                break;
            }
        }
        ExitCode::FAILURE
    }

    fn the_banks_of_a_killed_sender_are_freed() {
        let (place, mut children) = rack_of(&["hammer"]);
        let mut inbox = place.export(1);
        for number in 0..1_000 {
            let frame = inbox.next_timeout(DEADLINE).expect("no error").expect("a frame");
            assert_eq!(frame.header().reply, number);
        }
        children.0[0].kill().expect("a kill");
        let mut number = 1_000;
        place.until("the loss", || {
            if let Some(frame) = inbox.poll().expect("no error") {
                assert_eq!(frame.header().reply, number, "a torn frame of the dead");
                number += 1;
            }
            inbox.senders() == 0
        });
        let mut own = place.open();
        own.send(&FrameHeader { reply: 1, ..FrameHeader::default() }, Parts::default())
            .expect("a frame");
        assert_eq!(inbox.next().expect("a frame").header().reply, 1);
    }

    /// Takes frames until it is killed.
    fn receive(place: &Place) -> ExitCode {
        let mut inbox = place.export(2);
        while inbox.next().is_ok() {}
        ExitCode::FAILURE
    }

    fn a_killed_receiver_is_lost() {
        let (place, mut children) = rack_of(&["receive"]);
        let mut sender = place.open();
        let mut send = || sender.send(&FrameHeader::default(), Parts::default());
        for _ in 0..1_000 {
            send().expect("a frame");
        }
        children.0[0].kill().expect("a kill");
        let lost: MailboxError = loop {
            if let Err(error) = send() {
                break error;
            }
        };
        assert!(lost.is_peer_lost(), "{lost:?}");
    }
}
