//! Calls of jams: the same results in every mode, in order, each with its own end.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Mutex;

use gossamer::Trust;
use gossamer::jam::{Inject, JamError, Mode, Sendable, receiver};
use gossamer_jam_tests::jams::faulty::FAULTY;
use gossamer_jam_tests::jams::indirect_put::{self, INDIRECT_PUT, PutArgs};
use gossamer_jam_tests::jams::label::LABEL;
use gossamer_jam_tests::jams::nothing::NOTHING;
use gossamer_jam_tests::jams::parts::PARTS;
use gossamer_jam_tests::jams::scaled_sum::{SCALED_SUM, Sums};
use gossamer_jam_tests::jams::server_side_sum::SERVER_SIDE_SUM;
use gossamer_jam_tests::jams::slot::SLOT;
use gossamer_jam_tests::jams::weighted_sum::WEIGHTED_SUM;
use gossamer_jam_tests::{Table, table_slot};

use crate::play::{MODES, on_every_host, tables};

pub(crate) fn every_mode_has_the_same_result() {
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

pub(crate) fn calls_are_served_in_order() {
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
        // After all of them.
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

pub(crate) fn a_panic_is_an_error_and_all_goes_on() {
    static LINES: Mutex<Vec<(u32, String)>> = Mutex::new(Vec::new());
    on_every_host(|| {
        receiver().set_log(|host, line| LINES.lock().unwrap().push((host, line.to_owned())));
    });
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
    on_every_host(|| {
        let lines = LINES.lock().unwrap();
        assert!(lines.len() >= MODES.len(), "{lines:?}");
        assert!(lines.iter().all(|line| *line == (0, "not failing".to_owned())), "{lines:?}");
    });
}

/// A trustee hands consecutive calls to the jam as one run. Those that panic end alone.
pub(crate) fn each_call_of_a_run_has_its_own_end() {
    for table in tables() {
        // From now on calls have its handle.
        assert_eq!(table.inject(&FAULTY, 0, &[]).unwrap(), 7);
        let hows: Vec<u64> = (0..400).map(|call| [0, 0, 1, 0, 3, 3, 2][call * call % 7]).collect();
        let ended = Rc::new(RefCell::new(Vec::new()));
        for how in hows.clone() {
            let ended = ended.clone();
            table.inject_then(&FAULTY, how, &[], move |end| ended.borrow_mut().push(end));
        }
        // After all of them.
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
pub(crate) fn a_run_has_parts_of_every_shape() {
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

pub(crate) fn large_payloads_arrive() {
    let words: Vec<u32> = (0..100_000).collect();
    for table in tables() {
        for mode in MODES {
            let sums = table.inject(&SCALED_SUM.in_mode(mode), 1, &words).unwrap();
            assert_eq!(sums.sum, 99_999 * 50_000);
        }
    }
}

pub(crate) fn jams_in_c_run() {
    for table in tables() {
        for mode in MODES {
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
    }
}

/// Also by a Local Function, which the receiver's own compiler made.
pub(crate) fn text_from_a_jam_in_c_is_checked() {
    for table in tables() {
        for mode in MODES {
            let label = LABEL.in_mode(mode);
            assert_eq!(table.inject(&label, (), "grün".as_bytes()).unwrap(), 4);
            match table.inject(&label, (), &[0xff, 0xfe]) {
                Err(JamError::Panicked { source, .. }) => {
                    let expected = "parameter \"text\" of \"table_label\" is not text in UTF-8";
                    assert!(source.message.starts_with(expected), "{mode:?}: {source}");
                }
                other => panic!("{mode:?}: {other:?}"),
            }
            assert_eq!(table.inject(&label, (), &[]).unwrap(), 0);
        }
    }
}

/// A closure that waits would keep its trustee from serving the jam.
pub(crate) fn delegated_code_does_not_wait_for_a_jam() {
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
