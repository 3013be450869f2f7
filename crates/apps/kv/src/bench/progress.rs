//! The progress bar of a phase.
//!
//! Clients add finished operations to a counter of the process in large steps, which keeps the cost
//! of counting negligible. Each process of a rack counts for itself; all do the same share of the
//! work, so the progress of this process represents the whole.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// Operations of a client between two reads of the clock and updates of the counter.
pub(super) const STEP: u64 = 64;

/// The interval between redraws of the bar.
const REDRAW: Duration = Duration::from_millis(100);

/// Operations finished in this process.
static FINISHED: AtomicU64 = AtomicU64::new(0);

/// Counts finished operations.
pub(super) fn count(operations: u64) {
    FINISHED.fetch_add(operations, Ordering::Relaxed);
}

/// The progress bar of one phase, removed when dropped. Nothing is drawn if standard error is not a
/// terminal.
#[derive(Debug)]
pub struct Progress {
    done: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Progress {
    /// A bar for a phase in which this process finishes up to `operations` within up to `limit`.
    pub fn start(title: &str, operations: u64, limit: Option<Duration>) -> Self {
        let done = Arc::new(AtomicBool::new(false));
        let target = ProgressDrawTarget::stderr();
        if target.is_hidden() {
            return Self { done, thread: None };
        }
        let bar = ProgressBar::with_draw_target(Some(1000), target);
        if let Ok(style) =
            ProgressStyle::with_template("{prefix:24} {wide_bar} {percent:>3}%  {msg}")
        {
            bar.set_style(style);
        }
        bar.set_prefix(title.to_owned());
        let stop = Arc::clone(&done);
        let thread = thread::spawn(move || draw(&bar, operations, limit, &stop));
        Self { done, thread: Some(thread) }
    }
}

fn draw(bar: &ProgressBar, operations: u64, limit: Option<Duration>, stop: &AtomicBool) {
    let (start, before) = (Instant::now(), FINISHED.load(Ordering::Relaxed));
    while !stop.load(Ordering::Acquire) {
        let finished = FINISHED.load(Ordering::Relaxed) - before;
        let elapsed = start.elapsed();
        let by_count = finished as f64 / operations.max(1) as f64;
        let by_time = limit.map_or(0.0, |limit| elapsed.as_secs_f64() / limit.as_secs_f64());
        bar.set_position((by_count.max(by_time).min(1.0) * 1000.0) as u64);
        let rate = finished as f64 / elapsed.as_secs_f64().max(1e-3);
        bar.set_message(format!("{:.2} Mops/s per process", rate / 1e6));
        thread::park_timeout(REDRAW);
    }
    bar.finish_and_clear();
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.done.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            // Failing to draw the bar must not fail the bench.
            let _ = thread.join();
        }
    }
}
