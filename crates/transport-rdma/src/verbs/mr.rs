//! [`Mr`]: memory that the device may access, and what peers may do to it.

use std::ptr::NonNull;
use std::sync::Arc;
use std::{io, mem};

use ibverbs_sys as ffi;
use primitive::SharedBytes;
use rdma_protocol::MemoryDescriptor;
use transport_api::Rights;

use super::Pd;
use super::device::made;

/// Registered memory, or a part of it. The registration ends when all parts are dropped, before the
/// memory can go.
pub(crate) struct Mr {
    registration: Arc<Registration>,
    /// Inside the memory that is registered.
    memory: SharedBytes,
}

/// Memory for as long as it is registered.
struct Registration {
    mr: NonNull<ffi::ibv_mr>,
    memory: SharedBytes,
    pd: Arc<Pd>,
}

// SAFETY: libibverbs' memory regions may be used from any thread, and from several at once.
unsafe impl Send for Registration {}
// SAFETY: as for Send.
unsafe impl Sync for Registration {}

impl Mr {
    /// Registers `memory`, to which no reference exists, since it is `SharedBytes`. This host's queue
    /// pairs may read and write it, peers may do what `rights` say. Never with relaxed ordering: a
    /// reader that sees a signal must see what was written before it.
    pub(crate) fn new(pd: &Arc<Pd>, memory: &SharedBytes, rights: Rights) -> io::Result<Mr> {
        let mut access = ffi::ibv_access_flags::IBV_ACCESS_LOCAL_WRITE;
        let remote = [
            (Rights::READ, ffi::ibv_access_flags::IBV_ACCESS_REMOTE_READ),
            (Rights::WRITE, ffi::ibv_access_flags::IBV_ACCESS_REMOTE_WRITE),
            (Rights::ATOMIC, ffi::ibv_access_flags::IBV_ACCESS_REMOTE_ATOMIC),
        ];
        for (_, flag) in remote.into_iter().filter(|(right, _)| rights.allow(*right)) {
            access |= flag;
        }
        let (start, len) = (memory.address().as_ptr().cast(), memory.len());
        let access = i32::try_from(access.0).map_err(io::Error::other)?;
        // SAFETY: the run is mapped, and stays so as long as the clone of `memory` in the result,
        // which outlives the registration; the device's accesses are what `SharedBytes` allows for.
        let mr = made(unsafe { ffi::ibv_reg_mr(pd.pd(), start, len, access) })?;
        let registration = Registration { mr, memory: memory.clone(), pd: pd.clone() };
        Ok(Mr { registration: Arc::new(registration), memory: memory.clone() })
    }

    /// `len` bytes of it from byte `at` on, a multiple of eight.
    ///
    /// # Panics
    /// If they are not inside, or begin elsewhere.
    pub(crate) fn part(&self, at: usize, len: usize) -> Mr {
        let registration = self.registration.clone();
        Mr { registration, memory: self.memory.slice(at, len) }
    }

    /// The memory.
    pub(crate) fn memory(&self) -> &SharedBytes {
        &self.memory
    }

    /// All of it, on which the peer that gets the description has `rights`.
    pub(crate) fn describe(&self, rights: Rights) -> MemoryDescriptor {
        let (len, address) = (self.memory.len() as u64, self.address());
        MemoryDescriptor { rights, len, address, remote_key: self.remote_key() }
    }

    /// Its address, as peers name it.
    pub(crate) fn address(&self) -> u64 {
        self.memory.address().as_ptr().addr() as u64
    }

    /// The remote key, which peers need to access it.
    pub(crate) fn remote_key(&self) -> u32 {
        // SAFETY: registered until `self` is dropped; the key never changes.
        unsafe { (*self.registration.mr.as_ptr()).rkey }
    }

    pub(super) fn local_key(&self) -> u32 {
        // SAFETY: as for `remote_key`.
        unsafe { (*self.registration.mr.as_ptr()).lkey }
    }

    pub(super) fn pd(&self) -> &Arc<Pd> {
        &self.registration.pd
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        // SAFETY: registered by `new`, deregistered only here.
        let code = unsafe { ffi::ibv_dereg_mr(self.mr.as_ptr()) };
        if code != 0 {
            // The device may still reach the memory, which must therefore never be used again.
            mem::forget(self.memory.clone());
            tracing::error!(code, "cannot deregister memory; it is kept for good");
        }
    }
}
