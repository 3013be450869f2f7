//! Queue pairs: what a runtime thread does with them, and what comes of it.
//!
//! In reading order:
//! 1. [`ring`], [`send_queue`]: the work requests of a queue pair, without the device.
//! 2. [`connection`]: a queue pair with its memory.
//! 3. [`thread`]: all queue pairs of one runtime thread, and their completion queue.

pub(crate) mod connection;
pub(crate) mod ring;
pub(crate) mod send_queue;
pub(crate) mod thread;
