//! How the fibers of a scheduler are asked what they wait for. `wait.rs` says when, and why nothing is
//! noted before.

use std::fmt::Display;
use std::panic::Location;
use std::time::Instant;

use crate::core::Core;
use crate::core::block::{Block, FiberId, State, Timer};

/// What a fiber waits for.
pub(crate) struct Answer {
    pub(crate) what: Box<dyn Display + Send>,
    pub(crate) place: Option<&'static Location<'static>>,
    /// When the wait was first seen.
    pub(crate) since: Option<Instant>,
}

impl Core {
    /// Has all parked fibers look whether their waits have ended, and answer if not. Returns those
    /// asked.
    pub(crate) fn ask_others(&self, me: &Block) -> Vec<FiberId> {
        self.asking.set(true);
        self.answers.borrow_mut().clear();
        let mut asked = Vec::new();
        let blocks = (0..).map_while(|index| self.at(index));
        for block in blocks.filter(|block| !std::ptr::eq(*block, me)) {
            let id = block.id.get();
            match (block.state.get(), block.timer.get()) {
                (State::Parked, _) => {
                    asked.push(id);
                    block.wake(&self.queue);
                }
                // Unparks do not end a sleep: this answers for it.
                (State::Active | State::Notified, Timer::Sleep(_)) => {
                    let since = block.sleep_seen.get().unwrap_or_else(Instant::now);
                    block.sleep_seen.set(Some(since));
                    let what = Box::new("the end of a sleep");
                    let answer =
                        Answer { what, place: block.sleep_place.get(), since: Some(since) };
                    self.answers.borrow_mut().push((id, answer));
                }
                _ => {}
            }
        }
        asked
    }

    /// The answers, with the names of the fibers; also for those of `asked` that have parked again
    /// without one.
    pub(crate) fn take_answers(&self, asked: Vec<FiberId>) -> Vec<(FiberId, String, Answer)> {
        self.asking.set(false);
        let mut answers = self.answers.take();
        for id in asked {
            let is_parked = self.find(id).is_some_and(|block| block.state.get() == State::Parked);
            if is_parked && !answers.iter().any(|(answered, _)| *answered == id) {
                let what = Box::new("an unpark");
                answers.push((id, Answer { what, place: None, since: None }));
            }
        }
        let named = |(id, answer)| {
            let name = self.find(id)?.name();
            Some((id, name, answer))
        };
        answers.into_iter().filter_map(named).collect()
    }
}
