//! How one figure is taken: where threads run, what their clocks say, how far apart the cores are.
//!
//! | Module | Answers |
//! |---|---|
//! | [`cores`] | On which two cores do we measure, and is this thread there? |
//! | [`watch`] | Did a thread have its core to itself for the whole time? |
//! | [`latency`] | How far apart are the two cores right now: near or far? |
//! | [`cycles`] | How many core cycles are there in a nanosecond right now? |
//! | [`processes`] | Does a process of another benchmark listen, and does it end with its case? |
//! | [`sampling`] | How does a case take one sample, on one core or two? |

pub mod cores;
// Inline assembly: a chain of additions.
#[allow(unsafe_code)]
pub mod cycles;
pub mod latency;
pub mod processes;
pub mod sampling;
pub mod watch;
