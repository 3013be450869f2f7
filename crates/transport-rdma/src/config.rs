//! [`RdmaConfig`]: which device, and how patient and how large its queue pairs are.

use crate::{
    qp::payloads::BLOCKS,
    qp::send_queue::{LEAST_DEPTH, PART},
};
use std::{net::IpAddr, time::Duration};

/// Settings of the transport. [`RdmaConfig::default`] serves on a lossless network.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RdmaConfig {
    /// The name of the device, as `ibv_devices` shows it. If not set, the one that has the address
    /// [`near`](Self::near), or else the only one with an active port.
    pub device: Option<String>,
    /// The port of the device. Ports count from 1.
    pub port: u8,
    /// Which of the port's addresses (GIDs) to send from, as an index of the port's table. If not
    /// set, the one that is [`near`](Self::near), or else the first that packets of RoCE version 2
    /// can be routed to, IPv4 first.
    pub gid_index: Option<u8>,
    /// The address of this host at which the others know it already. Where an RDMA device has that
    /// address, it is the one to use.
    pub near: Option<IpAddr>,
    /// A packet that is not acknowledged within 4.096 microseconds times two to the power of this
    /// is sent again: 14 is 67 milliseconds. At least 1 and at most 31; devices may wait up to four
    /// times as long.
    pub timeout_exponent: u8,
    /// How often a packet is sent again before the peer counts as lost, at most 7. With the timeout
    /// this bounds how long a dead peer stays unnoticed by whoever writes to it:
    /// [`timeout`](Self::timeout).
    pub retries: u8,
    /// How long a peer that has no receive ready has the other side wait before it tries again, as
    /// the code of the verbs' specification: 1 is 10 microseconds, 12 is 640, 31 is 491
    /// milliseconds.
    pub wait_code: u8,
    /// Work requests that one lane may have under way before it holds further ones back.
    pub depth: u32,
    /// Bytes that a work request carries in itself, if the device can: up to that many need not be
    /// fetched from memory.
    pub inline_bytes: u32,
    /// Bytes of registered memory through which one lane sends and receives. Every thread has as
    /// much for every remote host, and it is pinned.
    pub staging_bytes: usize,
    /// Whether payloads that have no room in a slot are read by the peer's device, from memory that
    /// is registered for that: each lane has twice its [`staging_bytes`](Self::staging_bytes) of it.
    /// What is read there is not encrypted. Otherwise they go over the carrier, encrypted if that
    /// is.
    pub reads_payloads: bool,
    /// How long the other hosts may take to be ready.
    pub join_timeout: Duration,
}

impl Default for RdmaConfig {
    fn default() -> Self {
        Self {
            device: None,
            port: 1,
            gid_index: None,
            near: None,
            timeout_exponent: 14,
            retries: 6,
            wait_code: 12,
            depth: 256,
            inline_bytes: 256,
            staging_bytes: 256 << 10,
            reads_payloads: true,
            join_timeout: Duration::from_secs(20),
        }
    }
}

impl RdmaConfig {
    /// How long a device tries to reach a peer that does not answer, as far as the settings say.
    ///
    /// ```
    /// use gossamer_transport_rdma::RdmaConfig;
    /// let timeout = RdmaConfig::default().timeout();
    /// assert!((469..470).contains(&timeout.as_millis()));
    /// ```
    pub fn timeout(&self) -> Duration {
        let timeout = Duration::from_nanos(4096 << self.timeout_exponent.min(31));
        timeout * (u32::from(self.retries) + 1)
    }

    /// Bytes that one work request sends or reads, at most.
    pub(crate) fn most(&self) -> usize {
        self.staging_bytes / PART
    }

    /// Bytes of memory from which the payloads of one lane are read.
    pub(crate) fn payload_bytes(&self) -> usize {
        if self.reads_payloads { self.most() * BLOCKS } else { 0 }
    }

    /// What is wrong with the settings, in words.
    pub(crate) fn objection(&self) -> Option<String> {
        let Self { port, timeout_exponent, retries, wait_code, depth, staging_bytes, .. } = *self;
        if port == 0 {
            return Some("ports count from 1".into());
        }
        if !(1..=31).contains(&timeout_exponent) {
            return Some(format!("the timeout's exponent is 1 to 31, not {timeout_exponent}"));
        }
        if retries > 7 || wait_code > 31 {
            return Some(format!(
                "there are up to 7 retries and codes up to 31 to wait, not {retries} and {wait_code}"
            ));
        }
        if (depth as usize) < LEAST_DEPTH {
            return Some(format!("a lane has at least {LEAST_DEPTH} work requests, not {depth}"));
        }
        let is_size =
            staging_bytes.is_multiple_of(4096) && (4096..=(1 << 30)).contains(&staging_bytes);
        (!is_size).then(|| {
            format!("staging memory is of whole pages, up to 1 GiB, not {staging_bytes} bytes")
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_that_make_no_sense_are_named() {
        let refused = |change: fn(&mut RdmaConfig)| {
            let mut config = RdmaConfig::default();
            change(&mut config);
            config.objection().expect("an objection")
        };
        assert_eq!(RdmaConfig::default().objection(), None);
        assert!(refused(|c| c.port = 0).contains("count from 1"));
        assert!(refused(|c| c.timeout_exponent = 0).contains("1 to 31, not 0"));
        assert!(refused(|c| c.retries = 8).contains("not 8 and 12"));
        assert!(refused(|c| c.depth = 7).contains("not 7"));
        assert!(refused(|c| c.staging_bytes = 5000).contains("not 5000 bytes"));
    }
}
