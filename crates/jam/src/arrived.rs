//! [`ArrivedPackage`]: a package that `gossamer jam send` has delivered to this process.
//!
//! The daemon of each machine hands the package to each process of the job there. The process verifies
//! the signature itself, keeps the package, and links each of its jams when a call first names it. So a
//! call of such a jam carries no code, whatever process sends it, and a load of its ried no library.

use std::collections::HashMap;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use jam_abi::entry::{Part, PropertyPart};
use jam_format::{Digest, ElementKind, FunctionKind, Machine, Proof, functions_in};
use parking_lot::RwLock;

use crate::error::{JamError, Refusal};
use crate::loaded::no_such_jam;
use crate::sender::{Code, LoadedJam};

/// Packages of different names that a process keeps.
const MAX_PACKAGES: usize = 256;
/// Bytes of all packages that a process keeps.
const MAX_BYTES: usize = 256 << 20;

/// A package that `gossamer jam send` has delivered to this process.
pub struct ArrivedPackage {
    name: Box<str>,
    digest: Digest,
    signer: Arc<str>,
    bytes: Box<[u8]>,
    proof: Box<[u8]>,
    /// Its jams and rieds for this machine.
    elements: Vec<(ElementKind, Box<str>, Digest, Range<usize>)>,
    /// The types of its functions, as text.
    types: Box<str>,
}

impl ArrivedPackage {
    /// The package in `bytes`, which `admit` has found signed by the member that it names.
    pub(crate) fn new(
        bytes: &[u8],
        admit: impl FnOnce(&Proof<'_>) -> Result<Arc<str>, Refusal>,
    ) -> Result<Self, Refusal> {
        let malformed =
            |error: jam_format::PackageError| Refusal::Malformed { reason: error.to_string() };
        let package = jam_format::Package::parse(bytes).map_err(malformed)?;
        let unsigned = || Refusal::Policy {
            reason: "the package is not signed: sign it with `gossamer jam sign`".to_owned(),
        };
        package.signature().map_err(malformed)?.ok_or_else(unsigned)?;
        let proof = package.proof().ok_or_else(unsigned)?;
        let elements = package.elements().iter().filter_map(|element| {
            let is_here = Machine::CURRENT == Some(element.machine);
            let start = element.bytes.as_ptr().addr() - bytes.as_ptr().addr();
            let range = start..start + element.bytes.len();
            is_here.then(|| (element.kind, element.name.into(), element.digest, range))
        });
        let elements: Vec<_> = elements.collect();
        if elements.is_empty() {
            let machine = Machine::CURRENT.map_or(std::env::consts::ARCH, Machine::name);
            let reason = format!("package {} has nothing for {machine}", package.name());
            return Err(Refusal::Malformed { reason });
        }
        let signer = admit(&Proof::parse(&proof).map_err(malformed)?)?;
        Ok(Self {
            name: package.name().into(),
            digest: package.digest(),
            signer,
            elements,
            types: package.types().text().into(),
            bytes: bytes.into(),
            proof: proof.into(),
        })
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its digest, as `gossamer jam inspect` shows it.
    pub fn digest(&self) -> Digest {
        self.digest
    }

    /// The member of the rack who signed it.
    pub fn signer(&self) -> &str {
        &self.signer
    }

    /// The names of its jams for this machine.
    pub fn jams(&self) -> impl Iterator<Item = &str> {
        self.of_kind(ElementKind::Jam).map(|(name, _)| name)
    }

    /// The names of its rieds for this machine.
    pub fn rieds(&self) -> impl Iterator<Item = &str> {
        self.of_kind(ElementKind::Ried).map(|(name, _)| name)
    }

    /// The library of the ried with this name, to [load](crate::load_ried) it.
    pub fn ried(&self, name: &str) -> Option<Code> {
        let (name, bytes) = self.of_kind(ElementKind::Ried).find(|(known, _)| *known == name)?;
        Some(Code::loaded(name, bytes, &self.proof, true))
    }

    /// Names and bytes.
    fn of_kind(&self, wanted: ElementKind) -> impl Iterator<Item = (&str, &[u8])> {
        let elements = self.elements.iter().filter(move |(kind, ..)| *kind == wanted);
        elements.map(|(_, name, _, range)| (&**name, &self.bytes[range.clone()]))
    }

    /// The jam with this name; the types are those of [`Package::find`](crate::Package::find).
    ///
    /// # Errors
    /// [`JamError::Unusable`] if the package has no such jam, or the jam has other types.
    pub fn find<P: PropertyPart, A: Part, E: Part, R: Part>(
        &self,
        name: &str,
    ) -> Result<LoadedJam<P, A, E, R>, JamError> {
        let jam = self.of_kind(ElementKind::Jam).find(|(known, _)| *known == name);
        let (_, blob) = jam.ok_or_else(|| no_such_jam(name, &self.name))?;
        LoadedJam::from_signed(blob, &self.proof, true, &self.types_of(name))
    }

    /// The text of the types of a jam's functions.
    fn types_of(&self, jam: &str) -> String {
        let mut entries = functions_in(&self.types).filter(|f| f.kind == FunctionKind::Entry);
        let Some(entry) = entries.find(|entry| entry.name == jam) else { return String::new() };
        let id = format!("{} ", entry.id);
        self.types.split_inclusive('\n').filter(|line| line.starts_with(&id)).collect()
    }

    /// The text of the types of the functions of the jam with this digest.
    pub(crate) fn types_with(&self, digest: &Digest) -> String {
        let jam = self.elements.iter().find(|(.., known, _)| known == digest);
        jam.map_or_else(String::new, |(_, name, ..)| self.types_of(name))
    }

    /// The bytes of the jam or ried with this digest.
    pub(crate) fn bytes_of(&self, digest: &Digest) -> Option<&[u8]> {
        let (.., range) = self.elements.iter().find(|(.., known, _)| known == digest)?;
        Some(&self.bytes[range.clone()])
    }
}

impl fmt::Debug for ArrivedPackage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ArrivedPackage")
            .field("name", &self.name)
            .field("digest", &self.digest)
            .field("signer", &self.signer)
            .field("jams", &self.jams().collect::<Vec<_>>())
            .field("rieds", &self.rieds().collect::<Vec<_>>())
            .finish_non_exhaustive()
    }
}

type Callback = dyn Fn(&Arc<ArrivedPackage>) + Send + Sync;

/// The packages of a process, in the order in which they arrived.
#[derive(Default)]
pub(crate) struct Arrived {
    state: RwLock<State>,
    callbacks: RwLock<Vec<Arc<Callback>>>,
}

#[derive(Default)]
struct State {
    packages: Vec<Arc<ArrivedPackage>>,
    by_digest: HashMap<Digest, Arc<ArrivedPackage>>,
}

impl Arrived {
    /// Adds a package, in place of one with the same name, and tells the program.
    pub(crate) fn add(&self, package: ArrivedPackage) -> Result<Arc<ArrivedPackage>, Refusal> {
        let package = Arc::new(package);
        {
            let mut state = self.state.write();
            let others = || state.packages.iter().filter(|other| other.name != package.name);
            let bytes: usize = others().map(|other| other.bytes.len()).sum();
            if others().count() >= MAX_PACKAGES || bytes + package.bytes.len() > MAX_BYTES {
                let reason = format!(
                    "the process has {MAX_PACKAGES} packages or {MAX_BYTES} bytes of them, the limit"
                );
                return Err(Refusal::Policy { reason });
            }
            // Its jams stay admitted, and a call of one of them carries its code.
            let replaced = others().cloned().collect();
            state.packages = replaced;
            state.by_digest.retain(|_, other| other.name != package.name);
            let digests = package.elements.iter().map(|(.., digest, _)| (*digest, package.clone()));
            state.by_digest.extend(digests);
            state.packages.push(package.clone());
        }
        let callbacks = self.callbacks.read().clone();
        callbacks.iter().for_each(|callback| callback(&package));
        Ok(package)
    }

    /// Drops the packages whose proofs `is_good` refuses.
    pub(crate) fn keep(&self, is_good: impl Fn(&Proof<'_>) -> bool) {
        let mut state = self.state.write();
        let is_good =
            |package: &ArrivedPackage| Proof::parse(&package.proof).is_ok_and(|p| is_good(&p));
        let kept: Vec<_> = state.packages.iter().filter(|p| is_good(p)).cloned().collect();
        let is_kept = |package: &Arc<ArrivedPackage>| kept.iter().any(|k| Arc::ptr_eq(k, package));
        state.by_digest.retain(|_, package| is_kept(package));
        state.packages = kept;
    }

    pub(crate) fn all(&self) -> Vec<Arc<ArrivedPackage>> {
        self.state.read().packages.clone()
    }

    pub(crate) fn with(&self, digest: &Digest) -> Option<Arc<ArrivedPackage>> {
        self.state.read().by_digest.get(digest).cloned()
    }

    pub(crate) fn on_arrival(&self, callback: Arc<Callback>) {
        self.callbacks.write().push(callback);
    }
}

#[cfg(test)]
mod tests;
