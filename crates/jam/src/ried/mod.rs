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

use jam_abi::{HostTable, RIED_OLDEST, RIED_VERSION, RiedData};
use jam_format::{Digest, Library, Machine, Proof};
use parking_lot::Mutex;
use primitive::sync::Ordering;

use crate::error::Refusal;
use crate::log::LogSlot;
use crate::policy::{Gate, Gatekeeper};
use crate::ried::error::RiedRefusal;
use crate::symbols::{LoadedFunction, Symbols};

/// Layers of rieds that a process has at most: each load adds one, also of a ried that is there.
const MAX_LAYERS: usize = 1024;
/// The stack on which a library starts, in bytes.
const STACK_BYTES: usize = 2 << 20;

/// The rieds of a process.
///
/// Nothing holds `mapped` while code of a ried runs: what a ried calls when it starts may change the
/// policy, or unload rieds.
#[derive(Default)]
pub(crate) struct Rieds {
    /// Held by what loads a ried, until that has started. It is taken before `mapped`.
    loading: Mutex<()>,
    mapped: Mutex<Vec<Mapped>>,
}

/// Who has loaded a ried, and may hence unload it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LoadedBy {
    /// This process itself.
    Program,
    /// A host of the rack.
    Peer,
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
    layers: Vec<(u64, LoadedBy)>,
    /// The last proof that was found good: a signer answers for it. Empty if there was none.
    proof: Box<[u8]>,
}

impl Mapped {
    /// Keeps a proof, if it is good, to be judged again when the signers or the policy change.
    fn keep_proof(&mut self, bytes: &[u8], gate: Gate<'_>) {
        if bytes.is_empty() || *bytes == *self.proof {
            return;
        }
        let is_good =
            |proof: Proof<'_>| proof.covers(&self.digest) && gate.admit_proven(&proof).is_ok();
        if Proof::parse(bytes).is_ok_and(is_good) {
            self.proof = bytes.into();
        }
    }
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
    pub(crate) by: LoadedBy,
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
        let ArrivedRied { claimed, bytes, proof, sender, by } = arrived;
        check_not_starting()?;
        let _loading = self.loading.lock();
        let gate = gatekeeper.gate(None);
        gate.check_with(&claimed, proof)?;
        if self.mapped.lock().iter().map(|mapped| mapped.layers.len()).sum::<usize>() >= MAX_LAYERS
        {
            let reason =
                format!("{MAX_LAYERS} loads of rieds are in force, the limit: unload some");
            return Err(RiedRefusal::Library { reason }.into());
        }
        let known =
            self.find(&claimed, |mapped| (mapped.data, mapped.table, mapped.functions.is_some()));
        let (data, table, has_started) = match known {
            Some(known) => known,
            None => {
                let data = map(claimed, bytes.ok_or(NotLoaded::NeedBytes)?)?;
                let table = host::table(Arc::clone(log), sender);
                let (functions, layers, proof) = (None, Vec::new(), Box::default());
                let mapped = Mapped { digest: claimed, data, table, functions, layers, proof };
                self.mapped.lock().push(mapped);
                (data, table, false)
            }
        };
        if !has_started {
            let functions = functions_of(data)?;
            fill(data, symbols)?;
            start(data, table)?;
            self.find(&claimed, |mapped| mapped.functions = Some(functions));
        }
        let added = self.find(&claimed, |mapped| {
            // With the lock that `recheck` takes: a ried that another policy admitted does not stay. It
            // may have changed while the ried started.
            gate.check_with(&claimed, proof)?;
            mapped.keep_proof(proof, gate);
            let functions = mapped.functions.as_deref().unwrap_or_default();
            // SAFETY: each address is of a function of its signature, in both forms, as the library
            // says; who answers for its code says that it is so. It is never unmapped.
            let layer = unsafe { symbols.add_layer(functions) };
            mapped.layers.push((layer, by));
            Ok::<_, Refusal>(layer)
        });
        Ok(added.expect("nothing takes a mapped library away")?)
    }

    /// What `what` makes of the mapped library with this digest.
    fn find<R>(&self, digest: &Digest, what: impl FnOnce(&mut Mapped) -> R) -> Option<R> {
        self.mapped.lock().iter_mut().find(|mapped| mapped.digest == *digest).map(what)
    }

    /// Keeps what loads a ried waiting, as one does that starts, until this is dropped.
    #[cfg(test)]
    pub(crate) fn starting(&self) -> impl Drop {
        self.loading.lock()
    }

    /// Takes a layer away; whether there is one of that number.
    pub(crate) fn unload(&self, layer: u64, symbols: &Symbols) -> bool {
        self.unload_if(layer, symbols, |_, _| true)
    }

    /// As [`unload`](Self::unload), for a host of the rack, which may do so if it may load the ried, and
    /// if the layer is one of those that hosts of the rack have loaded.
    pub(crate) fn unload_for_peer(
        &self,
        layer: u64,
        claimed: &Digest,
        gatekeeper: &Gatekeeper,
        symbols: &Symbols,
    ) -> Result<bool, Refusal> {
        let gate = gatekeeper.gate(None);
        let checked = self.find(claimed, |mapped| gate.check_with(claimed, &mapped.proof));
        checked.unwrap_or_else(|| gate.check(claimed))?;
        let may = |digest: &Digest, by: LoadedBy| digest == claimed && by == LoadedBy::Peer;
        Ok(self.unload_if(layer, symbols, may))
    }

    fn unload_if(
        &self,
        layer: u64,
        symbols: &Symbols,
        may: impl Fn(&Digest, LoadedBy) -> bool,
    ) -> bool {
        let mut all = self.mapped.lock();
        let is_there = |mapped: &mut Mapped| {
            let is_it = |(of, by): &(u64, LoadedBy)| *of == layer && may(&mapped.digest, *by);
            let index = mapped.layers.iter().position(is_it);
            index.map(|index| mapped.layers.remove(index)).is_some()
        };
        let found = all.iter_mut().any(is_there);
        if found {
            symbols.remove_layer(layer);
        }
        found
    }

    /// Takes away what the policy, or the signers, which have changed, do not admit.
    pub(crate) fn recheck(&self, gatekeeper: &Gatekeeper, symbols: &Symbols) {
        for mapped in self.mapped.lock().iter_mut().filter(|mapped| !mapped.layers.is_empty()) {
            if gatekeeper.gate(None).check_with(&mapped.digest, &mapped.proof).is_err() {
                mapped.layers.drain(..).for_each(|(layer, _)| symbols.remove_layer(layer));
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
    if !(RIED_OLDEST..=RIED_VERSION).contains(&data.version) {
        return Err(RiedRefusal::Version { found: data.version, expected: RIED_VERSION });
    }
    // SAFETY: of a library that is never unmapped.
    let exports = unsafe { data.exports() };
    let functions = exports.iter().map(|export| {
        // SAFETY: its text is of the same library.
        let name = name(unsafe { export.name() })?;
        let (injected, local) = (export.injected.addr(), export.local.addr());
        // SAFETY: its text is of the same library.
        let types = str::from_utf8(unsafe { export.types() }).unwrap_or_default();
        Ok(LoadedFunction { name, signature: export.signature, types, injected, local })
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

/// A library that loads another one while it starts would wait for itself: loads are one at a time.
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
mod tests;
