//! The client's side of a pair of threads: requests out, replies in.

mod backlog;
pub(crate) mod completion;
#[allow(unsafe_code)] // Completions of any type lie in one vector of words.
pub(crate) mod completion_list;
pub(crate) mod outbox;
pub(crate) mod outcome;
pub(crate) mod plain_completion;
mod replies;
pub(crate) mod request;
pub(crate) mod run;
#[allow(unsafe_code)] // Completions of a run go straight into their list.
pub(crate) mod runs;
#[allow(unsafe_code)] // As `waiter`.
pub(crate) mod viewing;
#[allow(unsafe_code)] // A completion points to the stack of the fiber that waits for it.
pub(crate) mod waiter;
