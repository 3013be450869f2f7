//! The memory that hosts of one machine share: below everything that uses it.
//!
//! 1. [`mapping`]: where memory comes from; the only file of this crate with `unsafe`.
//! 2. [`host_memory`]: parkers, attention words and rings, which every host exports to all.
//! 3. [`ring`]: bulk payloads and notifications of one pair of threads.
//! 4. [`polled`]: the senders whose notifications a thread polls for.
//! 5. [`alarm_sockets`]: how threads are woken that do not sleep on a futex.
//! 6. [`barrier`]: how threads that sleep are fenced from those that wake them.

pub(crate) mod alarm_sockets;
pub(crate) mod barrier;
pub(crate) mod host_memory;
#[allow(unsafe_code)]
pub(crate) mod mapping;
pub(crate) mod polled;
pub(crate) mod ring;
