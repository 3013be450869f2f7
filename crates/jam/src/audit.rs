//! What ran: each jam that is to be linked in this process for the first time, each ried that is loaded or
//! unloaded, who vouches for it, and which host sent it.

use std::collections::HashSet;

use jam_format::Digest;
use parking_lot::{Mutex, RwLock};
use primitive::sync::{AtomicBool, Ordering};

use crate::policy::Origin;

/// The number of jams that are remembered as noted. Hosts can cause more under the policy `AnyPeer`: then
/// all are forgotten, and may be noted once more.
const MAX_NOTED: usize = 4096;

/// What a process does with code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AuditEvent {
    /// A jam is about to be linked for the first time, and then to run. If linking it fails, because a
    /// function that it imports is missing, say, it does not run; once it does, there is no second entry.
    FirstRun,
    /// Code of a ried is about to run for the first time: what its library runs when it is mapped, and its
    /// start function.
    RiedStarts,
    /// A ried was loaded: jams that run from now on call its functions.
    RiedLoaded,
    /// A load of a ried was taken back, by a host of the rack, the program, or a change of the policy or
    /// of the signers.
    RiedUnloaded,
}

/// An entry of the audit log: what this process does, with whose code.
#[derive(Clone, Copy, Debug)]
pub struct AuditEntry<'a> {
    /// What it does.
    pub event: AuditEvent,
    /// The name of the jam, as its code says, or of the ried, as the host says that loads it; empty for
    /// a ried that the program has loaded from its bytes.
    pub name: &'a str,
    /// The digest of the code.
    pub digest: Digest,
    /// Who vouches for it. For a ried that is unloaded: who did when it was loaded.
    pub origin: &'a Origin,
    /// The host that had the process do this, as that host claims; `None` for the process itself.
    pub host: Option<u32>,
}

type Listener = dyn Fn(&AuditEntry<'_>) + Send + Sync;

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

    /// Notes an entry; a first run only once for each jam.
    pub(crate) fn note(&self, entry: &AuditEntry<'_>) {
        if entry.event != AuditEvent::FirstRun {
            return self.tell(entry);
        }
        // Held while the listener is told: another thread with the same jam must not run it before.
        let mut noted = self.noted.lock();
        if noted.len() >= MAX_NOTED {
            noted.clear();
        }
        if noted.insert(entry.digest) {
            self.tell(entry);
        }
    }

    fn tell(&self, entry: &AuditEntry<'_>) {
        if let Some(listener) = &*self.listener.read() {
            listener(entry);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn who_links_the_same_jam_waits_until_its_first_run_is_noted() {
        let audit = Arc::new(Audit::default());
        let (watched, asked) = (Arc::downgrade(&audit), Arc::new(AtomicBool::new(false)));
        let of_listener = asked.clone();
        audit.set(Box::new(move |_| {
            let audit = watched.upgrade().expect("it notes this");
            assert!(audit.noted.is_locked(), "another thread would run the jam already");
            of_listener.store(true, Ordering::Relaxed);
        }));
        let (event, digest, origin) = (AuditEvent::FirstRun, Digest::of(b"sum"), &Origin::Program);
        audit.note(&AuditEntry { event, name: "sum", digest, origin, host: None });
        assert!(asked.load(Ordering::Relaxed));
    }

    #[test]
    fn each_jam_is_noted_once_and_the_memory_for_it_has_a_limit() {
        let (audit, names) = (Audit::default(), Arc::new(Mutex::new(Vec::new())));
        assert!(!audit.is_on());
        let told = names.clone();
        audit.set(Box::new(move |run| told.lock().push(run.name.to_owned())));
        let note = |name: &str| {
            let (digest, origin) = (Digest::of(name.as_bytes()), &Origin::Program);
            let event = match name {
                "ried" => AuditEvent::RiedLoaded,
                _ => AuditEvent::FirstRun,
            };
            audit.note(&AuditEntry { event, name, digest, origin, host: None });
        };
        ["sum", "put", "ried", "sum", "ried"].into_iter().for_each(note);
        assert_eq!(*names.lock(), ["sum", "put", "ried", "ried"]);
        (0..2 * MAX_NOTED).for_each(|number| note(&number.to_string()));
        assert!(audit.noted.lock().len() <= MAX_NOTED);
    }
}
