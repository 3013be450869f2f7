//! Racks of real daemons, and what their jobs, members and attackers do.

mod attacks;
#[path = "../common/mod.rs"]
mod common;
mod endings;
mod false_daemon;
mod jam;
mod leftovers;
mod limits;
mod rack;
mod secret;
mod terminal;
mod top;
