//! What ran: each jam that is linked in this process for the first time, and who vouches for it.

use std::collections::HashSet;

use jam_format::Digest;
use parking_lot::{Mutex, RwLock};
use primitive::sync::{AtomicBool, Ordering};

use crate::policy::Origin;

/// The number of jams that are remembered as noted. Hosts can cause more under the policy `AnyPeer`: then
/// all are forgotten, and may be noted once more.
const MAX_NOTED: usize = 4096;

/// A jam that is about to run in this process for the first time.
#[derive(Clone, Copy, Debug)]
pub struct FirstRun<'a> {
    /// Its name, as its code says.
    pub name: &'a str,
    /// Its digest.
    pub digest: Digest,
    /// Who vouches for it.
    pub origin: &'a Origin,
}

type Listener = dyn Fn(&FirstRun<'_>) + Send + Sync;

/// Who is told, and what it was told of already.
#[derive(Default)]
pub(crate) struct Audit {
    is_on: AtomicBool,
    listener: RwLock<Option<Box<Listener>>>,
    noted: Mutex<HashSet<Digest>>,
}

impl Audit {
    pub(crate) fn set(&self, listener: Box<Listener>) {
        *self.listener.write() = Some(listener);
        self.is_on.store(true, Ordering::Relaxed);
    }

    pub(crate) fn is_on(&self) -> bool {
        self.is_on.load(Ordering::Relaxed)
    }

    pub(crate) fn note(&self, run: &FirstRun<'_>) {
        {
            let mut noted = self.noted.lock();
            if noted.len() >= MAX_NOTED {
                noted.clear();
            }
            if !noted.insert(run.digest) {
                return;
            }
        }
        if let Some(listener) = &*self.listener.read() {
            listener(run);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn each_jam_is_noted_once_and_the_memory_for_it_has_a_limit() {
        let (audit, names) = (Audit::default(), Arc::new(Mutex::new(Vec::new())));
        assert!(!audit.is_on());
        let told = names.clone();
        audit.set(Box::new(move |run| told.lock().push(run.name.to_owned())));
        let note = |name: &str| {
            let (digest, origin) = (Digest::of(name.as_bytes()), &Origin::Program);
            audit.note(&FirstRun { name, digest, origin });
        };
        ["sum", "put", "sum"].into_iter().for_each(note);
        assert_eq!(*names.lock(), ["sum", "put"]);
        (0..2 * MAX_NOTED).for_each(|number| note(&number.to_string()));
        assert!(audit.noted.lock().len() <= MAX_NOTED);
    }
}
