//! [`Cq`]: a completion queue, where the device reports the end of work requests and wakes sleepers.

use std::ffi::{CStr, c_void};
use std::os::fd::{AsFd, BorrowedFd};
use std::ptr::{self, NonNull};
use std::sync::Arc;
use std::{fmt, io};

use ibverbs_sys as ffi;

use super::Device;
use super::device::{check, made};

/// Completions that one poll returns, at most.
pub(crate) const AT_ONCE: usize = 32;

/// The end of a work request.
#[derive(Debug)]
pub(crate) struct Completion {
    /// The number of the request. If it failed, only this and the queue pair are valid.
    pub(crate) id: u64,
    /// The number of the queue pair of this side.
    pub(crate) qp: u32,
    pub(crate) result: Result<Done, Failure>,
}

/// A work request that succeeded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Done {
    /// A request of this side, and with it all that were posted to its queue pair before.
    Sent,
    /// A message of this number of bytes has arrived in a receive of this side.
    Message(usize),
    /// A peer's write with this immediate data has arrived.
    Immediate(u32),
}

/// Why a work request failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Failure {
    /// The device reports a failure.
    Status { status: u32, vendor: u32, words: String },
    /// It succeeded as a kind of work that is never requested, with this code.
    Unexpected(u32),
}

impl Failure {
    /// Whether it failed only because an earlier one did.
    pub(crate) fn is_flushed(&self) -> bool {
        matches!(self, Self::Status { status: ffi::ibv_wc_status::IBV_WC_WR_FLUSH_ERR, .. })
    }

    /// The likely cause of `status`, where libibverbs' own text is not enough.
    fn meaning(status: u32) -> Option<&'static str> {
        use ffi::ibv_wc_status::*;
        Some(match status {
            IBV_WC_RETRY_EXC_ERR => {
                "the peer's device does not answer: its process or machine is gone, or the link is \
                 down"
            }
            IBV_WC_RNR_RETRY_EXC_ERR => "the peer posts no more receives",
            IBV_WC_REM_ACCESS_ERR => {
                "the peer's device refused the access: the region was revoked, or its remote key \
                 has changed"
            }
            IBV_WC_REM_INV_REQ_ERR => "the peer's device does not support the operation",
            IBV_WC_REM_OP_ERR => "the peer's device could not carry the operation out",
            IBV_WC_LOC_PROT_ERR => "this host's device refused access to this host's memory",
            IBV_WC_WR_FLUSH_ERR => "the queue pair was put into its error state",
            _ => return None,
        })
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (status, vendor, words) = match self {
            Failure::Status { status, vendor, words } => (status, vendor, words),
            Failure::Unexpected(code) => {
                return write!(
                    f,
                    "the device completed work of kind {code}, which was not requested"
                );
            }
        };
        write!(f, "{words} (status {status}, vendor code {vendor})")?;
        Self::meaning(*status).map_or(Ok(()), |meaning| write!(f, ": {meaning}"))
    }
}

/// A channel on which a completion queue wakes a sleeper, destroyed when dropped.
struct Channel(NonNull<ffi::ibv_comp_channel>);

impl Drop for Channel {
    fn drop(&mut self) {
        // SAFETY: made by `Cq::new`, destroyed only here, after the one queue that uses it.
        let _ = unsafe { ffi::ibv_destroy_comp_channel(self.0.as_ptr()) };
    }
}

/// A buffer for completions. It is always initialised, since drivers need not fill in every field, and
/// reused, since clearing it would be most of the cost of an empty poll.
#[derive(Default)]
pub(crate) struct Found([ffi::ibv_wc; AT_ONCE]);

/// Where completions are read: a [`Cq`], or a fake in tests.
pub(crate) trait Completions {
    /// Hands the next completions, at most [`AT_ONCE`], to `each`, through the buffer `found`; returns
    /// how many there were.
    ///
    /// # Errors
    /// If the device has failed for good.
    fn poll(&self, found: &mut Found, each: impl FnMut(Completion)) -> io::Result<usize>;
}

/// A completion queue with a channel of its own.
pub(crate) struct Cq {
    cq: NonNull<ffi::ibv_cq>,
    channel: Channel,
    device: Arc<Device>,
}

// SAFETY: libibverbs' completion queues and channels may be used from any thread, and from several
// at once.
unsafe impl Send for Cq {}
// SAFETY: as for Send.
unsafe impl Sync for Cq {}

impl Cq {
    /// A queue with room for `entries` completions.
    pub(crate) fn new(device: &Arc<Device>, entries: u32) -> io::Result<Arc<Cq>> {
        // SAFETY: the context is open, and is kept so by the `Device` in the result.
        let channel = Channel(made(unsafe { ffi::ibv_create_comp_channel(device.context()) })?);
        // SAFETY: the descriptor is the channel's, which lives on.
        let fd = unsafe { BorrowedFd::borrow_raw((*channel.0.as_ptr()).fd) };
        rustix::io::ioctl_fionbio(fd, true)?;
        let entries = i32::try_from(entries).map_err(io::Error::other)?;
        // SAFETY: context and channel are alive, and are kept so by the result.
        let cq = made(unsafe {
            let channel = channel.0.as_ptr();
            ffi::ibv_create_cq(device.context(), entries, ptr::null_mut(), channel, 0)
        })?;
        Ok(Arc::new(Cq { cq, channel, device: device.clone() }))
    }

    pub(super) fn cq(&self) -> *mut ffi::ibv_cq {
        self.cq.as_ptr()
    }

    pub(super) fn device(&self) -> &Arc<Device> {
        &self.device
    }

    /// Makes the next completion make the channel readable, once. Earlier completions do not: poll once
    /// more afterwards.
    pub(crate) fn arm(&self) -> io::Result<()> {
        // SAFETY: the queue is alive, and the function is its own.
        check(unsafe {
            let arm =
                (*(*self.cq()).context).ops.req_notify_cq.ok_or(io::ErrorKind::Unsupported)?;
            arm(self.cq(), 0)
        })
    }

    /// Clears the channel; returns whether it was readable.
    pub(crate) fn clear_channel(&self) -> bool {
        let mut any = false;
        let (mut cq, mut context) = (ptr::null_mut(), ptr::null_mut::<c_void>());
        // SAFETY: the channel is alive and does not block; every event is acknowledged, of the one
        // queue that uses it.
        unsafe {
            while ffi::ibv_get_cq_event(self.channel.0.as_ptr(), &mut cq, &mut context) == 0 {
                ffi::ibv_ack_cq_events(cq, 1);
                any = true;
            }
        }
        any
    }
}

impl Completions for Cq {
    fn poll(
        &self,
        Found(found): &mut Found,
        mut each: impl FnMut(Completion),
    ) -> io::Result<usize> {
        // SAFETY: the queue is alive; its own function fills in as many entries as it returns, at
        // most as many as there are.
        let count = unsafe {
            let poll = (*(*self.cq()).context).ops.poll_cq.ok_or(io::ErrorKind::Unsupported)?;
            poll(self.cq(), AT_ONCE as i32, found.as_mut_ptr())
        };
        let count = usize::try_from(count)
            .map_err(|_| io::Error::other("the device's completion queue cannot be read"))?;
        for entry in &found[..count] {
            each(Completion { id: entry.wr_id(), qp: entry.qp_num, result: result(entry) });
        }
        Ok(count)
    }
}

impl AsFd for Cq {
    /// The channel.
    fn as_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the descriptor is the channel's, which lives as long as `self`.
        unsafe { BorrowedFd::borrow_raw((*self.channel.0.as_ptr()).fd) }
    }
}

impl Drop for Cq {
    fn drop(&mut self) {
        // SAFETY: made by `new`, destroyed only here; queue pairs that use it keep it alive, and
        // every event was acknowledged.
        let _ = unsafe { ffi::ibv_destroy_cq(self.cq.as_ptr()) };
    }
}

fn result(entry: &ffi::ibv_wc) -> Result<Done, Failure> {
    if let Some((status, vendor)) = entry.error() {
        // SAFETY: the function returns a terminated text that lives for ever, whatever the status.
        let words = unsafe { CStr::from_ptr(ffi::ibv_wc_status_str(status)) };
        let words = words.to_string_lossy().into_owned();
        return Err(Failure::Status { status, vendor, words });
    }
    let is_immediate = (entry.wc_flags & ffi::ibv_wc_flags::IBV_WC_WITH_IMM).0 != 0;
    let word = is_immediate.then(|| u32::from_be(entry.imm_data));
    done(entry.opcode(), entry.len(), word)
}

/// The success of work of the kind `code`, with `len` bytes and this immediate data, if any.
fn done(code: u32, len: usize, word: Option<u32>) -> Result<Done, Failure> {
    use ffi::ibv_wc_opcode::*;
    match (code, word) {
        (IBV_WC_RECV, None) => Ok(Done::Message(len)),
        (IBV_WC_RECV | IBV_WC_RECV_RDMA_WITH_IMM, Some(word)) => Ok(Done::Immediate(word)),
        (
            IBV_WC_SEND | IBV_WC_RDMA_WRITE | IBV_WC_RDMA_READ | IBV_WC_COMP_SWAP
            | IBV_WC_FETCH_ADD,
            _,
        ) => Ok(Done::Sent),
        _ => Err(Failure::Unexpected(code)),
    }
}

#[cfg(test)]
mod tests {
    use ffi::ibv_wc_opcode::*;

    use super::*;

    #[test]
    fn unrequested_work_is_a_failure() {
        assert_eq!(done(IBV_WC_RECV, 32, None), Ok(Done::Message(32)));
        for code in [IBV_WC_RECV, IBV_WC_RECV_RDMA_WITH_IMM] {
            assert_eq!(done(code, 0, Some(7)), Ok(Done::Immediate(7)));
        }
        for code in [IBV_WC_SEND, IBV_WC_RDMA_WRITE, IBV_WC_RDMA_READ, IBV_WC_FETCH_ADD] {
            assert_eq!(done(code, 0, None), Ok(Done::Sent));
        }
        for code in [IBV_WC_BIND_MW, IBV_WC_TM_RECV, IBV_WC_DRIVER1, u32::MAX] {
            let failure = done(code, 32, Some(7)).expect_err("no kind of ours");
            assert_eq!(failure, Failure::Unexpected(code));
            assert!(!failure.is_flushed() && failure.to_string().contains(&code.to_string()));
        }
    }
}
