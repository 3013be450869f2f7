//! Calls of a property of another host of a rack: jams in each form, and `apply` of the same functions.
//!
//! Host 0 of a rack of two sends them to a property of host 1.

use std::cell::Cell;
use std::hint::black_box;

use gossamer::Trust;
use gossamer::jam::{Inject, Sendable};
use jam_tests::jams::indirect_put::{INDIRECT_PUT, PutArgs};
use jam_tests::jams::mixed::{MIXED, mixed};
use jam_tests::jams::server_side_sum::SERVER_SIDE_SUM;
use jam_tests::jams::slot::SLOT;
use jam_tests::{Table, table_push, table_slot, table_write};

use super::{FORMS, FUNCTIONS, Form, Function, KEYS, PAYLOADS, TABLE};
use crate::measure::watch::WaitMode;
use crate::product::sample::{Load, StopFlag};

/// Calls under way where the rate is measured.
const WINDOW: u64 = 64;
/// Calls between two looks at the flag that ends them.
const BURST: usize = 16;
thread_local! {
    /// Calls of this thread that have ended. A sample has a process of its own.
    static DONE: Cell<u64> = const { Cell::new(0) };
}

/// Calls of host 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JamPlan {
    /// What they run.
    pub function: Function,
    /// How.
    pub form: Form,
    /// Bytes of their payload.
    pub bytes: usize,
    /// Whether many of them are under way, or one.
    pub has_window: bool,
}

impl JamPlan {
    /// Its name in the environment of the hosts.
    pub fn text(self) -> String {
        let window = if self.has_window { ", many" } else { "" };
        format!("{}, {}, {} bytes{window}", self.function.text(), self.form.text(), self.bytes)
    }

    /// The plan of this name.
    pub fn named(text: &str) -> Option<JamPlan> {
        let bytes = || PAYLOADS.into_iter().chain([0]);
        let functions = FUNCTIONS.into_iter().flat_map(|it| FORMS.map(|form| (it, form)));
        let all = functions.flat_map(|(function, form)| {
            bytes().flat_map(move |bytes| {
                [false, true].map(|has_window| JamPlan { function, form, bytes, has_window })
            })
        });
        all.into_iter().find(|plan| plan.text() == text)
    }

    /// Starts a fiber that makes the calls. To be called on host 0 of a rack of two hosts of one thread
    /// each.
    ///
    /// # Panics
    /// If there is no second thread.
    pub fn start(self) -> Load {
        let other = gossamer::threads().nth(1).expect("a rack of two");
        let table = other.entrust_with(Table::new, TABLE);
        let caller = Caller {
            table,
            form: self.form,
            numbers: (0..self.bytes as i32 / 4).collect(),
            bytes: vec![7; self.bytes],
        };
        // The first jam of a process prepares it, which takes the kernel some 15 milliseconds.
        caller.call(self.function, 0);
        let stop = StopFlag::default();
        let is_over = stop.clone();
        let limit = if self.has_window { WINDOW } else { 1 };
        let fiber = gossamer::spawn(move || caller.run(self, limit, &is_over));
        Load { stop, fibers: vec![fiber], done: Box::new(|| DONE.get()), others: WaitMode::Polls }
    }
}

/// Who makes calls.
struct Caller {
    table: Trust<Table>,
    form: Form,
    numbers: Vec<i32>,
    bytes: Vec<u8>,
}

/// Server-Side Sum as a closure.
fn sum(table: &mut Table, numbers: Vec<i32>) -> i64 {
    let sum = numbers.iter().map(|number| i64::from(*number)).sum();
    table_push(table, sum);
    sum
}

/// Indirect Put as a closure.
fn put(table: &mut Table, (key, bytes): (u64, Vec<u8>)) -> i64 {
    let at = table_slot(table, key);
    if table_write(table, at, &bytes) { at as i64 } else { -1 }
}

/// Makes calls until it is over, and waits for the last ones: `call` gets the number of each, has
/// [`DONE`] counted, and is a function of its own for each function and form, as in a program, which
/// knows what it calls.
#[inline(always)]
fn keep(limit: u64, is_over: &StopFlag, call: impl Fn(u64)) {
    let mut sent = 0;
    while !is_over.is_set() {
        for _ in 0..BURST {
            while sent - DONE.get() >= limit {
                gossamer::yield_now();
            }
            call(sent % KEYS);
            sent += 1;
        }
    }
    while DONE.get() < sent {
        gossamer::yield_now();
    }
}

/// Notes that a call has ended.
#[inline(always)]
fn done() {
    DONE.set(DONE.get() + 1);
}

impl Caller {
    /// Makes the calls of a plan.
    fn run(&self, plan: JamPlan, limit: u64, is_over: &StopFlag) {
        if !plan.has_window {
            return keep(limit, is_over, |key| {
                self.call(plan.function, key);
                done();
            });
        }
        let Caller { table, numbers, bytes, .. } = self;
        let args = |key| PutArgs { key, offset: 0 };
        match (plan.function, plan.form) {
            (Function::Sum, Form::Apply) => keep(limit, is_over, |_| {
                table.apply_with_then(sum, numbers.clone(), move |_| done());
            }),
            (Function::Put, Form::Apply) => keep(limit, is_over, |key| {
                table.apply_with_then(put, (key, bytes.clone()), move |_| done());
            }),
            (Function::Slot, Form::Apply) => keep(limit, is_over, |key| {
                table.apply_with_then(table_slot, key, move |_: u64| done());
            }),
            (Function::Mixed, Form::Apply) => keep(limit, is_over, |word| {
                table.apply_with_then(|_, word| mixed(word), word, move |_: u64| done());
            }),
            (Function::Sum, Form::Cached) => {
                inject(table, &SERVER_SIDE_SUM, (limit, is_over), |_| (), numbers);
            }
            (Function::Put, Form::Cached) => {
                inject(table, &INDIRECT_PUT, (limit, is_over), args, bytes);
            }
            (Function::Slot, Form::Cached) => {
                inject(table, &SLOT, (limit, is_over), |key| key, &[]);
            }
            (Function::Mixed, Form::Cached) => {
                inject(table, &MIXED, (limit, is_over), |word| word, &[]);
            }
            (Function::Sum, form) => {
                let jam = SERVER_SIDE_SUM.in_mode(form.mode());
                inject(table, &jam, (limit, is_over), |_| (), numbers);
            }
            (Function::Put, form) => {
                let jam = INDIRECT_PUT.in_mode(form.mode());
                inject(table, &jam, (limit, is_over), args, bytes);
            }
            (Function::Slot, form) => {
                let jam = SLOT.in_mode(form.mode());
                inject(table, &jam, (limit, is_over), |key| key, &[]);
            }
            (Function::Mixed, form) => {
                let jam = MIXED.in_mode(form.mode());
                inject(table, &jam, (limit, is_over), |word| word, &[]);
            }
        }
    }

    /// Makes a call, and waits for its result.
    fn call(&self, function: Function, key: u64) {
        let Caller { table, form, numbers, bytes } = self;
        let args = PutArgs { key, offset: 0 };
        match (function, form) {
            (Function::Sum, Form::Apply) => {
                black_box(table.apply_with(sum, numbers.clone()));
            }
            (Function::Put, Form::Apply) => {
                assert!(table.apply_with(put, (key, bytes.clone())) >= 0);
            }
            (Function::Slot, Form::Apply) => {
                black_box(table.apply_with(table_slot, key));
            }
            (Function::Mixed, Form::Apply) => {
                black_box(table.apply_with(|_, word| mixed(word), key));
            }
            (Function::Sum, _) => {
                let jam = SERVER_SIDE_SUM.in_mode(form.mode());
                black_box(table.inject(&jam, (), numbers).expect("a sum"));
            }
            (Function::Put, _) => {
                let jam = INDIRECT_PUT.in_mode(form.mode());
                assert!(table.inject(&jam, args, bytes).expect("a place") >= 0);
            }
            (Function::Slot, _) => {
                let jam = SLOT.in_mode(form.mode());
                black_box(table.inject(&jam, key, &[]).expect("a slot"));
            }
            (Function::Mixed, _) => {
                let jam = MIXED.in_mode(form.mode());
                black_box(table.inject(&jam, key, &[]).expect("a word"));
            }
        }
    }
}

/// Keeps many calls of a jam under way.
#[inline(always)]
fn inject<J: Sendable>(
    table: &Trust<Table>,
    jam: &J,
    (limit, is_over): (u64, &StopFlag),
    args: impl Fn(u64) -> J::Args,
    payload: &[J::Element],
) {
    keep(limit, is_over, |key| {
        // Taken apart, so that no code drops an error that there is not.
        table.inject_then(jam, args(key), payload, move |result| match result {
            Ok(_) => done(),
            Err(error) => panic!("{error}"),
        });
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plan_is_found_by_its_name() {
        let (function, bytes) = (Function::Put, 4096);
        for form in FORMS {
            for has_window in [false, true] {
                let plan = JamPlan { function, form, bytes, has_window };
                assert_eq!(JamPlan::named(&plan.text()), Some(plan));
            }
        }
        assert_eq!(JamPlan::named("Indirect Put"), None);
    }
}
