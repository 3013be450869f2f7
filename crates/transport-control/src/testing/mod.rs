//! A rack in one thread, with virtual time and a seeded network: the seed replays exactly.
//!
//! [`Network`] owns one [`Control`](crate::Control) per host. A test has hosts export, import, revoke,
//! leave, stall or end, lets time pass, and reads what came of it. The network delays each message by
//! a random time, keeps the order of each pair of hosts, and has room for few messages, so that
//! hosts also meet peers that do not read. Whatever happens, it checks what must always hold (see
//! [`Network`]).

mod network;
mod random;

pub use network::{Ended, Network, Rack, SimExport, SimMedium};
pub use random::Random;
