//! What this side asks of the peer: operations on their way, and those that are held back because
//! as many bytes of answers are to come as a peer must be ready to keep for a reader that is slow.
//!
//! Frames are held back in their order, with all that is started behind them, and are numbered: what
//! must not overtake operations that were started before it ([`Asking::started`]) waits until those
//! have been released ([`Asking::released`]), and not for the ones that are started after it. A
//! caller that always has more to read would hold it back for ever otherwise.

use std::collections::VecDeque;

use primitive::SharedBytes;

use crate::machine::Name;
use crate::wire::frame::{HEADER, Header};

/// Bytes of answers that may be outstanding before this side holds its operations back.
pub(super) const ANSWER_WINDOW: usize = 1 << 20;

/// An operation that waits for its answer.
pub(super) enum Asked {
    Value {
        token: u64,
        name: Name,
    },
    Fence {
        token: u64,
    },
    /// A part of a read; `total` is on the last.
    Part {
        token: u64,
        name: Name,
        into: SharedBytes,
        at: usize,
        len: usize,
        total: Option<usize>,
    },
}

impl Asked {
    /// Bytes of the answer.
    fn answer(&self) -> usize {
        match self {
            Asked::Value { .. } | Asked::Fence { .. } => HEADER,
            Asked::Part { len, .. } => HEADER + len,
        }
    }
}

/// The operations of one side of a connection.
#[derive(Default)]
pub(super) struct Asking {
    /// Frames that may be sent.
    pub(super) requests: Vec<u8>,
    /// What was asked and is not answered yet, in the order of its answers.
    asked: VecDeque<Asked>,
    /// Bytes of answers to come.
    owed: usize,
    /// Frames that wait until less is owed, and what their answers will be.
    held: VecDeque<(Vec<u8>, Option<Asked>)>,
    /// How many frames were released after they had been held back.
    released: u64,
}

impl Asking {
    /// Starts an operation: `body` appends `len` bytes to its frame.
    pub(super) fn start(
        &mut self,
        header: Header,
        asked: Option<Asked>,
        len: usize,
        body: impl FnOnce(&mut Vec<u8>),
    ) {
        let encode = |out: &mut Vec<u8>| {
            header.encode(len, out);
            body(out);
        };
        let answer = asked.as_ref().map_or(0, Asked::answer);
        if self.held.is_empty() && self.may_ask(answer) {
            self.owed += answer;
            if let Some(asked) = asked {
                self.asked.push_back(asked);
            }
            encode(&mut self.requests);
        } else {
            let mut frame = Vec::with_capacity(HEADER + len);
            encode(&mut frame);
            self.held.push_back((frame, asked));
        }
    }

    /// The number that [`released`](Self::released) reaches when all that was started so far may be
    /// sent.
    pub(super) fn started(&self) -> u64 {
        self.released + self.held.len() as u64
    }

    /// How many of the frames that were held back have been released.
    pub(super) fn released(&self) -> u64 {
        self.released
    }

    /// The operation that the next answer is for, which is no longer owed.
    pub(super) fn take_answered(&mut self) -> Option<Asked> {
        let asked = self.asked.pop_front()?;
        self.owed -= asked.answer();
        Some(asked)
    }

    /// Releases what was held back, as far as it may now be asked.
    pub(super) fn release(&mut self) {
        while let Some((frame, asked)) = self.held.pop_front() {
            let answer = asked.as_ref().map_or(0, Asked::answer);
            if !self.may_ask(answer) {
                self.held.push_front((frame, asked));
                return;
            }
            self.owed += answer;
            self.released += 1;
            self.asked.extend(asked);
            self.requests.extend_from_slice(&frame);
        }
    }

    fn may_ask(&self, answer: usize) -> bool {
        answer == 0 || self.owed == 0 || self.owed + answer <= ANSWER_WINDOW
    }
}
