//! The functions that a receiver gives each ried ([`HostTable`]).

use std::alloc::Layout;
use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;

use jam_abi::{Failure, HostTable, RIED_VERSION};

use crate::enter::{barrier, escape};
use crate::error::Panicked;
use crate::log::LogSlot;
use crate::symbols::c::text;

/// What the table's `receiver` points to.
struct Owner {
    log: Arc<LogSlot>,
    /// The host that had the ried loaded, as it says.
    sender: u32,
}

/// The table for a ried, which stays for as long as the process runs, as the ried does.
pub(super) fn table(log: Arc<LogSlot>, sender: u32) -> &'static HostTable {
    let owner: &'static Owner = Box::leak(Box::new(Owner { log, sender }));
    Box::leak(Box::new(HostTable {
        version: RIED_VERSION,
        reserved: 0,
        receiver: std::ptr::from_ref(owner).cast(),
        log: write_log,
        alloc,
        free,
        failure,
        forgive,
        escape: leave,
        raise,
        call,
    }))
}

/// A panic of a Local Function, or of what it called.
pub(crate) fn panicked_of(payload: Box<dyn Any + Send>) -> Panicked {
    match payload.downcast::<Panicked>() {
        Ok(of_ried) => *of_ried,
        Err(payload) => Panicked::of_payload(payload),
    }
}

/// # Safety
/// Null, or of [`failure`] or [`call`], given back once.
pub(super) unsafe fn taken(failure: *mut Failure) -> Option<Panicked> {
    // SAFETY: as promised by the caller: both make it of a box.
    (!failure.is_null()).then(|| *unsafe { Box::from_raw(failure.cast::<Panicked>()) })
}

fn kept(panicked: Panicked) -> *mut Failure {
    Box::into_raw(Box::new(panicked)).cast()
}

/// # Safety
/// Called by a ried with its table, and text of that many bytes.
unsafe extern "C" fn write_log(host: *const HostTable, start: *const u8, len: usize) {
    // SAFETY: the table is of `table`, whose owner is never freed; the text as the ried promises.
    let (owner, line) = unsafe { (&*(*host).receiver.cast::<Owner>(), text(start, len)) };
    owner.log.write(owner.sender, &line);
}

extern "C" fn alloc(bytes: usize, align: usize) -> *mut u8 {
    match Layout::from_size_align(bytes, align) {
        // SAFETY: a layout that is not empty.
        Ok(layout) if bytes > 0 => unsafe { std::alloc::alloc(layout) },
        _ => std::ptr::null_mut(),
    }
}

/// # Safety
/// Memory of [`alloc`] or of the program's allocator with this layout, which nothing uses.
unsafe extern "C" fn free(start: *mut u8, bytes: usize, align: usize) {
    if let (Ok(layout), false) = (Layout::from_size_align(bytes, align), start.is_null()) {
        // SAFETY: as the ried promises.
        unsafe { std::alloc::dealloc(start, layout) }
    }
}

/// # Safety
/// Each pointer is to that many readable bytes.
unsafe extern "C" fn failure(
    message: *const u8,
    message_len: usize,
    file: *const u8,
    file_len: usize,
    line: u32,
    column: u32,
) -> *mut Failure {
    // SAFETY: as the ried promises.
    let (message, file) = unsafe { (text(message, message_len), text(file, file_len)) };
    kept(Panicked { message, file, line, column })
}

/// # Safety
/// As for [`taken`].
unsafe extern "C" fn forgive(failure: *mut Failure) {
    // SAFETY: as the ried promises.
    drop(unsafe { taken(failure) });
}

/// # Safety
/// As for [`taken`]; the ried was called by injected code, and its frames own nothing.
unsafe extern "C" fn leave(failure: *mut Failure) -> ! {
    // SAFETY: as the ried promises.
    escape(unsafe { taken(failure) }.unwrap_or_default())
}

/// # Safety
/// As for [`taken`]; the ried was called by a Local Function or another ried.
unsafe extern "C-unwind" fn raise(failure: *mut Failure) -> ! {
    // SAFETY: as the ried promises.
    resume_unwind(Box::new(unsafe { taken(failure) }.unwrap_or_default()))
}

/// # Safety
/// `run` may be called with `data`, and panics only as this program does.
unsafe extern "C" fn call(
    run: unsafe extern "C-unwind" fn(data: *mut u8),
    data: *mut u8,
) -> *mut Failure {
    // Frames of the ried are below, which no escape may leave.
    // SAFETY: as the ried promises.
    match catch_unwind(AssertUnwindSafe(|| barrier(|| unsafe { run(data) }))) {
        Ok(()) => std::ptr::null_mut(),
        Err(payload) => kept(panicked_of(payload)),
    }
}

#[cfg(test)]
mod tests {
    use parking_lot::Mutex;

    use super::*;

    fn of(panicked: *mut Failure) -> Option<Panicked> {
        // SAFETY: of the table, and given back here.
        unsafe { taken(panicked) }
    }

    /// # Safety
    /// `data` is of one byte.
    unsafe extern "C-unwind" fn says(data: *mut u8) {
        // SAFETY: the test's number.
        let number = unsafe { &mut *data };
        *number += 1;
        assert!(*number < 3, "number {number}");
        if *number == 2 {
            resume_unwind(Box::new(Panicked {
                message: "two".into(),
                line: 2,
                ..Panicked::default()
            }))
        }
    }

    #[test]
    fn calls_give_back_panics() {
        let table = table(Arc::default(), 1);
        let mut number = 0;
        // SAFETY: the function takes this number.
        let mut call = || of(unsafe { (table.call)(says, &raw mut number) });
        assert_eq!(call(), None);
        assert_eq!(
            call().map(|panicked| (panicked.message, panicked.line)),
            Some(("two".into(), 2))
        );
        assert_eq!(call().map(|panicked| panicked.message), Some("number 3".into()));
        // SAFETY: texts of those lengths.
        let kept = of(unsafe { (table.failure)(b"no".as_ptr(), 2, b"a.rs".as_ptr(), 4, 7, 9) });
        let expected = Panicked { message: "no".into(), file: "a.rs".into(), line: 7, column: 9 };
        assert_eq!(kept, Some(expected));
    }

    #[test]
    fn log_and_memory_are_the_programs() {
        let log = Arc::new(LogSlot::default());
        let lines = Arc::new(Mutex::new(Vec::new()));
        let written = Arc::clone(&lines);
        log.set(move |sender, line| written.lock().push((sender, line.to_owned())));
        let table = table(log, 5);
        // SAFETY: text of three bytes.
        unsafe { (table.log)(table, b"one".as_ptr(), 3) };
        assert_eq!(*lines.lock(), [(5, "one".to_owned())]);
        // SAFETY: memory of this layout.
        unsafe {
            let memory = (table.alloc)(40, 64);
            assert!(!memory.is_null() && memory.addr().is_multiple_of(64));
            memory.write_bytes(1, 40);
            (table.free)(memory, 40, 64);
            assert!((table.alloc)(0, 8).is_null() && (table.alloc)(8, 3).is_null());
        }
    }
}
