//! What is said of a latch: in reports of fibers that wait for one, and in the errors of waits that
//! would never end.

use std::fmt;

use crate::api::trustee::Trustee;
use crate::node::awaited::ReplyTo;
use crate::node::chain::Relation;
use crate::node::{CallSite, Node, NodeId, on_node};

/// The wait of a fiber for a latch, as reports show it.
pub(super) struct AwaitsLatch {
    pub(super) value: &'static str,
    pub(super) property: Option<u32>,
    /// The call that has launched the waiting fiber.
    pub(super) launched_by: Option<ReplyTo>,
    /// Whether its holders share it.
    pub(super) is_shared: bool,
    pub(super) holders: Vec<NamedHolder>,
}

/// A fiber that holds a latch, and how it got it.
pub(super) struct NamedHolder {
    /// `None` outside fibers.
    pub(super) name: Option<String>,
    pub(super) locked_at: Option<CallSite>,
    pub(super) held_for: Option<ReplyTo>,
}

/// Holders of a shared latch that a report names.
const NAMED: usize = 4;

impl fmt::Display for AwaitsLatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.property {
            Some(property) => {
                write!(f, "the latch of property {property} of this thread (`{}`)", self.value)?
            }
            None => write!(f, "a latch (`{}`)", self.value)?,
        }
        if let Some(call) = self.launched_by {
            write!(f, ", to run the closure launched at {}", place_of(call))?;
        }
        for holder in self.holders.iter().take(NAMED) {
            let name = holder.name.as_deref().unwrap_or("code outside fibers");
            write!(f, "; {name} {} it", if self.is_shared { "shares" } else { "holds" })?;
            match (holder.locked_at, holder.held_for) {
                (Some(place), _) => write!(f, ", locked at {place}")?,
                (None, Some(call)) => {
                    write!(f, ", for the closure launched at {}", place_of(call))?;
                }
                (None, None) => {}
            }
        }
        match self.holders.len().saturating_sub(NAMED) {
            0 => Ok(()),
            more => write!(f, "; {more} more share it"),
        }
    }
}

/// A latch is held by the fiber that wants it, or by one that waits for that fiber.
pub(super) struct HeldByCaller {
    pub(super) relation: Relation,
    /// Where the holder has locked it, if it was not launched on it.
    pub(super) locked: Option<CallSite>,
}

impl HeldByCaller {
    /// Says where the holder got the latch. Asks the thread that launched it, and waits for that.
    pub(super) fn reason(&self) -> String {
        let launched = |call: ReplyTo| format!("launched at {}", place_of(call));
        let got = |call: Option<ReplyTo>| match (self.locked, call) {
            (Some(place), _) => format!("locked at {place}"),
            (None, Some(call)) => launched(call),
            (None, None) => "launched".to_owned(),
        };
        match self.relation {
            Relation::Itself(call) => {
                format!("its own fiber holds the latch ({}): drop that guard first", got(call))
            }
            Relation::Caller(call) => format!(
                "the latch is held by a fiber ({}) that waits for this one: let that closure end \
                 first, or use another latch",
                got(Some(call))
            ),
        }
    }
}

/// Where a launch was made; asks the thread that made it, and waits for the answer.
pub(super) fn place_of(call: ReplyTo) -> String {
    let ask = |node: &Node, token| node.place_of(token).map(ToString::to_string);
    on_node(|node| NodeId::new(node.id.rack(), call.thread()))
        .and_then(|id| Trustee::with_id(id).try_visit_node(ask, call.token()).ok().flatten())
        .unwrap_or_else(|| "an unknown place".to_owned())
}
