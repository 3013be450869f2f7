//! The client's side of a pair of threads: requests out, replies in.

#[allow(unsafe_code)] // Completions of any type lie in one vector of words.
pub(crate) mod completion;
pub(crate) mod outbox;
#[allow(unsafe_code)] // A completion points to the stack of the fiber that waits for it.
pub(crate) mod waiter;
