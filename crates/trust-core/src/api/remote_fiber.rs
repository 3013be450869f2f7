//! How a request starts a fiber on another thread, for `spawn_with`, and `launch` on this one.
//!
//! The request's own reply only says whether there is a fiber, and comes at once. What the fiber
//! returns follows when it ends, as a request in the other direction. So two things can end such a
//! call: [`Started`], if there is no fiber, and the later reply.

use std::panic::{AssertUnwindSafe, catch_unwind};

use fiber::Builder;
use serde::Serialize;
use transport_api::ThreadId;

use crate::client::completion::Completion;
use crate::client::outcome::Outcome;
use crate::error::{DelegateError, NOT_SENT, PanicReport};
use crate::node::awaited::ReplyTo;
use crate::node::on_node;

/// Whether a fiber has been started, or why not.
pub(crate) type Begun = Result<(), String>;

/// Starts a fiber on this thread that runs `body` and sends its result or error to
/// `reply_to`; `code` is the name of the closure that it runs.
pub(crate) fn begin<U: Serialize + 'static>(
    reply_to: ReplyTo,
    code: &'static str,
    body: impl FnOnce() -> Result<U, String> + 'static,
) -> Begun {
    let fiber = Builder::new().code(code).spawn_local(move || {
        let result = catch_unwind(AssertUnwindSafe(body));
        let result = result.map_err(PanicReport::taken);
        on_node(|node| node.reply_later(reply_to, result));
    });
    fiber.map(drop).map_err(|error| error.to_string())
}

/// Ends the call if its fiber could not be started. If it `HEARS_PANICS`, one of the arguments' own
/// code while they are encoded ends the call only, and else its caller as well.
pub(crate) struct Started<const HEARS_PANICS: bool> {
    token: u64,
    trustee: ThreadId,
}

impl<const HEARS_PANICS: bool> Started<HEARS_PANICS> {
    /// For the call that `reply_to` belongs to, and whose fiber is to run at `trustee`.
    pub(crate) fn new(reply_to: ReplyTo, trustee: ThreadId) -> Self {
        Started { token: reply_to.token(), trustee }
    }

    /// Ends the call if the fiber did not start. A fiber that runs ends the call itself.
    pub(crate) fn end(self, begun: Result<Begun, DelegateError>) {
        match begun {
            Ok(Ok(())) => {}
            Ok(Err(reason)) => {
                let reason = format!("cannot start a fiber for the closure: {reason}");
                self.fail(&DelegateError::Refused { trustee: self.trustee, reason });
            }
            Err(error) => self.fail(&error),
        }
        std::mem::forget(self);
    }

    fn fail(&self, error: &DelegateError) {
        on_node(|node| node.end_awaited(self.token, Outcome::Failed(error)));
    }
}

impl<const HEARS_PANICS: bool> Completion for Started<HEARS_PANICS> {
    const HEARS_PANICS: bool = HEARS_PANICS;
    const IN_RUNS: bool = false;

    fn complete(self, outcome: Outcome<'_>) {
        self.end(outcome.result());
    }
}

/// Only a panic drops it: of an argument that is encoded.
impl<const HEARS_PANICS: bool> Drop for Started<HEARS_PANICS> {
    fn drop(&mut self) {
        self.fail(&NOT_SENT);
    }
}
