//! Threads with schedulers, and what tests look at.

use std::cell::RefCell;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;

use gossamer_fiber::{Config, Remote, Scheduler};

/// A thread with a scheduler, which is dropped when it is told to stop.
pub(crate) struct Worker {
    pub(crate) remote: Remote,
    stop: Arc<AtomicBool>,
    thread: thread::JoinHandle<()>,
}

impl Worker {
    pub(crate) fn start() -> Worker {
        let (send, receive) = mpsc::channel();
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = stop.clone();
        let thread = thread::spawn(move || {
            let scheduler = Scheduler::new(Config::default()).unwrap();
            send.send(scheduler.remote()).unwrap();
            while !stopped.load(Ordering::Acquire) {
                scheduler.run(64);
                scheduler.expire(std::time::Instant::now());
                thread::yield_now();
            }
        });
        Worker { remote: receive.recv().unwrap(), stop, thread }
    }

    pub(crate) fn stop(&self) {
        self.stop.store(true, Ordering::Release);
    }

    /// Stops it, if it has not been told to, and waits until it has ended.
    pub(crate) fn end(self) {
        self.stop();
        self.thread.join().unwrap();
    }
}

/// A scheduler of this thread, and how others start fibers there.
pub(crate) fn scheduler() -> (Scheduler, Remote) {
    let scheduler = Scheduler::new(Config::default()).unwrap();
    let remote = scheduler.remote();
    (scheduler, remote)
}

/// Gives the remotes in turn.
pub(crate) fn in_turn(workers: &[Worker]) -> impl Fn() -> Remote + Send + Sync + Clone + 'static {
    let remotes: Vec<Remote> = workers.iter().map(|worker| worker.remote.clone()).collect();
    let next = Arc::new(AtomicUsize::new(0));
    move || remotes[next.fetch_add(1, Ordering::Relaxed) % remotes.len()].clone()
}

pub(crate) fn workers() -> [Worker; 3] {
    [(); 3].map(|()| Worker::start())
}

pub(crate) fn stop(workers: [Worker; 3]) {
    workers.iter().for_each(Worker::stop);
    workers.into_iter().for_each(Worker::end);
}

/// Checks what it borrows when it is dropped.
pub(crate) struct Check<'a>(pub(crate) &'a AtomicUsize);

impl Drop for Check<'_> {
    fn drop(&mut self) {
        assert_eq!(self.0.swap(2, Ordering::Relaxed), 1, "the frame that it borrows is there");
    }
}

/// What a thread calls later, as a progress engine does.
pub(crate) type Callbacks = RefCell<Vec<Box<dyn FnOnce(u32)>>>;

thread_local! {
    pub(crate) static CALLBACKS: Callbacks = const { RefCell::new(Vec::new()) };
}

/// Runs the fibers of a scheduler until none is ready.
pub(crate) fn run_ready(scheduler: &Scheduler) {
    while scheduler.run(64) > 0 {}
}
