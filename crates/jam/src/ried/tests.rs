//! What a process loads, and what it unloads again.

use jam_format::{
    Algorithm, ElementKind, NewElement, Package, Signature, encode_package, sign_package,
};

use std::sync::OnceLock;

use primitive::sync::AtomicU64;

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
        let arrived = ArrivedRied { claimed, bytes, proof: &[], sender: 0, by: LoadedBy::Program };
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
        let arrived = ArrivedRied { claimed, bytes: None, proof, sender: 0, by: LoadedBy::Peer };
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
    for _ in 1..MAX_LAYERS {
        process.load(digest, None).unwrap();
    }
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
        let _lock = process.rieds.loading.lock();
        refused = process.refusal(b"no library").to_string();
    })
    .unwrap();
    assert!(refused.contains("a ried that starts loads none"), "{refused}");
    let panicked = on_a_thread(|| panic!("in its start")).unwrap_err();
    assert!(panicked.to_string().ends_with("in its start"), "{panicked}");
}

#[test]
fn a_ried_that_starts_may_change_the_policy_and_is_judged_by_it() {
    static PROCESS: OnceLock<Process> = OnceLock::new();
    static BEFORE: AtomicU64 = AtomicU64::new(0);
    /// As an export of the program that the ried calls.
    extern "C" fn start(_: *const HostTable) -> *mut jam_abi::Failure {
        let process = PROCESS.get().unwrap();
        assert!(process.rieds.unload(BEFORE.load(Ordering::Relaxed), &process.symbols));
        process.gatekeeper.set(Policy::Signed);
        process.rieds.recheck(&process.gatekeeper, &process.symbols);
        jam_abi::RIED_STARTED
    }
    static DATA: RiedData = RiedData::new(&[], &[], start);
    let (process, before) = with_a_ried(Policy::AnyPeer);
    let digest = Digest::of(b"another ried");
    let (data, table) = (&DATA, host::table(Arc::default(), 0));
    let (functions, layers, proof) = (None, Vec::new(), Box::default());
    process.rieds.mapped.lock().push(Mapped { digest, data, table, functions, layers, proof });
    BEFORE.store(process.load(before, None).unwrap(), Ordering::Relaxed);
    let process = PROCESS.get_or_init(|| process);
    let refused = process.load(digest, None).unwrap_err();
    let is_refused = |refused: &NotLoaded| {
        matches!(refused, NotLoaded::Refused(RiedRefusal::Code(Refusal::Policy { .. })))
    };
    assert!(is_refused(&refused), "{refused:?}");
    assert!(process.rieds.mapped.lock().iter().all(|mapped| mapped.layers.is_empty()));
    process.gatekeeper.admit([digest], &Origin::Admitted);
    process.load(digest, None).expect("it has started, and is admitted");
}

#[test]
fn hosts_unload_what_they_may_load() {
    let (process, digest) = with_a_ried(Policy::AnyPeer);
    let unload = |layer, claimed: &Digest| {
        let Process { rieds, gatekeeper, symbols, .. } = &process;
        rieds.unload_for_peer(layer, claimed, gatekeeper, symbols)
    };
    let own = process.load(digest, None).unwrap();
    let arrived =
        ArrivedRied { claimed: digest, bytes: None, proof: &[], sender: 0, by: LoadedBy::Peer };
    let load = || {
        process.rieds.load(arrived, &process.gatekeeper, &process.symbols, &process.log).unwrap()
    };
    let theirs = load();
    assert_eq!(unload(own, &digest), Ok(false), "the program has loaded it");
    assert_eq!(unload(theirs, &Digest::of(b"another")), Ok(false), "its number is not enough");
    process.gatekeeper.set(Policy::Signed);
    assert!(matches!(unload(theirs, &digest), Err(Refusal::Policy { .. })));
    process.gatekeeper.set(Policy::AnyPeer);
    assert_eq!(unload(theirs, &digest), Ok(true));
    assert_eq!(unload(theirs, &digest), Ok(false), "only once");
    assert!(process.rieds.unload(own, &process.symbols));
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
