//! How a closure is named: its number in a table that the linker makes (thesis 3.2.8, without
//! turning address randomisation off).
//!
//! Every instantiation of the generic [`entry_of`] leaves one entry in the linker section
//! `gossamer_closures`:
//!
//! ```text
//!   __start_gossamer_closures                       __stop_gossamer_closures
//!   | run - . | describe - . | run - . | describe - . | ...
//!     i32       i32            i32       i32
//! ```
//!
//! The entries are distances, so they hold wherever the program is loaded; an entry's position is
//! the closure's id, the same in every process of the same build. Inlining may leave several
//! entries for one closure: all are valid. Which build it is, the handshake compares
//! ([`build_identity`](crate::build_identity)). Another release of this crate in the same program
//! would write to the same section: the `links` of the manifest has Cargo refuse that.
//!
//! An id that arrives is looked up in the table read at start-up and refused if it is beyond it.
//! Each closure has the *tag* of the property type it works on, a dense number for the type; it is
//! compared with the property's own tag before anything runs.

use std::any::TypeId;
use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};
use std::ops::Range;
use std::sync::OnceLock;

use crate::closure::batch::{Batch, Received};
use crate::wire::words::{MAX_CLOSURES, RunLayout};

/// Runs a delegated closure on a property for the batch's next request, which is given, and for
/// those after it that are the same but for their arguments: a run of them costs one call.
///
/// # Safety
/// The pointer is to a live property of the type that the closure's description names, and nothing
/// else refers to it during the call.
pub(crate) type Run = unsafe fn(*mut u8, &mut Batch<'_>, Received);

/// The description of a closure.
pub(crate) struct Description {
    pub(crate) property: TypeId,
    pub(crate) property_name: &'static str,
    pub(crate) closure_name: &'static str,
    /// Where the encoded message begins in its arguments that are not plain: behind what the closure
    /// captures. `None` if they are bytes of users' own, and no message.
    pub(crate) message_at: Option<usize>,
    /// How the requests of runs lie that it serves, if it serves any.
    pub(crate) runs: Option<RunLayout>,
}

impl Description {
    /// Of a closure `I` of this name on a `T`, which gets values and serves no runs.
    pub(crate) fn of<T: 'static, I>(closure_name: &'static str) -> Self {
        Description {
            property: TypeId::of::<T>(),
            property_name: std::any::type_name::<T>(),
            closure_name,
            message_at: Some(size_of::<I>()),
            runs: None,
        }
    }
}

/// One kind of delegated call: a property type, a closure, its arguments and result.
pub(crate) trait Delegated {
    /// See [`Run`].
    ///
    /// # Safety
    /// See [`Run`].
    unsafe fn run(property: *mut u8, batch: &mut Batch<'_>, request: Received);
    /// Its description.
    fn describe() -> Description;
}

/// An entry of the linker section: distances from the fields themselves.
#[repr(C)]
struct Entry {
    run: i32,
    describe: i32,
}

const ENTRY_BYTES: usize = size_of::<Entry>();

// SAFETY: the linker defines these symbols as the bounds of the section of that name, which exists
// because the `global_asm!` below makes it; only their addresses are used.
unsafe extern "C" {
    #[link_name = "__start_gossamer_closures"]
    static START: [Entry; 0];
    #[link_name = "__stop_gossamer_closures"]
    static STOP: [Entry; 0];
}

// SAFETY: makes the section exist, empty, even in a program that delegates nothing; no code, no
// data.
std::arch::global_asm!(".pushsection gossamer_closures,\"aR\",@progbits", ".popsection");

/// The id of a kind of call.
#[inline(always)]
pub(crate) fn closure_id<D: Delegated>() -> u32 {
    ((entry_of::<D>().addr() - (&raw const START).addr()) / ENTRY_BYTES) as u32
}

/// A plain function, because `sym` takes no trait methods of generic parameters on all targets.
///
/// # Safety
/// See [`Run`]: this is one.
unsafe fn run<D: Delegated>(property: *mut u8, batch: &mut Batch<'_>, request: Received) {
    // SAFETY: the caller keeps the contract of `Run`.
    unsafe { D::run(property, batch, request) }
}
fn describe<D: Delegated>() -> Description {
    D::describe()
}

#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn entry_of<D: Delegated>() -> *const Entry {
    let entry;
    // SAFETY: emits eight bytes into a section of its own and takes their address; reads and
    // writes no memory and no register but the output.
    unsafe {
        std::arch::asm!(
            ".pushsection gossamer_closures,\"aR\",@progbits",
            ".p2align 2",
            "771: .long {run} - .",
            ".long {describe} - .",
            ".popsection",
            "lea {entry}, [rip + 771b]",
            run = sym run::<D>,
            describe = sym describe::<D>,
            entry = out(reg) entry,
            options(nomem, nostack, preserves_flags)
        );
    }
    entry
}

#[cfg(target_arch = "aarch64")]
#[inline(always)]
fn entry_of<D: Delegated>() -> *const Entry {
    let entry;
    // SAFETY: emits eight bytes into a section of its own and takes their address, as on x86_64.
    unsafe {
        std::arch::asm!(
            ".pushsection gossamer_closures,\"aR\",@progbits",
            ".p2align 2",
            "771: .long {run} - .",
            ".long {describe} - .",
            ".popsection",
            "adrp {entry}, 771b",
            "add {entry}, {entry}, :lo12:771b",
            run = sym run::<D>,
            describe = sym describe::<D>,
            entry = out(reg) entry,
            options(nomem, nostack, preserves_flags)
        );
    }
    entry
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
compile_error!("gossamer names closures by linker-section entries, written for x86_64 and aarch64");

/// The number of a property type: equal numbers are equal types. Zero is no type.
pub(crate) type Tag = u32;

/// A closure as a trustee needs it.
#[derive(Clone, Copy)]
pub(crate) struct Closure {
    pub(crate) run: Run,
    pub(crate) tag: Tag,
    /// As in its description.
    pub(crate) runs: Option<RunLayout>,
}

/// All closures of this program.
pub(crate) struct Registry {
    closures: Box<[Closure]>,
    descriptions: Box<[Description]>,
    tags: parking_lot::Mutex<HashMap<TypeId, Tag>>,
}

thread_local! {
    /// The tags that this thread has asked for, so that it asks only once: they do not change.
    static SEEN: RefCell<BTreeMap<TypeId, Tag>> = const { RefCell::new(BTreeMap::new()) };
}

/// The table of this program, read on first use.
pub(crate) fn registry() -> &'static Registry {
    static REGISTRY: OnceLock<Registry> = OnceLock::new();
    REGISTRY.get_or_init(Registry::read)
}

/// The addresses of the table of the image that the core was linked into.
#[inline(never)]
pub(crate) fn core_image_table() -> Range<usize> {
    (&raw const START).addr()..(&raw const STOP).addr()
}

/// Whether the code that calls this and the core were linked into one image. A Rust `dylib` built
/// with `prefer-dynamic` would have a table of its own, and ids of one would mean nothing in the
/// other.
#[inline(always)]
pub fn is_one_image() -> bool {
    std::hint::black_box(&raw const START).addr() == core_image_table().start
}

impl Registry {
    #[allow(clippy::disallowed_methods, reason = "the linker's table, which no peer can write")]
    fn read() -> Registry {
        // SAFETY: the linker defines both symbols as the bounds of the section, which holds only
        // entries written by `entry_of`, since a program has one release of this crate (`links`):
        // pairs of 4-byte words, without gaps, never written.
        let entries = unsafe {
            let (start, stop) = (&raw const START, &raw const STOP);
            let count = (stop.addr() - start.addr()) / ENTRY_BYTES;
            std::slice::from_raw_parts(start.cast::<Entry>(), count)
        };
        assert!(
            entries.len() <= MAX_CLOSURES,
            "this program delegates {} kinds of closures, and ids have room for {MAX_CLOSURES}",
            entries.len()
        );
        let mut tags = HashMap::new();
        let (closures, descriptions) = entries
            .iter()
            .map(|entry| {
                // SAFETY: `entry_of` wrote the distance from each field to a function of exactly
                // this type.
                let (run, describe) = unsafe {
                    (
                        std::mem::transmute::<*const u8, Run>(target(&entry.run)),
                        std::mem::transmute::<*const u8, fn() -> Description>(target(
                            &entry.describe,
                        )),
                    )
                };
                let description = describe();
                let fresh = tags.len() as Tag + 1;
                let tag = *tags.entry(description.property).or_insert(fresh);
                (Closure { run, tag, runs: description.runs }, description)
            })
            .unzip::<_, _, Vec<_>, Vec<_>>();
        Registry {
            closures: closures.into(),
            descriptions: descriptions.into(),
            tags: parking_lot::Mutex::new(tags),
        }
    }

    /// All closures, by id.
    pub(crate) fn closures(&self) -> &[Closure] {
        &self.closures
    }

    /// What closure `id` is, if there is one.
    pub(crate) fn description(&self, id: u32) -> Option<&Description> {
        self.descriptions.get(id as usize)
    }

    /// The tag of a property type: from the table, or a new one for a type on which this program
    /// has no closure (it can be entrusted, and that is all).
    pub(crate) fn tag_of<T: 'static>(&self) -> Tag {
        let id = TypeId::of::<T>();
        let seen = SEEN.try_with(|seen| seen.borrow().get(&id).copied());
        seen.ok().flatten().unwrap_or_else(|| self.look_up(id))
    }

    #[cold]
    fn look_up(&self, id: TypeId) -> Tag {
        let mut tags = self.tags.lock();
        let fresh = tags.len() as Tag + 1;
        let tag = *tags.entry(id).or_insert(fresh);
        drop(tags);
        let _ = SEEN.try_with(|seen| seen.borrow_mut().insert(id, tag));
        tag
    }
}

fn target(distance: &'static i32) -> *const u8 {
    std::ptr::from_ref(distance).cast::<u8>().wrapping_offset(*distance as isize)
}
