//! The racks that this process takes part in, for trusts that are used or dropped on threads that
//! belong to none: their work is posted to a thread that does.

use crate::node::{Node, with_node};
use parking_lot::Mutex;
use slab::Slab;
use std::sync::Arc;

/// Work for any thread of a rack.
pub type Job = Box<dyn FnOnce(&Node) + Send>;

/// How a rack takes work from other threads of the process.
pub type Post = Arc<dyn Fn(Job) + Send + Sync>;

static RACKS: Mutex<Slab<Post>> = Mutex::new(Slab::new());

/// A rack's place in the list of this process's racks; it leaves the list when this is dropped.
pub struct Registered(u32);

impl Registered {
    /// Enters a rack, which takes work by `post`.
    pub fn new(post: Post) -> Self {
        Registered(u32::try_from(RACKS.lock().insert(post)).expect("few racks in a process"))
    }

    /// The rack's number in this process.
    pub fn number(&self) -> u32 {
        self.0
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        RACKS.lock().remove(self.0 as usize);
    }
}

/// Hands `job` to a thread of rack `rack`; does nothing when that rack has ended, for then nothing
/// is left of it that the job could concern.
pub(crate) fn post(rack: u32, job: impl FnOnce(&Node) + Send + 'static) {
    let post = RACKS.lock().get(rack as usize).cloned();
    if let Some(post) = post {
        post(Box::new(job));
    }
}

/// Runs jobs that were posted, on a thread of the rack.
pub fn run_job(job: Job) {
    with_node(|node| {
        if let Some(node) = node {
            job(node);
        }
    });
}
