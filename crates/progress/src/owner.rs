//! [`Owner`]: a layer that uses a thread's lanes, and gets the events of its name space.

use std::cell::RefCell;
use std::fmt;
use std::rc::{Rc, Weak};

use transport_api::{HostId, Namespace, Notification, OpError, PeerEvent, Tag, ThreadId};

/// A peer has sent something that no peer of this build sends. The text follows the peer's name in
/// messages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation(pub String);

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A layer that uses the lanes of a thread. Its methods run inside [`Progress::poll`], on the
/// thread's own stack: they must not wait. They may start operations.
///
/// [`Progress::poll`]: crate::Progress::poll
pub trait Owner {
    /// A bulk payload has arrived, whose tag is in the owner's name space.
    ///
    /// # Errors
    /// [`Violation`], if no peer of this build sends it: its host is lost then.
    fn bulk(&self, from: ThreadId, tag: Tag, payload: Vec<u8>) -> Result<(), Violation>;

    /// A write with notification has arrived, to a region whose key is in the owner's name space.
    ///
    /// # Errors
    /// As [`bulk`](Self::bulk).
    fn notified(&self, notification: Notification) -> Result<(), Violation>;

    /// `host` has refused an operation that takes no token, on a region in the owner's name space.
    /// The next fence reports that, too; not every such operation is reported here.
    fn refused(&self, host: HostId, error: &OpError) {
        let _ = (host, error);
    }

    /// A host is gone. Called once for each host, after the operations with it have ended.
    fn peer_gone(&self, event: &PeerEvent);
}

/// The owners of a thread, by name space.
#[derive(Default)]
pub(crate) struct Owners(RefCell<Vec<(Namespace, Weak<dyn Owner>)>>);

impl Owners {
    pub(crate) fn add(&self, namespace: Namespace, owner: Weak<dyn Owner>) {
        let mut owners = self.0.borrow_mut();
        owners.retain(|(_, owner)| owner.strong_count() > 0);
        let taken = owners.iter().any(|(other, _)| *other == namespace);
        assert!(!taken, "name space {namespace:?} already has an owner on this thread");
        owners.push((namespace, owner));
    }

    pub(crate) fn of(&self, namespace: Namespace) -> Option<Rc<dyn Owner>> {
        let owners = self.0.borrow();
        let (_, owner) = owners.iter().find(|(other, _)| *other == namespace)?;
        owner.upgrade()
    }

    pub(crate) fn all(&self) -> Vec<Rc<dyn Owner>> {
        self.0.borrow().iter().filter_map(|(_, owner)| owner.upgrade()).collect()
    }
}
