//! [`SleepFlags`]: which threads of the other hosts sleep, so that only those are woken.
//!
//! Waking a thread uses up a receive of its queue pair and costs it a completion, which delays small
//! requests (`docs/decisions/0024-sleep-flags.md`). A thread that polls needs neither. So each thread
//! has a flag in the memory of every other host, which its own device writes when it goes to sleep
//! and when it wakes. A writer whose target seems awake remembers the target, and checks its flag
//! again:
//!
//! ```text
//!   writer                                    target
//!   writes                                    flag: asleep
//!   asleep? then wakes it; else remembers it  polls once more
//!   at each poll: asleep? then wakes it       sleeps
//!   before it sleeps: wakes all remembered
//! ```
//!
//! If the target's last poll came too early for the write, its flag was on its way before, and the
//! writer sees it at a later poll. A poll checks the flag of one remembered thread and the next poll
//! that of the next, so the number of them does not matter. For a writer that does not poll, the
//! service thread checks all; a sleeping writer remembers none. `control::progress` does all that.

use std::io;
use std::sync::{Arc, OnceLock};

use primitive::sync::Ordering;
use rdma_protocol::MemoryDescriptor;
use transport_api::{HostId, Rights, ThreadId};

use crate::memory::pool::Memory;
use crate::memory::remote::RemoteMemory;
use crate::verbs::{Mr, Pd};

/// Bytes of a flag.
const FLAG: usize = 8;

/// What a peer may do to its flags. Fences read one:
/// [`Connection::fence`](crate::qp::connection::Connection::fence).
fn rights() -> Rights {
    Rights::READ | Rights::WRITE
}

/// The flags of the threads of other hosts, and where the flags of this host's threads are.
pub(crate) struct SleepFlags {
    /// By host: a flag for each of its threads, not zero while it sleeps. Each host's flags are
    /// registered on their own, so that a peer learns the key of no other's.
    flags: Vec<Mr>,
    /// By host: where its memory has the flags of this host's threads.
    own: Vec<OnceLock<Arc<RemoteMemory>>>,
}

impl SleepFlags {
    /// For `hosts` hosts with `threads` threads each, all of which are awake.
    pub(crate) fn new(
        pd: &Arc<Pd>,
        memory: &Memory,
        hosts: usize,
        threads: u32,
    ) -> io::Result<Self> {
        let len = threads as usize * FLAG;
        let all = memory.take(hosts * len)?;
        let flags = |host| Mr::new(pd, &all.slice(host * len, len), rights());
        let flags = (0..hosts).map(flags).collect::<Result<_, _>>()?;
        Ok(Self { flags, own: (0..hosts).map(|_| OnceLock::new()).collect() })
    }

    /// The memory to which the threads of `peer` write their flags.
    pub(crate) fn descriptor(&self, peer: HostId) -> MemoryDescriptor {
        self.flags[peer.0 as usize].describe(rights())
    }

    /// This host's threads write their flags for `peer` to the memory that `flags` describes.
    pub(crate) fn connect(&self, peer: HostId, flags: &MemoryDescriptor) {
        let remote = RemoteMemory::permanent(flags.address, flags.remote_key);
        // A peer sends one hello.
        let _ = self.own[peer.0 as usize].set(Arc::new(remote));
    }

    /// What is wrong with the memory that a peer offers for the flags of `threads` threads, in words.
    pub(crate) fn invalid(flags: &MemoryDescriptor, threads: usize) -> Option<String> {
        let fits =
            flags.len == (threads * FLAG) as u64 && flags.address.is_multiple_of(FLAG as u64);
        let is_valid = fits && flags.rights.allow(rights());
        (!is_valid).then(|| format!("{flags:?} for the sleep flags of {threads} threads"))
    }

    /// Whether `thread` of another host sleeps, as far as is known.
    pub(crate) fn is_asleep(&self, thread: ThreadId) -> bool {
        let flags = self.flags[thread.host.0 as usize].memory();
        flags.load(thread.thread as usize * FLAG, Ordering::Acquire) != 0
    }

    /// Where the flag of this host's `thread` is for `peer`: the memory, and the byte in it. None
    /// before [`connect`](Self::connect).
    pub(crate) fn own(&self, peer: HostId, thread: u32) -> Option<(&Arc<RemoteMemory>, usize)> {
        Some((self.own[peer.0 as usize].get()?, thread as usize * FLAG))
    }
}
