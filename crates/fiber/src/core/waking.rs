//! What makes a waiting fiber ready: an unpark, a deadline, a message of another thread.

use std::time::Instant;

use crate::core::Core;
use crate::core::block::{FiberId, State, Timer};
use crate::core::inbox::Message;
use crate::core::run::contain;

impl Core {
    #[inline(always)]
    pub(crate) fn unpark(&self, id: FiberId) {
        if let Some(block) = self.find(id) {
            block.wake(&self.queue);
        }
    }

    /// Makes the fibers ready whose deadline has come, and ends the timers whose has; returns the next
    /// deadline.
    pub(crate) fn expire(&self, now: Instant) -> Option<Instant> {
        while let Some(index) = self.timers.pop_due(now) {
            let Some(block) = self.at(index) else { continue };
            match block.timer.get() {
                Timer::Sleep(_) => {
                    block.timer.set(Timer::Fired);
                    // SAFETY: the fiber is suspended in its sleep, which nothing but this ends, once; blocks
                    // stay in place as long as their core.
                    unsafe { self.queue.push(block) };
                }
                Timer::Park(_) if block.state.get() == State::Parked => {
                    block.timer.set(Timer::Fired);
                    block.wake(&self.queue);
                }
                // Unparked before its time but not resumed yet: that wait ends as unparked.
                Timer::Park(_) | Timer::Unset | Timer::Fired => {}
            }
        }
        while let Some(waker) = self.timers.pop_due_waker(now) {
            // Code of users: a panic of it must not end the worker, nor keep others asleep.
            contain(|| waker.wake());
        }
        self.timers.next()
    }

    /// Whether no fiber is ready, and nothing has come from other threads.
    #[inline(always)]
    pub(crate) fn is_idle(&self) -> bool {
        self.queue.is_empty() && !self.shared.has_mail()
    }

    /// Takes in what other threads have sent; returns whether there was anything.
    #[inline]
    pub(crate) fn drain_inbox(&self) -> bool {
        self.shared.has_mail() && self.drain_mail()
    }

    #[cold]
    fn drain_mail(&self) -> bool {
        let mut messages = self.shared.collect(self.spare.take());
        let any = !messages.is_empty();
        for message in messages.drain(..) {
            match message {
                Message::Unpark(wake) => self.unpark(wake.take()),
                Message::Spawn { builder, job } => match self.reserve(builder.stack_bytes) {
                    Ok(block) => {
                        let code = builder.code.unwrap_or("?");
                        self.launch(block, builder.name, code, move || job(Ok(())));
                    }
                    // Drops the closure, and may wake a future that joins: as above.
                    Err(error) => contain(|| job(Err(error))),
                },
            }
        }
        self.spare.set(messages);
        any
    }
}
