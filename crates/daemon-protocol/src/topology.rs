//! [`Topology`]: the hardware of a host, as its daemon reports it.

use serde::{Deserialize, Serialize};

/// The hardware of a host.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Topology {
    /// The model of its processors.
    pub processor: String,
    /// Processors that the system schedules on.
    pub cpus: u32,
    /// Cores, each with one processor or more.
    pub cores: u32,
    /// Bytes of memory.
    pub memory_bytes: u64,
    /// Bytes of memory available to programs now.
    pub available_bytes: u64,
    /// The NUMA nodes.
    pub nodes: Vec<Node>,
    /// The kinds of caches.
    pub caches: Vec<Cache>,
    /// The RDMA devices.
    pub rdma: Vec<RdmaPort>,
}

/// A NUMA node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Node {
    /// Its number.
    pub number: u32,
    /// Its processors, as the kernel lists them: `0-3,8-11`.
    pub cpus: String,
    /// Bytes of memory.
    pub memory_bytes: u64,
}

/// Caches of one kind.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Cache {
    /// Its level, from 1.
    pub level: u32,
    /// `Data`, `Instruction` or `Unified`.
    pub kind: String,
    /// Bytes of each.
    pub bytes: u64,
    /// How many there are.
    pub count: u32,
}

/// A port of an RDMA device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RdmaPort {
    /// The device.
    pub device: String,
    /// The port's number on the device.
    pub port: u32,
    /// Its state in the kernel's words: `ACTIVE`, `DOWN`.
    pub state: String,
    /// `Ethernet` or `InfiniBand`.
    pub link: String,
    /// Its rate in the kernel's words: `100 Gb/sec (4X EDR)`.
    pub rate: String,
}
