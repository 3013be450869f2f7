//! The control plane: what all threads of a process share, what the hosts tell each other over the
//! carrier, and the service thread that does it.
//!
//! In reading order, which is that of use:
//! 1. [`device_selection`]: which device.
//! 2. [`sleep_flags`]: which threads of other hosts sleep.
//! 3. [`exports`], [`imports`], [`message`], [`import_broker`], [`service_queue`]: regions.
//! 4. [`host`]: what all threads share; [`progress`]: who handles which completions, and who is woken.
//! 5. [`join`]: the handshake.
//! 6. [`service`]: the service thread.

pub(crate) mod device_selection;
pub(crate) mod exports;
pub(crate) mod host;
pub(crate) mod import_broker;
pub(crate) mod imports;
pub(crate) mod join;
pub(crate) mod message;
pub(crate) mod progress;
pub(crate) mod service;
pub(crate) mod service_queue;
pub(crate) mod sleep_flags;
