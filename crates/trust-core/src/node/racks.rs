//! The racks that this process takes part in, for trusts that are used or dropped on threads that
//! belong to none: their work is posted to a thread that does.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::error::{DelegateError, ITS_RACK_ENDED, outside};
use crate::node::entered::on_node;
use crate::node::state::{Node, NodeId};

/// Work for any thread of a rack.
pub type Job = Box<dyn FnOnce(&Node) + Send>;

/// How a rack takes work from other threads of the process.
pub type Post = Arc<dyn Fn(Job) + Send + Sync>;

/// The racks by number, and the next number. Numbers are not used again, so that a trust that
/// outlives its rack is not taken for one of a later rack.
static RACKS: Mutex<(BTreeMap<u32, Post>, u32)> = Mutex::new((BTreeMap::new(), 0));

/// Which host this process is of each rack. It is not the same one of all: a host of a large rack may run
/// a small one besides.
static HOSTS: Mutex<BTreeMap<u32, u32>> = Mutex::new(BTreeMap::new());

/// A rack's place in the list of this process's racks; it leaves the list when this is dropped.
#[derive(Debug)]
pub struct Registered(u32);

impl Registered {
    /// Enters a rack, which takes work by `post`.
    pub fn new(post: Post) -> Self {
        let (racks, next) = &mut *RACKS.lock();
        let number = *next;
        *next = number.checked_add(1).expect("fewer than four billion racks in a process");
        racks.insert(number, post);
        Registered(number)
    }

    /// The rack's number in this process.
    pub fn number(&self) -> u32 {
        self.0
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        RACKS.lock().0.remove(&self.0);
        HOSTS.lock().remove(&self.0);
    }
}

/// This process is `host` of rack `rack`.
pub(crate) fn set_host(rack: u32, host: u32) {
    HOSTS.lock().insert(rack, host);
}

/// Which host this process is of rack `rack`; any if that has ended.
pub(crate) fn host_of(rack: u32) -> u32 {
    HOSTS.lock().get(&rack).copied().unwrap_or_default()
}

/// Hands `job` to a thread of rack `rack`; does nothing when that rack has ended, for then nothing
/// is left of it that the job could concern.
pub(crate) fn post(rack: u32, job: impl FnOnce(&Node) + Send + 'static) {
    let post = RACKS.lock().0.get(&rack).cloned();
    if let Some(post) = post {
        post(Box::new(job));
    }
}

/// The error of a call at `home` from a thread that is not one of its rack: says whether that rack has
/// ended.
#[cold]
#[inline(never)]
pub(crate) fn outside_of(home: NodeId) -> Box<DelegateError> {
    let rack = home.rack();
    let has_ended = rack != NodeId::NONE.rack() && !RACKS.lock().0.contains_key(&rack);
    if has_ended { Box::new(ITS_RACK_ENDED) } else { outside() }
}

/// Runs jobs that were posted, on a thread of the rack.
pub fn run_job(job: Job) {
    on_node(|node| {
        let _stay = node.stay();
        job(node);
    });
}
