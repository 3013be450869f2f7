//! Workloads as YCSB defines them: property files, key distributions, record names.
//!
//! The six core workloads are part of the program ([`builtin`]); any other property file can be
//! read from a path. In reading order: [`properties`] (the file format), [`workload`] (what the
//! properties mean), [`generator`] (the distributions), [`counter`] (numbers for inserts),
//! [`record`] (key names and field values).

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

/// The property file of a core workload, and the name it goes by in messages; asked for by that
/// name, or by its letter alone, `a` to `f` in either case.
///
/// ```
/// use gossamer_kv::ycsb;
/// assert_eq!(ycsb::builtin("C").unwrap().0, "workloadc");
/// assert_eq!(ycsb::builtin("workloadc"), ycsb::builtin("C"));
/// assert!(ycsb::builtin("g").is_none());
/// ```
pub fn builtin(name: &str) -> Option<(&'static str, &'static str)> {
    Some(match name.strip_prefix("workload").unwrap_or(name) {
        "a" | "A" => ("workloada", include_str!("../../workloads/workloada")),
        "b" | "B" => ("workloadb", include_str!("../../workloads/workloadb")),
        "c" | "C" => ("workloadc", include_str!("../../workloads/workloadc")),
        "d" | "D" => ("workloadd", include_str!("../../workloads/workloadd")),
        "e" | "E" => ("workloade", include_str!("../../workloads/workloade")),
        "f" | "F" => ("workloadf", include_str!("../../workloads/workloadf")),
        _ => return None,
    })
}
