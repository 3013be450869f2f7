//! [`PublishedName`]: a name of this host for an object of a layer above, such as a trust.
//! [`Segment`](crate::Segment) publishes the names of segments itself.

use std::fmt;
use std::sync::Arc;

use crate::error::SegmentError;
use crate::name::Name;
use crate::shared::Shared;
use crate::table::{Entry, Published};

/// A name that this host publishes until this is dropped.
#[must_use = "the name is taken back when this is dropped"]
pub struct PublishedName {
    shared: Arc<Shared>,
    name: Name,
    generation: u32,
}

impl PublishedName {
    /// Publishes `name` for `what`.
    pub(crate) fn publish(
        shared: &Arc<Shared>,
        name: Name,
        what: Published,
    ) -> Result<PublishedName, SegmentError> {
        shared.clerk.check_free(&name)?;
        // The generation distinguishes it from earlier objects that had the name.
        let (_, generation) = shared.exports.lock().number(&name);
        shared.clerk.add(&*shared.transport, Entry { name, generation, what })?;
        Ok(PublishedName { shared: shared.clone(), name, generation })
    }

    /// The name.
    pub fn name(&self) -> &Name {
        &self.name
    }
}

impl Drop for PublishedName {
    fn drop(&mut self) {
        self.shared.clerk.remove(&self.name, self.generation);
    }
}

impl fmt::Debug for PublishedName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PublishedName")
            .field("name", &self.name)
            .field("generation", &self.generation)
            .finish_non_exhaustive()
    }
}
