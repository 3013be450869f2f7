//! [`Publications`]: the trusts that this process has published under names, by number.

use std::any::{Any, type_name};
use std::collections::HashMap;

use parking_lot::Mutex;
use trust_core::Trust;

/// A published trust; a lookup names its type.
struct Published {
    trust: Box<dyn Any + Send>,
    /// The type of the property.
    type_name: &'static str,
}

/// Why a publication was not found: the actual type of its property, or `None` if it was dropped.
pub(crate) type Unlike = Option<String>;

/// The trusts that this process has published.
#[derive(Default)]
pub(crate) struct Publications(Mutex<(HashMap<u64, Published>, u64)>);

impl Publications {
    /// Keeps a trust until [`remove`](Self::remove); the number of the publication.
    pub(crate) fn add<T: 'static>(&self, trust: Trust<T>) -> u64 {
        let (published, next) = &mut *self.0.lock();
        let id = *next;
        *next += 1;
        published.insert(id, Published { trust: Box::new(trust), type_name: type_name::<T>() });
        id
    }

    pub(crate) fn remove(&self, id: u64) {
        let removed = self.0.lock().0.remove(&id);
        // Outside the lock: the last clone drops the property, which runs code of the user.
        drop(removed);
    }

    /// A clone of a trust that was published.
    pub(crate) fn find<T: 'static>(&self, id: u64) -> Result<Trust<T>, Unlike> {
        let (published, _) = &*self.0.lock();
        let Published { trust, type_name } = published.get(&id).ok_or(None)?;
        let trust: &Trust<T> = trust.downcast_ref().ok_or_else(|| Some((*type_name).to_owned()))?;
        Ok(trust.clone())
    }
}
