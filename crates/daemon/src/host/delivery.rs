//! [`Delivery`]: a package on its way to one process of a job; and [`Deliveries`], whether the process
//! takes packages.

use std::fmt;
use std::sync::Arc;

use tokio::sync::{mpsc, oneshot};

/// A package on its way to one process.
pub(crate) struct Delivery {
    pub(crate) package: Arc<[u8]>,
    /// Why the process does not take it, if it does not.
    pub(crate) answer: oneshot::Sender<Option<String>>,
}

/// Whether a process takes packages.
#[derive(Clone, Debug, Default)]
pub(crate) enum Deliveries {
    /// Not before it has started.
    #[default]
    NotStarted,
    /// It takes what is left here.
    Open(mpsc::Sender<Delivery>),
    /// Not any more, for this reason.
    Ended(&'static str),
}

impl fmt::Debug for Delivery {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Delivery").field("bytes", &self.package.len()).finish_non_exhaustive()
    }
}
