//! [`Receiver`]: what a process has to receive jams with, one for all its threads.

mod run;
pub(crate) mod running;
mod thread;

use std::sync::{Arc, OnceLock};

use jam_format::{Digest, Proof};
use serde::{Deserialize, Serialize};

use crate::arrived::{Arrived, ArrivedPackage};
use crate::audit::{Audit, AuditEntry, AuditEvent};
use crate::cache::Cache;
use crate::error::{Panicked, Refusal};
use crate::frame::Frame;
use crate::local::Locals;
use crate::log::LogSlot;
use crate::policy::{Gate, Gatekeeper, Origin, Policy, Verifier};
use crate::ried::error::RiedRefusal;
use crate::ried::{ArrivedRied, LoadedBy, NotLoaded, Rieds};
use crate::symbols::Symbols;
use crate::symbols::export::check_property_types;

/// Bytes of executable memory that jams take if the program says nothing else.
const DEFAULT_MAX_BYTES: usize = 16 << 20;

/// What a process receives jams with.
///
/// There is one for all threads of the process ([`receiver`]).
pub struct Receiver {
    cache: Cache,
    symbols: Symbols,
    gatekeeper: Gatekeeper,
    locals: Locals,
    arrived: Arrived,
    rieds: Rieds,
    log: Arc<LogSlot>,
    audit: Audit,
}

/// How a run has ended that has no result.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Failure {
    /// The code is not here.
    NeedCode,
    Panicked(Panicked),
    Refused(Refusal),
}

impl From<Refusal> for Failure {
    fn from(refusal: Refusal) -> Self {
        Failure::Refused(refusal)
    }
}

/// The receiver of this process.
#[inline]
pub fn receiver() -> &'static Receiver {
    static RECEIVER: OnceLock<Receiver> = OnceLock::new();
    RECEIVER.get_or_init(|| Receiver::new(DEFAULT_MAX_BYTES))
}

/// The packages that `gossamer jam send` has delivered to this process, newest last. A package replaces
/// an earlier one of the same name.
///
/// ```no_run
/// use jam::{Inject, JamError, LoadedJam, Open};
/// # use trust_core::Trust;
/// /// Calls the function `price` of the package "prices", if it is there.
/// fn price<T: Open>(shop: &Trust<T>, article: u64) -> Option<Result<u64, JamError>> {
///     let packages = jam::packages();
///     let prices = packages.iter().find(|package| package.name() == "prices")?;
///     let price: Result<LoadedJam<(), u64, (), u64>, _> = prices.find("price");
///     Some(price.and_then(|price| shop.inject(&price, article, &[])))
/// }
/// ```
pub fn packages() -> Vec<Arc<ArrivedPackage>> {
    receiver().arrived.all()
}

/// Calls `callback` with each package that `gossamer jam send` delivers to this process from now on. It
/// runs on a thread outside the rack, so it cannot call trusts; it can pass the package to a fiber.
pub fn on_package(callback: impl Fn(&Arc<ArrivedPackage>) + Send + Sync + 'static) {
    receiver().arrived.on_arrival(Arc::new(callback));
}

impl Receiver {
    pub(crate) fn new(max_bytes: usize) -> Self {
        check_property_types();
        fiber::note_panics();
        let locals = Locals::of_program();
        let gatekeeper = Gatekeeper::default();
        gatekeeper.admit(locals.digests(), &Origin::Program);
        Receiver {
            cache: Cache::new(max_bytes),
            symbols: Symbols::of_program(),
            gatekeeper,
            locals,
            arrived: Arrived::default(),
            rieds: Rieds::default(),
            log: Arc::default(),
            audit: Audit::default(),
        }
    }

    /// Sets whose jams run from now on. Linked jams are dropped, since the new policy must admit them
    /// again, and rieds that it does not admit are unloaded. Runs that have begun end first: those are up to
    /// 42 calls of one jam one after another.
    pub fn set_policy(&self, policy: Policy) {
        self.gatekeeper.set(policy);
        self.give_up();
    }

    /// Admits jams and rieds with these digests ([`Package::digests`](crate::Package::digests)) under
    /// the policy [`Policy::Signed`]. The caller vouches for their code.
    pub fn admit(&self, digests: impl IntoIterator<Item = Digest>) {
        self.gatekeeper.admit(digests, &Origin::Admitted);
    }

    /// Verifies signatures of packages with `verifier`, which replaces an earlier one. A process that a
    /// daemon starts as part of a rack has one, which knows the rack's signers.
    ///
    /// Jams that an earlier verifier accepted run again only if this one accepts them, too: those of a
    /// signer whose certificate has been revoked do not. What packages and rieds the process holds,
    /// [`Verifier::verify_held`] judges.
    pub fn set_verifier(&self, verifier: impl Verifier + 'static) {
        self.gatekeeper.set_verifier(Arc::new(verifier));
        // Whatever the policy: a part of the process may have another one, as the process later may.
        self.arrived.keep(|proof| self.gatekeeper.admit_held(proof).is_ok());
        self.give_up();
    }

    /// Declares that anyone on the network can forge incoming data, as over RDMA: from now on every jam
    /// needs a signature, even under the policy [`Policy::AnyPeer`].
    ///
    /// A rack does so if its transport says that data is not authenticated. A program that runs a
    /// [`ReactiveMailbox`](crate::mailbox::ReactiveMailbox) on such a transport without a rack calls it
    /// itself.
    pub fn set_unauthenticated(&self) {
        self.gatekeeper.set_unauthenticated();
        self.give_up();
    }

    /// Gives up what must be admitted again. A ried that is being loaded meanwhile is judged when it has
    /// started.
    fn give_up(&self) {
        self.cache.clear();
        self.rieds.recheck(&self.gatekeeper, &self.symbols, &self.audit);
    }

    /// Takes a package that arrived without a call, if a signer of the rack has signed it: admits its
    /// jams, which are linked on their first calls, and adds it to [`packages`](crate::packages).
    ///
    /// # Errors
    /// Why the package was refused.
    pub fn take_package(&self, bytes: &[u8]) -> Result<Arc<ArrivedPackage>, Refusal> {
        let admit = |proof: &Proof<'_>| self.gatekeeper.gate(None).admit_proven(proof);
        self.arrived.add(ArrivedPackage::new(bytes, admit)?)
    }

    #[cfg(test)]
    pub(crate) fn arrived(&self) -> &Arrived {
        &self.arrived
    }

    /// Calls `audit` with each jam that is to be linked in this process for the first time, before any
    /// thread can run it, and with each ried that is loaded or unloaded, on the thread that does it;
    /// `audit` must not wait, nor link jams, nor load or unload rieds.
    ///
    /// Local Functions are the program's own code, and leave no entry.
    pub fn set_audit(&self, audit: impl Fn(&AuditEntry<'_>) + Send + Sync + 'static) {
        self.audit.set(Box::new(audit));
    }

    /// The functions that imports resolve to; add some here.
    pub fn symbols(&self) -> &Symbols {
        &self.symbols
    }

    /// Calls `log` with each line that jams and rieds log and the number of the sending host, on the
    /// thread that runs them, or `u32::MAX` for what the program loads itself; `log` must not wait.
    /// Without one, the lines go to standard error.
    pub fn set_log(&self, log: impl Fn(u32, &str) + Send + Sync + 'static) {
        self.log.set(log);
    }

    /// Loads the ried with these bytes into this process and returns its number for
    /// [`unload_ried`](Self::unload_ried). [`load_ried`](crate::load_ried) does this on any host.
    ///
    /// # Errors
    /// Why the ried was not loaded.
    pub fn load_ried(&self, library: &[u8]) -> Result<u64, RiedRefusal> {
        let (claimed, bytes, by) = (Digest::of(library), Some(library), LoadedBy::Program);
        match self.load_arrived(ArrivedRied { name: "", claimed, bytes, proof: &[], by }) {
            Ok(layer) => Ok(layer),
            Err(NotLoaded::Refused(refusal)) => Err(refusal),
            Err(NotLoaded::NeedBytes) => unreachable!("it has the bytes"),
        }
    }

    /// Loads a ried of which only the digest came from a package of [`packages`](crate::packages), if one
    /// has it.
    pub(crate) fn load_arrived(&self, arrived: ArrivedRied<'_>) -> Result<u64, NotLoaded> {
        let package = self.arrived.with(&arrived.claimed);
        let kept = package.as_ref().and_then(|package| package.bytes_of(&arrived.claimed));
        let arrived = ArrivedRied { bytes: arrived.bytes.or(kept), ..arrived };
        self.rieds.load(arrived, &self.gatekeeper, &self.symbols, &self.log, &self.audit)
    }

    /// Removes the functions that loading a ried added: runs that begin later, of one call or of several
    /// one after another, use those that it overrode. The library stays mapped. Returns false if no ried
    /// has this number.
    pub fn unload_ried(&self, number: u64) -> bool {
        self.rieds.unload(number, &self.symbols, &self.audit)
    }

    /// As [`unload_ried`](Self::unload_ried), for a host of the rack that names the ried.
    pub(crate) fn unload_for_peer(
        &self,
        host: u32,
        number: u64,
        claimed: &Digest,
    ) -> Result<bool, Refusal> {
        let Receiver { rieds, gatekeeper, symbols, audit, .. } = self;
        rieds.unload_for_peer(host, number, claimed, (gatekeeper, symbols, audit))
    }

    /// Writes a line to the log, if there is one.
    pub(crate) fn log(&self, sender: u32, text: &str) {
        self.log.write(sender, text);
    }

    /// Bytes of executable memory in use, and how many jams are in it.
    pub fn size(&self) -> (usize, usize) {
        self.cache.size()
    }

    /// Verifies and links a jam that has arrived.
    ///
    /// # Errors
    /// Why it does not run here.
    pub fn receive(&self, blob: &[u8], claimed: Digest) -> Result<(), Refusal> {
        self.receive_under(None, None, blob, claimed).map(drop)
    }

    /// As [`receive`](Self::receive), for a part of the process that has a policy of its own; `host` had
    /// it done. Returns how many bytes of text and data it has linked.
    pub(crate) fn receive_under(
        &self,
        policy: Option<Policy>,
        host: Option<u32>,
        blob: &[u8],
        claimed: Digest,
    ) -> Result<u64, Refusal> {
        let gate = self.gatekeeper.gate(policy);
        let verified = Frame::new(blob, claimed).parse()?.verify(gate)?;
        // As soon as it is linked, any thread may run it by its digest.
        if self.audit.is_on() {
            let (digest, name) = (verified.digest(), verified.blob().name());
            // A policy that was set meanwhile may refuse it.
            let (event, origin) = (AuditEvent::FirstRun, &gate.check(&digest)?);
            self.audit.note(&AuditEntry { event, name, digest, origin, host });
        }
        self.cache.add(&verified, &self.symbols, gate)?;
        let blob = verified.blob();
        Ok((blob.text().len() + blob.data().len()) as u64)
    }

    /// Links the jam with this digest if a package of [`packages`](crate::packages) has it, and returns
    /// how many bytes of text and data it has linked; `None` if no package has it.
    pub(crate) fn link_arrived(
        &self,
        policy: Option<Policy>,
        host: Option<u32>,
        digest: &Digest,
    ) -> Result<Option<u64>, Refusal> {
        let Some(package) = self.arrived.with(digest) else { return Ok(None) };
        let Some(blob) = package.bytes_of(digest) else { return Ok(None) };
        let linked = self.receive_under(policy, host, blob, *digest);
        linked.map(Some).map_err(|refusal| refusal.explained(&package.types_with(digest)))
    }

    /// Numbers that change whenever code which was refused before might be linked: by what is admitted, and
    /// by the functions that imports resolve to.
    pub(crate) fn changes(&self) -> (u64, u64) {
        (self.gatekeeper.changes(), self.symbols.generation())
    }

    /// The policy of a part of the process; that of the process if it is `None`.
    #[inline(always)]
    pub(crate) fn gate(&self, policy: Option<Policy>) -> Gate<'_> {
        self.gatekeeper.gate(policy)
    }
}

#[cfg(all(test, target_arch = "x86_64"))]
mod tests;
