//! Chains of launches: which calls wait for a launched closure, so that a launch on a latch that
//! one of them holds is an error, and not a wait that never ends.
//!
//! ```text
//!   fiber            launches on L         on M                  on L
//!   of a user  ----> fiber 1, holds L ---> fiber 2, holds M ---> fiber 3: L is held by fiber 1
//!                    callers: -            callers: 1            callers: 1, 2
//! ```
//!
//! A launch names itself by where its reply goes, which is unique as long as a fiber waits for it.
//! The names of those that wait for a launch travel with it, and its trustee notes them for as long
//! as its fiber runs. Only when a launch is refused is it asked where each was made.
//!
//! What a peer says of callers is believed only so far: it can get its own launches refused, no
//! others.

use std::cell::RefCell;
use std::collections::HashMap;

use fiber::FiberId;
use primitive::limits::LAUNCH_DEPTH;
use serde::{Deserialize, Serialize};

use crate::error::{CallResult, DelegateError};
use crate::node::system::ReplyTo;
use crate::node::{Node, on_node};

/// The calls that wait for a launched closure, the first one of the chain first.
#[derive(Clone, Default, Serialize, Deserialize)]
#[serde(try_from = "Vec<ReplyTo>")]
pub(crate) struct Callers(Vec<ReplyTo>);

impl TryFrom<Vec<ReplyTo>> for Callers {
    type Error = String;

    fn try_from(callers: Vec<ReplyTo>) -> Result<Self, String> {
        if callers.len() <= LAUNCH_DEPTH { Ok(Callers(callers)) } else { Err(too_deep()) }
    }
}

fn too_deep() -> String {
    format!(
        "launches nested more than {LAUNCH_DEPTH} deep: end with `launch_then`, or a spawned fiber"
    )
}

/// A launch, as it travels to its trustee.
#[derive(Serialize, Deserialize)]
pub(crate) struct Call {
    pub(crate) reply_to: ReplyTo,
    pub(crate) callers: Callers,
}

impl Call {
    /// Notes that the current fiber runs the launched closure, until the guard is dropped.
    pub(crate) fn run(self) -> Running {
        let fiber = fiber::current();
        if let Some(fiber) = fiber {
            on_node(|node| node.launched.0.borrow_mut().insert(fiber, self));
        }
        Running(fiber)
    }
}

/// While it lives, its fiber is known to run a launched closure.
pub(crate) struct Running(Option<FiberId>);

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(fiber) = self.0 {
            on_node(|node| node.launched.0.borrow_mut().remove(&fiber));
        }
    }
}

/// The launches that the fibers of a node run.
#[derive(Default)]
pub(crate) struct Launched(RefCell<HashMap<FiberId, Call>>);

impl Node {
    /// The calls that will wait for a launch by the current fiber.
    ///
    /// # Errors
    /// If there would be too many.
    pub(crate) fn callers(&self) -> CallResult<Callers> {
        let launched = self.launched.0.borrow();
        let Some(call) = fiber::current().and_then(|fiber| launched.get(&fiber)) else {
            return Ok(Callers::default());
        };
        let Call { reply_to, callers: Callers(callers) } = call;
        if callers.len() == LAUNCH_DEPTH {
            let refused = DelegateError::Refused { trustee: self.me, reason: too_deep() };
            return Err(Box::new(refused));
        }
        Ok(Callers(callers.iter().chain([reply_to]).copied().collect()))
    }
}

/// How the fiber that holds a latch depends on the one that wants it.
#[derive(Clone, Copy)]
pub(crate) enum Relation {
    /// They are one; the launch that it runs, if it does.
    Itself(Option<ReplyTo>),
    /// The holder runs this launch, and waits for the other.
    Caller(ReplyTo),
}

/// How `holder` depends on `wants`, both fibers of this thread; `None` if it does not.
pub(crate) fn relation(holder: FiberId, wants: FiberId) -> Option<Relation> {
    on_node(|node| {
        let launched = node.launched.0.borrow();
        let held_by = launched.get(&holder).map(|call| call.reply_to);
        if holder == wants {
            return Some(Relation::Itself(held_by));
        }
        let callers = &launched.get(&wants)?.callers.0;
        held_by.filter(|call| callers.contains(call)).map(Relation::Caller)
    })
    .unwrap_or((holder == wants).then_some(Relation::Itself(None)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec;

    #[test]
    fn more_callers_than_a_chain_may_have_are_refused() {
        let caller: ReplyTo = codec::decode(&codec::encode_to_vec(&(7u32, 7u64)).unwrap()).unwrap();
        for (count, taken) in [(0, true), (LAUNCH_DEPTH, true), (LAUNCH_DEPTH + 1, false)] {
            let bytes = codec::encode_to_vec(&vec![caller; count]).unwrap();
            let decoded = codec::decode::<Callers>(&bytes);
            assert_eq!(
                decoded.as_ref().map(|callers| callers.0.len()).ok(),
                taken.then_some(count)
            );
            if let Err(error) = decoded {
                assert!(error.to_string().contains("nested more than"), "{error}");
            }
        }
        let mut claims = codec::encode_to_vec(&vec![caller]).unwrap();
        claims[..8].copy_from_slice(&u64::MAX.to_le_bytes());
        assert!(codec::decode::<Callers>(&claims).is_err(), "more than there are");
    }
}
