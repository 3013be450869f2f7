//! [`Linked`]: a jam in executable memory, its imports resolved.

use jam_abi::{Call, Entry};
use jam_format::{Digest, SLOT_BYTES};
use primitive::sync::{AtomicPtr, AtomicU32, AtomicU64, Ordering};

use crate::arena::{Draft, Place};
use crate::enter;
use crate::error::{Panicked, Refusal};
use crate::frame::Verified;
use crate::policy::Admitted;
use crate::shape::Shape;
use crate::symbols::Symbols;

/// A jam that can run.
pub(crate) struct Linked {
    pub(crate) digest: Digest,
    /// Its types.
    pub(crate) shape: Shape,
    entry: Entry,
    /// Under which policies it runs.
    pub(crate) admitted: AtomicU32,
    /// Its [handle](crate::handles); 0 for none. `cache.rs` alone writes it, before others see it.
    pub(crate) handle: u64,
    /// The generation of symbols that its imports have.
    pub(crate) generation: AtomicU64,
    /// The number of the cache's last change when it ran last.
    pub(crate) used: AtomicU64,
    /// The next one of its bucket. `cache.rs` alone writes it.
    pub(crate) next: AtomicPtr<Linked>,
    pub(crate) place: Place,
    /// What its imports resolved to.
    imports: Box<[usize]>,
    /// Its blob, to link it again when they resolve to something else.
    pub(crate) blob: Box<[u8]>,
}

/// What the imports of a blob resolve to, in their order.
pub(crate) struct Resolved {
    addresses: Vec<usize>,
    generation: u64,
}

impl Resolved {
    pub(crate) fn of(verified: &Verified<'_>, symbols: &Symbols) -> Result<Self, Refusal> {
        let imports = verified.blob().imports();
        let mut addresses = Vec::with_capacity(imports.len());
        let imports = imports.map(|import| (import.name, import.signature));
        let generation = symbols.resolve(imports, |address| addresses.push(address))?;
        Ok(Resolved { addresses, generation })
    }

    /// Whether `linked` has these imports; if so, its generation is that of this.
    pub(crate) fn is_that_of(&self, linked: &Linked) -> bool {
        let is_same = *linked.imports == *self.addresses;
        if is_same {
            linked.generation.store(self.generation, Ordering::Release);
        }
        is_same
    }
}

impl Linked {
    /// Puts a blob into the memory of `draft`.
    pub(crate) fn new(
        verified: &Verified<'_>,
        resolved: Resolved,
        admitted: Admitted,
        mut draft: Draft,
    ) -> Box<Linked> {
        let blob = verified.blob();
        draft.write(blob.text(), blob.data());
        let Resolved { addresses, generation } = resolved;
        for (at, address) in addresses.iter().enumerate() {
            draft.write_word(at * SLOT_BYTES, *address as u64);
        }
        let base = draft.address();
        for relocation in blob.relocations() {
            let target = base + relocation.value as usize;
            draft.write_word(relocation.place as usize, target as u64);
        }
        let entry = base + blob.entry() as usize;
        Box::new(Linked {
            digest: verified.digest(),
            shape: Shape::of(blob),
            admitted: AtomicU32::new(admitted),
            // SAFETY: the address of code that is in place, and that the policy admits: who
            // answers for it says that it is an entry of the signature beside it.
            entry: unsafe { std::mem::transmute::<usize, Entry>(entry) },
            handle: 0,
            generation: AtomicU64::new(generation),
            used: AtomicU64::new(0),
            next: AtomicPtr::new(std::ptr::null_mut()),
            place: draft.finish(),
            imports: addresses.into(),
            blob: blob.bytes().into(),
        })
    }

    /// Whether it runs under a policy of this bit.
    #[inline(always)]
    pub(crate) fn is_admitted(&self, bit: Admitted) -> bool {
        self.admitted.load(Ordering::Relaxed) & bit != 0
    }

    /// Runs it.
    ///
    /// # Safety
    /// - `call` is valid for a jam of [`shape`](Self::shape): the property is of its type and
    ///   nothing else refers to it, arguments and payload are readable, the reply is writable.
    /// - The thread is inside, by its runner, since before it looked this up.
    /// - No other fiber of the thread runs before this returns.
    #[inline(always)]
    pub(crate) unsafe fn run(&self, call: &mut Call) -> Result<u32, Box<Panicked>> {
        // SAFETY: linked, and the memory is not reused while a runner is inside; the rest as the
        // caller promises.
        unsafe { enter::run(self.entry, call) }
    }
}
