//! The state of one attached thread: its progress engine, through which it starts operations on the
//! segments of other hosts and waits for them.

mod arrivals;
mod attach;
// The engine of this folder.
#[allow(clippy::module_inception)]
mod engine;
mod flow_control;
mod known;
mod notifying;
#[cfg(all(test, not(loom)))]
mod refusal_tests;
mod server;
mod transfer;

pub(crate) use self::arrivals::Look;
pub use self::attach::Attached;
pub(crate) use self::attach::{attached, current, is_attached, open_lanes, run, with_attached};
pub(crate) use self::engine::{Engine, LONGEST_SLEEP, PEER_TIMEOUT};
pub(crate) use self::flow_control::PIECE;
pub use self::server::Server;
pub(crate) use self::transfer::Atomic;
