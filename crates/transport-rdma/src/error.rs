//! [`RdmaError`]: why a host cannot take its place among the others over RDMA.

use std::{io, time::Duration};
use thiserror::Error;
use transport_api::{HostId, LaneError, PeerEvent};

/// Why a host cannot take its place among the others over RDMA.
#[derive(Debug, Error)]
pub enum RdmaError {
    /// Settings that make no sense.
    #[error("the settings of the RDMA transport make no sense: {0}")]
    Settings(String),
    /// The machine has no RDMA device, or none that can be used.
    #[error(
        "no RDMA device to use: {0} (`ibv_devices` lists what the system has; a machine without \
         RDMA hardware can have Soft-RoCE: `rdma link add rxe0 type rxe netdev eth0`)"
    )]
    NoDevice(String),
    /// The device lacks something.
    #[error("RDMA device {device} cannot be used: {reason}")]
    Unfit {
        /// Its name.
        device: String,
        /// What it lacks.
        reason: String,
    },
    /// The device or the system refused something.
    #[error("RDMA device {device} refused to {what}: {source}{}", advice(source))]
    Refused {
        /// The device's name.
        device: String,
        /// What it was to do.
        what: &'static str,
        /// What it said.
        source: io::Error,
    },
    /// A host did not say in time how it can be reached.
    #[error("after {waited:?} these hosts are not ready for RDMA: {}", list(missing))]
    Missing {
        /// The hosts that are missing.
        missing: Vec<HostId>,
        /// The timeout that has passed.
        waited: Duration,
    },
    /// A host ended before all were ready.
    #[error("{0:?} before all hosts were ready for RDMA")]
    Gone(PeerEvent),
    /// A host said what no host of this build says.
    #[error("{0} said something that no host of this build says: {1}")]
    Nonsense(HostId, String),
    /// What joins the hosts otherwise has no lane left for this transport.
    #[error("the connections beneath RDMA have no room for it: {0}")]
    Carrier(#[from] LaneError),
    /// The system refused something that is not the device's.
    #[error("the system refused what RDMA needs: {0}")]
    System(#[from] io::Error),
}

/// What to do about a refusal, if that is known.
pub(crate) fn advice(error: &io::Error) -> &'static str {
    match error.raw_os_error() {
        // ENOMEM, which is also said when the limit of locked memory is reached.
        Some(12) => {
            "; memory that the device may reach is locked: raise the limit of locked memory \
             (`ulimit -l unlimited`, or LimitMEMLOCK=infinity for a service)"
        }
        // EACCES, EPERM
        Some(13 | 1) => "; may this user open /dev/infiniband/uverbs*?",
        _ => "",
    }
}

fn list(hosts: &[HostId]) -> String {
    hosts.iter().map(HostId::to_string).collect::<Vec<_>>().join(", ")
}
