//! What this program was built with: its packages, and the Local Functions of their jams.
//!
//! [`package!`](crate::package) leaves a record of each package in the linker section
//! `gossamer_jam_packages`, so that every process of the program knows them, whether or not it runs
//! the code that sends their jams.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use jam_abi::{Element, LocalEntry, LocalFunction, PackageData};
use jam_format::{Digest, ElementKind, PackageElement};
use parking_lot::Mutex;
use primitive::sync::{AtomicU64, Ordering};

use crate::error::Refusal;
use crate::handles;
use crate::package::elements_here;
use crate::shape::Shape;
use crate::symbols::Symbols;

// SAFETY: the linker defines these symbols as the bounds of the section of that name, which exists
// because the `global_asm!` below makes it; only their addresses are used.
unsafe extern "C" {
    #[link_name = "__start_gossamer_jam_packages"]
    static START: [usize; 0];
    #[link_name = "__stop_gossamer_jam_packages"]
    static STOP: [usize; 0];
}

// SAFETY: makes the section exist, empty, even in a program without packages; no code, no data.
std::arch::global_asm!(
    ".pushsection gossamer_jam_packages,\"awR\",@progbits",
    ".p2align 3",
    ".popsection",
);

/// The packages that the program was built with.
#[allow(clippy::disallowed_methods, reason = "the linker's table, which no peer can write")]
pub(crate) fn packages() -> &'static [&'static PackageData] {
    // SAFETY: the bounds of a section that holds only records of `package!`, since a program has one
    // release of this crate (`links` in the manifest): references, without gaps, never written.
    unsafe {
        let (start, stop) = (&raw const START, &raw const STOP);
        let count = (stop.addr() - start.addr()) / size_of::<&PackageData>();
        std::slice::from_raw_parts(start.cast(), count)
    }
}

/// The jams of the program's packages, by the digest of their code for this machine.
pub(crate) struct Locals {
    all: Vec<Local>,
    /// Where each is in `all`.
    by_digest: HashMap<Digest, usize, BuildHasherDefault<FirstBytes>>,
    /// The digests of the rieds beside them.
    rieds: Vec<Digest>,
    /// Held while slots are filled, so that what an older generation resolved to never comes last.
    filling: Mutex<()>,
}

/// Takes a digest for its hash: that is one already, and every key is the program's own, so that no peer
/// can choose keys that collide.
#[derive(Default)]
struct FirstBytes(u64);

impl Hasher for FirstBytes {
    fn write(&mut self, bytes: &[u8]) {
        self.0 = bytes.first_chunk().map_or(0, |first| u64::from_le_bytes(*first));
    }

    /// The length of the digest.
    fn write_usize(&mut self, _len: usize) {}

    fn finish(&self) -> u64 {
        self.0
    }
}

struct Local {
    element: &'static Element,
    digest: Digest,
    shape: Shape,
    /// The generation of symbols that its imports have; 0 for none.
    generation: AtomicU64,
}

/// A Local Function whose imports are resolved.
pub(crate) struct Resolved<'l> {
    pub(crate) entry: LocalEntry,
    /// Its types.
    pub(crate) shape: &'l Shape,
    /// That of its imports.
    generation: &'l AtomicU64,
}

impl Resolved<'_> {
    /// Whether its imports are those of this generation of symbols.
    #[inline(always)]
    pub(crate) fn is_resolved(&self, generation: u64) -> bool {
        self.generation.load(Ordering::Acquire) == generation
    }
}

impl Locals {
    pub(crate) fn of_program() -> Self {
        Self::of(packages())
    }

    /// Those of these packages, in their order.
    pub(crate) fn of(packages: &[&'static PackageData]) -> Self {
        let (mut all, mut by_digest, mut rieds) = (Vec::new(), HashMap::default(), Vec::new());
        for package in packages {
            for PackageElement { kind, id, digest, bytes, .. } in elements_here(package) {
                if kind == ElementKind::Ried {
                    rieds.push(digest);
                    continue;
                }
                let element = package.jams.iter().copied().find(|jam| jam.id == id);
                let (Some(element), Ok(blob)) = (element, jam_format::Parsed::parse(bytes)) else {
                    continue;
                };
                by_digest.entry(digest).or_insert_with(|| {
                    let (shape, generation) = (Shape::of(&blob), AtomicU64::new(0));
                    all.push(Local { element, digest, shape, generation });
                    all.len() - 1
                });
            }
        }
        Self { all, by_digest, rieds, filling: Mutex::new(()) }
    }

    /// The digests of all jams, and of the rieds beside them.
    pub(crate) fn digests(&self) -> impl Iterator<Item = Digest> {
        self.all.iter().map(|local| local.digest).chain(self.rieds.iter().copied())
    }

    /// The Local Function of a jam.
    pub(crate) fn find(&self, digest: &Digest, symbols: &Symbols) -> Result<Resolved<'_>, Refusal> {
        let local = self.by_digest.get(digest).map(|at| &self.all[*at]);
        local.ok_or(Refusal::NotLocal)?.resolved(symbols, &self.filling)
    }

    /// The [handle](crate::handles) of a Local Function; 0 if there is none.
    pub(crate) fn handle(&self, digest: &Digest) -> u64 {
        let at = self.by_digest.get(digest).filter(|at| self.all[**at].element.local.is_some());
        at.map_or(0, |at| handles::of_local(*at, digest))
    }

    /// The Local Function with this handle.
    #[inline]
    pub(crate) fn find_by_handle(
        &self,
        handle: u64,
        symbols: &Symbols,
    ) -> Result<Resolved<'_>, Refusal> {
        let local = self.all.get(handles::local_place(handle));
        let is_it = |local: &&Local| {
            handles::of_local(handles::local_place(handle), &local.digest) == handle
        };
        local.filter(is_it).ok_or(Refusal::NotLocal)?.resolved(symbols, &self.filling)
    }
}

impl Local {
    /// The function, its imports resolved.
    #[inline]
    fn resolved(&self, symbols: &Symbols, filling: &Mutex<()>) -> Result<Resolved<'_>, Refusal> {
        let function = self.element.local.ok_or(Refusal::NoLocalInC)?;
        if self.generation.load(Ordering::Acquire) != symbols.generation() {
            let _filling = filling.lock();
            let generation = resolve(&function, symbols)?;
            self.generation.store(generation, Ordering::Release);
        }
        let Self { shape, generation, .. } = self;
        Ok(Resolved { entry: function.entry, shape, generation })
    }
}

/// Fills the imports of a function; the generation that this holds for.
fn resolve(function: &LocalFunction, symbols: &Symbols) -> Result<u64, Refusal> {
    let mut addresses = Vec::with_capacity(function.imports.len());
    let imports = function.imports.iter().map(|import| (import.name(), import.signature()));
    let generation = symbols.resolve_local(imports, |address| addresses.push(address))?;
    for (import, address) in function.imports.iter().zip(addresses) {
        // SAFETY: the address is that of a function of this signature, for Local Functions; layers
        // stay callable as long as anything that was linked to them may run.
        unsafe { import.resolve(std::ptr::without_provenance(address)) };
    }
    Ok(generation)
}

#[cfg(test)]
mod tests {
    use std::hash::BuildHasher;

    use super::*;

    #[test]
    fn digests_that_differ_at_first_have_other_hashes() {
        let hash = |digest: &Digest| BuildHasherDefault::<FirstBytes>::default().hash_one(digest);
        let digests: Vec<Digest> = (0..100_u8).map(|byte| Digest::of(&[byte])).collect();
        let mut map = HashMap::<Digest, usize, BuildHasherDefault<FirstBytes>>::default();
        map.extend(digests.iter().enumerate().map(|(at, digest)| (*digest, at)));
        for (at, digest) in digests.iter().enumerate() {
            assert_eq!(map.get(digest), Some(&at));
            assert_eq!(&hash(digest).to_le_bytes()[..], &digest.as_bytes()[..8]);
        }
        assert!(!map.contains_key(&Digest::of(b"another")));
    }
}
