//! YCSB workloads: property files, key distributions, record keys.
//!
//! The six core workloads are built in ([`core_workloads`]); other property files are read from a
//! path. In reading order: [`properties`] (the file format), [`workload`] (what the
//! properties mean), [`generator`] (the distributions), [`counter`] (numbers for inserts),
//! [`record`] (key names and field values).

pub mod core_workloads;
pub mod counter;
pub mod generator;
pub mod properties;
pub mod record;
pub mod workload;

pub use counter::AcknowledgedCounter;
pub use generator::{KeyChooser, ScanLength};
pub use properties::{Origin, Properties, PropertyError};
pub use record::RecordMaker;
pub use workload::{Distribution, InsertOrder, Mix, Workload, WorkloadError};
