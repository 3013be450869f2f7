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
        let gate = gatekeeper.gate(None);
        gate.check_with(&claimed, proof)?;
        if all.iter().map(|mapped| mapped.layers.len()).sum::<usize>() >= MAX_LAYERS {
            let reason =
                format!("{MAX_LAYERS} loads of rieds are in force, the limit: unload some");
            return Err(RiedRefusal::Library { reason }.into());
        }
        let index = match all.iter().position(|mapped| mapped.digest == claimed) {
            Some(index) => index,
            None => {
                let data = map(claimed, bytes.ok_or(NotLoaded::NeedBytes)?)?;
                let table = host::table(Arc::clone(log), sender);
                let (functions, layers, proof) = (None, Vec::new(), Box::default());
                all.push(Mapped { digest: claimed, data, table, functions, layers, proof });
                all.len() - 1
            }
        };
        let mapped = &mut all[index];
        mapped.keep_proof(proof, gate);
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

    /// Keeps what loads a ried waiting, as one does that starts, until this is dropped.
    #[cfg(test)]
    pub(crate) fn starting(&self) -> impl Drop {
        self.mapped.lock()
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

    /// Takes away what the policy, or the signers, which have changed, do not admit.
    pub(crate) fn recheck(&self, gatekeeper: &Gatekeeper, symbols: &Symbols) {
        for mapped in self.mapped.lock().iter_mut().filter(|mapped| !mapped.layers.is_empty()) {
            if gatekeeper.gate(None).check_with(&mapped.digest, &mapped.proof).is_err() {
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
    use jam_format::{
        Algorithm, ElementKind, NewElement, Package, Signature, encode_package, sign_package,
    };

    use super::*;
    use crate::policy::{Origin, Policy, Verifier};

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

    /// Takes what is signed with these bytes.
    struct Takes(&'static [u8]);

    impl Verifier for Takes {
        fn verify(&self, proof: &Proof<'_>) -> Result<String, String> {
            let is_good = proof.signature().signature == self.0;
            is_good.then(|| "ann".to_owned()).ok_or_else(|| "revoked".to_owned())
        }
    }

    /// A process with a ried without functions, which has started; its digest.
    fn with_a_ried(policy: Policy) -> (Process, Digest) {
        extern "C" fn start(_: *const HostTable) -> *mut jam_abi::Failure {
            jam_abi::RIED_STARTED
        }
        static DATA: RiedData = RiedData::new(&[], &[], start);
        let (process, digest) = (Process::new(policy), Digest::of(b"ried"));
        let (data, table) = (&DATA, host::table(Arc::default(), 0));
        let (functions, layers, proof) = (Some(Vec::new()), Vec::new(), Box::default());
        let mapped = Mapped { digest, data, table, functions, layers, proof };
        process.rieds.mapped.lock().push(mapped);
        (process, digest)
    }

    /// The proof of a package with that ried.
    fn proof(signature: &[u8]) -> Vec<u8> {
        let machine = Machine::CURRENT.expect("a machine that jams run on");
        let (kind, bytes) = (ElementKind::Ried, &b"ried"[..]);
        let package = encode_package("p", &[NewElement { kind, machine, name: "ried", bytes }]);
        let (algorithm, certificate) = (Algorithm::Ed25519, &b"certificate"[..]);
        let block = Signature { algorithm, job: None, certificate, signature }.encode().unwrap();
        let package = package.unwrap();
        let signed = sign_package(&Package::parse(&package).unwrap(), &block).unwrap();
        Package::parse(&signed).unwrap().proof().unwrap()
    }

    #[test]
    fn a_ried_stays_loaded_while_its_signer_is_one() {
        let (process, claimed) = with_a_ried(Policy::Signed);
        let load = |proof: &[u8]| {
            let arrived = ArrivedRied { claimed, bytes: None, proof, sender: 0 };
            process.rieds.load(arrived, &process.gatekeeper, &process.symbols, &process.log)
        };
        let layers_after = |verifier| {
            process.gatekeeper.set_verifier(Arc::new(Takes(verifier)));
            process.rieds.recheck(&process.gatekeeper, &process.symbols);
            process.rieds.mapped.lock()[0].layers.len()
        };
        assert_eq!(layers_after(b"ann"), 0);
        assert!(load(&proof(b"bob")).is_err() && load(&[]).is_err());
        load(&proof(b"ann")).unwrap();
        // It is admitted by now: what else comes is not believed, and takes nothing away.
        load(&proof(b"bob")).unwrap();
        assert_eq!(layers_after(b"ann"), 2, "somebody else was revoked");
        assert_eq!(layers_after(b"bob"), 0, "its signer was");
        assert!(load(&proof(b"ann")).is_err());
        load(&proof(b"bob")).unwrap();
        process.gatekeeper.set(Policy::Nothing);
        process.rieds.recheck(&process.gatekeeper, &process.symbols);
        assert!(process.rieds.mapped.lock()[0].layers.is_empty());
    }

    #[test]
    fn loads_that_are_in_force_have_a_limit() {
        let (process, digest) = with_a_ried(Policy::AnyPeer);
        let first = process.load(digest, None).unwrap();
        (1..MAX_LAYERS).for_each(|_| drop(process.load(digest, None).unwrap()));
        let refused = process.load(digest, None).unwrap_err();
        assert!(format!("{refused:?}").contains("the limit"), "{refused:?}");
        assert!(process.rieds.unload(first, &process.symbols));
        process.load(digest, None).unwrap();
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
