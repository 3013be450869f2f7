//! A process of a job and the supervisor that ends it with everything that it has started.

pub(crate) mod cgroup;
pub(crate) mod cgroups;
pub(crate) mod kill;
pub(crate) mod open_files;
pub(crate) mod supervised;
pub(crate) mod supervisor;
pub(crate) mod supervisors;
