//! The lowest layer: what every other crate builds on and what no other crate may do by itself.
//!
//! Reading order:
//! 1. [`sync`]: the atomics. Real ones normally, loom's under `--cfg loom`, so that every protocol
//!    written against this crate can be model-checked unchanged.
//! 2. [`limits`]: every capacity that two sides must agree on, in one place, with units; those of
//!    the protocols shrink under loom.
//! 3. [`CachePadded`]: keeps what two threads write apart; [`CacheLine`]: the words of one line.
//! 4. [`SharedBytes`]: memory that another thread, process or device may write at any moment, and
//!    [`Words`], [`WordWriter`] and [`Records`], which show it word by word.
//! 5. [`drop_payload`]: frees what a caught panic leaves behind.
//! 6. [`CpuFeatures`]: what the processor of a host can do; [`prefetch`], a hint to it.

#![deny(unsafe_code)]

mod cpu;
pub mod limits;
mod padded;
mod payload;
#[allow(unsafe_code)] // One instruction.
mod prefetch;
#[allow(unsafe_code)]
mod shared;
pub mod sync;
#[allow(unsafe_code)]
mod words;

pub use cpu::CpuFeatures;
pub use padded::{CacheLine, CachePadded};
pub use payload::drop_payload;
pub use prefetch::prefetch;
pub use shared::SharedBytes;
pub use words::{Records, WordWriter, Words};
