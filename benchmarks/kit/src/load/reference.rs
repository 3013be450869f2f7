//! Two simple subjects to compare with: a server that sleeps on a channel, and one that only ever
//! yields.

use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use super::{Running, Subject};
use crate::measure::cores::pin;
use crate::measure::sampling::CaseError;

/// Requests that a storm keeps under way to each thread.
const WINDOW: usize = 64;

/// Threads that sleep on a bounded channel of the standard library each.
#[derive(Debug)]
pub struct BlockingThreads;

struct Sleeping {
    threads: Vec<Sleeper>,
}

struct Sleeper {
    // Dropped first: the thread ends when its channel closes.
    ask: Option<SyncSender<u64>>,
    answers: Receiver<u64>,
    thread: Option<JoinHandle<()>>,
}

impl Subject for BlockingThreads {
    fn name(&self) -> &str {
        "reference/std channels"
    }

    fn start(&self, threads: usize, core: Option<usize>) -> Result<Box<dyn Running>, CaseError> {
        let threads = (0..threads).map(|_| {
            let (ask, asked) = sync_channel::<u64>(WINDOW);
            let (answer, answers) = sync_channel::<u64>(WINDOW);
            let thread = thread::Builder::new().spawn(move || {
                pinned(core);
                let mut sum = 0u64;
                while let Ok(number) = asked.recv() {
                    sum = sum.wrapping_add(number);
                    if answer.send(sum).is_err() {
                        return;
                    }
                }
            })?;
            Ok(Sleeper { ask: Some(ask), answers, thread: Some(thread) })
        });
        Ok(Box::new(Sleeping { threads: threads.collect::<Result<_, std::io::Error>>()? }))
    }
}

impl Sleeper {
    fn ask(&self, times: usize) -> Result<u64, CaseError> {
        let gone = || CaseError::Failed("a serving thread has ended".to_owned());
        let ask = self.ask.as_ref().ok_or_else(gone)?;
        for _ in 0..times {
            ask.send(1).map_err(|_| gone())?;
        }
        for _ in 0..times {
            self.answers.recv().map_err(|_| gone())?;
        }
        Ok(times as u64)
    }
}

impl Drop for Sleeper {
    fn drop(&mut self) {
        self.ask.take();
        // A thread that panicked has said so itself.
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

impl Running for Sleeping {
    fn request(&mut self) -> Result<(), CaseError> {
        self.threads[0].ask(1).map(|_| ())
    }

    fn storm(&mut self, time: Duration) -> Result<u64, CaseError> {
        let (start, mut done) = (Instant::now(), 0);
        while start.elapsed() < time {
            for thread in &self.threads {
                done += thread.ask(WINDOW)?;
            }
        }
        Ok(done)
    }
}

/// Threads that poll one cell each and yield the core after every look.
#[derive(Debug)]
pub struct YieldingThreads;

#[derive(Debug, Default)]
#[repr(align(128))]
struct Cell {
    asked: AtomicU64,
    answered: AtomicU64,
}

struct YieldOnlyRunning {
    cells: Arc<[Cell]>,
    over: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Subject for YieldingThreads {
    fn name(&self) -> &str {
        "reference/yield only"
    }

    fn start(&self, threads: usize, core: Option<usize>) -> Result<Box<dyn Running>, CaseError> {
        let cells: Arc<[Cell]> = (0..threads).map(|_| Cell::default()).collect();
        let mut running = YieldOnlyRunning { cells, over: Arc::default(), threads: Vec::new() };
        for at in 0..threads {
            let (cells, over) = (running.cells.clone(), running.over.clone());
            running.threads.push(thread::Builder::new().spawn(move || {
                pinned(core);
                while !over.load(Relaxed) {
                    let asked = cells[at].asked.load(Acquire);
                    if cells[at].answered.load(Relaxed) == asked {
                        thread::yield_now();
                    } else {
                        cells[at].answered.store(asked, Release);
                    }
                }
            })?);
        }
        Ok(Box::new(running))
    }
}

impl Running for YieldOnlyRunning {
    fn request(&mut self) -> Result<(), CaseError> {
        let cell = &self.cells[0];
        let number = cell.asked.load(Relaxed) + 1;
        cell.asked.store(number, Release);
        while cell.answered.load(Acquire) != number {
            thread::yield_now();
        }
        Ok(())
    }

    fn storm(&mut self, time: Duration) -> Result<u64, CaseError> {
        let (start, mut done) = (Instant::now(), 0);
        while start.elapsed() < time {
            for cell in self.cells.iter() {
                let asked = cell.asked.load(Relaxed);
                if cell.answered.load(Acquire) == asked {
                    cell.asked.store(asked + 1, Release);
                    done += 1;
                }
            }
            thread::yield_now();
        }
        Ok(done)
    }
}

impl Drop for YieldOnlyRunning {
    fn drop(&mut self) {
        self.over.store(true, Relaxed);
        for thread in self.threads.drain(..) {
            // A thread that panicked has said so itself.
            let _ = thread.join();
        }
    }
}

fn pinned(core: Option<usize>) {
    // The case has pinned a process to this core already, so the core is there.
    if let Some(Err(e)) = core.map(pin) {
        panic!("{e}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::is_answered;

    #[test]
    fn references_answer_one_request_and_many() {
        for subject in [&BlockingThreads as &dyn Subject, &YieldingThreads] {
            let mut running = subject.start(2, None).expect("threads");
            for _ in 0..10 {
                running.request().expect("an answer");
            }
            assert!(is_answered(&mut *running));
            assert!(running.processes().is_empty());
        }
    }
}
