//! Mailboxes in fibers and between processes, and work that jams send on.

use std::time::Duration;

use gossamer::Trust;
use gossamer::jam::mailbox::{FrameError, JamSender, Mailbox, ReactiveMailbox};
use gossamer::jam::{Inject, Mode, Policy, Sendable, offer, receiver, sent};
use gossamer_jam_tests::jams::faulty::FAULTY;
use gossamer_jam_tests::jams::relay::RELAY;
use gossamer_jam_tests::jams::slot::SLOT;
use gossamer_jam_tests::{Notes, Other, Table, table_slot};

use crate::play::{MODES, on_every_host};

/// Runs the jams of `calls` frames that come to the mailbox `name` on a table, evicting all code after
/// every `evict_every`th; returns the places of keys from 0 on, and how often code was fetched.
fn serve(name: &str, calls: u64, evict_every: u64) -> (Vec<u64>, u64) {
    let builder = Mailbox::builder(name).banks(2).frames(4).frame_bytes(2048).senders(2);
    let mailbox = builder.export(&gossamer::segments()).unwrap();
    let mut inbox = ReactiveMailbox::new(mailbox).with(Table::new(1 << 16));
    while inbox.stats().ran() < calls {
        inbox.next().unwrap().into_result().unwrap();
        if inbox.stats().ran().is_multiple_of(evict_every) {
            receiver().set_policy(Policy::Signed);
        }
    }
    // The sender waits for that.
    inbox.tell_senders();
    let table = inbox.get_mut::<Table>().unwrap();
    ((0..calls).map(|key| table_slot(table, key)).collect(), inbox.stats().fetched())
}

fn open_mailbox(name: &str) -> JamSender {
    JamSender::open(&gossamer::segments(), name, Duration::from_secs(30)).unwrap()
}

/// Each thread of the rack has a mailbox, and this one sends to all of them.
pub(crate) fn mailboxes_run_jams_in_fibers() {
    const CALLS: u64 = 500;
    let threads: Vec<_> = gossamer::threads().collect();
    let serving: Vec<_> = (0..)
        .zip(&threads)
        .map(|(number, thread)| {
            gossamer::spawn_on_with(
                *thread,
                |number: u64| serve(&format!("box-{number}"), CALLS, u64::MAX),
                number,
            )
        })
        .collect();
    let mut senders: Vec<_> =
        (0..threads.len()).map(|number| open_mailbox(&format!("box-{number}"))).collect();
    for key in 0..CALLS {
        let mode = MODES[key as usize % MODES.len()];
        for sender in &mut senders {
            sender.send(&SLOT.in_mode(mode), key, &[]).unwrap();
        }
    }
    for sender in &mut senders {
        let report = sender.flush(Duration::from_secs(30)).unwrap();
        assert_eq!((report.handled, report.failed), (CALLS, 0));
    }
    for serving in serving {
        let (places, _) = serving.join().unwrap();
        assert_eq!(places, (0..CALLS).map(|key| key * 64).collect::<Vec<_>>());
    }
    // A jam runs in delegated context: what it calls may not wait.
    let inbox = Mailbox::builder("waits").frame_bytes(2048).export(&gossamer::segments()).unwrap();
    let mut inbox = ReactiveMailbox::new(inbox).with(Table::new(64));
    let mut sender = open_mailbox("waits");
    for mode in [Mode::Automatic, Mode::Local] {
        sender.send(&FAULTY.in_mode(mode), 5, &[]).unwrap();
        let failure = inbox.next().unwrap().into_result().unwrap_err();
        let FrameError::Panicked(panicked) = failure.reason else { panic!("{failure:?}") };
        assert!(panicked.message.contains("would wait inside"), "{panicked}");
    }
    sender.send(&FAULTY, 0, &[]).unwrap();
    inbox.next().unwrap().into_result().unwrap();
    gossamer::yield_now();
}

pub(crate) fn a_mailbox_evicts() {
    const CALLS: u64 = 300;
    let thread = gossamer::threads().last().unwrap();
    let serving = gossamer::spawn_on(thread, || serve("evicts", CALLS, 3));
    let mut sender = open_mailbox("evicts");
    for key in 0..CALLS {
        sender.send(&SLOT, key, &[]).unwrap();
    }
    let report = sender.close(Duration::from_secs(30)).unwrap();
    assert_eq!((report.handled, report.failed), (CALLS, 0));
    let (places, fetched) = serving.join().unwrap();
    assert_eq!(places, (0..CALLS).map(|key| key * 64).collect::<Vec<_>>());
    assert_eq!(fetched, CALLS / 3 - 1, "once behind each eviction");
}

/// Runs `relay` on this thread, by `inject` and in a mailbox, while it offers these notes.
fn relay(number: u64, notes: Trust<Notes>) {
    let offer = offer("notes", &notes).unwrap();
    let again = gossamer::jam::offer("notes", &notes).unwrap_err();
    assert_eq!(again.name, "notes");
    let other = gossamer::local_trustee().entrust(Other);
    let name = format!("relay-{number}");
    let inbox = Mailbox::builder(&name).frame_bytes(2048).export(&gossamer::segments()).unwrap();
    let mut inbox = ReactiveMailbox::new(inbox);
    let mut sender = open_mailbox(&name);
    let expected = [sent::ON_ITS_WAY, sent::NO_TRUST, sent::NO_FUNCTION, sent::ON_ITS_WAY];
    for (turn, mode) in (0..).zip(MODES) {
        let answer = other.inject(&RELAY.in_mode(mode), (), &[number as u8, turn]);
        assert_eq!(answer.unwrap(), expected);
        sender.send(&RELAY.in_mode(mode), (), &[number as u8, turn, 1]).unwrap();
        inbox.next().unwrap().into_result().unwrap();
    }
    drop(offer);
    let gone = other.inject(&RELAY, (), &[]).unwrap();
    assert_eq!(gone, [sent::NO_TRUST; 4]);
    // After all that was sent on.
    let kept = notes.apply_with(
        |notes, number| {
            notes.0.iter().filter(|note| note[0] == number).cloned().collect::<Vec<_>>()
        },
        number as u8,
    );
    let turns = (0..MODES.len() as u8).flat_map(|turn| [vec![turn], vec![turn, 1]]);
    let expected: Vec<_> = turns.map(|turn| [vec![number as u8], turn].concat()).collect();
    assert_eq!(kept, expected);
}

pub(crate) fn jams_send_work_on() {
    use std::sync::atomic::{AtomicUsize, Ordering};
    static FAILED: AtomicUsize = AtomicUsize::new(0);
    on_every_host(|| {
        receiver().set_log(|_, line| {
            assert!(line.starts_with("send_then of \"note_panic\" failed"), "{line}");
            FAILED.fetch_add(1, Ordering::Relaxed);
        });
    });
    let notes = gossamer::entrust(Notes::default());
    for (number, thread) in (0..).zip(gossamer::threads()) {
        gossamer::spawn_on_with(
            thread,
            |(number, notes): (u64, Trust<Notes>)| relay(number, notes),
            (number, notes.clone()),
        )
        .join()
        .unwrap();
    }
    // Those of this thread at least.
    assert!(FAILED.load(Ordering::Relaxed) >= 2 * MODES.len());
}

pub(crate) fn jams_outside_a_rack_send_nothing_on() {
    let notes = gossamer::entrust(Notes::default());
    let theirs = notes.clone();
    let answers = std::thread::spawn(move || {
        let offer = offer("notes", &theirs).unwrap();
        let answers = [("notes", "note"), ("nobody", "note"), ("notes", "no_note")]
            .map(|(trust, function)| gossamer::jam::send_then(trust, function, b"1"));
        drop(offer);
        (answers, theirs)
    });
    let (answers, theirs) = answers.join().expect("it gets a code, and no panic");
    assert_eq!(answers, [sent::OUTSIDE, sent::NO_TRUST, sent::NO_FUNCTION]);
    drop(theirs);
    assert_eq!(notes.apply(|notes| notes.0.len()), 0);
}
