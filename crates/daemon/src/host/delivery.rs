//! [`Delivery`]: a package on its way to one process of a job.

use std::fmt;
use std::sync::Arc;

use tokio::sync::oneshot;

/// A package on its way to one process.
pub(crate) struct Delivery {
    pub(crate) package: Arc<[u8]>,
    /// Why the process does not take it, if it does not.
    pub(crate) answer: oneshot::Sender<Option<String>>,
}

impl fmt::Debug for Delivery {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Delivery").field("bytes", &self.package.len()).finish_non_exhaustive()
    }
}
