//! What crosses from ried to program and back: calls, and panics, each as a [`Failure`] that the
//! program keeps.
//!
//! ```text
//!   jam --> export of the ried --> its body panics
//!                              <-- caught (here), kept by the program, out by escape or raise (there)
//!   body --> host_call --> HostTable::call --> the import panics
//!        <-- resumed (here)               <-- caught (there)
//! ```
//!
//! Two standard libraries cannot catch each other's panics, so no panic crosses.

use std::any::Any;
use std::cell::RefCell;
use std::mem::ManuallyDrop;
use std::panic::{AssertUnwindSafe, catch_unwind, panic_any, resume_unwind, set_hook};
use std::sync::atomic::Ordering;

use jam_abi::{Failure, RiedImport};

use crate::host::host;

/// A panic that the program keeps. As a payload, that of an imported function on its way through the
/// ried.
pub struct Kept(*mut Failure);

// SAFETY: the program keeps what it points to, for whichever thread has the pointer.
unsafe impl Send for Kept {}

impl Kept {
    pub(crate) fn into_raw(self) -> *mut Failure {
        ManuallyDrop::new(self).0
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        // SAFETY: the program keeps it, and nothing else refers to it.
        unsafe { (host().table().forgive)(self.0) }
    }
}

thread_local! {
    /// Where this thread has panicked last: file, line, column.
    static PLACE: RefCell<(String, u32, u32)> = const { RefCell::new((String::new(), 0, 0)) };
}

/// Has panics of the ried noted instead of printed: they are told to the one whose jam it was.
pub(crate) fn note_panics() {
    set_hook(Box::new(|info| {
        let place = info.location().map(|at| (at.file().to_owned(), at.line(), at.column()));
        let _ = PLACE.try_with(|noted| noted.replace(place.unwrap_or_default()));
    }));
}

/// A panic, kept by the program.
pub(crate) fn failure(message: &str, file: &str, line: u32, column: u32) -> Kept {
    let keep = host().table().failure;
    // SAFETY: texts of that many bytes.
    Kept(unsafe { keep(message.as_ptr(), message.len(), file.as_ptr(), file.len(), line, column) })
}

/// Runs the body of an export, and has its panic kept.
pub fn caught<R>(body: impl FnOnce() -> R) -> Result<R, Kept> {
    catch_unwind(AssertUnwindSafe(body)).map_err(|payload| {
        // Whatever is dropped here may panic again.
        catch_unwind(AssertUnwindSafe(|| of_payload(payload))).unwrap_or_else(|second| {
            std::mem::forget(second);
            failure("a panic whose payload panicked when it was dropped", "", 0, 0)
        })
    })
}

#[cold]
fn of_payload(payload: Box<dyn Any + Send>) -> Kept {
    let payload = match payload.downcast::<Kept>() {
        Ok(imported) => return *imported,
        Err(payload) => payload,
    };
    let (file, line, column) = PLACE.try_with(RefCell::take).unwrap_or_default();
    let message = match payload.downcast_ref::<&str>() {
        Some(message) => message,
        None => payload.downcast_ref::<String>().map_or("a panic without a message", |m| m),
    };
    failure(message, &file, line, column)
}

/// Leaves the jam that called an export.
pub fn escape(kept: Kept) -> ! {
    let escape = host().table().escape;
    // SAFETY: a panic that the program keeps. Between here and the jam are this function and the
    // export's, which own nothing any more.
    unsafe { escape(kept.into_raw()) }
}

/// Panics in the caller of an export, as its program does.
pub fn raise(kept: Kept) -> ! {
    let raise = host().table().raise;
    // SAFETY: a panic that the program keeps.
    unsafe { raise(kept.into_raw()) }
}

/// The function in the slot of an import.
///
/// # Panics
/// If it is empty, since no program has loaded the ried.
pub fn imported(import: &RiedImport) -> *mut () {
    let address = import.address.load(Ordering::Acquire);
    assert!(!address.is_null(), "an import of a ried is called where no program has loaded it");
    address
}

/// Calls a function of the program; its panic continues as one of the ried.
pub fn host_call<R>(function: impl FnOnce() -> R) -> R {
    struct Job<F, R> {
        function: Option<F>,
        result: Option<R>,
    }

    /// # Safety
    /// `data` is a job of these types, which nothing else uses.
    unsafe extern "C-unwind" fn run<F: FnOnce() -> R, R>(data: *mut u8) {
        // SAFETY: as the caller promises.
        let job = unsafe { &mut *data.cast::<Job<F, R>>() };
        job.result = job.function.take().map(|function| function());
    }

    fn of<F: FnOnce() -> R, R>(_: &Job<F, R>) -> unsafe extern "C-unwind" fn(*mut u8) {
        run::<F, R>
    }

    let mut job = Job { function: Some(function), result: None };
    let run = of(&job);
    // SAFETY: `run` is for this job, which outlives the call.
    let failure = unsafe { (host().table().call)(run, (&raw mut job).cast()) };
    if !failure.is_null() {
        resume_unwind(Box::new(Kept(failure)));
    }
    job.result.unwrap_or_else(|| panic_any("a function of the program did not return"))
}

#[cfg(test)]
pub(crate) mod tests {
    use jam_abi::HostTable;

    use super::*;

    /// A panic as a test sees it: message, file, line.
    pub(crate) type Seen = (String, String, u32);

    /// What a program would have.
    pub(crate) static HOST: HostTable = HostTable {
        version: jam_abi::RIED_VERSION,
        reserved: 0,
        receiver: std::ptr::null(),
        log,
        alloc,
        free,
        failure: keep,
        forgive,
        escape: leave,
        raise: throw,
        call,
    };

    extern "C" fn log(_: *const HostTable, _: *const u8, _: usize) {}

    extern "C" fn alloc(_: usize, _: usize) -> *mut u8 {
        std::ptr::null_mut()
    }

    extern "C" fn free(_: *mut u8, _: usize, _: usize) {}

    /// # Safety
    /// Text of that many bytes.
    #[allow(clippy::disallowed_methods, reason = "text of the test")]
    unsafe fn text(start: *const u8, len: usize) -> String {
        // SAFETY: as the caller promises.
        String::from_utf8_lossy(unsafe { std::slice::from_raw_parts(start, len) }).into_owned()
    }

    /// # Safety
    /// Texts of those many bytes.
    unsafe extern "C" fn keep(
        message: *const u8,
        message_len: usize,
        file: *const u8,
        file_len: usize,
        line: u32,
        _: u32,
    ) -> *mut Failure {
        // SAFETY: as the caller promises.
        let seen: Seen = unsafe { (text(message, message_len), text(file, file_len), line) };
        Box::into_raw(Box::new(seen)).cast()
    }

    /// # Safety
    /// Of `keep`.
    unsafe extern "C" fn forgive(failure: *mut Failure) {
        // SAFETY: as the caller promises.
        drop(unsafe { Box::from_raw(failure.cast::<Seen>()) });
    }

    extern "C" fn leave(_: *mut Failure) -> ! {
        std::process::abort()
    }

    /// # Safety
    /// Of `keep`.
    unsafe extern "C-unwind" fn throw(failure: *mut Failure) -> ! {
        // SAFETY: as the caller promises.
        resume_unwind(unsafe { Box::from_raw(failure.cast::<Seen>()) })
    }

    /// # Safety
    /// `run` may be called with `data`.
    unsafe extern "C" fn call(
        run: unsafe extern "C-unwind" fn(*mut u8),
        data: *mut u8,
    ) -> *mut Failure {
        // SAFETY: as the caller promises.
        match catch_unwind(AssertUnwindSafe(|| unsafe { run(data) })) {
            Ok(()) => std::ptr::null_mut(),
            Err(payload) => {
                let message = payload.downcast_ref::<String>().expect("a formatted message");
                Box::into_raw(Box::<Seen>::new((message.clone(), String::new(), 0))).cast()
            }
        }
    }

    pub(crate) fn fill(import: &RiedImport, address: *const ()) {
        import.address.store(address.cast_mut(), Ordering::Release);
    }

    /// What a call of an export has raised.
    pub(crate) fn taken<R>(call: impl FnOnce() -> R) -> Result<R, Seen> {
        catch_unwind(AssertUnwindSafe(call))
            .map_err(|payload| *payload.downcast::<Seen>().expect("raised by the host"))
    }
}
