//! [`RdmaError`]: why a host cannot join the others over RDMA.

use std::io;
use std::time::Duration;

use thiserror::Error;
use transport_api::{HostId, LaneError, PeerEvent};

/// Why a host cannot join the others over RDMA.
#[derive(Debug, Error)]
pub enum RdmaError {
    /// A setting is invalid.
    #[error("invalid RDMA setting: {0}")]
    Config(String),
    /// The machine has no RDMA device, or none that can be used.
    #[error(
        "{0} (`ibv_devices` lists the devices of a machine; without RDMA hardware, add Soft-RoCE: \
         `rdma link add rxe0 type rxe netdev eth0`)"
    )]
    NoDevice(String),
    /// The device lacks something.
    #[error("RDMA device {device} is not suitable: {reason}")]
    Unsuitable {
        /// Its name.
        device: String,
        /// What it lacks.
        reason: String,
    },
    /// The device or the system refused an operation.
    #[error("RDMA device {device} cannot {operation}{}", advice(source))]
    Refused {
        /// The device's name.
        device: String,
        /// What it was asked to do.
        operation: &'static str,
        /// What the system returned.
        source: io::Error,
    },
    /// Some hosts did not connect in time.
    #[error("not ready for RDMA after {waited:?}: {}", list(missing))]
    Missing {
        /// The hosts that are missing.
        missing: Vec<HostId>,
        /// The timeout that has passed.
        waited: Duration,
    },
    /// A host ended before all were ready.
    #[error("{} ended before all hosts were ready for RDMA: {}", host(.0), .0.reason())]
    Gone(PeerEvent),
    /// A host violated the protocol.
    #[error("{0} violated the RDMA protocol: {1}")]
    Protocol(HostId, String),
    /// The carrier has no lane left for this transport.
    #[error("the carrier of the RDMA transport cannot open a lane")]
    Carrier(#[from] LaneError),
    /// The system refused something that is not the device's.
    #[error("the system refused what the RDMA transport needs")]
    System(#[from] io::Error),
}

/// What to do about a refusal, if that is known.
pub(crate) fn advice(error: &io::Error) -> &'static str {
    match error.raw_os_error() {
        // ENOMEM, which the kernel also returns at the limit of locked memory.
        Some(12) => {
            "; registered memory is locked: raise the limit of locked memory (`ulimit -l \
             unlimited`, or LimitMEMLOCK=infinity for a service)"
        }
        // EACCES, EPERM
        Some(13 | 1) => "; check that this user may open /dev/infiniband/uverbs*",
        _ => "",
    }
}

/// The host that an event is about.
fn host(event: &PeerEvent) -> HostId {
    let (PeerEvent::Lost(host, _) | PeerEvent::Left(host)) = event;
    *host
}

fn list(hosts: &[HostId]) -> String {
    hosts.iter().map(HostId::to_string).collect::<Vec<_>>().join(", ")
}
