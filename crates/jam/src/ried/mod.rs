//! Rieds: shared libraries with functions for jams, which come while the program runs.
//!
//! ```text
//!   bytes --> policy, digest, form --> sealed file --> loader (library.rs)
//!         --> imports filled (symbols) --> start (host.rs) --> exports: a layer of symbols, the newest
//! ```
//!
//! A process maps a library once, by its digest, and never unmaps it: to *load* it again gives its
//! functions a new layer, before all others, and to *unload* it takes a layer away. Both begin a new
//! generation of [`Symbols`], so that jams which run later resolve their imports anew, also those that
//! are linked. What a ried itself imports stays what it was when the ried started.
//!
//! A library runs in its loader and in its start function on a thread of its own, with an ordinary
//! stack: fibers have small ones.

pub(crate) mod error;
pub(crate) mod host;
mod library;

use std::cell::Cell;
use std::sync::Arc;

use jam_abi::{HostTable, RIED_VERSION, RiedData};
use jam_format::{Digest, Library, Machine};
use parking_lot::Mutex;
use primitive::sync::Ordering;

use crate::error::Refusal;
use crate::log::LogSlot;
use crate::policy::Gatekeeper;
use crate::ried::error::RiedRefusal;
use crate::symbols::{LoadedFunction, Symbols};

/// The stack on which a library starts, in bytes.
const STACK_BYTES: usize = 2 << 20;

/// The rieds of a process.
#[derive(Default)]
pub(crate) struct Rieds {
    mapped: Mutex<Vec<Mapped>>,
}

/// A library in memory.
struct Mapped {
    digest: Digest,
    data: &'static RiedData,
    /// What it is given.
    table: &'static HostTable,
    /// Its functions, once it has started.
    functions: Option<Vec<LoadedFunction>>,
    /// The layers of symbols that have them.
    layers: Vec<u64>,
}

/// Why a ried is not loaded.
#[derive(Debug)]
pub(crate) enum NotLoaded {
    /// The process has not mapped it, and did not get its bytes.
    NeedBytes,
    Refused(RiedRefusal),
}

impl<E: Into<RiedRefusal>> From<E> for NotLoaded {
    fn from(error: E) -> Self {
        NotLoaded::Refused(error.into())
    }
}

/// A ried that has arrived, or only its digest.
#[derive(Clone, Copy)]
pub(crate) struct ArrivedRied<'a> {
    pub(crate) claimed: Digest,
    pub(crate) bytes: Option<&'a [u8]>,
    /// That a signer answers for it, if its package is signed.
    pub(crate) proof: &'a [u8],
    /// The host that sent it, as it says.
    pub(crate) sender: u32,
}

impl Rieds {
    /// Loads a ried; the number of its layer.
    pub(crate) fn load(
        &self,
        arrived: ArrivedRied<'_>,
        gatekeeper: &Gatekeeper,
        symbols: &Symbols,
        log: &Arc<LogSlot>,
    ) -> Result<u64, NotLoaded> {
        let ArrivedRied { claimed, bytes, proof, sender } = arrived;
        check_not_starting()?;
        let mut all = self.mapped.lock();
        // With the lock that `recheck` takes, too: a ried that another policy admitted does not stay.
        gatekeeper.gate(None).check_with(&claimed, proof)?;
        let index = match all.iter().position(|mapped| mapped.digest == claimed) {
            Some(index) => index,
            None => {
                let data = map(claimed, bytes.ok_or(NotLoaded::NeedBytes)?)?;
                let table = host::table(Arc::clone(log), sender);
                let (functions, layers) = (None, Vec::new());
                all.push(Mapped { digest: claimed, data, table, functions, layers });
                all.len() - 1
            }
        };
        let mapped = &mut all[index];
        let functions = match &mapped.functions {
            Some(functions) => functions,
            None => {
                let functions = functions_of(mapped.data)?;
                fill(mapped.data, symbols)?;
                start(mapped.data, mapped.table)?;
                mapped.functions.insert(functions)
            }
        };
        // SAFETY: each address is of a function of its signature, in both forms, as the library says;
        // who answers for its code says that it is so. It is never unmapped.
        let layer = unsafe { symbols.add_layer(functions) };
        mapped.layers.push(layer);
        Ok(layer)
    }

    /// Takes a layer of a ried away; whether there is one of that number.
    pub(crate) fn unload(&self, layer: u64, symbols: &Symbols) -> bool {
        if check_not_starting().is_err() {
            return false;
        }
        let mut all = self.mapped.lock();
        let is_there = |mapped: &mut Mapped| {
            let index = mapped.layers.iter().position(|of| *of == layer);
            index.map(|index| mapped.layers.remove(index)).is_some()
        };
        let found = all.iter_mut().any(is_there);
        if found {
            symbols.remove_layer(layer);
        }
        found
    }

    /// Takes away what the policy, which has changed, does not admit.
    pub(crate) fn recheck(&self, gatekeeper: &Gatekeeper, symbols: &Symbols) {
        for mapped in self.mapped.lock().iter_mut() {
            if gatekeeper.gate(None).check(&mapped.digest).is_err() {
                mapped.layers.drain(..).for_each(|layer| symbols.remove_layer(layer));
            }
        }
    }
}

/// Maps a library that the policy admits by this digest.
fn map(claimed: Digest, bytes: &[u8]) -> Result<&'static RiedData, RiedRefusal> {
    let found = Digest::of(bytes);
    if found != claimed {
        return Err(Refusal::digest(claimed, found).into());
    }
    let library = Library::parse(bytes);
    let library = library.map_err(|error| RiedRefusal::Malformed { reason: error.to_string() })?;
    if Machine::CURRENT != Some(library.machine()) {
        let found = Machine::CURRENT.map_or(std::env::consts::ARCH, Machine::name).to_owned();
        return Err(Refusal::Machine { wanted: library.machine().to_string(), found }.into());
    }
    // SAFETY: the form of a library, whose code the policy admits.
    let data = on_a_thread(|| unsafe { library::map(library.bytes()) })?;
    data.map_err(|reason| RiedRefusal::Library { reason })
}

fn functions_of(data: &'static RiedData) -> Result<Vec<LoadedFunction>, RiedRefusal> {
    if !(1..=RIED_VERSION).contains(&data.version) {
        return Err(RiedRefusal::Version { found: data.version, expected: RIED_VERSION });
    }
    // SAFETY: of a library that is never unmapped.
    let exports = unsafe { data.exports() };
    let functions = exports.iter().map(|export| {
        // SAFETY: its text is of the same library.
        let name = name(unsafe { export.name() })?;
        let (injected, local) = (export.injected.addr(), export.local.addr());
        Ok(LoadedFunction { name, signature: export.signature, injected, local })
    });
    functions.collect()
}

/// Fills the imports with what they resolve to at this moment.
fn fill(data: &'static RiedData, symbols: &Symbols) -> Result<(), RiedRefusal> {
    // SAFETY: of a library that is never unmapped.
    let imports = unsafe { data.imports() };
    // SAFETY: its text is of the same library.
    let names = imports.iter().map(|import| name(unsafe { import.name() }));
    let names = names.collect::<Result<Vec<_>, _>>()?;
    let wanted = names.iter().zip(imports).map(|(name, import)| (&name[..], import.signature));
    let mut addresses = Vec::with_capacity(imports.len());
    symbols.resolve_local(wanted, |address| addresses.push(address))?;
    for (import, address) in imports.iter().zip(addresses) {
        import.address.store(std::ptr::without_provenance_mut(address), Ordering::Release);
    }
    Ok(())
}

fn name(bytes: &[u8]) -> Result<String, RiedRefusal> {
    String::from_utf8(bytes.to_vec()).map_err(|_| RiedRefusal::Malformed {
        reason: format!("a function has the name {:?}", String::from_utf8_lossy(bytes)),
    })
}

fn start(data: &'static RiedData, table: &'static HostTable) -> Result<(), RiedRefusal> {
    // SAFETY: its imports are filled, and the table is never freed.
    let failed = on_a_thread(|| unsafe { host::taken((data.start)(table)) })?;
    failed.map_or(Ok(()), |source| Err(RiedRefusal::Start { source }))
}

thread_local! {
    /// Whether this thread runs a library that is being loaded, for one that has the lock.
    static IS_STARTING: Cell<bool> = const { Cell::new(false) };
}

/// A library that loads another one while it starts would wait for itself.
fn check_not_starting() -> Result<(), RiedRefusal> {
    if !IS_STARTING.get() {
        return Ok(());
    }
    let reason = "a ried that starts loads none: load both from the program".to_owned();
    Err(RiedRefusal::Library { reason })
}

/// Runs `what` on a thread with an ordinary stack, and waits for it.
fn on_a_thread<R: Send>(what: impl FnOnce() -> R + Send) -> Result<R, RiedRefusal> {
    let failed = |reason: String| RiedRefusal::Library { reason };
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().name("ried".to_owned()).stack_size(STACK_BYTES);
        let thread = thread.spawn_scoped(scope, || {
            IS_STARTING.set(true);
            what()
        });
        let thread = thread.map_err(|error| failed(format!("no thread for it: {error}")))?;
        thread.join().map_err(|payload| failed(host::panicked_of(payload).to_string()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::{Origin, Policy};

    struct Process {
        rieds: Rieds,
        gatekeeper: Gatekeeper,
        symbols: Symbols,
        log: Arc<LogSlot>,
    }

    impl Process {
        fn new(policy: Policy) -> Self {
            let gatekeeper = Gatekeeper::default();
            gatekeeper.set(policy);
            let (symbols, log) = (Symbols::of_program(), Arc::default());
            Self { rieds: Rieds::default(), gatekeeper, symbols, log }
        }

        fn load(&self, claimed: Digest, bytes: Option<&[u8]>) -> Result<u64, NotLoaded> {
            let arrived = ArrivedRied { claimed, bytes, proof: &[], sender: 0 };
            self.rieds.load(arrived, &self.gatekeeper, &self.symbols, &self.log)
        }

        fn refusal(&self, bytes: &[u8]) -> RiedRefusal {
            match self.load(Digest::of(bytes), Some(bytes)) {
                Err(NotLoaded::Refused(refusal)) => refusal,
                other => panic!("{other:?}"),
            }
        }
    }

    #[test]
    fn hostile_bytes_are_refused_and_the_process_goes_on() {
        let process = Process::new(Policy::AnyPeer);
        let own = std::fs::read(std::env::current_exe().expect("this program")).expect("its file");
        let generation = process.symbols.generation();
        for bytes in [&b""[..], b"#!/bin/sh", &own[..200], &own[..own.len() / 2]] {
            let refusal = process.refusal(bytes);
            assert!(matches!(refusal, RiedRefusal::Malformed { .. }), "{refusal}");
        }
        let mut other = own.clone();
        let machine: u16 = if cfg!(target_arch = "x86_64") { 183 } else { 62 };
        other[18..20].copy_from_slice(&machine.to_le_bytes());
        let refusal = process.refusal(&other);
        assert!(matches!(refusal, RiedRefusal::Code(Refusal::Machine { .. })), "{refusal}");
        let refusal = process.refusal(&own);
        assert!(matches!(refusal, RiedRefusal::Library { .. }), "{refusal}");
        let wrong = process.load(Digest::of(b"other"), Some(&own));
        assert!(
            matches!(wrong, Err(NotLoaded::Refused(RiedRefusal::Code(Refusal::Digest { .. })))),
            "{wrong:?}"
        );
        assert_eq!(process.symbols.generation(), generation, "nothing was loaded");
        assert!(!process.rieds.unload(generation, &process.symbols), "so there is none");
    }

    #[test]
    fn a_library_that_starts_loads_none() {
        let process = Process::new(Policy::AnyPeer);
        let mut refused = String::new();
        on_a_thread(|| {
            // The one that is being loaded has the lock.
            let _lock = process.rieds.mapped.lock();
            refused = process.refusal(b"no library").to_string();
            assert!(!process.rieds.unload(2, &process.symbols));
        })
        .unwrap();
        assert!(refused.contains("a ried that starts loads none"), "{refused}");
        let panicked = on_a_thread(|| panic!("in its start")).unwrap_err();
        assert!(panicked.to_string().ends_with("in its start"), "{panicked}");
    }

    #[test]
    fn the_policy_is_asked_before_the_bytes_are_looked_at() {
        for policy in [Policy::Signed, Policy::Nothing] {
            let refusal = Process::new(policy).refusal(b"no library");
            assert!(matches!(refusal, RiedRefusal::Code(Refusal::Policy { .. })), "{refusal}");
        }
        let process = Process::new(Policy::Signed);
        process.gatekeeper.admit([Digest::of(b"no library")], &Origin::Admitted);
        assert!(matches!(process.refusal(b"no library"), RiedRefusal::Malformed { .. }));
        let unknown = process.load(Digest::of(b"no library"), None);
        assert!(matches!(unknown, Err(NotLoaded::NeedBytes)), "{unknown:?}");
    }
}
