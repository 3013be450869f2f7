//! What processes of a rack send each other over Unix sockets, and how they watch each other: the
//! lowest layer of this crate.
//!
//! 1. [`packet`]: what one packet is, and its only encoding.
//! 2. [`socket`]: packets with descriptors, and with the kernel's word for who sent them.
//! 3. [`process`]: whether the process of a pidfd has ended, and how.

pub(crate) mod packet;
pub(crate) mod process;
pub(crate) mod socket;
