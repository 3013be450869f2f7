//! How a ried starts in a program.

use jam_abi::{Failure, HostTable, RIED_STARTED, RIED_VERSION};

use crate::border::{caught, failure, note_panics};
use crate::host::{self, Host};

/// Starts the ried: what its interface has as `start`.
///
/// # Safety
/// `table` is a receiver's, which outlives the ried.
pub unsafe fn start(
    table: *const HostTable,
    begin: impl FnOnce(&Host) -> Result<(), String>,
) -> *mut Failure {
    // SAFETY: as the caller promises; the fields of the first version are in every one.
    let table: &'static HostTable = unsafe { &*table };
    let host = host::set(table);
    let failure = |message: &str| failure(message, "", 0, 0).into_raw();
    if table.version < RIED_VERSION {
        let message = format!(
            "the ried needs version {RIED_VERSION} of the receiver's functions, this one has {}: \
             build both with the same release",
            table.version
        );
        return failure(&message);
    }
    note_panics();
    match caught(|| begin(&host)) {
        Ok(Ok(())) => RIED_STARTED,
        Ok(Err(message)) => failure(&message),
        Err(kept) => kept.into_raw(),
    }
}
