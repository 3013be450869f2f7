//! The traffic between two threads: the words of a slot, the ownership of its buffers, how a
//! trustee finds arrived batches, how a buffer is given away on a lane, and payloads too large for
//! a slot.
//!
//! Nothing here knows closures or properties. Loom explores [`slot`], [`expected`] and [`arrivals`].

pub mod arrivals;
#[cfg(not(loom))]
pub(crate) mod bulk;
#[cfg(not(loom))]
pub(crate) mod copy;
#[allow(unsafe_code)] // Reads a word behind a pointer into a slot.
pub mod expected;
pub(crate) mod integrity;
pub mod link;
pub mod slot;
#[cfg(not(loom))]
pub(crate) mod traffic;
pub(crate) mod words;
