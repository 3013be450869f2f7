//! The control plane: what all threads of a process share, what the hosts tell each other over the
//! carrier, and the service thread that does it.
//!
//! In reading order, which is that of use:
//! 1. [`device_selection`]: which device.
//! 2. [`sleep_flags`]: which threads of other hosts sleep.
//! 3. [`exports`], [`imports`], [`medium`], [`revocations`]: regions, and the control plane of
//!    `transport-control`.
//! 4. [`host`]: what all threads share; [`regions`]: exports, revocations and imports; [`progress`]:
//!    who handles which completions, and who is woken.
//! 5. [`join`]: the handshake.
//! 6. [`service`]: the service thread.

pub(crate) mod device_selection;
pub(crate) mod exports;
pub(crate) mod host;
pub(crate) mod imports;
pub(crate) mod join;
pub(crate) mod medium;
pub(crate) mod progress;
pub(crate) mod regions;
pub(crate) mod revocations;
pub(crate) mod service;
pub(crate) mod sleep_flags;
