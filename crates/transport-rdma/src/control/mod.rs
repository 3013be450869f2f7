//! What the hosts tell each other over the carrier, and the service thread that does it.

pub(crate) mod exports;
pub(crate) mod host;
pub(crate) mod import_broker;
pub(crate) mod imports;
pub(crate) mod join;
pub(crate) mod message;
pub(crate) mod selection;
pub(crate) mod service;
pub(crate) mod sleep_flags;
