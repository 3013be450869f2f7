//! What this program was built with: its packages, and the Local Functions of their jams.
//!
//! [`package!`](crate::package) leaves a record of each package in the linker section
//! `gossamer_jam_packages`, so that every process of the program knows them, whether or not it runs
//! the code that sends their jams.

use std::collections::HashMap;

use jam_abi::{Element, LocalEntry, LocalFunction, PackageData};
use jam_format::Digest;
use primitive::sync::{AtomicU64, Ordering};

use crate::error::Refusal;
use crate::handles;
use crate::package::{element_code, ried_digests};
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
    by_digest: HashMap<Digest, usize>,
}

struct Local {
    element: &'static Element,
    digest: Digest,
    shape: Shape,
    /// The generation of symbols that its imports have; 0 for none.
    generation: AtomicU64,
}

/// The digests of the rieds of the program's packages.
pub(crate) fn rieds_of_program() -> Vec<Digest> {
    packages().iter().flat_map(|package| ried_digests(package)).collect()
}

/// A Local Function whose imports are resolved.
pub(crate) struct Resolved<'l> {
    pub(crate) entry: LocalEntry,
    /// Its types.
    pub(crate) shape: &'l Shape,
}

impl Locals {
    pub(crate) fn of_program() -> Self {
        let elements = packages().iter().flat_map(|package| package.jams.iter().copied());
        let (mut all, mut by_digest) = (Vec::new(), HashMap::new());
        for element in elements {
            let Some(code) = element_code(element) else { continue };
            let Ok(parsed) = jam_format::Parsed::parse(code) else { continue };
            let (digest, shape) = (Digest::of(code), Shape::of(&parsed));
            by_digest.entry(digest).or_insert_with(|| {
                all.push(Local { element, digest, shape, generation: AtomicU64::new(0) });
                all.len() - 1
            });
        }
        Self { all, by_digest }
    }

    /// All digests.
    pub(crate) fn digests(&self) -> impl Iterator<Item = Digest> {
        self.all.iter().map(|local| local.digest)
    }

    /// The Local Function of a jam.
    pub(crate) fn find(&self, digest: &Digest, symbols: &Symbols) -> Result<Resolved<'_>, Refusal> {
        let local = self.by_digest.get(digest).map(|at| &self.all[*at]);
        local.ok_or(Refusal::NotLocal)?.resolved(symbols)
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
        local.filter(is_it).ok_or(Refusal::NotLocal)?.resolved(symbols)
    }
}

impl Local {
    /// The function, its imports resolved.
    #[inline]
    fn resolved(&self, symbols: &Symbols) -> Result<Resolved<'_>, Refusal> {
        let function = self.element.local.ok_or(Refusal::NotLocal)?;
        let generation = symbols.generation();
        if self.generation.load(Ordering::Acquire) != generation {
            resolve(&function, symbols)?;
            self.generation.store(generation, Ordering::Release);
        }
        Ok(Resolved { entry: function.entry, shape: &self.shape })
    }
}

fn resolve(function: &LocalFunction, symbols: &Symbols) -> Result<(), Refusal> {
    let addresses = function.imports.iter().map(|import| {
        let address = symbols.resolve_local(import.name(), import.signature())?;
        Ok((import, address))
    });
    for (import, address) in addresses.collect::<Result<Vec<_>, Refusal>>()? {
        // SAFETY: the address is that of a function of this signature, for Local Functions; layers
        // stay callable as long as anything that was linked to them may run.
        unsafe { import.resolve(std::ptr::without_provenance(address)) };
    }
    Ok(())
}
