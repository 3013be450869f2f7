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
    audit: Audit,
}

impl Process {
    fn new(policy: Policy) -> Self {
        let gatekeeper = Gatekeeper::default();
        gatekeeper.set(policy);
        let (symbols, log) = (Symbols::of_program(), Arc::default());
        Self { rieds: Rieds::default(), gatekeeper, symbols, log, audit: Audit::default() }
    }

    fn load_arrived(&self, arrived: ArrivedRied<'_>) -> Result<u64, NotLoaded> {
        self.rieds.load(arrived, &self.gatekeeper, &self.symbols, &self.log, &self.audit)
    }

    fn unload(&self, layer: u64) -> bool {
        self.rieds.unload(layer, &self.symbols, &self.audit)
    }

    fn unload_for_peer(&self, layer: u64, claimed: &Digest) -> Result<bool, Refusal> {
        let of_process = (&self.gatekeeper, &self.symbols, &self.audit);
        self.rieds.unload_for_peer(7, layer, claimed, of_process)
    }

    fn recheck(&self) {
        self.rieds.recheck(&self.gatekeeper, &self.symbols, &self.audit);
    }

    fn load(&self, claimed: Digest, bytes: Option<&[u8]>) -> Result<u64, NotLoaded> {
        let by = LoadedBy::Program;
        self.load_arrived(ArrivedRied { name: "", claimed, bytes, proof: &[], by })
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
    assert!(!process.unload(generation), "there is nothing to unload");
}

/// Takes what is signed with these bytes.
struct Takes(&'static [u8]);

impl Verifier for Takes {
    fn verify(&self, proof: &Proof<'_>) -> Result<String, Refusal> {
        let is_good = proof.signature().signature == self.0;
        is_good
            .then(|| "ann".to_owned())
            .ok_or_else(|| Refusal::Policy { reason: "revoked".to_owned() })
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
    let mapped =
        Mapped { functions: Some(Vec::new()), ..Mapped::new("ried".into(), digest, data, table) };
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
        let (name, by) = ("ried", LoadedBy::Peer(0));
        process.load_arrived(ArrivedRied { name, claimed, bytes: None, proof, by })
    };
    let layers_after = |verifier| {
        process.gatekeeper.set_verifier(Arc::new(Takes(verifier)));
        process.recheck();
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
    process.recheck();
    assert!(process.rieds.mapped.lock()[0].layers.is_empty());
}

#[test]
fn a_ried_stays_loaded_while_its_verifier_takes_no_arrivals() {
    /// Verifies nothing that arrives; of what is held, what is signed with these bytes is good.
    struct Busy(&'static [u8]);
    impl Verifier for Busy {
        fn verify(&self, _: &Proof<'_>) -> Result<String, Refusal> {
            Err(Refusal::NotNow { reason: "send it again later".to_owned() })
        }

        fn verify_held(&self, proof: &Proof<'_>) -> Result<String, Refusal> {
            Takes(self.0).verify(proof)
        }
    }
    let (process, claimed) = with_a_ried(Policy::Signed);
    process.gatekeeper.set_verifier(Arc::new(Takes(b"ann")));
    let (proof, by) = (&*proof(b"ann"), LoadedBy::Peer(0));
    process.load_arrived(ArrivedRied { name: "ried", claimed, bytes: None, proof, by }).unwrap();
    let layers_after = |verifier| {
        process.gatekeeper.set_verifier(Arc::new(Busy(verifier)));
        process.recheck();
        process.rieds.mapped.lock()[0].layers.len()
    };
    assert_eq!(layers_after(b"ann"), 1);
    assert_eq!(layers_after(b"bob"), 0, "its signer was revoked");
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
    assert!(process.unload(first));
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
        assert!(process.unload(BEFORE.load(Ordering::Relaxed)));
        process.gatekeeper.set(Policy::Signed);
        process.recheck();
        jam_abi::RIED_STARTED
    }
    static DATA: RiedData = RiedData::new(&[], &[], start);
    let (process, before) = with_a_ried(Policy::AnyPeer);
    let digest = Digest::of(b"another ried");
    let (data, table) = (&DATA, host::table(Arc::default(), 0));
    process.rieds.mapped.lock().push(Mapped::new("other".into(), digest, data, table));
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
    let unload = |layer, claimed: &Digest| process.unload_for_peer(layer, claimed);
    let own = process.load(digest, None).unwrap();
    let (name, by) = ("ried", LoadedBy::Peer(0));
    let arrived = ArrivedRied { name, claimed: digest, bytes: None, proof: &[], by };
    let theirs = process.load_arrived(arrived).unwrap();
    assert_eq!(unload(own, &digest), Ok(false), "the program has loaded it");
    assert_eq!(unload(theirs, &Digest::of(b"another")), Ok(false), "its number is not enough");
    process.gatekeeper.set(Policy::Signed);
    assert!(matches!(unload(theirs, &digest), Err(Refusal::Policy { .. })));
    process.gatekeeper.set(Policy::AnyPeer);
    assert_eq!(unload(theirs, &digest), Ok(true));
    assert_eq!(unload(theirs, &digest), Ok(false), "only once");
    assert!(process.unload(own));
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

#[test]
fn loads_and_their_ends_are_in_the_audit_log() {
    let (process, claimed) = with_a_ried(Policy::AnyPeer);
    let entries = Arc::new(Mutex::new(Vec::new()));
    let of_audit = entries.clone();
    process.audit.set(Box::new(move |entry| {
        let AuditEntry { event, name, digest, origin, host } = *entry;
        assert_eq!((name, digest), ("ried", claimed));
        of_audit.lock().push((event, origin.clone(), host));
    }));
    let by_host = |by| {
        let name = "as the second host calls it";
        process.load_arrived(ArrivedRied { name, claimed, bytes: None, proof: &[], by }).unwrap()
    };
    let (first, second) = (by_host(LoadedBy::Peer(3)), process.load(claimed, None).unwrap());
    by_host(LoadedBy::Peer(4));
    assert_eq!(process.unload_for_peer(first, &claimed), Ok(true));
    assert_eq!(process.unload_for_peer(first, &claimed), Ok(false), "nothing happens");
    assert!(process.unload(second));
    process.gatekeeper.set(Policy::Nothing);
    process.recheck();
    assert!(process.load(claimed, None).is_err(), "nothing happens");
    use AuditEvent::{RiedLoaded, RiedUnloaded};
    let expected = [
        (RiedLoaded, Some(3)),
        (RiedLoaded, None),
        (RiedLoaded, Some(4)),
        (RiedUnloaded, Some(7)),
        (RiedUnloaded, None),
        (RiedUnloaded, None),
    ];
    assert_eq!(*entries.lock(), expected.map(|(event, host)| (event, Origin::Peer, host)));
}
