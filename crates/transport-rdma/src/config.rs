//! [`RdmaConfig`]: which device, and the timeouts and sizes of its queue pairs.

use std::net::IpAddr;
use std::time::Duration;

use rdma_protocol::payloads::BLOCKS;

/// One part in this many of a send queue and of its staging memory may go unsignalled; also the part
/// of the staging memory that one request may take.
pub(crate) const PART: usize = 4;

/// The smallest send queue, in work requests.
pub(crate) const MIN_DEPTH: usize = 2 * PART;

/// Settings of the transport. [`RdmaConfig::default`] suits a lossless network.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RdmaConfig {
    /// The name of the device, as `ibv_devices` shows it. If not set, the device that has
    /// [`host_address`](Self::host_address), or else the only one with an active port; devices that
    /// cannot be opened are skipped then.
    pub device: Option<String>,
    /// The port of the device. Ports count from 1.
    pub port: u8,
    /// The index of the GID to send from. If not set, the GID of
    /// [`host_address`](Self::host_address), or else the first of RoCE version 2, IPv4 first.
    pub gid_index: Option<u8>,
    /// The IP address by which the other hosts know this host. The device that has it is preferred.
    pub host_address: Option<IpAddr>,
    /// The retransmission timeout of a packet is 4.096 microseconds times two to the power of this:
    /// 14 is 67 milliseconds. At least 1 and at most 31; devices may wait up to four times as long.
    pub timeout_exponent: u8,
    /// Retransmissions of a packet before the peer counts as lost, at most 7. With the
    /// retransmission timeout this bounds how long writers do not notice a dead peer: see
    /// [`timeout`](Self::timeout).
    pub retries: u8,
    /// The RNR timer: how long a sender waits before it retries when this side has no receive ready,
    /// as the code of the verbs' specification. 1 is 10 microseconds, 12 is 640, 31 is 491
    /// milliseconds.
    pub rnr_timer: u8,
    /// Work requests of one lane in flight, at most; further ones are deferred.
    pub depth: u32,
    /// Bytes that a work request carries inline, so that the device need not fetch them from memory;
    /// fewer if the device supports fewer.
    pub inline_bytes: u32,
    /// Bytes of registered memory through which one lane sends and receives. It is pinned, and there
    /// is as much for each thread and remote host.
    pub staging_bytes: usize,
    /// Whether the peer's device reads payloads that do not fit a slot, from registered memory: each
    /// lane has twice its [`staging_bytes`](Self::staging_bytes) for that. Payloads are then not
    /// encrypted. Otherwise they go over the carrier, encrypted if the carrier is.
    pub reads_payloads: bool,
    /// How long the other hosts may take to join.
    pub join_timeout: Duration,
}

impl Default for RdmaConfig {
    fn default() -> Self {
        Self {
            device: None,
            port: 1,
            gid_index: None,
            host_address: None,
            timeout_exponent: 14,
            retries: 6,
            rnr_timer: 12,
            depth: 256,
            inline_bytes: 256,
            staging_bytes: 256 << 10,
            reads_payloads: true,
            join_timeout: Duration::from_secs(20),
        }
    }
}

impl RdmaConfig {
    /// How long a device retransmits to a peer that does not answer, according to these settings.
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
    pub(crate) fn max_request_bytes(&self) -> usize {
        self.staging_bytes / PART
    }

    /// Bytes of registered memory through which one lane offers payloads.
    pub(crate) fn payload_bytes(&self) -> usize {
        if self.reads_payloads { self.max_request_bytes() * BLOCKS } else { 0 }
    }

    /// The first invalid setting: its name, its value, and what is valid.
    pub(crate) fn invalid(&self) -> Option<String> {
        let Self { port, timeout_exponent, retries, rnr_timer, depth, staging_bytes, .. } = *self;
        if port == 0 {
            return Some("port must be at least 1, got 0".into());
        }
        if !(1..=31).contains(&timeout_exponent) {
            return Some(format!("timeout_exponent must be 1 to 31, got {timeout_exponent}"));
        }
        if retries > 7 {
            return Some(format!("retries must be at most 7, got {retries}"));
        }
        if rnr_timer > 31 {
            return Some(format!("rnr_timer must be at most 31, got {rnr_timer}"));
        }
        if (depth as usize) < MIN_DEPTH {
            return Some(format!("depth must be at least {MIN_DEPTH} work requests, got {depth}"));
        }
        let is_size =
            staging_bytes.is_multiple_of(4096) && (4096..=(1 << 30)).contains(&staging_bytes);
        (!is_size).then(|| {
            format!("staging_bytes must be a multiple of 4096 up to 1 GiB, got {staging_bytes}")
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_invalid_setting_is_named_with_its_value() {
        let refused = |change: fn(&mut RdmaConfig)| {
            let mut config = RdmaConfig::default();
            change(&mut config);
            config.invalid().expect("an invalid setting")
        };
        assert_eq!(RdmaConfig::default().invalid(), None);
        assert!(refused(|c| c.port = 0).contains("port must be at least 1"));
        assert!(refused(|c| c.timeout_exponent = 0).contains("1 to 31, got 0"));
        assert!(refused(|c| c.retries = 8).contains("at most 7, got 8"));
        assert!(refused(|c| c.depth = 7).contains("got 7"));
        assert!(refused(|c| c.staging_bytes = 5000).contains("got 5000"));
    }
}
