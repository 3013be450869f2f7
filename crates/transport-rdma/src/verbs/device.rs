//! [`Device`]: an opened RDMA device and its port.

use std::ffi::CStr;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::ptr::{self, NonNull};
use std::sync::Arc;
use std::{io, mem};

use ibverbs_sys as ffi;
use primitive::sync::{AtomicU32, Ordering};

use super::posted::{PostCounters, Posted};

/// GIDs of a port that are considered, at most.
const GIDS: usize = 256;

/// An address of a port (a GID).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Gid {
    pub(crate) index: u8,
    pub(crate) bytes: [u8; 16],
    /// Whether packets from it are those of RoCE version 2, that is UDP.
    pub(crate) is_routable: bool,
    /// Whether it is an address of an InfiniBand port.
    pub(crate) is_infiniband: bool,
}

impl Gid {
    /// Its IP address; meaningless on InfiniBand.
    pub(crate) fn address(&self) -> IpAddr {
        let address = Ipv6Addr::from(self.bytes);
        address.to_ipv4_mapped().map_or(IpAddr::V6(address), IpAddr::V4)
    }

    /// Whether hosts beyond the link can reach it.
    pub(crate) fn is_global(&self) -> bool {
        match self.address() {
            IpAddr::V4(address) => address != Ipv4Addr::UNSPECIFIED,
            IpAddr::V6(address) => !address.is_unicast_link_local() && !address.is_unspecified(),
        }
    }
}

/// The capabilities of a device that matter here.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Capabilities {
    /// Entries of a completion queue.
    pub(crate) max_completions: u32,
    /// Work requests of a send queue.
    pub(crate) max_work_requests: u32,
    /// READs and atomics that one queue pair may have in flight: those that it starts, and those that
    /// it serves.
    pub(crate) initiator_depth: u8,
    pub(crate) responder_resources: u8,
    pub(crate) has_atomics: bool,
}

/// The state of a port.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Port {
    pub(crate) is_active: bool,
    /// The code of the largest packet: 1 is 256 bytes, each further one twice as much.
    pub(crate) mtu: u8,
    /// The address in an InfiniBand subnet.
    pub(crate) lid: u16,
}

/// An opened device.
pub(crate) struct Device {
    context: NonNull<ffi::ibv_context>,
    name: String,
    /// Queue pairs of it that exist.
    pub(super) queue_pairs: AtomicU32,
    pub(super) post_counters: PostCounters,
}

// SAFETY: libibverbs' contexts may be used from any thread, and from several at once.
unsafe impl Send for Device {}
// SAFETY: as for Send.
unsafe impl Sync for Device {}

impl Drop for Device {
    fn drop(&mut self) {
        // SAFETY: opened by `open`, closed only here; everything made from it keeps it alive.
        // A failure would leak a file descriptor.
        let _ = unsafe { ffi::ibv_close_device(self.context.as_ptr()) };
    }
}

/// The result of a function of libibverbs that returns an error number.
pub(super) fn check(code: i32) -> io::Result<()> {
    match code {
        0 => Ok(()),
        _ => Err(io::Error::from_raw_os_error(code.abs())),
    }
}

/// The result of a function of libibverbs that returns a pointer, or null and `errno`.
pub(super) fn made<T>(pointer: *mut T) -> io::Result<NonNull<T>> {
    NonNull::new(pointer).ok_or_else(io::Error::last_os_error)
}

/// The list of devices, freed when dropped.
struct List {
    first: NonNull<*mut ffi::ibv_device>,
    count: usize,
}

impl List {
    fn new() -> io::Result<List> {
        let mut count = 0;
        // SAFETY: the list that is returned has as many entries as it says in `count`.
        let first = made(unsafe { ffi::ibv_get_device_list(&mut count) })?;
        Ok(List { first, count: usize::try_from(count).unwrap_or(0) })
    }

    fn devices(&self) -> impl Iterator<Item = (*mut ffi::ibv_device, String)> {
        (0..self.count).map(|index| {
            // SAFETY: inside the list, whose entries are valid until it is freed; names are
            // terminated.
            unsafe {
                let device = *self.first.as_ptr().add(index);
                let name = CStr::from_ptr(ffi::ibv_get_device_name(device));
                (device, name.to_string_lossy().into_owned())
            }
        })
    }
}

impl Drop for List {
    fn drop(&mut self) {
        // SAFETY: made by `ibv_get_device_list`, freed once.
        unsafe { ffi::ibv_free_device_list(self.first.as_ptr()) }
    }
}

impl Device {
    /// The names of the devices of this machine.
    pub(crate) fn names() -> io::Result<Vec<String>> {
        Ok(List::new()?.devices().map(|(_, name)| name).collect())
    }

    /// Opens the device called `name`.
    pub(crate) fn open(name: &str) -> io::Result<Arc<Device>> {
        let list = List::new()?;
        let found = list.devices().find(|(_, candidate)| candidate == name);
        let (device, name) = found.ok_or(io::ErrorKind::NotFound)?;
        // SAFETY: the device is an entry of a list that has not been freed.
        let context = made(unsafe { ffi::ibv_open_device(device) })?;
        let (queue_pairs, post_counters) = (AtomicU32::new(0), PostCounters::default());
        Ok(Arc::new(Device { context, name, queue_pairs, post_counters }))
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Queue pairs that exist of this opened device.
    pub(crate) fn queue_pairs(&self) -> u32 {
        self.queue_pairs.load(Ordering::Relaxed)
    }

    /// What the queue pairs of this opened device have posted.
    pub(crate) fn posted(&self) -> Posted {
        self.post_counters.sum()
    }

    pub(super) fn context(&self) -> *mut ffi::ibv_context {
        self.context.as_ptr()
    }

    /// Its capabilities.
    pub(crate) fn capabilities(&self) -> io::Result<Capabilities> {
        let mut attributes = ffi::ibv_device_attr::default();
        // SAFETY: the context is open, and `attributes` is a whole description to be filled in.
        check(unsafe { ffi::ibv_query_device(self.context(), &mut attributes) })?;
        let small = |count: i32| u8::try_from(count.clamp(0, 255)).unwrap_or(0);
        let large = |count: i32| u32::try_from(count).unwrap_or(0);
        Ok(Capabilities {
            max_completions: large(attributes.max_cqe),
            max_work_requests: large(attributes.max_qp_wr),
            initiator_depth: small(attributes.max_qp_init_rd_atom),
            responder_resources: small(attributes.max_qp_rd_atom),
            has_atomics: attributes.atomic_cap != ffi::IBV_ATOMIC_NONE,
        })
    }

    /// The state of its port number `port`.
    pub(crate) fn port(&self, port: u8) -> io::Result<Port> {
        let mut attributes = ffi::ibv_port_attr::default();
        // SAFETY: the context is open; the function fills in the beginning of the description,
        // which is what the cast says.
        check(unsafe { ffi::ibv_query_port(self.context(), port, (&raw mut attributes).cast()) })?;
        Ok(Port {
            is_active: attributes.state == ffi::ibv_port_state::IBV_PORT_ACTIVE,
            mtu: u8::try_from(attributes.active_mtu).unwrap_or(1),
            lid: attributes.lid,
        })
    }

    /// The addresses of its port number `port`.
    pub(crate) fn gids(&self, port: u8) -> io::Result<Vec<Gid>> {
        let mut entries = vec![ffi::ibv_gid_entry::default(); GIDS];
        let size = mem::size_of::<ffi::ibv_gid_entry>();
        // SAFETY: there are `GIDS` entries of `size` bytes to be filled in.
        let count = unsafe {
            ffi::_ibv_query_gid_table(self.context(), entries.as_mut_ptr(), GIDS, 0, size)
        };
        let count = usize::try_from(count).map_err(|_| {
            io::Error::from_raw_os_error(i32::try_from(count.unsigned_abs()).unwrap_or(i32::MAX))
        })?;
        let of_port = entries[..count].iter().filter(|entry| entry.port_num == u32::from(port));
        let gids = of_port.filter_map(|entry| {
            Some(Gid {
                index: u8::try_from(entry.gid_index).ok()?,
                // SAFETY: both variants of the union are sixteen plain bytes.
                bytes: unsafe { entry.gid.raw },
                is_routable: entry.gid_type == ffi::IBV_GID_TYPE_ROCE_V2,
                is_infiniband: entry.gid_type == ffi::IBV_GID_TYPE_IB,
            })
        });
        Ok(gids.collect())
    }

    /// Whether two handles are of one opened device.
    pub(super) fn is(&self, other: &Device) -> bool {
        ptr::eq(self, other)
    }
}
