//! What runtime threads use: their lanes, and where they sleep.
//!
//! 1. [`lane`]: the operations.
//! 2. [`parker`]: a futex in the memory of the host.
//! 3. [`alarm`]: how threads are woken that wait for other machines, too.

pub(crate) mod alarm;
pub(crate) mod lane;
pub(crate) mod parker;
