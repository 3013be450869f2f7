//! Racks that wait and racks with more threads than cores, as subjects of [`load`](crate::load).
//!
//! [`Adaptive`] is the product: a [`Rack`], whose idle threads pause, then yield, then sleep.
//! [`YieldOnly`] is the same delegation under workers that only ever yield: what sleeping is
//! compared with.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use fiber::{Config, Remote, Scheduler, Unparker};
use gossamer::{Rack, Trust, local_trustee};
use transport_shm::ShmTransport;
use trust_core::{Job, Node, Registered, Wiring};

use super::sample::Over;
use super::share::{Delegated, FIBERS};
use crate::load::{Running, Subject};
use crate::measure::cores::pin;
use crate::measure::room::CaseError;
use crate::work::{Counter, Section};

/// How long the threads of a subject may take to be up.
const PATIENCE: Duration = Duration::from_secs(20);

type Counters = Arc<[Trust<Counter>]>;

/// Applies to the counter of the next thread until it is over.
fn storm(counters: &Counters, over: &Over) {
    let own = counters.iter().position(Trust::is_local);
    let next = &counters[own.map_or(0, |own| (own + 1) % counters.len())];
    while !over.now() {
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

enum Order {
    Lone(Duration),
    Storm(Duration),
    End,
}

enum Answer {
    Ready(Unparker),
    Took(Duration),
    Did(u64),
}

/// A rack whose first fiber takes orders from a thread outside.
struct Ordered {
    orders: Arc<Mutex<VecDeque<Order>>>,
    first_fiber: Unparker,
    answers: Receiver<Answer>,
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
            if let Err(e) = rack.run(move || obey(&inside, &answer)) {
                eprintln!("bench: {e}");
            }
        })?;
        match answers.recv_timeout(PATIENCE) {
            Ok(Answer::Ready(first_fiber)) => {
                Ok(Box::new(Ordered { orders, first_fiber, answers, rack: Some(rack) }))
            }
            _ => Err(gone()),
        }
    }
}

/// The first fiber of the rack.
fn obey(orders: &Mutex<VecDeque<Order>>, answer: &Sender<Answer>) {
    let counters: Counters =
        gossamer::trustees().map(|thread| thread.entrust_moved(Counter::fresh())).collect();
    let me = fiber::unparker().expect("this is a fiber");
    // An answer that nobody takes belongs to a case that has failed.
    let _ = answer.send(Answer::Ready(me));
    loop {
        let order = orders.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
        match order {
            None => fiber::park(),
            Some(Order::End) => return,
            Some(Order::Lone(pause)) => {
                let _ = answer.send(Answer::Took(lone(&counters, pause)));
            }
            Some(Order::Storm(time)) => {
                let _ = answer.send(Answer::Did(storm_of_the_pool(&counters, time)));
            }
        }
    }
}

fn storm_of_the_pool(counters: &Counters, time: Duration) -> u64 {
    let (over, before) = (Over::default(), sum(counters));
    let start = |_| {
        let (counters, over) = (counters.clone(), over.clone());
        gossamer::spawn(move || storm(&counters, &over))
    };
    let fibers: Vec<_> = (0..FIBERS * counters.len()).map(start).collect();
    gossamer::sleep(time);
    over.set();
    fibers.into_iter().for_each(|fiber| fiber.join().expect("a storm does not panic"));
    sum(counters) - before
}

impl Ordered {
    fn order(&self, order: Order) {
        self.orders.lock().unwrap_or_else(PoisonError::into_inner).push_back(order);
        self.first_fiber.unpark();
    }
}

impl Running for Ordered {
    fn request(&mut self) -> Result<(), CaseError> {
        self.lone_request(Duration::ZERO).map(drop)
    }

    fn lone_request(&mut self, pause: Duration) -> Result<Duration, CaseError> {
        self.order(Order::Lone(pause));
        match self.answers.recv() {
            Ok(Answer::Took(time)) => Ok(time),
            _ => Err(gone()),
        }
    }

    fn storm(&mut self, time: Duration) -> Result<u64, CaseError> {
        self.order(Order::Storm(time));
        match self.answers.recv() {
            Ok(Answer::Did(count)) => Ok(count),
            _ => Err(gone()),
        }
    }
}

impl Drop for Ordered {
    fn drop(&mut self) {
        self.order(Order::End);
        // A rack that panicked has said so itself.
        let _ = self.rack.take().map(JoinHandle::join);
    }
}

/// The delegation of a rack, without its idle threads: they yield, and nothing else.
#[derive(Debug)]
pub struct YieldOnly;

struct Yielding {
    counters: Counters,
    remotes: Vec<Remote>,
    /// Threads that have fibers of their own; the rest only serves.
    clients: usize,
    over: Arc<AtomicBool>,
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
        let over = Arc::new(AtomicBool::new(false));
        let (tell, told) = channel();
        let start = |number: u32| {
            let (wiring, over, tell) = (wiring.clone(), over.clone(), tell.clone());
            let core = core.filter(|_| number as usize >= clients);
            thread::Builder::new().spawn(move || work(&wiring, number, core, &tell, &over))
        };
        let threads = (0..count).map(start).collect::<Result<Vec<_>, _>>()?;
        let mut seats: Vec<Seat> = (0..count)
            .map(|_| told.recv_timeout(PATIENCE).map_err(|_| gone()))
            .collect::<Result<_, _>>()?;
        seats.sort_by_key(|seat| seat.number);
        let remotes = seats.iter().map(|seat| seat.remote.clone()).collect();
        let counters = seats.into_iter().map(|seat| seat.counter);
        // Beside a neighbour the client's own counter stays out of it.
        let counters = counters.skip(core.map_or(0, |_| clients)).collect();
        let running =
            Yielding { counters, remotes, clients, over, threads, _registered: registered };
        Ok(Box::new(running))
    }
}

/// One thread of [`YieldOnly`], as it is seen from outside.
struct Seat {
    number: u32,
    remote: Remote,
    counter: Trust<Counter>,
}

/// A worker without a bell: it never sleeps, so nobody has to wake it.
fn work(
    wiring: &Wiring,
    number: u32,
    core: Option<usize>,
    tell: &Sender<Seat>,
    over: &AtomicBool,
) -> Result<(), CaseError> {
    const FIBERS_PER_POLL: usize = 128;
    core.map_or(Ok(()), pin)?;
    let scheduler = Scheduler::new(Config::default())?;
    let node = wiring.node(number).map_err(|e| CaseError::Failed(e.to_string()))?;
    let node = Node::enter(node);
    let counter = local_trustee().entrust(Counter::fresh());
    // When nobody listens any more the start has failed, and `over` will be set.
    let _ = tell.send(Seat { number, remote: scheduler.remote(), counter });
    scheduler.enter(|| {
        while !over.load(Relaxed) {
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

impl Yielding {
    fn on_first<R: Send + 'static>(
        &self,
        work: impl FnOnce(&Counters) -> R + Send + 'static,
    ) -> Result<R, CaseError> {
        let counters = self.counters.clone();
        self.remotes[0].spawn(move || work(&counters)).join().map_err(|_| gone())
    }
}

impl Running for Yielding {
    fn request(&mut self) -> Result<(), CaseError> {
        self.lone_request(Duration::ZERO).map(drop)
    }

    fn lone_request(&mut self, pause: Duration) -> Result<Duration, CaseError> {
        self.on_first(move |counters| lone(counters, pause))
    }

    fn storm(&mut self, time: Duration) -> Result<u64, CaseError> {
        let before = self.on_first(sum)?;
        let over = Over::default();
        let start = |remote: &Remote| {
            let (counters, over) = (self.counters.clone(), over.clone());
            remote.spawn(move || storm(&counters, &over))
        };
        let clients = self.remotes.iter().take(self.clients);
        let fibers: Vec<_> =
            clients.flat_map(|remote| (0..FIBERS).map(move |_| remote)).map(start).collect();
        thread::sleep(time);
        over.set();
        for fiber in fibers {
            fiber.join().map_err(|_| gone())?;
        }
        Ok(self.on_first(sum)? - before)
    }
}

impl Drop for Yielding {
    fn drop(&mut self) {
        self.over.store(true, Relaxed);
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
