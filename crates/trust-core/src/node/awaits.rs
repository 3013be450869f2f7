//! What a fiber waits for, in the terms of delegation: the texts of
//! [`waiting_fibers`](fiber::waiting_fibers).

use std::fmt;

use transport_api::ThreadId;

use crate::client::outbox::Outbox;
use crate::node::entered::on_node;

/// A fiber waits for the reply of a call.
pub(crate) struct AwaitsReply {
    /// As the text names it.
    pub(crate) call: &'static str,
    /// The number of the trustee and of the property, if the request is where it can be found.
    pub(crate) target: Option<(u32, u32)>,
}

impl AwaitsReply {
    /// What a fiber waits for whose request ends this waiter: the request itself says it, so that its
    /// sender need not remember.
    pub(crate) fn of(waiter: *const ()) -> AwaitsReply {
        let target = on_node(|node| {
            let request = |outbox: &Outbox| {
                let home = node.number_of(outbox.trustee());
                Some((home, outbox.request_of(waiter)?.property()))
            };
            node.outboxes.iter().find_map(request)
        });
        AwaitsReply { call: "`apply`", target: target.flatten() }
    }
}

impl fmt::Display for AwaitsReply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the reply of {}", self.call)?;
        match self.target {
            None => write!(f, ", whose request waits for room to be sent"),
            // The thread itself.
            Some((home, 0)) => write!(f, " on {}", Thread(home)),
            Some((home, property)) => write!(f, " on property {property} of {}", Thread(home)),
        }
    }
}

/// A thread of the rack by its number, as messages name it.
pub(crate) struct Thread(pub(crate) u32);

impl fmt::Display for Thread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let thread: Option<ThreadId> = on_node(|node| node.thread_numbered(self.0)).flatten();
        match thread {
            Some(thread) => write!(f, "{thread}"),
            None => write!(f, "thread {}", self.0),
        }
    }
}
