//! Exact counts of what a request executes, by stepping a process through it one instruction at a
//! time.
//!
//! Times vary from run to run; these counts do not. A workload runs in a process of its own: this
//! program, started again. It sets itself up at full speed, asks to be [begun](mark::begin), and
//! marks where its phases start. The counting process steps it, reads every instruction before it
//! runs, and adds it to the current phase: instructions in all, instructions that lock a cache line
//! (a `lock` prefix, or an `xchg` with memory, which locks without one), full fences, system calls,
//! and allocations (the marks in [`mark::MarkedAlloc`]).
//!
//! ```text
//!   counting process                        counted process
//!   count(&workload) ── starts ──────────▶  run_workload(&[workload])
//!                                             set up, warm up      (full speed)
//!                    ◀── stops ───────────  mark::begin()
//!   step, look, add  ── one instruction ─▶  mark::phase::<0>()     a nop with a number in it
//!   step, look, add  ── one instruction ─▶    enqueue a request
//!        ...                                mark::phase::<1>() ...
//!   let go           ── continues ───────▶  mark::end(); exit
//! ```
//!
//! Marks are single `nop` instructions with a recognisable operand: they need no register, do
//! nothing without a tracer, and are not counted.

mod decode;
// A global allocator, and inline assembly that marks the instruction stream.
#[allow(unsafe_code)]
pub mod mark;
mod trace;

pub use trace::{CountError, Counted, Offence, Phase, Workload, count, run_workload};
