//! The paper's figures 5 to 8 over one transport, and calls of a trustee beside them.

use std::time::Duration;

use super::calls::JamPlan;
use super::frames::{FramePlan, Message};
use super::{Form, Function, PAYLOADS, size};
use crate::harness::Limit::{AtLeast, AtMost};
use crate::harness::{Bar, Case, Peer, Placement, Suite, Unit};
use crate::measure::sampling::{CaseError, Reading, Sampler};
use crate::product::segment::Plan;
use crate::product::segment::cases::Candidate;
use crate::ucx::{Run, Test, expected_latency};

/// What Cached may take of Local, and Injected from [`MUCH`] bytes on.
const CACHED: f64 = 1.05;
const INJECTED: f64 = 1.1;
const MUCH: usize = 4096;
/// What a frame may take of a write.
const FRAME: f64 = 1.015;
/// How long a sample takes.
const TIME: Duration = Duration::from_millis(50);

/// A transport between two hosts.
#[derive(Clone)]
pub struct Transport {
    /// Its name in those of suites.
    pub over: &'static str,
    /// Two hosts that it joins.
    pub candidate: Candidate,
    /// What UCX calls it, if UCX has it here.
    pub ucx: Option<&'static str>,
    /// Where the cases run.
    pub placement: Placement,
    /// Bytes of payloads.
    pub payloads: Vec<usize>,
    /// How long a sample takes.
    pub time: Duration,
    /// Whether each host maps the memory of the other.
    pub is_mapped: bool,
}

impl Transport {
    /// One between two processes on two cores, with all payloads.
    pub fn on_a_pair(over: &'static str, candidate: Candidate, ucx: &'static str) -> Transport {
        let (placement, payloads, is_mapped) = (Placement::Pair, PAYLOADS.to_vec(), over == "shm");
        Transport { over, candidate, ucx: Some(ucx), placement, payloads, time: TIME, is_mapped }
    }

    /// The suites of mailboxes: those of a frame beside a write, and those of jams.
    pub fn suites(&self) -> Vec<Suite> {
        vec![self.frame_latency(), self.frame_bandwidth(), self.latency(), self.rate()]
    }

    fn suite(&self, what: &str, about: &str) -> Suite {
        let mut suite = Suite::new(format!("jam-{}-{what}", self.over), about, self.placement);
        suite.time = self.time;
        suite
    }

    /// Figure 5.
    fn frame_latency(&self) -> Suite {
        let about = "a frame that runs nothing, beside a write of as many bytes with a word that becomes \
                     visible last, for which the other process polls, a bare write, and a put of UCX; an \
                     operation is half a round trip";
        let mut suite = self.suite("frame-latency", about);
        for &bytes in &self.payloads {
            let write = self.one_way(Message::Write, bytes);
            let peer = Peer::case(write.name());
            let frame = self.one_way(Message::Empty, bytes);
            let mut frame = frame.bar(peer, Bar::ratio(AtMost(FRAME)));
            suite.push(write);
            if !self.is_mapped {
                let bare = self.one_way(Message::BareWrite, bytes);
                frame = frame.beside(Peer::case(bare.name()));
                suite.push(bare);
            }
            let message = FramePlan::ping_pong(Message::Write, bytes).message_bytes();
            if let Some(case) = self.ucx_latency(Test::PutLatency, message, bytes) {
                frame = frame.beside(Peer::case(case.name()));
                suite.push(case);
            }
            suite.push(frame);
        }
        suite
    }

    /// Figure 6.
    fn frame_bandwidth(&self) -> Suite {
        let about = "frames that run nothing, one way, in 4 banks of 8, beside writes of as many bytes \
                     that the other process sees, ordered and bare, as many of them under way, and \
                     puts of UCX that it does not see; all bytes of a frame count";
        let mut suite = self.suite("frame-bandwidth", about);
        for &bytes in &self.payloads {
            let message = FramePlan::stream(Message::Write, bytes).message_bytes();
            let case = |message_kind| {
                let plan = FramePlan::stream(message_kind, bytes);
                self.candidate.throughput(plan.text(), message, Plan::Frames(plan))
            };
            let write = case(Message::Write);
            let peer = Peer::case(write.name());
            let mut frame = case(Message::Empty).bar(peer, Bar::ratio(AtLeast(1.0)));
            suite.push(write);
            if !self.is_mapped {
                let bare = case(Message::BareWrite);
                frame = frame.beside(Peer::case(bare.name()));
                suite.push(bare);
            }
            if let Some(ucx) = self.ucx_rate(Test::PutRate, message) {
                let name = format!("ucx/{}, {}", Test::PutRate.name(), size(bytes));
                let case = Case::new(name, Unit::GigabytesPerSecond, move |sampler| {
                    Ok(Reading::of(ucx.per_second(sampler)? * message as f64 / 1e9))
                });
                frame = frame.beside(Peer::case(case.name()));
                suite.push(case);
            }
            suite.push(frame);
        }
        suite
    }

    /// Figure 7.
    fn latency(&self) -> Suite {
        let about = "Server-Side Sum and Indirect Put of Grodowitz et al. 2021 from mailbox to \
                     mailbox of another process, and an active message of UCX with as large a payload \
                     and the number of a function; an operation is half a round trip";
        let mut suite = self.suite("latency", about);
        for &bytes in &self.payloads {
            let ucx = self.ucx_latency(Test::AmLatency, bytes, bytes);
            let peer = ucx.as_ref().map(|case| Peer::case(case.name()));
            ucx.into_iter().for_each(|case| suite.push(case));
            for function in [Function::Sum, Function::Put] {
                let forms = [Form::Local, Form::Cached, Form::Injected];
                let [local, cached, injected] =
                    forms.map(|form| self.one_way(Message::Jam(function, form), bytes));
                let of_local = Peer::case(local.name());
                let cached = cached.bar(of_local.clone(), Bar::ratio(AtMost(CACHED)));
                let injected = match bytes < MUCH {
                    true => injected.beside(of_local),
                    false => injected.bar(of_local, Bar::ratio(AtMost(INJECTED))),
                };
                for case in [local, cached, injected] {
                    suite.push(beside(case, peer.as_ref()));
                }
            }
        }
        suite
    }

    /// Figure 8.
    fn rate(&self) -> Suite {
        let about = "the same, one way, in 4 banks of 8 frames, and active messages of UCX; an \
                     operation is a message, which the other process has run";
        let mut suite = self.suite("rate", about);
        for &bytes in &self.payloads {
            let ucx = self.ucx_rate(Test::AmRate, bytes).map(|run| {
                let name = format!("ucx/{}, {}", Test::AmRate.name(), size(bytes));
                Case::new(name, Unit::Mops, move |sampler| {
                    Ok(Reading::of(run.per_second(sampler)? / 1e6))
                })
            });
            let peer = ucx.as_ref().map(|case| Peer::case(case.name()));
            ucx.into_iter().for_each(|case| suite.push(case));
            for function in [Function::Sum, Function::Put] {
                let forms = [Form::Local, Form::Cached, Form::Injected];
                let [local, cached, injected] = forms.map(|form| {
                    let plan = FramePlan::stream(Message::Jam(function, form), bytes);
                    let (name, plan) = (plan.text(), Plan::Frames(plan));
                    self.candidate.converted(name, Unit::Mops, plan, |ns| 1e3 / ns)
                });
                let of_local = Peer::case(local.name());
                let cached = cached.bar(of_local.clone(), at_least_one_in(CACHED));
                let injected = match bytes < MUCH {
                    true => injected.beside(of_local),
                    false => injected.bar(of_local, at_least_one_in(INJECTED)),
                };
                for case in [local, cached, injected] {
                    suite.push(beside(case, peer.as_ref()));
                }
            }
        }
        suite
    }

    /// Half a round trip of a message.
    fn one_way(&self, message: Message, bytes: usize) -> Case {
        let plan = FramePlan::ping_pong(message, bytes);
        self.candidate.duration(plan.text(), Plan::Frames(plan))
    }

    /// Half a round trip of UCX with messages of `message` bytes, beside payloads of `bytes`.
    fn ucx_latency(&self, test: Test, message: usize, bytes: usize) -> Option<Case> {
        let (over, unit, per_ns) = (self.ucx?, self.candidate.unit, self.candidate.per_ns());
        let expected = expected_latency(over, message);
        let run = Run { test, over, bytes: message, expected };
        let name = format!("ucx/{}, {}", test.name(), size(bytes));
        Some(Case::new(name, unit, move |sampler| {
            Ok(Reading::of(run.microseconds(sampler)? * 1e3 * per_ns))
        }))
    }

    fn ucx_rate(&self, test: Test, bytes: usize) -> Option<Run> {
        let over = self.ucx?;
        let (least, per_byte) = if over == "tcp" { (500, 2) } else { (80, 8) };
        let expected = Duration::from_nanos(least + bytes as u64 / per_byte);
        Some(Run { test, over, bytes, expected })
    }

    /// The suites of calls of a trustee; `per_second` measures a plan.
    pub fn calls(
        &self,
        per_second: impl Fn(&Sampler, JamPlan) -> Result<f64, CaseError> + Clone + 'static,
    ) -> [Suite; 2] {
        [self.call_latency(per_second.clone()), self.call_rate(per_second)]
    }

    fn call_latency(
        &self,
        per_second: impl Fn(&Sampler, JamPlan) -> Result<f64, CaseError> + Clone + 'static,
    ) -> Suite {
        let about = "Indirect Put on a property of another process, by `inject` and by `apply` of the \
                     same function; an operation is a whole call, with its answer";
        let mut suite = self.suite("inject-latency", about);
        let (unit, per_ns) = (self.candidate.unit, self.candidate.per_ns());
        for &bytes in &self.payloads {
            let [apply, local, cached, injected] = FORMS.map(|form| {
                let function = Function::Put;
                let plan = JamPlan { function, form, bytes, has_window: false };
                let (name, per_second) = (case_name(plan), per_second.clone());
                Case::new(name, unit, move |sampler| {
                    Ok(Reading::of(1e9 / per_second(sampler, plan)? * per_ns))
                })
            });
            let (of_apply, of_local) = (Peer::case(apply.name()), Peer::case(local.name()));
            suite.push(apply);
            suite.push(local.beside(of_apply.clone()));
            suite.push(cached.beside(of_apply.clone()).beside(of_local.clone()));
            suite.push(injected.beside(of_apply).beside(of_local));
        }
        suite
    }

    fn call_rate(
        &self,
        per_second: impl Fn(&Sampler, JamPlan) -> Result<f64, CaseError> + Clone + 'static,
    ) -> Suite {
        let about = "64 calls under way of a property of another process, each answered: a word in and \
                     a word out, by a function that the jam imports or by code of its own, and \
                     Indirect Put; an operation is a call";
        let mut suite = self.suite("inject-rate", about);
        let words = [(Function::Slot, 0), (Function::Mixed, 0)];
        for (function, bytes) in
            words.into_iter().chain([(Function::Put, 64), (Function::Put, MUCH)])
        {
            let [apply, local, cached, injected] = FORMS.map(|form| {
                let plan = JamPlan { function, form, bytes, has_window: true };
                let (name, per_second) = (case_name(plan), per_second.clone());
                Case::new(name, Unit::Mops, move |sampler| {
                    Ok(Reading::of(per_second(sampler, plan)? / 1e6))
                })
            });
            let peer = Peer::case(apply.name());
            suite.push(apply);
            suite.push(local.beside(peer.clone()));
            suite.push(cached.bar(peer.clone(), at_least_one_in(CACHED)));
            suite.push(injected.beside(peer));
        }
        suite
    }
}

const FORMS: [Form; 4] = [Form::Apply, Form::Local, Form::Cached, Form::Injected];

fn case_name(plan: JamPlan) -> String {
    let payload = match plan.bytes {
        0 => String::new(),
        bytes => format!(", {}", size(bytes)),
    };
    format!("gossamer/{}, {}{payload}", plan.function.text(), plan.form.text())
}

/// A rate whose operations take at most `times` those of the peer.
fn at_least_one_in(times: f64) -> Bar {
    // As many digits as the report has.
    Bar::ratio(AtLeast((1e3 / times).floor() / 1e3))
}

fn beside(case: Case, peer: Option<&Peer>) -> Case {
    match peer {
        Some(peer) => case.beside(peer.clone()),
        None => case,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::product::segment::{Statistic, shm};

    fn transport() -> Transport {
        let (unit, statistic) = (Unit::Nanoseconds, Statistic::Mean);
        let candidate = Candidate { pair: shm::pair(), statistic, is_strict: true, unit };
        Transport::on_a_pair("shm", candidate, "posix")
    }

    #[test]
    fn every_bar_of_a_frame_or_a_form_is_in_a_suite() {
        let mut suites = transport().suites();
        suites.extend(transport().calls(|_, _| Ok(1.0)));
        let bars = |name: &str| {
            let suite = suites.iter().find(|suite| suite.name == name).expect(name);
            let comparisons = suite.cases.iter().flat_map(Case::comparisons);
            comparisons.filter_map(|it| Some(it.bar?.text())).collect::<Vec<_>>()
        };
        assert_eq!(bars("jam-shm-frame-latency"), ["ratio <= 1.015"; 5]);
        assert_eq!(bars("jam-shm-frame-bandwidth"), ["ratio >= 1"; 5]);
        let count = |name: &str, text: &str| bars(name).iter().filter(|it| *it == text).count();
        let counts = |name, texts: [&str; 2]| texts.map(|text| count(name, text));
        assert_eq!(counts("jam-shm-latency", ["ratio <= 1.05", "ratio <= 1.1"]), [10, 4]);
        assert_eq!(counts("jam-shm-rate", ["ratio >= 0.952", "ratio >= 0.909"]), [10, 4]);
        assert_eq!(bars("jam-shm-inject-rate"), ["ratio >= 0.952"; 4]);
    }
}
