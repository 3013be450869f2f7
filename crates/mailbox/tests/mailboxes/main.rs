//! What mailboxes do beyond the suite of `conformance`: in fibers, and for senders that keep no rule.

#![cfg(not(loom))]

mod fibers;
mod hostile;
mod silent;
