//! A rack of two processes, one thread each, on two cores.
//!
//! A rack starts the program again for its second host, with the same environment; so the rack runs
//! in a role of this program, which both processes run; the first prints its throughput.

use std::env;
use std::process::ExitCode;
use std::time::Duration;

use gossamer::{Rack, Trust};

use super::get::GetPlan;
#[cfg(feature = "jam")]
use super::jam::calls::JamPlan;
use super::sample::{Load, Throughput, measure_rack};
use super::share::{WIDE_WINDOW, WINDOW, send_from_fibers, send_window};
use super::single_thread::FIBERS;
use crate::harness::{Case, Unit};
use crate::measure::sampling::{CaseError, Reading, Sampler, undisturbed};
use crate::roles::{Lifeline, Role, RoleProcess};
use crate::work::{Adder, Section, Think};

/// The program in which the rack runs.
pub const PAIR: Role = Role { name: "gossamer-pair", run: pair };

const TIME: &str = "BENCH_PAIR_NS";
const LOAD: &str = "BENCH_PAIR_LOAD";

/// Who sends, from one process to the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sender {
    /// A fiber that waits for each answer.
    OneFiber,
    /// Fibers that wait, 64 of them.
    ManyFibers,
    /// A fiber with 64 requests under way.
    Window,
    /// A fiber with 1,024 requests under way.
    WideWindow,
    /// A fiber that sends whenever buffers have room.
    WhateverFits,
}

impl Sender {
    const ALL: [Sender; 5] = [
        Sender::OneFiber,
        Sender::ManyFibers,
        Sender::Window,
        Sender::WideWindow,
        Sender::WhateverFits,
    ];

    /// Its name in the report.
    pub fn text(self) -> &'static str {
        match self {
            Sender::OneFiber => "apply, 1 fiber",
            Sender::ManyFibers => "apply, 64 fibers",
            Sender::Window => "apply_then, 64 outstanding",
            Sender::WideWindow => "apply_then, 1024 outstanding",
            Sender::WhateverFits => "apply_then, as many as fit",
        }
    }

    /// The sender of this name.
    pub fn named(text: &str) -> Option<Sender> {
        Sender::ALL.into_iter().find(|sender| sender.text() == text)
    }

    fn start(self, sum: Trust<Adder>) -> Load {
        let think = Think::of_ns(0);
        match self {
            Sender::OneFiber => send_from_fibers(sum, 1, think),
            Sender::ManyFibers => send_from_fibers(sum, FIBERS, think),
            Sender::Window => send_window(sum, WINDOW, think),
            Sender::WideWindow => send_window(sum, WIDE_WINDOW, think),
            Sender::WhateverFits => send_window(sum, usize::MAX, think),
        }
    }
}

/// What host 0 asks of host 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// To add to a sum.
    Send(Sender),
    /// The values of a map.
    Get(GetPlan),
    /// To run jams, or what takes their place.
    #[cfg(feature = "jam")]
    Jam(JamPlan),
}

impl Work {
    /// Its name in the environment of the hosts.
    pub fn text(self) -> String {
        match self {
            Work::Send(sender) => sender.text().to_owned(),
            Work::Get(plan) => plan.text(),
            #[cfg(feature = "jam")]
            Work::Jam(plan) => plan.text(),
        }
    }

    /// The work of this name.
    pub fn named(text: &str) -> Option<Work> {
        let get = || GetPlan::named(text).map(Work::Get);
        let found = Sender::named(text).map(Work::Send).or_else(get);
        #[cfg(feature = "jam")]
        let found = found.or_else(|| JamPlan::named(text).map(Work::Jam));
        found
    }

    /// Starts it. To be called on host 0 of a rack of two hosts of one thread each.
    ///
    /// # Panics
    /// If there is no second thread.
    pub fn start(self) -> Load {
        match self {
            Work::Send(sender) => {
                let other = gossamer::threads().nth(1).expect("a rack of two");
                sender.start(other.entrust_with(|()| Adder::fresh(), ()))
            }
            Work::Get(plan) => plan.start(),
            #[cfg(feature = "jam")]
            Work::Jam(plan) => plan.start(),
        }
    }
}

/// Half a round trip of an 8-byte request with an 8-byte answer.
pub fn latency() -> Case {
    Case::new("gossamer/apply, 1 fiber", Unit::Nanoseconds, |sampler| {
        let throughput = sample(sampler, Work::Send(Sender::OneFiber))?;
        Ok(Reading::of(1e9 / throughput.per_second / 2.0))
    })
}

/// Rate of 8-byte requests, each answered.
pub fn rate(sender: Sender) -> Case {
    let name = format!("gossamer/{}", sender.text());
    Case::new(name, Unit::Mops, move |sampler| sample(sampler, Work::Send(sender))?.mops())
}

/// GETs per second over shared memory.
///
/// # Errors
/// Those of a case.
pub fn gets_per_second(sampler: &Sampler, plan: GetPlan) -> Result<f64, CaseError> {
    Ok(sample(sampler, Work::Get(plan))?.per_second)
}

/// Jams per second over shared memory.
///
/// # Errors
/// Those of a case.
#[cfg(feature = "jam")]
pub fn jams_per_second(sampler: &Sampler, plan: JamPlan) -> Result<f64, CaseError> {
    Ok(sample(sampler, Work::Jam(plan))?.per_second)
}

fn sample(sampler: &Sampler, work: Work) -> Result<Throughput, CaseError> {
    let time = sampler.time.as_nanos().to_string();
    let variables = [(TIME, time.into()), (LOAD, work.text().into())];
    let line = RoleProcess::spawn(PAIR, None, &variables)?.first_line()?;
    let mut figures = line.split(' ').map(str::parse);
    match (figures.next(), figures.next()) {
        (Some(Ok(per_second)), Some(Ok(lost))) => {
            undisturbed(lost)?;
            Ok(Throughput { per_second, lost })
        }
        _ => Err(CaseError::Failed(line)),
    }
}

/// Ignores its lifeline, which its second process does not have; it ends with its sample.
fn pair(_: Lifeline) -> ExitCode {
    match measure_load() {
        Ok(Throughput { per_second, lost }) => {
            println!("{per_second} {lost}");
            ExitCode::SUCCESS
        }
        Err(e) => {
            // The case reads this line and reports it as the error.
            println!("{e}");
            ExitCode::FAILURE
        }
    }
}

fn measure_load() -> Result<Throughput, CaseError> {
    let asked = |name: &str| env::var(name).unwrap_or_default();
    let (Some(work), Ok(time)) =
        (Work::named(&asked(LOAD)), asked(TIME).parse().map(Duration::from_nanos))
    else {
        return Err(CaseError::Failed(format!("{TIME} or {LOAD} does not say what to do")));
    };
    measure_rack(Rack::new().hosts(2).threads(1).pin(true), time, move || work.start())
}
