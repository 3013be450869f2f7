//! The paper's figures 11 to 14: latencies on a loaded machine, and processor time of hosts that wait.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

use mailbox::CpuWait;

use super::frames::{FramePlan, Message, Shape, Waiting};
use super::{Form, Function, size};
use crate::harness::{Case, Peer, Placement, Suite, Unit};
use crate::load::Stress;
use crate::measure::sampling::{CaseError, Reading, Sampler};
use crate::product::segment::cases::Candidate;
use crate::product::segment::{Figure, Plan, Statistic};

/// Long enough for some ten thousand round trips; beside others a sample takes so many times that, to
/// have several time slices of each.
const LOADED_TIME: Duration = Duration::from_millis(200);
const BESIDE: u32 = 3;
/// Long enough for a hundred round trips that are a millisecond apart.
const WAITING_TIME: Duration = Duration::from_millis(150);
/// Bytes of payloads.
const PAYLOADS: [usize; 3] = [64, 4 << 10, 32 << 10];

/// What one sample gives to two cases.
type Second = Rc<Cell<Option<f64>>>;

/// Takes a sample, alone or beside load.
type Sampled = Box<dyn Fn(&Sampler) -> Result<Figure, CaseError>>;

/// Figures 11 and 12: the median and the 99.9th percentile, alone and beside `stress-ng`.
pub fn loaded(over: &str, candidate: &Candidate) -> Suite {
    let about = "half a round trip of a jam from mailbox to mailbox of another process, whose code the \
                 first one has carried: the median and the 99.9th percentile of a sample, alone and \
                 beside ten stressors of stress-ng's class vm on the same two cores; hosts that wait \
                 for long sleep";
    let mut suite = Suite::new(format!("jam-{over}-loaded"), about, Placement::Pair);
    suite.time = LOADED_TIME;
    let candidate =
        Candidate { statistic: Statistic::Median, is_strict: false, ..candidate.clone() };
    let stress = Rc::new(RefCell::new(None));
    for function in [Function::Put, Function::Sum] {
        for bytes in PAYLOADS {
            let message = Message::Jam(function, Form::Cached);
            let plan =
                FramePlan { waiting: Waiting::Waits, ..FramePlan::ping_pong(message, bytes) };
            let what = format!("{}, {}", function.text(), size(bytes));
            let (measured, plan) = (candidate.clone(), Plan::Frames(plan));
            let alone = move |sampler: &Sampler| measured.whole_figure(sampler, plan);
            let beside = {
                let (stress, alone) = (stress.clone(), alone.clone());
                move |sampler: &Sampler| {
                    let mut stress = stress.borrow_mut();
                    if stress.is_none() {
                        *stress = Some(Stress::start(sampler.cores)?);
                    }
                    let longer = Sampler { time: sampler.time * BESIDE, ..*sampler };
                    match &*stress {
                        Some(stress) => stress.beside(|| alone(&longer)),
                        None => alone(&longer),
                    }
                }
            };
            let mut medians = Vec::new();
            let sampled: [(&str, Sampled); 2] =
                [("alone", Box::new(alone)), ("beside stress-ng", Box::new(beside))];
            for (load, figure) in sampled {
                let per_ns = candidate.per_ns();
                let name = |part| format!("gossamer/{what}, {load}, {part}");
                let names = [name("median"), name("99.9th percentile")];
                let second = move |figure: Figure| figure.tail * per_ns;
                let [median, tail] = two_cases(
                    names,
                    [candidate.unit; 2],
                    figure,
                    (move |figure| figure.value * per_ns, second),
                );
                let tail = tail.beside(Peer::case(median.name()));
                let median = match medians.last() {
                    Some(first) => median.beside(Peer::case(first)),
                    None => median,
                };
                medians.push(median.name().to_owned());
                suite.push(median);
                suite.push(tail);
            }
        }
    }
    suite
}

/// Figures 13 and 14: the processor time of a host that waits for messages, and what waiting adds to
/// latency.
pub fn waiting(over: &str, candidate: &Candidate) -> Suite {
    let how = match CpuWait::detected() {
        CpuWait::Umwait => "umwait",
        CpuWait::Mwaitx => "mwaitx",
        CpuWait::Wfe => "wfe",
        CpuWait::Pause => "pause, as this processor has neither umwait nor mwaitx nor wfe",
    };
    let about = format!(
        "a jam from mailbox to mailbox of another process, without pause or once in a millisecond: \
         half a round trip, and the processor time of the process that answers; it polls without \
         pause (spins), or waits by {how}, and after 100 us by sleep"
    );
    let mut suite = Suite::new(format!("jam-{over}-waiting"), about, Placement::Pair);
    suite.time = WAITING_TIME;
    let candidate = Candidate { statistic: Statistic::Mean, is_strict: false, ..candidate.clone() };
    for function in [Function::Put, Function::Sum] {
        for (shape, pace) in
            [(Shape::PingPong, "without pause"), (Shape::Paced, "one in a millisecond")]
        {
            let mut first: Option<[Peer; 2]> = None;
            for (waiting, how) in [(Waiting::Spins, "spins"), (Waiting::Waits, "waits")] {
                let message = Message::Jam(function, Form::Cached);
                let plan = FramePlan { message, bytes: 64, shape, waiting };
                let name = |what| format!("gossamer/{}, {pace}, {how}, {what}", function.text());
                let names = [name("half a round trip"), name("processor time")];
                let (measured, plan) = (candidate.clone(), Plan::Frames(plan));
                let per_ns = candidate.per_ns();
                let cases = two_cases(
                    names,
                    [candidate.unit, Unit::Percent],
                    move |sampler| measured.whole_figure(sampler, plan),
                    (move |figure| figure.value * per_ns, |figure| figure.owner_cpu),
                );
                let peers = cases.each_ref().map(|case| Peer::case(case.name()));
                let cases = match first.clone() {
                    Some([latency, cpu]) => {
                        let [a, b] = cases;
                        [a.beside(latency), b.beside(cpu)]
                    }
                    None => cases,
                };
                first.get_or_insert(peers);
                cases.into_iter().for_each(|case| suite.push(case));
            }
        }
    }
    suite
}

/// Two cases of one sample: the first takes it, and the second, which is to stand after the first, tells
/// its other figure.
fn two_cases(
    [first, second]: [String; 2],
    units: [Unit; 2],
    sample: impl Fn(&Sampler) -> Result<Figure, CaseError> + 'static,
    (one, other): (impl Fn(Figure) -> f64 + 'static, impl Fn(Figure) -> f64 + 'static),
) -> [Case; 2] {
    let kept = Second::default();
    let keep = kept.clone();
    [
        Case::new(first, units[0], move |sampler| {
            keep.set(None);
            let figure = sample(sampler)?;
            keep.set(Some(other(figure)));
            Ok(Reading::of(one(figure)))
        }),
        Case::new(second, units[1], move |_| match kept.get() {
            Some(value) => Ok(Reading::of(value)),
            None => Err(CaseError::Empty("the case in front of it has no sample".to_owned())),
        }),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::cores::Cores;

    #[test]
    fn two_cases_share_a_sample() {
        let samples = Rc::new(Cell::new(0.0));
        let taken = samples.clone();
        let sample = move |_: &Sampler| {
            taken.set(taken.get() + 1.0);
            let (value, lost) = (taken.get(), 0.0);
            Ok(Figure { value, lost, tail: 10.0 * value, owner_cpu: 0.0 })
        };
        let names = ["a", "b"].map(str::to_owned);
        let units = [Unit::Nanoseconds; 2];
        let figures = (|figure: Figure| figure.value, |figure: Figure| figure.tail);
        let mut suite = Suite::new("test", "", Placement::Unpinned);
        two_cases(names, units, sample, figures).into_iter().for_each(|case| suite.push(case));
        let cores = Cores { first: 0, second: 1 };
        let outcomes = crate::harness::Harness::new(cores, 2).run(&mut suite);
        let values = |at: usize| outcomes[at].values(None);
        assert_eq!((values(0), values(1)), (vec![1.0, 2.0], vec![10.0, 20.0]));
    }
}
