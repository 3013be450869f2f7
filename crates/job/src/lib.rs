//! What a daemon or a batch system hands a process of a job, and what the process reports.
//!
//! Both sides use this crate: `gossamerd` writes a [`JobDescription`] and reads
//! [`ProcessStatistics`]; the runtime, or a program that is not a rack, does the opposite. It knows
//! neither of them.
//!
//! Reading order, lowest module first:
//! 1. [`JobId`], [`certificate_name`]: which job, and the names in its certificates.
//! 2. [`Secret`], [`SecretPem`]: what only the processes of a job may know.
//! 3. `environment`: descriptors that a process inherits.
//! 4. [`JobDescription`]: what a process needs to know of its job.
//! 5. [`SigningAuthority`], [`Signers`]: who may sign packages of code for a job; [`PackageSocket`]:
//!    how such a package comes into a process.
//! 6. [`ProcessStatistics`]: what it reports.
//! 7. [`JobAuthority`], [`Tls`]: the certificates of a job's hosts, and connections under them.
//! 8. [`slurm`]: how the tasks of a Slurm step come to a job description without a daemon.

#![forbid(unsafe_code)]

mod authority;
mod description;
mod environment;
mod id;
mod packages;
mod secret;
mod signers;
pub mod slurm;
mod statistics;
mod tls;

pub use transport_api::HostId;

pub use crate::authority::{AuthorityError, JobAuthority};
pub use crate::description::{JOB_FD, JobDescription, JobHost, LISTEN_FD};
pub use crate::environment::JobError;
pub use crate::id::{JobId, JobIdError, certificate_name};
pub use crate::packages::{
    CodeEvent, FromProcess, LARGEST_FROM_PROCESS, PACKAGES_FD, PackageHeader, PackageSocket,
    package_message,
};
pub use crate::secret::{Secret, SecretError, SecretPem};
pub use crate::signers::{
    MAX_KNOWN_SIGNERS, SignatureError, Signer, Signers, SignersError, SigningAuthority,
};
pub use crate::statistics::{
    LARGEST_REPORT, ProcessStatistics, REPORT_INTERVAL, STATISTICS_FD, ThreadStatistics,
    statistics_socket,
};
pub use crate::tls::{Tls, TlsError};
