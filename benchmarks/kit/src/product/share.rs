//! An object that two threads want, entrusted to one of them.

use std::hint::black_box;

use gossamer::Trust;

use super::sample::{Load, StopFlag, client_and_trustee, measure_rack, two_symmetric};
use super::single_thread::FIBERS;
use crate::harness::{Case, Unit};
use crate::measure::watch::WaitMode;
use crate::work::{Adder, Counter, Lines, Section, Think, next};

/// Requests that `apply_then` keeps under way.
pub const WINDOW: usize = 64;
/// The same where a message takes long: what a window of 64 cannot hide.
pub const WIDE_WINDOW: usize = 1024;
/// Operations between two looks at the flag that ends them.
const BURST: usize = 16;

/// How the operation of a section is delegated.
pub trait Delegated: Section + Sized {
    /// Waits for the result.
    fn ask(trust: &Trust<Self>, seed: u64) -> u64;

    /// Goes on, and calls `then` with the result.
    fn ask_then(trust: &Trust<Self>, seed: u64, then: impl FnOnce(u64) + 'static);
}

impl Delegated for Counter {
    #[inline(always)]
    fn ask(trust: &Trust<Self>, _seed: u64) -> u64 {
        trust.apply(|counter| counter.run(0))
    }

    #[inline(always)]
    fn ask_then(trust: &Trust<Self>, _seed: u64, then: impl FnOnce(u64) + 'static) {
        trust.apply_then(|counter| counter.run(0), then);
    }
}

macro_rules! delegated_with_its_seed {
    ($section:ty) => {
        impl Delegated for $section {
            #[inline(always)]
            fn ask(trust: &Trust<Self>, seed: u64) -> u64 {
                trust.apply_with(|object, seed| object.run(seed), seed)
            }

            #[inline(always)]
            fn ask_then(trust: &Trust<Self>, seed: u64, then: impl FnOnce(u64) + 'static) {
                trust.apply_with_then(|object, seed| object.run(seed), seed, then);
            }
        }
    };
}

delegated_with_its_seed!(Lines);
delegated_with_its_seed!(Adder);

/// `apply_then` from one thread to another that only serves, with 64 requests under way.
pub fn window<S: Delegated>(think_ns: u32) -> Case {
    Case::new("gossamer/apply_then, 64 outstanding", Unit::Mops, move |sampler| {
        let think = Think::of_ns(think_ns);
        let start = move || send_window(gossamer::entrust(S::fresh()), WINDOW, think);
        measure_rack(client_and_trustee(), sampler.time, start)?.mops()
    })
}

/// `apply` in `fibers` fibers of one thread, to another that only serves.
pub fn waiting<S: Delegated>(fibers: usize, think_ns: u32) -> Case {
    let plural = if fibers == 1 { "" } else { "s" };
    Case::new(format!("gossamer/{fibers} fiber{plural}"), Unit::Mops, move |sampler| {
        let think = Think::of_ns(think_ns);
        let start = move || send_from_fibers(gossamer::entrust(S::fresh()), fibers, think);
        measure_rack(client_and_trustee(), sampler.time, start)?.mops()
    })
}

/// `apply` in 64 fibers of each of two threads, one of which is the trustee.
pub fn owner_works_too<S: Delegated>(think_ns: u32) -> Case {
    Case::new("gossamer/64 fibers, and 64 of the owner", Unit::Mops, move |sampler| {
        let think = Think::of_ns(think_ns);
        // The pool's fibers go to the two threads in turn.
        let start = move || send_from_fibers(gossamer::entrust(S::fresh()), 2 * FIBERS, think);
        measure_rack(two_symmetric(), sampler.time, start)?.mops()
    })
}

/// Which of two counters the fibers of a thread add to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Choice {
    /// That of the other thread.
    Remote,
    /// Their own or the other, by a random sequence of each fiber, which nothing predicts.
    Random,
    /// Their own or the other, by the seeds of the prototype (`i as u64 & 1 | 2` in its `src/dele.rs`): the
    /// fibers of a thread go through one of two random sequences in step, which the processor learns to
    /// predict.
    PrototypeSeeds,
}

impl Choice {
    /// The name of the case.
    fn name(self) -> &'static str {
        match self {
            Choice::Remote => "all remote",
            Choice::Random => "half own",
            Choice::PrototypeSeeds => "half own, prototype's seeds",
        }
    }

    /// The seed of fiber number `fiber`. Even and odd fibers run on different threads.
    fn seed(self, fiber: u64) -> u64 {
        match self {
            Choice::PrototypeSeeds => fiber / 2 % 2 + 2,
            Choice::Remote | Choice::Random => fiber,
        }
    }

    /// Whether the fiber adds to its own counter when it has this random number.
    #[inline(always)]
    fn is_own(self, random: u64) -> bool {
        self != Choice::Remote && random >> 33 & 1 == 0
    }
}

/// `apply` in 64 fibers of each of two threads with a counter each.
pub fn two_counters(choice: Choice) -> Case {
    Case::new(format!("gossamer/two counters, {}", choice.name()), Unit::Mops, move |sampler| {
        measure_rack(two_symmetric(), sampler.time, move || send_to_each_other(choice))?.mops()
    })
}

/// A load that counts what has been done to `objects`.
fn load<S: Delegated>(objects: Vec<Trust<S>>, stop: StopFlag, fibers: Fibers) -> Load {
    let done = move || objects.iter().map(|object| object.apply(|object| object.runs())).sum();
    Load { stop, fibers, done: Box::new(done), others: WaitMode::Polls }
}

type Fibers = Vec<gossamer::JoinHandle<()>>;

/// Starts `fibers` fibers that wait for each answer.
pub fn send_from_fibers<S: Delegated>(trust: Trust<S>, fibers: usize, think: Think) -> Load {
    let stop = StopFlag::default();
    let start = |number: u64| {
        let (trust, stop) = (trust.clone(), stop.clone());
        gossamer::spawn(move || {
            let mut seed = number << 40;
            // On the owner's own thread nothing waits, so its fibers must let others run.
            let breath = match trust.is_local() {
                false => usize::MAX,
                true if think.is_some() => 1,
                true => BURST,
            };
            let mut until_breath = breath;
            while !stop.is_set() {
                for _ in 0..BURST {
                    black_box(S::ask(&trust, seed));
                    seed = think.work(seed.wrapping_add(1));
                    until_breath -= 1;
                    if until_breath == 0 {
                        until_breath = breath;
                        gossamer::yield_now();
                    }
                }
            }
        })
    };
    let fibers = (1..=fibers as u64).map(start).collect();
    load(vec![trust], stop, fibers)
}

fn send_to_each_other(choice: Choice) -> Load {
    let stop = StopFlag::default();
    let counters: Vec<Trust<Counter>> =
        gossamer::threads().map(|thread| thread.entrust_moved(Counter::fresh())).collect();
    let start = |number: u64| {
        let (stop, counters) = (stop.clone(), counters.clone());
        gossamer::spawn(move || {
            let own = usize::from(counters[1].is_local());
            let (own, other) = (&counters[own], &counters[1 - own]);
            let mut random = choice.seed(number);
            while !stop.is_set() {
                for _ in 0..BURST {
                    random = next(random);
                    let trust = if choice.is_own(random) { own } else { other };
                    black_box(Counter::ask(trust, 0));
                }
            }
        })
    };
    let fibers = (1..=2 * FIBERS as u64).map(start).collect();
    load(counters, stop, fibers)
}

/// Starts a fiber that keeps `window` requests under way and waits for none of them by itself.
pub fn send_window<S: Delegated>(trust: Trust<S>, window: usize, think: Think) -> Load {
    let stop = StopFlag::default();
    let fiber = {
        let (trust, stop) = (trust.clone(), stop.clone());
        gossamer::spawn(move || {
            let mut seed = 1;
            while !stop.is_set() {
                let room = window.saturating_sub(trust.outstanding());
                if room == 0 {
                    gossamer::yield_now();
                }
                for _ in 0..room.min(BURST) {
                    S::ask_then(&trust, seed, |answer| {
                        black_box(answer);
                    });
                    seed = think.work(seed.wrapping_add(1));
                }
            }
            while trust.outstanding() > 0 {
                gossamer::yield_now();
            }
        })
    };
    load(vec![trust], stop, vec![fiber])
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use gossamer::Rack;

    use super::*;

    fn works(rack: Rack, start: impl FnOnce() -> Load + Send + 'static) {
        let throughput = measure_rack(rack, Duration::from_millis(20), start).expect("a pace");
        assert!(throughput.per_second > 0.0, "{throughput:?}");
    }

    #[test]
    fn every_load_gets_work_done() {
        let think = Think::of_ns(0);
        let (equals, pair) =
            (|| Rack::new().threads(2), || Rack::new().threads(2).dedicated_trustees(1));
        works(pair(), move || send_from_fibers(gossamer::entrust(Counter::fresh()), 4, think));
        works(equals(), move || send_from_fibers(gossamer::entrust(Counter::fresh()), 4, think));
        for choice in [Choice::Remote, Choice::Random, Choice::PrototypeSeeds] {
            works(equals(), move || send_to_each_other(choice));
        }
        works(pair(), move || send_window(gossamer::entrust(Lines::fresh()), WINDOW, think));
        // The rack itself holds back requests beyond its buffers.
        works(pair(), move || send_window(gossamer::entrust(Adder::fresh()), usize::MAX, think));
    }
}
