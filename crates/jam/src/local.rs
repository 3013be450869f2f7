//! What this program was built with: its packages, and the Local Functions of their jams.
//!
//! [`package!`](crate::package) leaves a record of each package in the linker section
//! `gossamer_jam_packages`, so that every process of the program knows them, whether or not it runs
//! the code that sends their jams.

use std::collections::HashMap;

use jam_abi::{Element, LocalEntry, LocalFunction, PackageData};
use jam_format::{Digest, ElementKind};
use parking_lot::Mutex;
use primitive::sync::{AtomicU64, Ordering};

use crate::element::digests;
use crate::error::Refusal;
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
    by_digest: HashMap<Digest, Local>,
    /// The digests of its rieds.
    rieds: Vec<Digest>,
    /// Held while slots are filled, so that what an older generation resolved to never comes last.
    filling: Mutex<()>,
}

struct Local {
    element: &'static Element,
    /// The generation of symbols that its imports have; 0 for none.
    generation: AtomicU64,
}

/// A Local Function whose imports are resolved.
pub(crate) struct Resolved {
    pub(crate) entry: LocalEntry,
    /// The hash of its types.
    pub(crate) signature: u64,
}

impl Locals {
    pub(crate) fn of_program() -> Self {
        let (mut by_digest, mut rieds) = (HashMap::new(), Vec::new());
        for package in packages() {
            for (kind, id, digest) in digests(package) {
                if kind == ElementKind::Ried {
                    rieds.push(digest);
                } else if let Some(element) = package.jams.iter().find(|jam| jam.id == id) {
                    by_digest.insert(digest, Local { element, generation: AtomicU64::new(0) });
                }
            }
        }
        Self { by_digest, rieds, filling: Mutex::new(()) }
    }

    /// The digests of all jams, and of the rieds beside them.
    pub(crate) fn digests(&self) -> impl Iterator<Item = Digest> {
        self.by_digest.keys().chain(&self.rieds).copied()
    }

    /// The Local Function of a jam.
    pub(crate) fn find(&self, digest: &Digest, symbols: &Symbols) -> Result<Resolved, Refusal> {
        let found =
            self.by_digest.get(digest).and_then(|local| Some((local, local.element.local?)));
        let (local, function) = found.ok_or(Refusal::NotLocal)?;
        if local.generation.load(Ordering::Acquire) != symbols.generation() {
            let _filling = self.filling.lock();
            let generation = resolve(&function, symbols)?;
            local.generation.store(generation, Ordering::Release);
        }
        Ok(Resolved { entry: function.entry, signature: local.element.signature })
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
