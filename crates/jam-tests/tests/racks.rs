//! Jams on racks: of threads, and of two processes that share memory. This program starts itself
//! again for each case, with a deadline; it has a `main` of its own, because a started host must not
//! run the tests.

mod common;
#[allow(dead_code, reason = "its `main`")]
#[path = "../../gossamer/examples/hot_patch.rs"]
mod hot_patch;

use std::process::ExitCode;
use std::time::Duration;

use gossamer::jam::mailbox::{FrameError, JamSender, Mailbox, ReactiveMailbox};
use gossamer::jam::{
    Digest, Inject, JamError, LoadedJam, Mode, Policy, Refusal, Sendable, offer, receiver, sent,
};
use gossamer::{Delegable, DelegateError, OnPeerLoss, Rack, Trust};
use gossamer_jam_tests::jams::faulty::FAULTY;
use gossamer_jam_tests::jams::indirect_put::{self, INDIRECT_PUT, PutArgs};
use gossamer_jam_tests::jams::nothing::NOTHING;
use gossamer_jam_tests::jams::parts::PARTS;
use gossamer_jam_tests::jams::relay::RELAY;
use gossamer_jam_tests::jams::scaled_sum::{SCALED_SUM, Sums};
use gossamer_jam_tests::jams::server_side_sum::SERVER_SIDE_SUM;
use gossamer_jam_tests::jams::slot::SLOT;
use gossamer_jam_tests::jams::weighted_sum::WEIGHTED_SUM;
use gossamer_jam_tests::{HOSTILE, Notes, Other, Table, UNSEEN, table_slot};

const CASES: &[common::Case] = &[
    ("every_mode_has_the_same_result", every_mode_has_the_same_result),
    ("calls_are_served_in_order", calls_are_served_in_order),
    ("a_panic_is_an_error_and_all_goes_on", a_panic_is_an_error_and_all_goes_on),
    ("each_call_of_a_run_has_its_own_end", each_call_of_a_run_has_its_own_end),
    ("a_run_has_parts_of_every_shape", a_run_has_parts_of_every_shape),
    ("a_forged_number_of_ended_calls_is_bounded", a_forged_number_is_bounded),
    ("large_payloads_arrive", large_payloads_arrive),
    ("evicted_jams_are_sent_again", evicted_jams_are_sent_again),
    ("unseen_code_runs_where_the_policy_admits_it", unseen_code_runs),
    ("hostile_jams_are_refused", hostile_jams_are_refused),
    ("mailboxes_run_jams_in_fibers", mailboxes_run_jams_in_fibers),
    ("a_mailbox_of_another_process_evicts", a_mailbox_evicts),
    ("jams_send_work_on", jams_send_work_on),
    ("jams_outside_a_rack_send_nothing_on", jams_outside_a_rack_send_nothing_on),
    ("hostile_code_that_is_not_admitted_does_nothing", hostile_code_does_nothing),
    ("frames_that_lie_link_nothing", frames_that_lie_link_nothing),
    ("jams_in_c_run_but_are_not_local", jams_in_c_run_but_are_not_local),
    ("delegated_code_does_not_wait_for_a_jam", delegated_code_does_not_wait_for_a_jam),
    ("a_function_is_replaced_under_load", a_function_is_replaced_under_load),
    (CRASH, a_crash_ends_its_process),
];

/// A case of processes only: one of them ends.
const CRASH: &str = "a_crash_of_an_admitted_jam_ends_its_process";

const MODES: [Mode; 4] = [Mode::Automatic, Mode::Cached, Mode::Injected, Mode::Local];

/// A table on each thread of the rack.
fn tables() -> Vec<Trust<Table>> {
    gossamer::trustees().map(|t| t.entrust_with(|()| Table::new(1 << 20), ())).collect()
}

/// Runs `what` on every host.
fn on_every_host(what: impl FnOnce() + Delegable) {
    gossamer::threads().for_each(|thread| gossamer::spawn_on(thread, what).join().unwrap());
}

fn every_mode_has_the_same_result() {
    for table in tables() {
        for (turn, mode) in (0..).zip(MODES) {
            for (round, bytes) in (0..).zip([&[][..], &[1, 2, 3], &[9; 60]]) {
                let key = turn * 3 + round;
                let args = PutArgs { key, offset: 2 };
                let at = table.inject(&INDIRECT_PUT.in_mode(mode), args, bytes).unwrap();
                assert_eq!(at, key as i64 * 64 + 2);
                let seen = table.apply_with(
                    |table, (at, len)| table.bytes()[at..at + len].to_vec(),
                    (at as usize, bytes.len()),
                );
                assert_eq!(seen, bytes);
            }
            let outside = PutArgs { key: 0, offset: 1 << 40 };
            assert_eq!(table.inject(&INDIRECT_PUT.in_mode(mode), outside, &[1]).unwrap(), -1);
            let sums = table.inject(&SCALED_SUM.in_mode(mode), 10, &[1, 20, 3]).unwrap();
            assert_eq!(sums, Sums { sum: 240, greatest: 20, count: 3 });
            table.inject(&NOTHING.in_mode(mode), (), &[]).unwrap();
            let sum = table.inject(&SERVER_SIDE_SUM.in_mode(mode), (), &[-1, 20, 3]).unwrap();
            assert_eq!(sum, 22);
        }
    }
    assert_eq!(indirect_put::NAME, "indirect_put");
}

fn calls_are_served_in_order() {
    use std::cell::RefCell;
    use std::rc::Rc;
    for table in tables() {
        let seen = Rc::new(RefCell::new(Vec::new()));
        for key in 0..200 {
            let seen = seen.clone();
            // Places are given in the order of arrival, for any caller.
            if key % 2 == 1 {
                table.apply_with_then(table_slot, key, move |at: u64| {
                    seen.borrow_mut().push(at as i64);
                });
                continue;
            }
            let args = PutArgs { key, offset: 0 };
            // The first of them carries the code.
            table.inject_then(&INDIRECT_PUT, args, &[7; 8], move |at| {
                seen.borrow_mut().push(at.unwrap());
            });
        }
        // Behind all of them.
        table.apply(|_| ());
        let expected: Vec<i64> = (0..200).map(|key| key * 64).collect();
        assert_eq!(*seen.borrow(), expected);
        // One that asks for code gets it.
        let (gone, done) = (SCALED_SUM.in_mode(Mode::Cached), Rc::new(RefCell::new(None)));
        let sums = done.clone();
        table.inject_then(&gone, 1, &[4], move |result| *sums.borrow_mut() = Some(result));
        while done.borrow().is_none() {
            gossamer::yield_now();
        }
        assert_eq!(done.take().unwrap().unwrap().sum, 4);
    }
}

fn a_panic_is_an_error_and_all_goes_on() {
    on_every_host(|| receiver().set_log(|host, line| assert!(host < 9 && line == "not failing")));
    for (number, table) in (1..).zip(tables()) {
        for mode in MODES {
            let faulty = FAULTY.in_mode(mode);
            let panic_of = |how| match table.inject(&faulty, how, &[]) {
                Err(JamError::Panicked { jam, source }) if jam == "faulty" => source,
                other => panic!("{mode:?}: {other:?}"),
            };
            assert_eq!(table.inject(&faulty, 0, &[]).unwrap(), 7);
            let told = panic_of(1);
            assert_eq!(told.message, "as it was told");
            assert!(told.file.ends_with("jams/faulty.rs") && told.line == 19, "{mode:?}: {told}");
            let bounds = panic_of(2);
            assert_eq!(bounds.line, 20, "{mode:?}: {bounds}");
            if mode == Mode::Local {
                assert!(bounds.message.starts_with("index out of bounds"));
            }
            let of_export = panic_of(3);
            assert_eq!(of_export.message, "table panic 3");
            let (file, line) = (&of_export.file, of_export.line);
            assert!(file.ends_with("src/lib.rs") && line > 0, "{mode:?}: {of_export}");
            assert_eq!(table.inject(&faulty, 4, &[]).unwrap(), 0, "the sender is host 0");
        }
        assert_eq!(table.apply(|table| table.panics), MODES.len() as u32, "table {number}");
    }
}

/// A trustee hands calls behind each other to the jam as one run. Those that panic end alone.
fn each_call_of_a_run_has_its_own_end() {
    use std::cell::RefCell;
    use std::rc::Rc;
    for table in tables() {
        // From now on calls have its handle.
        assert_eq!(table.inject(&FAULTY, 0, &[]).unwrap(), 7);
        let hows: Vec<u64> = (0..400).map(|call| [0, 0, 1, 0, 3, 3, 2][call * call % 7]).collect();
        let ended = Rc::new(RefCell::new(Vec::new()));
        for how in hows.clone() {
            let ended = ended.clone();
            table.inject_then(&FAULTY, how, &[], move |end| ended.borrow_mut().push(end));
        }
        // Behind all of them.
        let panics = table.apply(|table| table.panics);
        assert_eq!(panics as usize, hows.iter().filter(|how| **how == 3).count());
        while ended.borrow().len() < hows.len() {
            gossamer::yield_now();
        }
        for (how, end) in hows.into_iter().zip(ended.take()) {
            match (how, end) {
                (0, Ok(7)) => {}
                (1, Err(JamError::Panicked { source, .. })) => assert_eq!(source.line, 19),
                (2, Err(JamError::Panicked { source, .. })) => assert_eq!(source.line, 20),
                (3, Err(JamError::Panicked { source, .. })) => {
                    assert_eq!(source.message, "table panic 3");
                }
                (how, end) => panic!("{how}: {end:?}"),
            }
        }
    }
}

/// Arguments are read and results written where the calls lie, in a batch.
fn a_run_has_parts_of_every_shape() {
    use std::cell::Cell;
    use std::rc::Rc;
    for table in tables() {
        for mode in [Mode::Automatic, Mode::Local] {
            let (parts, slot) = (PARTS.in_mode(mode), SLOT.in_mode(mode));
            let (sent, ended) = (Cell::new(0), Rc::new(Cell::new(0)));
            let end = || {
                sent.set(sent.get() + 1);
                let ended = ended.clone();
                move || ended.set(ended.get() + 1)
            };
            for round in 0..40_u8 {
                // Runs of every length, the first of which only learn the handles.
                for call in 0..round {
                    let (args, end) = ([round ^ call; 11], end());
                    table.inject_then(&parts, args, &[], move |result| {
                        let expected = |at: usize| match at {
                            0..11 => round ^ call,
                            _ => (round ^ call).wrapping_add(at as u8),
                        };
                        assert_eq!(result.unwrap(), std::array::from_fn(expected));
                        end();
                    });
                }
                for call in 0..u64::from(round) {
                    let end = end();
                    table.inject_then(&slot, call, &[], move |result| {
                        assert_eq!(result.unwrap() % 64, 0);
                        end();
                    });
                }
                for call in 0..i64::from(round) {
                    let end = end();
                    table.inject_then(&WEIGHTED_SUM, call + 1, &[], move |result| {
                        assert_eq!(result.unwrap(), 0, "the payload is empty");
                        end();
                    });
                }
                table.apply(|_| ());
            }
            while ended.get() < sent.get() {
                gossamer::yield_now();
            }
        }
    }
}

/// A jam that claims that more calls of its run have ended than it has fails one of them; what the others
/// get is its own affair. The trustee goes on.
fn a_forged_number_is_bounded() {
    use std::cell::RefCell;
    use std::rc::Rc;
    on_every_host(|| receiver().set_policy(Policy::AnyPeer));
    let jam = LoadedJam::<(), [u64; 2], (), u64>::from_blob(&hostile("forge_done")).unwrap();
    for table in tables() {
        assert_eq!(table.inject(&jam, [7, 0], &[]).unwrap(), 7);
        for done in [1, 41, 42, 43, 1 << 32, u64::MAX] {
            let ended = Rc::new(RefCell::new(Vec::new()));
            for call in 0..84 {
                let (args, ended) = ([call, if call % 42 == 20 { done } else { 0 }], ended.clone());
                table.inject_then(&jam, args, &[], move |end| ended.borrow_mut().push(end));
            }
            let last = table.inject(&jam, [9, 0], &[]);
            assert_eq!((last.unwrap(), ended.borrow().len()), (9, 84), "{done}");
            let failed: Vec<_> = ended.take().into_iter().filter_map(Result::err).collect();
            assert!(!failed.is_empty(), "a call fails that panics: {done}");
            for error in failed {
                let JamError::Panicked { source, .. } = error else { panic!("{error:?}") };
                assert_eq!(source.message, "forged");
            }
        }
        assert_eq!(table.apply(|table| table.panics), 0, "it goes on");
    }
}

fn jams_in_c_run_but_are_not_local() {
    for table in tables() {
        for mode in [Mode::Automatic, Mode::Cached, Mode::Injected] {
            let sum = WEIGHTED_SUM.in_mode(mode);
            for weight in 1..4 {
                assert_eq!(table.inject(&sum, weight, &[1, -2, 30]).unwrap(), 29 * weight);
            }
            match table.inject(&sum, 0, &[]) {
                Err(JamError::Panicked { source, .. }) => {
                    assert_eq!(source.message, "table panic 9")
                }
                other => panic!("{mode:?}: {other:?}"),
            }
        }
        match table.inject(&WEIGHTED_SUM.in_mode(Mode::Local), 1, &[]) {
            Err(JamError::Refused { source, .. }) => assert_eq!(source, Refusal::NoLocalInC),
            other => panic!("{other:?}"),
        }
    }
}

/// A closure that waits would keep its trustee from serving the jam.
fn delegated_code_does_not_wait_for_a_jam() {
    for table in tables() {
        let here = gossamer::local_trustee().entrust(());
        for (number, mode) in MODES.into_iter().enumerate() {
            // Without a handle of the jam, and with one.
            for _ in 0..2 {
                let waits = |_: &mut (), (table, number): (Trust<Table>, usize)| {
                    table.inject(&SLOT.in_mode(MODES[number]), 1, &[]).is_ok()
                };
                let refused = here.try_apply_with(waits, (table.clone(), number)).unwrap_err();
                let refused = refused.to_string();
                assert!(refused.contains("would wait inside"), "{mode:?}: {refused}");
                assert_eq!(table.inject(&SLOT.in_mode(mode), 1, &[]).unwrap(), 0, "all goes on");
            }
        }
    }
}

fn a_function_is_replaced_under_load() {
    on_every_host(|| receiver().set_policy(Policy::AnyPeer));
    hot_patch::patch(500);
}

fn large_payloads_arrive() {
    let words: Vec<u32> = (0..100_000).collect();
    for table in tables() {
        for mode in MODES {
            let sums = table.inject(&SCALED_SUM.in_mode(mode), 1, &words).unwrap();
            assert_eq!(sums.sum, 99_999 * 50_000);
        }
    }
}

/// Calls by handle whose jam is gone when they arrive: none is lost, even if the trust is.
fn evicted_jams_are_sent_again() {
    use std::cell::RefCell;
    use std::rc::Rc;
    on_every_host(|| receiver().set_policy(Policy::AnyPeer));
    let price = Price::from_blob(&unseen("price")).unwrap();
    for table in tables() {
        for round in 0..3 {
            // With these, handles are known.
            for _ in 0..2 {
                assert_eq!(table.inject(&price, 5, &[]).unwrap(), 17);
                assert_eq!(table.inject(&SCALED_SUM, 2, &[4]).unwrap().sum, 8);
            }
            // Behind calls that are under way.
            on_every_host(|| receiver().set_policy(Policy::AnyPeer));
            if round == 0 {
                assert_eq!(table.inject(&price, 5, &[]).unwrap(), 17);
                assert_eq!(
                    table.inject(&SCALED_SUM.in_mode(Mode::Cached), 2, &[4]).unwrap().sum,
                    8
                );
                on_every_host(|| receiver().set_policy(Policy::AnyPeer));
            }
            let ended = Rc::new(RefCell::new((Vec::new(), Vec::new())));
            let again = table.clone();
            for number in 0..60 {
                let (one, other) = (ended.clone(), ended.clone());
                again.inject_then(&price, number, &[], move |result| {
                    one.borrow_mut().0.push(result.unwrap());
                });
                let long: Vec<u32> = (0..if number % 2 == 0 { 5 } else { 3000 }).collect();
                let expected = 3 * long.iter().map(|word| u64::from(*word)).sum::<u64>();
                again.inject_then(&SCALED_SUM, 3, &long, move |result| {
                    other.borrow_mut().1.push(result.unwrap().sum == expected);
                });
            }
            drop(again);
            while ended.borrow().0.len() + ended.borrow().1.len() < 120 {
                gossamer::yield_now();
            }
            let (prices, sums) = ended.take();
            let mut expected: Vec<u64> =
                (0..60).map(|n| table.inject(&price, n, &[]).unwrap()).collect();
            expected.sort_unstable();
            let mut prices = prices;
            prices.sort_unstable();
            assert_eq!(prices, expected);
            assert!(sums.iter().all(|is_right| *is_right));
        }
    }
}

type Price = LoadedJam<&'static mut indirect_put::Table, u64, (), u64>;
type NoArgs = LoadedJam<&'static mut indirect_put::Table, (), (), u64>;

fn unseen(name: &str) -> Vec<u8> {
    gossamer::jam::Package::parse(UNSEEN).unwrap().blob(name).unwrap().to_vec()
}

fn unseen_code_runs() {
    let price = Price::from_blob(&unseen("price")).unwrap();
    for table in tables() {
        match table.inject(&price, 5, &[]) {
            Err(JamError::Refused { source: Refusal::Policy { .. }, .. }) => {}
            other => panic!("the default policy is `Signed`: {other:?}"),
        }
        table.inject(&NOTHING, (), &[]).unwrap();
    }
    on_every_host(|| receiver().set_policy(Policy::AnyPeer));
    for table in tables() {
        assert_eq!(table.inject(&price, 5, &[]).unwrap(), 17);
        assert_eq!(table.inject(&price, 6, &[]).unwrap(), 64_017);
        match table.inject(&price.in_mode(Mode::Local), 6, &[]) {
            Err(JamError::Refused { source: Refusal::NotLocal, .. }) => {}
            other => panic!("{other:?}"),
        }
    }
    on_every_host(|| receiver().set_policy(Policy::Nothing));
    let again = Price::from_blob(&unseen("price")).unwrap();
    let table = &tables()[0];
    match table.inject(&again.in_mode(Mode::Injected), 5, &[]) {
        Err(JamError::Refused { source: Refusal::Policy { .. }, .. }) => {}
        other => panic!("{other:?}"),
    }
    for mode in MODES {
        match table.inject(&NOTHING.in_mode(mode), (), &[]) {
            Err(JamError::Refused { source: Refusal::Policy { .. }, .. }) => {}
            other => panic!("{mode:?}: {other:?}"),
        }
    }
}

fn hostile_jams_are_refused() {
    on_every_host(|| receiver().set_policy(Policy::AnyPeer));
    let types = LoadedJam::<(), u64, (), u64>::from_blob(&unseen("price"));
    assert!(matches!(types, Err(JamError::Unusable { .. })), "{types:?}");
    let truncated = Price::from_blob(&unseen("price")[..100]);
    assert!(matches!(truncated, Err(JamError::Unusable { .. })), "{truncated:?}");
    for table in tables() {
        let missing = NoArgs::from_blob(&unseen("missing")).unwrap();
        match table.inject(&missing, (), &[]) {
            Err(JamError::Refused { source: Refusal::MissingSymbol { symbol, .. }, .. }) => {
                assert_eq!(symbol, "table_vanish");
            }
            other => panic!("{other:?}"),
        }
        // A package has the text of the types; a blob has not.
        let package = gossamer::jam::Package::parse(UNSEEN).unwrap();
        for (wrong, jam) in [
            (package.find("wrong_types").unwrap(), "`fn table_slot("),
            (NoArgs::from_blob(&unseen("wrong_types")).unwrap(), "\"table_slot\" with signature "),
        ] {
            let wrong: NoArgs = wrong;
            match table.inject(&wrong, (), &[]) {
                Err(JamError::Refused { source, .. }) => {
                    let message = source.to_string();
                    let expected = [
                        "the jam expects ",
                        jam,
                        ", the receiver exports `fn table_slot(&mut Table, u64) -> u64` (",
                    ];
                    assert!(expected.iter().all(|part| message.contains(part)), "{message}");
                }
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(table.inject(&SCALED_SUM, 2, &[4]).unwrap().sum, 8, "it goes on");
    }
    let other = gossamer::entrust(Other);
    let wrong = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        other.inject(&INDIRECT_PUT, PutArgs { key: 0, offset: 0 }, &[])
    }));
    assert!(wrong.is_err(), "the jam works on another type of property");
    assert_eq!(other.inject(&SCALED_SUM, 2, &[4]).unwrap().sum, 8, "this one on any");
}

/// Runs the jams of `calls` frames that come to the mailbox `name` on a table, evicting all code behind
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
fn mailboxes_run_jams_in_fibers() {
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

fn a_mailbox_evicts() {
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
    // Behind all that was sent on.
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

fn jams_send_work_on() {
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

fn jams_outside_a_rack_send_nothing_on() {
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

/// A jam of the package whose jams break rules.
fn hostile(name: &str) -> Vec<u8> {
    gossamer::jam::Package::parse(HOSTILE).unwrap().blob(name).unwrap().to_vec()
}

fn hostile_code_does_nothing() {
    let write = LoadedJam::<(), u64, (), u64>::from_blob(&hostile("wild_write")).unwrap();
    let endless = LoadedJam::<(), (), (), u64>::from_blob(&hostile("endless")).unwrap();
    for policy in [Policy::Signed, Policy::Nothing] {
        match policy {
            Policy::Nothing => on_every_host(|| receiver().set_policy(Policy::Nothing)),
            _ => on_every_host(|| receiver().set_policy(Policy::Signed)),
        }
        for table in tables() {
            for mode in MODES {
                let results = [
                    table.inject(&write.in_mode(mode), 8, &[]),
                    table.inject(&endless.in_mode(mode), (), &[]),
                ];
                for result in results {
                    match result {
                        Err(JamError::Refused { source: Refusal::Policy { .. }, .. }) => {}
                        // There is none, and none is asked for.
                        Err(JamError::Refused { source: Refusal::NotLocal, .. })
                            if mode == Mode::Local => {}
                        other => panic!("{policy:?} {mode:?}: {other:?}"),
                    }
                }
            }
            assert_eq!(table.apply(|table| table.panics), 0, "it goes on");
            if policy == Policy::Signed {
                assert_eq!(table.inject(&SCALED_SUM, 2, &[4]).unwrap().sum, 8);
            }
        }
    }
}

fn frames_that_lie_link_nothing() {
    on_every_host(|| receiver().set_policy(Policy::AnyPeer));
    let (good, other) = (hostile("sum"), hostile("endless"));
    let (digest, before) = (Digest::of(&good), receiver().size());
    match receiver().receive(&other, digest) {
        Err(Refusal::Digest { claimed, .. }) => assert_eq!(claimed, digest.to_string()),
        other => panic!("a forged digest: {other:?}"),
    }
    for len in 0..good.len() {
        let cut = &good[..len];
        let refused = receiver().receive(cut, Digest::of(cut));
        assert!(matches!(refused, Err(Refusal::Malformed { .. })), "{len} bytes: {refused:?}");
    }
    for at in 0..good.len() {
        let mut changed = good.clone();
        changed[at] ^= 1 << (at % 8);
        assert!(receiver().receive(&changed, digest).is_err(), "byte {at} is another");
    }
    assert_eq!(receiver().size(), before);
    // What arrived is copied: its sender changes the frame and nothing else.
    let mut frame = good.clone();
    receiver().receive(&frame, digest).unwrap();
    frame.fill(0xcc);
    let sum = LoadedJam::<(), u64, u32, u64>::from_blob(&good).unwrap();
    let table = gossamer::entrust(Table::new(64));
    assert_eq!(table.inject(&sum.in_mode(Mode::Cached), 2, &[1, 2]).unwrap(), 6);
    // A frame that is sent again is linked once, and runs again.
    let linked = receiver().size();
    for _ in 0..3 {
        receiver().receive(&good, digest).unwrap();
        assert_eq!(table.inject(&sum.in_mode(Mode::Injected), 2, &[1, 2]).unwrap(), 6);
    }
    assert_eq!(receiver().size(), linked);
}

fn a_crash_ends_its_process() {
    on_every_host(|| receiver().set_policy(Policy::AnyPeer));
    let write = LoadedJam::<(), u64, (), u64>::from_blob(&hostile("wild_write")).unwrap();
    let tables = tables();
    let [first, second, third] = &tables[..] else { panic!("one for each host") };
    match third.inject(&write, 8, &[]) {
        Err(JamError::Delegate { jam, source: DelegateError::PeerLost { .. } }) => {
            assert_eq!(jam, "wild_write");
        }
        other => panic!("{other:?}"),
    }
    for table in [first, second] {
        assert_eq!(table.inject(&SCALED_SUM, 2, &[4]).unwrap().sum, 8, "they go on");
    }
    assert!(third.inject(&SCALED_SUM, 2, &[4]).is_err());
}

/// The crash needs a process to end, and two more that go on.
fn rack(case: &str) -> Option<Rack> {
    match case.strip_suffix(CRASH) {
        Some("processes_") => {
            Some(Rack::new().hosts(3).threads(1).on_peer_loss(OnPeerLoss::Return))
        }
        Some(_) => None,
        None => common::rack(case),
    }
}

fn main() -> ExitCode {
    common::run_all_on(CASES, rack)
}
