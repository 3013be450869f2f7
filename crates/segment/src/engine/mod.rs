//! The state of one attached thread: its progress engine, through which it starts operations on the
//! segments of other hosts and waits for them.

mod attach;
// The engine of this folder.
#[allow(clippy::module_inception)]
mod engine;
mod notifying;
mod windows;

pub use self::attach::{Attached, Server};
pub(crate) use self::attach::{attached, here, is_attached, run};
pub(crate) use self::engine::{ANSWER, Engine};
pub(crate) use self::windows::PIECE;
