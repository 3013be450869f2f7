//! What runtime threads hold: their lanes, and where they sleep.
//!
//! - [`remote`]: a lane to another host.
//! - [`local`]: a lane to this host.
//! - [`parker`]: where an idle thread sleeps.

pub(crate) mod local;
pub(crate) mod parker;
pub(crate) mod remote;
