//! Gossamer itself as a candidate: what the suites run beside locks, channels and other libraries.
//!
//! In reading order:
//! - [`sample`]: one sample of a rack: start, warm up, measure, stop.
//! - [`share`]: an object that two threads want, entrusted to one of them.
//! - [`words`]: words of a text that all threads of a rack count.
//! - [`single_thread`]: client and trustee driven in turn on one thread, for clocks and for the
//!   counter of instructions; [`batches`]: other requests for that counter; [`lone_call`]: one call at a time, by `apply` and by `launch`;
//!   [`poll`]: a trustee with many clients that have nothing to ask.
//! - [`fibers`]: switches, spawns and wake-ups.
//! - [`two_process`]: a rack of two processes.
//! - [`get`]: values of a map on another host.
//! - `jam`: code that travels to another host (with the feature of that name).
//! - [`segment`]: segments of another process, over every transport.
//! - [`idle`]: racks that wait, and racks with more threads than cores.

pub mod batches;
#[cfg(feature = "suites")]
pub mod fibers;
#[cfg(feature = "suites")]
pub mod get;
#[cfg(feature = "suites")]
pub mod idle;
#[cfg(feature = "jam")]
pub mod jam;
pub mod lone_call;
pub mod poll;
#[cfg(feature = "suites")]
pub mod sample;
#[cfg(feature = "suites")]
pub mod segment;
#[cfg(feature = "suites")]
pub mod share;
pub mod single_thread;
#[cfg(feature = "suites")]
pub mod two_process;
#[cfg(feature = "suites")]
pub mod words;
