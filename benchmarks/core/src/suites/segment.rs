//! Segments between two processes that share memory: accesses beside checked accesses to memory of
//! this process, notifications beside eventfds, records beside copies, and the paper's tables.

use std::time::Duration;

use bench_kit::eventfd;
use bench_kit::harness::Limit::{AtLeast, AtMost};
use bench_kit::harness::{Bar, Case, Peer, Placement, Suite, Unit};
use bench_kit::measure::latency::one_way_ns;
use bench_kit::measure::sampling::Reading;
use bench_kit::product::segment::cases::{Candidate, WAKE_UP_TIME, table_2, table_3};
use bench_kit::product::segment::{Plan, RemoteOp, Statistic, Wait, local, shm};
use bench_kit::ucx::{self, Test};

/// How long CPU time is observed.
const CPU_TIME: Duration = Duration::from_secs(1);

/// The suites `segment-*`.
pub(crate) fn suites() -> Vec<Suite> {
    let candidate = candidate(Unit::Nanoseconds);
    vec![
        access(&candidate),
        blocks(&candidate),
        idle_owner(&candidate),
        notify(&candidate),
        record(&candidate),
        table_2(&candidate, "shm", Placement::Pair),
        table_3(&candidate, "shm", Placement::Pair),
    ]
}

fn candidate(unit: Unit) -> Candidate {
    Candidate { pair: shm::pair(), statistic: Statistic::Mean, is_strict: true, unit }
}

fn access(candidate: &Candidate) -> Suite {
    let about = "8 bytes of a segment of another process, whose memory is mapped, beside checked \
                 accesses to memory of this one; an operation is an access";
    let mut suite = Suite::new("segment-access", about, Placement::SingleThread);
    let (load, store, chain) = (local::load(), local::store(), local::chain());
    let (add, swap) = (local::fetch_add(), local::compare_swap());
    let (slice_load, slice_store) = (local::slice_load(), local::slice_store());
    let peer = |case: &Case| Peer::case(case.name());
    let bar = Bar::ratio(AtMost(3.0));
    let repeat =
        |name: &str, op| candidate.duration(format!("gossamer/{name}"), Plan::RepeatAsleep(op));
    let ours = [
        repeat("read", RemoteOp::Read(8)).bar(peer(&load), bar).beside(peer(&slice_load)),
        repeat("read, where the last one says", RemoteOp::ReadChain).bar(peer(&chain), bar),
        repeat("write", RemoteOp::Write(8)).bar(peer(&store), bar).beside(peer(&slice_store)),
        repeat("fetch_add", RemoteOp::FetchAdd).beside(peer(&add)),
        repeat("compare_swap", RemoteOp::CompareSwap).beside(peer(&swap)),
    ];
    for case in [load, slice_load, chain, store, slice_store, add, swap] {
        suite.push(case);
    }
    for test in [Test::GetLatency, Test::FetchAdd, Test::CompareSwap] {
        suite.push(ucx::over_shared_memory(test, 8));
    }
    ours.into_iter().for_each(|case| suite.push(case));
    suite
}

fn blocks(candidate: &Candidate) -> Suite {
    let about = "blocks between memory of this process and a segment of another, whose memory is \
                 mapped, beside copies within this one";
    let mut suite = Suite::new("segment-blocks", about, Placement::SingleThread);
    for bytes in [4 << 10, 64 << 10] {
        let peer = local::memcpy_rate(bytes);
        let (name, size) = (Peer::case(peer.name()), local::size(bytes));
        suite.push(peer);
        for (what, op) in [
            ("read_block", RemoteOp::ReadBlock(bytes)),
            ("write_block", RemoteOp::WriteBlock(bytes)),
        ] {
            let plan = Plan::RepeatAsleep(op);
            let case = candidate.throughput(format!("gossamer/{what}, {size}"), bytes, plan);
            suite.push(case.bar(name.clone(), Bar::ratio(AtLeast(0.9))));
        }
    }
    suite
}

fn idle_owner(candidate: &Candidate) -> Suite {
    let about = "CPU time of the process that owns a segment, while another uses it, and the owner's \
                 thread sleeps";
    let mut suite = Suite::new("segment-owner", about, Placement::Unpinned);
    suite.time = CPU_TIME;
    let nothing = candidate.owner_cpu("gossamer/nothing is done", RemoteOp::Nothing);
    let peer = Peer::case(nothing.name());
    suite.push(nothing);
    for (name, op) in [
        ("read, 8 bytes", RemoteOp::Read(8)),
        ("write, 8 bytes", RemoteOp::Write(8)),
        ("fetch_add", RemoteOp::FetchAdd),
    ] {
        let case = candidate.owner_cpu(format!("gossamer/{name}"), op);
        suite.push(case.beside(peer.clone()).bar_value(Bar::value(AtMost(0.1))));
    }
    suite
}

fn notify(candidate: &Candidate) -> Suite {
    let about = "8 bytes written to a segment, and word of it to its owner, in another process; an \
                 operation is one way, unless it says otherwise";
    let mut suite = Suite::new("segment-notify", about, Placement::Pair);
    suite.time = WAKE_UP_TIME;
    let line = Case::new("cores/a cache line, one way", Unit::Nanoseconds, |sampler| {
        Ok(Reading::of(one_way_ns(sampler.cores)?))
    });
    let polls = candidate.duration("gossamer/to a process that polls", Plan::Notify(Wait::Polls));
    let polls = polls.bar(Peer::case(line.name()), Bar::ratio(AtMost(2.0)));
    let (round_trip, one_way) = (eventfd::round_trip(), eventfd::wake_up());
    let micros = self::candidate(Unit::Microseconds);
    let (there_and_back, there) = (Peer::case(round_trip.name()), Peer::case(one_way.name()));
    let sleeps = micros.round_trip("gossamer/round trip, both sleep", Plan::Notify(Wait::Sleeps));
    let wake_up = micros.duration("gossamer/to a process that sleeps", Plan::WakeUp);
    let at_file = "gossamer/to a process that sleeps, at a descriptor";
    let at_file = micros.duration(at_file, Plan::WakeUpAtDescriptor);
    for case in [
        line,
        polls,
        round_trip,
        sleeps.bar(there_and_back.clone(), Bar::ratio(AtMost(1.2))),
        one_way,
        wake_up.beside(there.clone()).bar(there_and_back.clone(), Bar::ratio(AtMost(1.2))),
        at_file.beside(there).beside(there_and_back),
    ] {
        suite.push(case);
    }
    suite
}

fn record(candidate: &Candidate) -> Suite {
    let about = "records of another process's segment that are read whole, and checked, beside copies \
                 of as many bytes within this process; an operation is a read";
    let mut suite = Suite::new("segment-record", about, Placement::SingleThread);
    for bytes in [64, 1024] {
        let peer = local::memcpy(bytes);
        let name = Peer::case(peer.name());
        suite.push(peer);
        let plan = Plan::RepeatAsleep(RemoteOp::ReadRecord(bytes));
        let case = candidate.duration(format!("gossamer/{}", local::size(bytes)), plan);
        suite.push(case.beside(name));
    }
    suite
}
