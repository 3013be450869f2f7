//! [`Pd`]: a protection domain, within which queue pairs access registered memory.

use std::io;
use std::ptr::NonNull;
use std::sync::Arc;

use ibverbs_sys as ffi;

use super::device::{Device, made};

/// A protection domain.
pub(crate) struct Pd {
    pd: NonNull<ffi::ibv_pd>,
    device: Arc<Device>,
}

// SAFETY: libibverbs' protection domains may be used from any thread, and from several at once.
unsafe impl Send for Pd {}
// SAFETY: as for Send.
unsafe impl Sync for Pd {}

impl Pd {
    /// A new domain of `device`.
    pub(crate) fn new(device: &Arc<Device>) -> io::Result<Arc<Pd>> {
        // SAFETY: the context is open, and is kept so by the `Device` in the result.
        let pd = made(unsafe { ffi::ibv_alloc_pd(device.context()) })?;
        Ok(Arc::new(Pd { pd, device: device.clone() }))
    }

    /// The device that it is a domain of.
    pub(crate) fn device(&self) -> &Arc<Device> {
        &self.device
    }

    pub(super) fn pd(&self) -> *mut ffi::ibv_pd {
        self.pd.as_ptr()
    }
}

impl Drop for Pd {
    fn drop(&mut self) {
        // SAFETY: made by `new`, freed only here; memory and queue pairs of it keep it alive.
        let _ = unsafe { ffi::ibv_dealloc_pd(self.pd.as_ptr()) };
    }
}
