//! Objects that are entrusted: each thread of a rack has a table of its objects, and asks the others to
//! add to theirs. All of it is one team, whose members are clients and trustees at once.

use std::cell::Cell;
use std::env;
use std::hint::black_box;
use std::process::ExitCode;
use std::rc::Rc;
use std::time::{Duration, Instant};

use bench_kit::harness::{Case, Unit};
use bench_kit::measure::sampling::{CaseError, Reading, undisturbed};
use bench_kit::measure::watch::{WaitMode, Watch};
use bench_kit::roles::{Lifeline, Role, RoleProcess};
use gossamer::{Rack, Team, Trust};
use serde::{Deserialize, Serialize};

use super::draws::Plan;
use super::locks::BURST;

/// Requests that a thread keeps under way.
const WINDOW: usize = 64;
/// Fibers of a thread that each wait for their result.
const FIBERS: usize = 64;

/// The process in which a rack of processes runs: it starts this program again.
pub(crate) const ROLE: Role = Role { name: "fadd", run: role };

const WORK: &str = "BENCH_FADD";

/// The objects of one thread.
type Table = Vec<u64>;

/// How a thread delegates.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
enum Sender {
    /// `apply_with_then`, many under way.
    Window,
    /// `apply_with`, in many fibers.
    Fibers,
}

#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct Work {
    plan: Plan,
    sender: Sender,
    nanoseconds: u64,
}

/// The cases in threads of one process.
pub(super) fn in_threads(plan: Plan) -> Vec<Case> {
    let case = |name: &str, sender: Sender| {
        Case::new(format!("gossamer/{name}"), Unit::Mops, move |sampler| {
            let work = Work { plan, sender, nanoseconds: sampler.time.as_nanos() as u64 };
            measure(Rack::new().threads(plan.threads), work)
        })
    };
    vec![case("apply_then, 64 outstanding", Sender::Window), case("64 fibers", Sender::Fibers)]
}

/// The case in processes of one thread each.
pub(super) fn in_processes(plan: Plan) -> Case {
    let name = "gossamer/processes, apply_then, 64 outstanding";
    Case::new(name, Unit::Mops, move |sampler| {
        let work =
            Work { plan, sender: Sender::Window, nanoseconds: sampler.time.as_nanos() as u64 };
        let text = serde_json::to_string(&work).map_err(|error| failed(&error))?;
        let line = RoleProcess::spawn(ROLE, None, &[(WORK, text.into())])?.first_line()?;
        let mut figures = line.split(' ').map(str::parse::<f64>);
        match (figures.next(), figures.next()) {
            (Some(Ok(mops)), Some(Ok(lost))) => reading(plan, mops, lost),
            _ => Err(CaseError::Failed(line)),
        }
    })
}

fn failed(error: &dyn std::error::Error) -> CaseError {
    CaseError::Failed(error.to_string())
}

/// With more threads than cores, some wait for one: that is what is measured.
fn reading(plan: Plan, mops: f64, lost: f64) -> Result<Reading, CaseError> {
    if plan.threads <= 2 {
        undisturbed(lost)?;
    }
    Ok(Reading::of(mops))
}

fn measure(rack: Rack, work: Work) -> Result<Reading, CaseError> {
    let (mops, lost) = run(rack, work)?;
    reading(work.plan, mops, lost)
}

/// Runs the work; returns its rate, and the largest share that a thread lost of its core.
fn run(rack: Rack, work: Work) -> Result<(f64, f64), CaseError> {
    let rack = if work.plan.threads <= 2 { rack.pin(true) } else { rack };
    let results = rack.run(move || {
        let tables = gossamer::trustees().zip(0..).map(|(trustee, thread)| {
            let make = |objects: usize| -> Table { vec![0; objects] };
            trustee.entrust_with(make, work.plan.owned(thread) as usize)
        });
        let tables: Vec<Trust<Table>> = tables.collect();
        let member =
            |team: &Team, (tables, work): (Vec<Trust<Table>>, Work)| member(team, tables, work);
        Team::try_run(member, (tables, work)).map_err(|error| failed(&error))
    });
    let results = results.map_err(|error| failed(&error))??;
    let rate = results.iter().map(|(rate, _)| rate).sum::<f64>();
    Ok((rate / 1e6, results.iter().map(|(_, lost)| *lost).fold(0.0, f64::max)))
}

/// What a member does; returns its operations per second, and the share that it lost of its core.
fn member(team: &Team, tables: Vec<Trust<Table>>, work: Work) -> (f64, f64) {
    let (plan, time) = (work.plan, Duration::from_nanos(work.nanoseconds));
    let draws = plan.draws(team.index() as u32);
    let client = Rc::new(Client { tables, plan, draws, done: Cell::new(0) });
    team.barrier();
    let (watch, start) = (Watch::start(WaitMode::Polls), Instant::now());
    match work.sender {
        Sender::Window => {
            while start.elapsed() < time {
                client.burst(|table, place| {
                    while OUTSTANDING.get() >= WINDOW {
                        fiber::yield_to_worker();
                    }
                    OUTSTANDING.set(OUTSTANDING.get() + 1);
                    table.apply_with_then(add, place, |found| {
                        black_box(found);
                        OUTSTANDING.set(OUTSTANDING.get() - 1);
                    });
                });
            }
            while OUTSTANDING.get() > 0 {
                fiber::yield_to_worker();
            }
        }
        Sender::Fibers => {
            let fibers = (0..FIBERS).map(|_| {
                let client = client.clone();
                fiber::spawn_local(move || {
                    while start.elapsed() < time {
                        client.burst(|table, place| {
                            black_box(table.apply_with(add, place));
                        });
                    }
                })
            });
            let fibers: Vec<_> = fibers.collect();
            fibers.into_iter().for_each(|fiber| {
                fiber.join().expect("a fiber of a load does not panic");
            });
        }
    }
    let (spent, lost) = (start.elapsed(), watch.stop().lost);
    // The others may still ask this thread.
    team.barrier();
    (client.done.get() as f64 / spent.as_secs_f64(), lost)
}

/// The operation.
fn add(table: &mut Table, place: u32) -> u64 {
    let object = &mut table[place as usize];
    *object += 1;
    *object
}

thread_local! {
    static OUTSTANDING: Cell<usize> = const { Cell::new(0) };
}

/// What the fibers of a member share.
struct Client {
    tables: Vec<Trust<Table>>,
    plan: Plan,
    draws: Vec<u32>,
    done: Cell<usize>,
}

impl Client {
    /// Calls `operation` for the next draws.
    fn burst(&self, mut operation: impl FnMut(&Trust<Table>, u32)) {
        let at = self.done.get() % self.draws.len();
        self.done.set(self.done.get() + BURST);
        for &object in &self.draws[at..][..BURST] {
            operation(&self.tables[self.plan.owner(object) as usize], self.plan.place(object));
        }
    }
}

/// Runs a rack of processes, of which this is the first.
fn role(_: Lifeline) -> ExitCode {
    let work = env::var(WORK).unwrap_or_default();
    let result = serde_json::from_str::<Work>(&work).map_err(|error| failed(&error));
    match result.and_then(|work| run(Rack::new().hosts(work.plan.threads).threads(1), work)) {
        Ok((mops, lost)) => println!("{mops} {lost}"),
        // The case reads this line and reports it as the error.
        Err(error) => println!("{error}"),
    }
    ExitCode::SUCCESS
}
