//! [`Host`]: the program into which the ried was loaded.

use std::alloc::Layout;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicPtr, Ordering};

use jam_abi::HostTable;

/// The table of the program; null before the ried starts.
static TABLE: AtomicPtr<HostTable> = AtomicPtr::new(std::ptr::null_mut());

/// What every program offers a ried.
#[derive(Clone, Copy, Debug)]
pub struct Host(&'static HostTable);

/// The program into which this ried was loaded.
///
/// # Panics
/// If it has not been: in a test of the ried, for instance.
pub fn host() -> Host {
    let table = TABLE.load(Ordering::Acquire);
    // SAFETY: null, or the table of `set`, which outlives the ried.
    Host(unsafe { table.as_ref() }.expect("a ried is used where a program has loaded it"))
}

impl Host {
    /// Writes a line to the log of the receiver, with the number of the host that first loaded the ried.
    pub fn log(&self, line: &str) {
        // SAFETY: text of that many bytes, and the table of this ried.
        unsafe { (self.0.log)(self.0, line.as_ptr(), line.len()) }
    }

    /// Allocates with the program's allocator, for memory that the program frees or that outlives the
    /// ried's use; `None` if there is no memory. The ried's own `Vec` and `Box` do not need this.
    pub fn alloc(&self, layout: Layout) -> Option<NonNull<u8>> {
        if layout.size() == 0 {
            return Some(layout.dangling_ptr());
        }
        // SAFETY: a layout that is not empty.
        NonNull::new(unsafe { (self.0.alloc)(layout.size(), layout.align()) })
    }

    /// Frees memory.
    ///
    /// # Safety
    /// It is of [`alloc`](Self::alloc) with this layout, or of the program's allocator, and nothing uses
    /// it any more.
    pub unsafe fn free(&self, start: NonNull<u8>, layout: Layout) {
        if layout.size() > 0 {
            // SAFETY: as the caller promises.
            unsafe { (self.0.free)(start.as_ptr(), layout.size(), layout.align()) }
        }
    }

    pub(crate) fn table(&self) -> &'static HostTable {
        self.0
    }
}

/// Sets the table of the program.
pub(crate) fn set(table: &'static HostTable) -> Host {
    TABLE.store(std::ptr::from_ref(table).cast_mut(), Ordering::Release);
    Host(table)
}
