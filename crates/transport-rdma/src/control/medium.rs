//! [`Plane`]: the control plane of `transport-control`, with what this transport attaches to it.

use std::sync::mpsc;
use std::time::{Duration, Instant};

use transport_api::HostId;
use transport_control::{Config, Control, CutOff, Goodbye, Importer, Medium, Output, Reach};

use crate::control::exports::Exported;

/// How long a revocation waits for importers. The device then stops those that still use the region,
/// which ends their queue pairs.
const REVOCATION_TIMEOUT: Duration = Duration::from_secs(2);

/// What this transport attaches to exports, messages and requests.
pub(crate) struct Rdma;

impl Medium for Rdma {
    type Export = Exported;
    type Attachment = ();
    type Requester = Requester;
}

/// Who waits for a request to the control plane.
pub(crate) enum Requester {
    /// For an import.
    Import(Importer),
    /// For a revocation: a thread that blocks until the sender is dropped.
    Blocked { _done: mpsc::Sender<()> },
    /// For a revocation: the lane of a thread, with this number among those that wait.
    Revocation(u64),
    /// For the goodbye of this host, which no thread waits for.
    Leave,
}

/// The control plane of one host.
pub(crate) struct Plane {
    control: Control<Rdma>,
    /// Whether the service thread has ended: then callers discard the outputs themselves.
    is_closed: bool,
}

impl Plane {
    /// Of host `local` of a rack of `hosts` hosts, all connected.
    pub(crate) fn new(local: HostId, hosts: u32) -> Self {
        let now = Instant::now();
        let config = Config {
            local,
            hosts,
            loss_bound: None,
            reach: Reach::Direct,
            // Its queue pairs are ended when it is reported.
            cut_off: CutOff::AtEnd,
            goodbye: Goodbye::Carrier,
            revocation_timeout: Some(REVOCATION_TIMEOUT),
        };
        let mut control = Control::new(now, config);
        (0..hosts).for_each(|peer| control.connected(HostId(peer), now));
        Self { control, is_closed: false }
    }

    /// Calls the control plane.
    pub(crate) fn call<R>(&mut self, call: impl FnOnce(&mut Control<Rdma>) -> R) -> R {
        let result = call(&mut self.control);
        if self.is_closed {
            self.discard();
        }
        result
    }

    /// From now on requests end at once: their requesters are dropped.
    pub(crate) fn close(&mut self) {
        self.is_closed = true;
        self.discard();
    }

    /// Whether the service thread has ended.
    pub(crate) fn is_closed(&self) -> bool {
        self.is_closed
    }

    fn discard(&mut self) {
        while let Some(output) = self.control.poll(Instant::now()) {
            if let Output::Revoked { export, .. } = output {
                // The device refuses hosts that still use it.
                export.close();
            }
        }
    }
}
