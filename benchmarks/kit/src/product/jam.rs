//! Jams as a candidate: the two of the paper (Grodowitz et al. 2021), Server-Side Sum and Indirect Put,
//! and one of a word in and a word out, in each mode, beside `apply` of the same functions, writes of as
//! many bytes, and active messages of UCX.
//!
//! Host 0 of a rack of two sends them to a property of host 1.

use std::cell::Cell;
use std::hint::black_box;
use std::time::Duration;

use gossamer::Trust;
use gossamer::jam::{Inject, Mode, Policy, Sendable, receiver};
use jam_tests::jams::indirect_put::{INDIRECT_PUT, PutArgs};
use jam_tests::jams::server_side_sum::SERVER_SIDE_SUM;
use jam_tests::jams::slot::SLOT;
use jam_tests::{Table, table_push, table_slot, table_write};

use super::sample::{Load, StopFlag};
use super::segment::Plan;
use super::segment::cases::Candidate;
use crate::harness::Limit::{AtLeast, AtMost};
use crate::harness::{Bar, Case, Peer, Placement, Suite, Unit};
use crate::measure::sampling::{CaseError, Reading, Sampler};
use crate::measure::watch::WaitMode;
use crate::ucx::{Run, Test};

/// Bytes of payloads.
pub const PAYLOADS: [usize; 5] = [4, 64, 512, 4 << 10, 32 << 10];
/// Calls under way where the rate is measured.
const WINDOW: u64 = 64;
/// Calls between two looks at the flag that ends them.
const BURST: usize = 16;
/// Keys that Indirect Put uses.
const KEYS: u64 = 64;
/// Bytes of the table: payloads of neighbouring keys overlap, and the last one fits.
const TABLE: usize = 1 << 20;

thread_local! {
    /// Calls of this thread that have ended. A sample has a process of its own.
    static DONE: Cell<u64> = const { Cell::new(0) };
}

/// What is run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Function {
    /// Adds up the payload.
    Sum,
    /// Puts the payload where the slot of a key says.
    Put,
    /// The slot of a key, without a payload.
    Slot,
}

/// In which form it is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// Jam: each call carries the code.
    Injected,
    /// Jam: the first call carries the code.
    Cached,
    /// The jam's Local Function.
    Local,
    /// A delegated closure.
    Apply,
}

const FUNCTIONS: [Function; 3] = [Function::Sum, Function::Put, Function::Slot];
const FORMS: [Form; 4] = [Form::Local, Form::Cached, Form::Injected, Form::Apply];

impl Function {
    fn text(self) -> &'static str {
        match self {
            Function::Sum => "Server-Side Sum",
            Function::Put => "Indirect Put",
            Function::Slot => "a word in and out",
        }
    }
}

impl Form {
    fn text(self) -> &'static str {
        match self {
            Form::Injected => "Injected",
            Form::Cached => "Cached",
            Form::Local => "Local",
            Form::Apply => "apply",
        }
    }

    /// As jams are sent; closures are not.
    fn mode(self) -> Mode {
        match self {
            Form::Injected => Mode::Injected,
            Form::Cached | Form::Apply => Mode::Automatic,
            Form::Local => Mode::Local,
        }
    }
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
        let stop = StopFlag::default();
        let is_over = stop.clone();
        let limit = if self.has_window { WINDOW } else { 1 };
        let fiber = gossamer::spawn(move || {
            let mut sent = 0;
            while !is_over.is_set() {
                for _ in 0..BURST {
                    while sent - DONE.get() >= limit {
                        gossamer::yield_now();
                    }
                    let then = || DONE.set(DONE.get() + 1);
                    if self.has_window {
                        caller.call_then(self.function, sent % KEYS, then);
                    } else {
                        caller.call(self.function, sent % KEYS);
                        then();
                    }
                    sent += 1;
                }
            }
            while DONE.get() < sent {
                gossamer::yield_now();
            }
        });
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

impl Caller {
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
        }
    }

    /// Makes a call, and has `then` called behind it.
    fn call_then(&self, function: Function, key: u64, then: impl FnOnce() + 'static) {
        let Caller { table, form, numbers, bytes } = self;
        let args = PutArgs { key, offset: 0 };
        match (function, form) {
            (Function::Sum, Form::Apply) => {
                table.apply_with_then(sum, numbers.clone(), move |_| then());
            }
            (Function::Put, Form::Apply) => {
                table.apply_with_then(put, (key, bytes.clone()), move |_| then());
            }
            (Function::Slot, Form::Apply) => {
                table.apply_with_then(table_slot, key, move |_: u64| then());
            }
            (Function::Sum, _) => {
                let jam = SERVER_SIDE_SUM.in_mode(form.mode());
                table.inject_then(&jam, (), numbers, move |sum| {
                    assert!(sum.is_ok());
                    then();
                });
            }
            (Function::Put, _) => {
                let jam = INDIRECT_PUT.in_mode(form.mode());
                table.inject_then(&jam, args, bytes, move |place| {
                    assert!(place.is_ok());
                    then();
                });
            }
            (Function::Slot, _) => {
                let jam = SLOT.in_mode(form.mode());
                table.inject_then(&jam, key, &[], move |slot| {
                    assert!(slot.is_ok());
                    then();
                });
            }
        }
    }
}

fn size(bytes: usize) -> String {
    if bytes < 1024 { format!("{bytes} bytes") } else { format!("{} KiB", bytes / 1024) }
}

/// The suite of latencies over one transport. `per_second` measures a plan on that, `write` its own
/// writes; `ucx` is what UCX calls it.
pub fn latency(
    over: &str,
    write: Candidate,
    ucx: &'static str,
    per_second: impl Fn(&Sampler, JamPlan) -> Result<f64, CaseError> + Clone + 'static,
) -> Suite {
    let about = "Server-Side Sum and Indirect Put of Grodowitz et al. 2021 on a property of another \
                 process, with a payload, by jams and by `apply` of the same function, beside a write of \
                 as many bytes (8 at least) that the other process polls for, and an active message of \
                 UCX; an operation is half a round trip";
    let mut suite = Suite::new(format!("jam-{over}-latency"), about, Placement::Pair);
    let per_ns = if write.unit == Unit::Microseconds { 1e-3 } else { 1.0 };
    for bytes in PAYLOADS {
        let written = write.duration(format!("write, {}", size(bytes)), Plan::OneWay(bytes.max(8)));
        let am =
            Case::new(format!("ucx/ucp_am_lat, {}", size(bytes)), write.unit, move |sampler| {
                let expected = Duration::from_micros(20);
                let run = Run { test: Test::AmLatency, over: ucx, bytes, expected };
                Ok(Reading::of(run.microseconds(sampler)? * 1e3 * per_ns))
            });
        let peers = [Peer::case(written.name()), Peer::case(am.name())];
        suite.push(written);
        suite.push(am);
        for function in [Function::Sum, Function::Put] {
            let plan = |form| JamPlan { function, form, bytes, has_window: false };
            let case = |form: Form| {
                let name =
                    format!("gossamer/{}, {}, {}", function.text(), form.text(), size(bytes));
                let (per_second, plan) = (per_second.clone(), plan(form));
                let case = Case::new(name, write.unit, move |sampler| {
                    Ok(Reading::of(1e9 / per_second(sampler, plan)? / 2.0 * per_ns))
                });
                peers.iter().fold(case, |case, peer| case.beside(peer.clone()))
            };
            let local = case(Form::Local);
            let peer = Peer::case(local.name());
            suite.push(local);
            suite.push(case(Form::Cached).bar(peer.clone(), Bar::ratio(AtMost(1.05))));
            let injected = case(Form::Injected);
            suite.push(match bytes < 4096 {
                true => injected.beside(peer.clone()),
                false => injected.bar(peer.clone(), Bar::ratio(AtMost(1.1))),
            });
            suite.push(case(Form::Apply).beside(peer));
        }
    }
    suite
}

/// The suite of rates over one transport, with 64 calls under way; `per_second` measures a plan.
pub fn rate(
    over: &str,
    per_second: impl Fn(&Sampler, JamPlan) -> Result<f64, CaseError> + Clone + 'static,
) -> Suite {
    let about = "64 calls under way of a property of another process, each answered: a word in and a \
                 word out, and the functions of `jam-latency` with payloads; an operation is a call";
    let mut suite = Suite::new(format!("jam-{over}-rate"), about, Placement::Pair);
    let functions =
        [(Function::Slot, 0), (Function::Sum, 64), (Function::Sum, 4096), (Function::Put, 64)];
    for (function, bytes) in functions {
        let case = |form: Form| {
            let payload = if bytes == 0 { String::new() } else { format!(", {}", size(bytes)) };
            let name = format!("gossamer/{}, {}{payload}", function.text(), form.text());
            let plan = JamPlan { function, form, bytes, has_window: true };
            let per_second = per_second.clone();
            Case::new(name, Unit::Mops, move |sampler| {
                Ok(Reading::of(per_second(sampler, plan)? / 1e6))
            })
        };
        let apply = case(Form::Apply);
        let peer = Peer::case(apply.name());
        suite.push(apply);
        suite.push(case(Form::Cached).bar(peer.clone(), Bar::ratio(AtLeast(0.95))));
        suite.push(case(Form::Local).beside(peer.clone()));
        suite.push(case(Form::Injected).beside(peer));
    }
    suite
}

/// What the arrival of a jam costs, in memory that has held another before.
pub fn arrival() -> [Case; 2] {
    [("Indirect Put", true), ("a word in and out", false)].map(|(name, is_put)| {
        let name = format!("gossamer/{name}, and giving it up");
        Case::new(name, Unit::Nanoseconds, move |sampler| {
            sampler.try_single_thread(|thread| {
                let code = if is_put { INDIRECT_PUT.code() } else { SLOT.code() };
                let code = code.map_err(|e| CaseError::Failed(e.to_string()))?;
                let (bytes, digest) = (code.bytes(), *code.digest());
                let receiver = receiver();
                thread.measure(|n| {
                    for _ in 0..n {
                        assert!(receiver.receive(bytes, digest).is_ok(), "it is of this program");
                        receiver.set_policy(Policy::Signed);
                    }
                });
                Ok(())
            })
        })
    })
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
