//! How an outbox takes replies: the completions of an answered buffer run in order.

use primitive::sync::Ordering;

use crate::client::outbox::Outbox;
use crate::client::outcome::Outcome;
use crate::closure::context::ContextCell;
use crate::error::Panic;
use crate::wire::copy::copied_out;
use crate::wire::slot::{Answer, AnswerEnd, start_of};
use crate::wire::traffic::add;
use crate::wire::words::{ReplyHead, WORD};

impl Outbox {
    /// Where the answer to the oldest batch ends, if that has been answered.
    #[inline(always)]
    pub(crate) fn answered(&self) -> Option<AnswerEnd> {
        self.slot.answered()
    }

    /// Takes the replies of a batch that [has been answered](Self::answered); true if any request
    /// was completed. `context` notes what runs, and `caught` gets the panics of completions.
    #[inline(always)]
    pub(crate) fn reap(
        &self,
        end: AnswerEnd,
        context: &ContextCell,
        caught: &mut dyn FnMut(Panic),
    ) -> bool {
        let answer = self.slot.answer(end);
        self.slot.prefetch_answered(answer);
        let completions = &self.in_flight[answer.buffer];
        let first = completions.place();
        let finished = loop {
            let run = std::panic::AssertUnwindSafe(|| self.run(answer, context));
            match std::panic::catch_unwind(run) {
                Ok(finished) => break finished,
                Err(panic) => caught(panic),
            }
        };
        if !finished {
            return completions.place() != first;
        }
        completions.clear();
        self.apart.set(0);
        self.bulk_out.forget(answer.buffer);
        add(&self.words_in, answer.end);
        self.lingers.set(true);
        self.slot.take_back();
        // What is sent next finds its batch open.
        if !self.slot.is_open() {
            self.slot.open();
        }
        true
    }

    /// Runs the completions of an answered buffer; false if one waits for its bulk payload.
    #[inline(always)]
    fn run(&self, answer: Answer, context: &ContextCell) -> bool {
        if answer.end > answer.requests {
            return self.run_with_apart(answer, context);
        }
        let completions = &self.in_flight[answer.buffer];
        let (memory, trustee) = (self.slot.memory(), self.trustee());
        while completions.run_next(|kind| context.set_callback(&kind.name), memory, trustee) {}
        true
    }

    /// As [`run`](Self::run), of a buffer with replies that stand apart.
    #[inline(never)]
    fn run_with_apart(&self, answer: Answer, context: &ContextCell) -> bool {
        self.slot.prefetch_first_apart(answer);
        let Answer { buffer, requests, end } = answer;
        let (memory, trustee, start) = (self.slot.memory(), self.trustee(), start_of(buffer));
        let completions = &self.in_flight[buffer];
        while let Some(next) = completions.next() {
            context.set_callback(&next.kind.name);
            let apart = self.apart.get().max(requests);
            if apart >= end {
                completions.run_in_place(next, memory, trustee);
                continue;
            }
            let word = memory.words().load(start + apart, Ordering::Relaxed);
            let Some(ReplyHead { status, bulk, at, len }) = ReplyHead::unpack(word) else {
                self.apart.set(end);
                completions.run(next, Outcome::Malformed { trustee });
                continue;
            };
            let behind = apart + 1 + len.div_ceil(WORD);
            if start + at != next.at {
                completions.run_in_place(next, memory, trustee);
            } else if bulk {
                let arrived = self.bulk.borrow_mut().pop();
                let Some(payload) = arrived else {
                    completions.put_back(next);
                    return false;
                };
                self.apart.set(apart + 1);
                completions.run(next, Outcome::Reply { trustee, status, payload: &payload });
            } else if behind <= end {
                self.slot.prefetch_apart(buffer, apart, behind);
                self.apart.set(behind);
                copied_out(memory, (start + apart + 1) * WORD, len, |payload| {
                    completions.run(next, Outcome::Reply { trustee, status, payload });
                });
            } else {
                self.apart.set(end);
                completions.run(next, Outcome::Malformed { trustee });
            }
        }
        if self.apart.get().max(requests) < end {
            self.protocol_violated.set(true);
        }
        true
    }
}
