//! The seam: the only place that knows how one stack gives the processor to another.
//!
//! Everything above sees a few operations: `load` a closure, from which nothing unwinds, into a
//! [`Switch`] and onto a stack, `resume` it from the scheduler, `suspend` it from inside or have it
//! `hand_over` to another, `unwind` it for good.
//!
//! On x86-64 they are our own ([`x86_64`]), on other processors corosensei's ([`portable`]). The
//! reason is the processor's return predictor: a switch that ends with `ret`, as corosensei's does,
//! throws it out of step, so that every function between the fiber's beginning and its `park` costs
//! two mispredictions whenever it waits (`docs/decisions/0014-own-switch.md` has the figures).
//! `RUSTFLAGS="--cfg switch_portable"` chooses the other one, to test it. Ours tells
//! AddressSanitizer of its switches ([`asan`]).

#[cfg(all(target_arch = "x86_64", not(switch_portable)))]
mod asan;
#[cfg(any(not(target_arch = "x86_64"), switch_portable))]
mod portable;
#[cfg(all(target_arch = "x86_64", not(switch_portable)))]
mod x86_64;

#[cfg(any(not(target_arch = "x86_64"), switch_portable))]
pub(crate) use portable::Switch;
#[cfg(all(target_arch = "x86_64", not(switch_portable)))]
pub(crate) use x86_64::Switch;

/// The state in which a resumed fiber gave the processor back.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Resumed {
    /// It gave the processor back and can be resumed again.
    Suspended,
    /// Its closure has returned; the stack is free.
    Finished,
}

/// Closures larger than this many bytes travel in a box instead of on the new stack.
pub(crate) const MAX_INLINE_CLOSURE_BYTES: usize = 1024;
