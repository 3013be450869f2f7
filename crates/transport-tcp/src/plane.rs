//! [`SharedPlane`]: the control plane of this host ([`transport_control`]) under its lock, and the
//! types that it has over TCP.

use std::sync::Arc;
use std::time::Instant;

use parking_lot::{Mutex, MutexGuard};
use transport_control::{Config, Control, Medium, Requester};

use crate::export::Exported;

/// The types of the control plane over TCP, where nothing comes beside a message.
pub(crate) struct TcpMedium;

impl Medium for TcpMedium {
    type Export = Arc<Exported>;
    type Attachment = ();
    type Requester = Requester;
}

/// The control plane, and whether the service thread polls it.
pub(crate) struct Plane {
    pub(crate) control: Control<TcpMedium>,
    pub(crate) has_service_ended: bool,
}

/// The control plane as the threads of this host share it.
pub(crate) struct SharedPlane(Mutex<Plane>);

impl SharedPlane {
    pub(crate) fn new(config: Config) -> Self {
        let control = Control::new(Instant::now(), config);
        Self(Mutex::new(Plane { control, has_service_ended: false }))
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, Plane> {
        self.0.lock()
    }
}
