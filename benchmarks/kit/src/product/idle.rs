//! Racks that wait and racks with more threads than cores, as subjects of [`load`](crate::load).
//!
//! [`Adaptive`] is the product: a [`Rack`], whose idle threads pause, then yield, then sleep.
//! [`YieldOnly`] is the same delegation under workers that only ever yield: what sleeping is
//! compared with.

use std::collections::VecDeque;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use fiber::{Config, Remote, Scheduler, Unparker};
use gossamer::{Rack, Trust, local_trustee};
use transport_shm::ShmTransport;
use trust_core::{Job, Node, Registered, Wiring};

use super::sample::StopFlag;
use super::share::Delegated;
use super::single_thread::FIBERS;
use crate::load::{Running, Subject};
use crate::measure::cores::pin;
use crate::measure::sampling::CaseError;
use crate::work::{Counter, Section};

/// Time limit for the start of a subject's threads.
const TIMEOUT: Duration = Duration::from_secs(20);

type Counters = Arc<[Trust<Counter>]>;

/// Applies to the counter of the next thread until it is over.
fn storm(counters: &Counters, stop: &StopFlag) {
    let own = counters.iter().position(Trust::is_local);
    let next = &counters[own.map_or(0, |own| (own + 1) % counters.len())];
    while !stop.is_set() {
        Counter::ask(next, 0);
    }
}

/// One request to another thread, after a rest; how long it took.
fn lone(counters: &Counters, pause: Duration) -> Duration {
    if !pause.is_zero() {
        gossamer::sleep(pause);
    }
    let asked = Instant::now();
    Counter::ask(&counters[counters.len() - 1], 0);
    asked.elapsed()
}

fn sum(counters: &Counters) -> u64 {
    counters.iter().map(|counter| counter.apply(|counter| counter.runs())).sum()
}

fn gone() -> CaseError {
    CaseError::Failed("the subject's threads have ended".to_owned())
}

/// A rack. Asked to share its core with somebody, it has a thread more, elsewhere, as the client.
#[derive(Debug)]
pub struct Adaptive;

enum Command {
    Lone(Duration),
    Storm(Duration),
    End,
}

enum Reply {
    Ready(Unparker),
    Took(Duration),
    Did(u64),
}

/// A rack whose first fiber takes orders from a thread outside.
struct ControlledRack {
    orders: Arc<Mutex<VecDeque<Command>>>,
    first_fiber: Unparker,
    answers: Receiver<Reply>,
    rack: Option<JoinHandle<()>>,
}

impl Subject for Adaptive {
    fn name(&self) -> &str {
        "gossamer"
    }

    fn start(&self, threads: usize, core: Option<usize>) -> Result<Box<dyn Running>, CaseError> {
        let threads = u32::try_from(threads).unwrap_or(u32::MAX);
        let rack = match core {
            None => Rack::new().threads(threads),
            // Pinned in turn, the last thread is on the second core, where the neighbour is.
            Some(_) => Rack::new().threads(threads + 1).dedicated_trustees(threads).pin(true),
        };
        let orders = Arc::new(Mutex::new(VecDeque::new()));
        let (answer, answers) = channel();
        let inside = orders.clone();
        let rack = thread::Builder::new().spawn(move || {
            // Whoever waits for an answer sees the channel close.
            if let Err(e) = rack.run(move || run_commands(&inside, &answer)) {
                eprintln!("bench: {e}");
            }
        })?;
        match answers.recv_timeout(TIMEOUT) {
            Ok(Reply::Ready(first_fiber)) => {
                Ok(Box::new(ControlledRack { orders, first_fiber, answers, rack: Some(rack) }))
            }
            _ => Err(gone()),
        }
    }
}

/// The first fiber of the rack.
fn run_commands(orders: &Mutex<VecDeque<Command>>, answer: &Sender<Reply>) {
    let counters: Counters =
        gossamer::trustees().map(|thread| thread.entrust_moved(Counter::fresh())).collect();
    let me = fiber::unparker().expect("this is a fiber");
    // Fails if the case has failed.
    let _ = answer.send(Reply::Ready(me));
    loop {
        let order = orders.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
        match order {
            None => fiber::park(),
            Some(Command::End) => return,
            Some(Command::Lone(pause)) => {
                let _ = answer.send(Reply::Took(lone(&counters, pause)));
            }
            Some(Command::Storm(time)) => {
                let _ = answer.send(Reply::Did(storm_of_the_pool(&counters, time)));
            }
        }
    }
}

fn storm_of_the_pool(counters: &Counters, time: Duration) -> u64 {
    let (stop, before) = (StopFlag::default(), sum(counters));
    let start = |_| {
        let (counters, stop) = (counters.clone(), stop.clone());
        gossamer::spawn(move || storm(&counters, &stop))
    };
    let fibers: Vec<_> = (0..FIBERS * counters.len()).map(start).collect();
    gossamer::sleep(time);
    stop.set();
    fibers.into_iter().for_each(|fiber| fiber.join().expect("a storm does not panic"));
    sum(counters) - before
}

impl ControlledRack {
    fn order(&self, order: Command) {
        self.orders.lock().unwrap_or_else(PoisonError::into_inner).push_back(order);
        self.first_fiber.unpark();
    }
}

impl Running for ControlledRack {
    fn request(&mut self) -> Result<(), CaseError> {
        self.lone_request(Duration::ZERO).map(drop)
    }

    fn lone_request(&mut self, pause: Duration) -> Result<Duration, CaseError> {
        self.order(Command::Lone(pause));
        match self.answers.recv() {
            Ok(Reply::Took(time)) => Ok(time),
            _ => Err(gone()),
        }
    }

    fn storm(&mut self, time: Duration) -> Result<u64, CaseError> {
        self.order(Command::Storm(time));
        match self.answers.recv() {
            Ok(Reply::Did(count)) => Ok(count),
            _ => Err(gone()),
        }
    }
}

impl Drop for ControlledRack {
    fn drop(&mut self) {
        self.order(Command::End);
        // A rack that panicked has said so itself.
        let _ = self.rack.take().map(JoinHandle::join);
    }
}

/// The delegation of a rack, without its idle threads: they yield, and nothing else.
#[derive(Debug)]
pub struct YieldOnly;

struct YieldOnlyRunning {
    counters: Counters,
    remotes: Vec<Remote>,
    /// Threads that have fibers of their own; the rest only serves.
    clients: usize,
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<Result<(), CaseError>>>,
    _registered: Registered,
}

impl Subject for YieldOnly {
    fn name(&self) -> &str {
        "gossamer, yielding only"
    }

    fn start(&self, threads: usize, core: Option<usize>) -> Result<Box<dyn Running>, CaseError> {
        let (clients, all) = if core.is_some() { (1, threads + 1) } else { (threads, threads) };
        let registered = Registered::new(Arc::new(drop::<Job>));
        let count = u32::try_from(all).unwrap_or(u32::MAX);
        let rack = ShmTransport::threads(count).map_err(|e| CaseError::Failed(e.to_string()))?;
        let wiring = Wiring::connect(rack, registered.number(), Duration::ZERO);
        let wiring = Arc::new(wiring.map_err(|e| CaseError::Failed(e.to_string()))?);
        let stop = Arc::new(AtomicBool::new(false));
        let (tell, told) = channel();
        let start = |number: u32| {
            let (wiring, stop, tell) = (wiring.clone(), stop.clone(), tell.clone());
            let core = core.filter(|_| number as usize >= clients);
            thread::Builder::new().spawn(move || work(&wiring, number, core, &tell, &stop))
        };
        let threads = (0..count).map(start).collect::<Result<Vec<_>, _>>()?;
        let mut nodes: Vec<Worker> = (0..count)
            .map(|_| told.recv_timeout(TIMEOUT).map_err(|_| gone()))
            .collect::<Result<_, _>>()?;
        nodes.sort_by_key(|worker| worker.number);
        let remotes = nodes.iter().map(|worker| worker.remote.clone()).collect();
        let counters = nodes.into_iter().map(|worker| worker.counter);
        // Beside a neighbour the client's own counter stays out of it.
        let counters = counters.skip(core.map_or(0, |_| clients)).collect();
        let running =
            YieldOnlyRunning { counters, remotes, clients, stop, threads, _registered: registered };
        Ok(Box::new(running))
    }
}

/// One thread of [`YieldOnly`], as it is seen from outside.
struct Worker {
    number: u32,
    remote: Remote,
    counter: Trust<Counter>,
}

/// A worker that never sleeps, so it needs no wake-ups.
fn work(
    wiring: &Wiring,
    number: u32,
    core: Option<usize>,
    tell: &Sender<Worker>,
    stop: &AtomicBool,
) -> Result<(), CaseError> {
    const FIBERS_PER_POLL: usize = 128;
    core.map_or(Ok(()), pin)?;
    let scheduler = Scheduler::new(Config::default())?;
    let node = wiring.node(number).map_err(|e| CaseError::Failed(e.to_string()))?;
    let node = Node::enter(node);
    let counter = local_trustee().entrust(Counter::fresh());
    // Fails if the start has failed; then `over` will be set.
    let _ = tell.send(Worker { number, remote: scheduler.remote(), counter });
    scheduler.enter(|| {
        while !stop.load(Relaxed) {
            let resumed = scheduler.run(FIBERS_PER_POLL);
            let polled = node.poll();
            if scheduler.next_deadline().is_some() {
                scheduler.expire(Instant::now());
            }
            if resumed == 0 && !polled {
                thread::yield_now();
            }
        }
        node.close();
        scheduler.run(FIBERS_PER_POLL);
    });
    drop(scheduler);
    node.clear();
    Ok(())
}

impl YieldOnlyRunning {
    fn on_first<R: Send + 'static>(
        &self,
        work: impl FnOnce(&Counters) -> R + Send + 'static,
    ) -> Result<R, CaseError> {
        let counters = self.counters.clone();
        self.remotes[0].spawn(move || work(&counters)).join().map_err(|_| gone())
    }
}

impl Running for YieldOnlyRunning {
    fn request(&mut self) -> Result<(), CaseError> {
        self.lone_request(Duration::ZERO).map(drop)
    }

    fn lone_request(&mut self, pause: Duration) -> Result<Duration, CaseError> {
        self.on_first(move |counters| lone(counters, pause))
    }

    fn storm(&mut self, time: Duration) -> Result<u64, CaseError> {
        let before = self.on_first(sum)?;
        let stop = StopFlag::default();
        let start = |remote: &Remote| {
            let (counters, stop) = (self.counters.clone(), stop.clone());
            remote.spawn(move || storm(&counters, &stop))
        };
        let clients = self.remotes.iter().take(self.clients);
        let fibers: Vec<_> =
            clients.flat_map(|remote| (0..FIBERS).map(move |_| remote)).map(start).collect();
        thread::sleep(time);
        stop.set();
        for fiber in fibers {
            fiber.join().map_err(|_| gone())?;
        }
        Ok(self.on_first(sum)? - before)
    }
}

impl Drop for YieldOnlyRunning {
    fn drop(&mut self) {
        self.stop.store(true, Relaxed);
        for thread in self.threads.drain(..) {
            // A thread that panicked has said so itself.
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::is_answered;

    #[test]
    fn racks_answer_one_request_and_many() {
        for subject in [&Adaptive as &dyn Subject, &YieldOnly] {
            let mut running = subject.start(2, None).expect("threads");
            running.request().expect("an answer");
            let took = running.lone_request(Duration::from_millis(2)).expect("an answer");
            assert!(took > Duration::ZERO);
            assert!(is_answered(&mut *running));
        }
    }

    #[test]
    fn a_neighbour_shares_the_core_of_the_trustee_alone() {
        let cores = crate::measure::cores::Cores::of_this_process().expect("two cores");
        for subject in [&Adaptive as &dyn Subject, &YieldOnly] {
            let mut running = subject.start(1, Some(cores.second)).expect("threads");
            assert!(is_answered(&mut *running));
        }
    }
}
