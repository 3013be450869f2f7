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

use crate::audit::{Audit, AuditEntry, AuditEvent};
use crate::error::Refusal;
use crate::log::{LogSlot, NO_HOST};
use crate::policy::{Gate, Gatekeeper, Origin};
use crate::ried::error::RiedRefusal;
use crate::symbols::{LoadedFunction, Symbols};

/// Layers of rieds that a process has at most: each load adds one, also of a ried that is there.
const MAX_LAYERS: usize = 1024;
/// Bytes of a ried's name that are kept for the audit log.
const MAX_NAME: usize = 200;
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
    /// The host of the rack that has this number, as it says.
    Peer(u32),
}

impl LoadedBy {
    fn host(self) -> Option<u32> {
        match self {
            LoadedBy::Program => None,
            LoadedBy::Peer(host) => Some(host),
        }
    }
}

/// A load of a ried that is in force.
struct Layer {
    /// Its number among the layers of symbols.
    number: u64,
    by: LoadedBy,
    /// Who vouched for the ried then.
    origin: Origin,
}

/// A library in memory.
struct Mapped {
    /// Its name, as the first that has loaded it says.
    name: Box<str>,
    digest: Digest,
    data: &'static RiedData,
    /// What it is given.
    table: &'static HostTable,
    /// Its functions, once it has started.
    functions: Option<Vec<LoadedFunction>>,
    /// The layers of symbols that have them.
    layers: Vec<Layer>,
    /// The last proof that was found good: a signer answers for it. Empty if there was none.
    proof: Box<[u8]>,
}

impl Mapped {
    /// A library that has not started.
    fn new(
        name: Box<str>,
        digest: Digest,
        data: &'static RiedData,
        table: &'static HostTable,
    ) -> Self {
        let (functions, layers, proof) = (None, Vec::new(), Box::default());
        Mapped { name, digest, data, table, functions, layers, proof }
    }

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
    /// Its name, as its sender says; may be empty.
    pub(crate) name: &'a str,
    pub(crate) claimed: Digest,
    pub(crate) bytes: Option<&'a [u8]>,
    /// That a signer answers for it, if its package is signed.
    pub(crate) proof: &'a [u8],
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
        audit: &Audit,
    ) -> Result<u64, NotLoaded> {
        let ArrivedRied { name, claimed, bytes, proof, by } = arrived;
        check_not_starting()?;
        let loading = self.loading.lock();
        let gate = gatekeeper.gate(None);
        let origin = gate.check_with(&claimed, proof)?;
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
                let name = &name[..name.floor_char_boundary(MAX_NAME)];
                let data = map(claimed, bytes.ok_or(NotLoaded::NeedBytes)?, || {
                    let (event, digest, host) = (AuditEvent::RiedStarts, claimed, by.host());
                    audit.note(&AuditEntry { event, name, digest, origin: &origin, host });
                })?;
                let table = host::table(Arc::clone(log), by.host().unwrap_or(NO_HOST));
                let mapped = Mapped::new(name.into(), claimed, data, table);
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
            let origin = gate.check_with(&claimed, proof)?;
            mapped.keep_proof(proof, gate);
            let functions = mapped.functions.as_deref().unwrap_or_default();
            let beside = symbols.beside_others(functions);
            // SAFETY: each address is of a function of its signature, in both forms, as the library
            // says; who answers for its code says that it is so. It is never unmapped.
            let layer = unsafe { symbols.add_layer(functions) };
            mapped.layers.push(Layer { number: layer, by, origin: origin.clone() });
            Ok::<_, Refusal>((layer, mapped.name.clone(), origin, beside))
        });
        let (layer, name, origin, beside) = added.expect("nothing takes a mapped library away")?;
        // The listener may need it.
        drop(loading);
        for line in beside {
            log.write(by.host().unwrap_or(NO_HOST), &format!("the ried {name:?}: {line}"));
        }
        let (event, host) = (AuditEvent::RiedLoaded, by.host());
        audit.note(&AuditEntry { event, name: &name, digest: claimed, origin: &origin, host });
        Ok(layer)
    }

    /// What `what` makes of the mapped library with this digest.
    fn find<R>(&self, digest: &Digest, what: impl FnOnce(&mut Mapped) -> R) -> Option<R> {
        self.mapped.lock().iter_mut().find(|mapped| mapped.digest == *digest).map(what)
    }

    /// Keeps what loads a ried waiting, as one does that starts, until this is dropped.
    #[cfg(all(test, target_arch = "x86_64"))]
    pub(crate) fn starting(&self) -> impl Drop {
        self.loading.lock()
    }

    /// Takes a layer away; whether there is one of that number.
    pub(crate) fn unload(&self, layer: u64, symbols: &Symbols, audit: &Audit) -> bool {
        self.unload_if(layer, None, (symbols, audit), |_, _| true)
    }

    /// As [`unload`](Self::unload), for a host of the rack, which may do so if it may load the ried, and
    /// if the layer is one of those that hosts of the rack have loaded.
    pub(crate) fn unload_for_peer(
        &self,
        host: u32,
        layer: u64,
        claimed: &Digest,
        (gatekeeper, symbols, audit): (&Gatekeeper, &Symbols, &Audit),
    ) -> Result<bool, Refusal> {
        let gate = gatekeeper.gate(None);
        let checked = self.find(claimed, |mapped| gate.check_with(claimed, &mapped.proof));
        checked.unwrap_or_else(|| gate.check(claimed))?;
        let may =
            |digest: &Digest, by: LoadedBy| digest == claimed && matches!(by, LoadedBy::Peer(_));
        Ok(self.unload_if(layer, Some(host), (symbols, audit), may))
    }

    fn unload_if(
        &self,
        number: u64,
        host: Option<u32>,
        (symbols, audit): (&Symbols, &Audit),
        may: impl Fn(&Digest, LoadedBy) -> bool,
    ) -> bool {
        let taken = {
            let mut all = self.mapped.lock();
            let mut taken = all.iter_mut().filter_map(|mapped| {
                let is_it = |of: &Layer| of.number == number && may(&mapped.digest, of.by);
                let index = mapped.layers.iter().position(is_it)?;
                Some(Unloaded::of(mapped, index))
            });
            let taken = taken.next();
            if taken.is_some() {
                symbols.remove_layer(number);
            }
            taken
        };
        taken.inspect(|unloaded| unloaded.note(audit, host)).is_some()
    }

    /// Takes away what the policy, or the signers, which have changed, do not admit.
    pub(crate) fn recheck(&self, gatekeeper: &Gatekeeper, symbols: &Symbols, audit: &Audit) {
        let mut taken = Vec::new();
        for mapped in self.mapped.lock().iter_mut().filter(|mapped| !mapped.layers.is_empty()) {
            if gatekeeper.gate(None).check_held(&mapped.digest, &mapped.proof).is_err() {
                while !mapped.layers.is_empty() {
                    symbols.remove_layer(mapped.layers[0].number);
                    taken.push(Unloaded::of(mapped, 0));
                }
            }
        }
        // Without the lock, which the listener may need.
        taken.iter().for_each(|unloaded| unloaded.note(audit, None));
    }
}

/// A load that was taken back, for the audit log.
struct Unloaded {
    name: Box<str>,
    digest: Digest,
    origin: Origin,
}

impl Unloaded {
    /// Takes the layer at `index` of those of a library.
    fn of(mapped: &mut Mapped, index: usize) -> Self {
        let Layer { origin, .. } = mapped.layers.remove(index);
        Unloaded { name: mapped.name.clone(), digest: mapped.digest, origin }
    }

    fn note(&self, audit: &Audit, host: Option<u32>) {
        let (event, digest, origin) = (AuditEvent::RiedUnloaded, self.digest, &self.origin);
        audit.note(&AuditEntry { event, name: &self.name, digest, origin, host });
    }
}

/// Maps a library that the policy admits by this digest; calls `starts` before its code runs.
fn map(
    claimed: Digest,
    bytes: &[u8],
    starts: impl FnOnce(),
) -> Result<&'static RiedData, RiedRefusal> {
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
    starts();
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
