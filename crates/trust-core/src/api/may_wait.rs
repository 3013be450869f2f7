//! [`check_may_wait`]: refusing waits in delegated context, for functions that send no request.

use std::panic::Location;

use crate::node::on_node;

/// Refuses a wait in delegated context, by any function: `what`, called at `place`. For functions
/// that wait without sending a request, such as those of fibers.
///
/// # Panics
/// In delegated context. The panic names both places, ends the delegated closure and travels to its
/// client.
#[inline]
pub fn check_may_wait(what: &str, place: &'static Location<'static>) {
    on_node(|node| node.context().check_may_wait(what, place));
}
