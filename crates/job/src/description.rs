//! [`JobDescription`], which a daemon hands a process that it starts: which host of which job it
//! is, where the others listen, and the certificates by which they authenticate each other.
//!
//! A process inherits descriptors, and finds their numbers in its environment: a sealed file in
//! memory with the description as JSON ([`JOB_FD`]), the listening socket at whose address the
//! other hosts will look for it ([`LISTEN_FD`]), and a socket to which it reports what its threads
//! do ([`STATISTICS_FD`](crate::STATISTICS_FD)). The private key is nowhere else: not among the
//! arguments, not in the environment, not on a disk.

use std::fs::File;
use std::io::Read;
use std::net::{SocketAddr, TcpListener};

use serde::{Deserialize, Serialize};

use crate::environment::{JobError, descriptor, take_descriptor};
use crate::id::JobId;
use crate::secret::{Secret, SecretPem};
use crate::signers::SigningAuthority;

/// The environment variable with the number of the descriptor of the job description.
pub const JOB_FD: &str = "GOSSAMER_JOB_FD";
/// The environment variable with the number of the descriptor of the listening socket.
pub const LISTEN_FD: &str = "GOSSAMER_LISTEN_FD";

/// Bytes of the largest description that is read. What a controller sends is much shorter; a daemon
/// adds a list of revoked certificates of at most 16 MiB, in hexadecimal.
const LARGEST: u64 = 40 << 20;

/// One host of a job: one process on some machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobHost {
    /// The name of its machine in the rack: hosts of one name share one, and its memory.
    pub name: String,
    /// Where its process listens for those of the other hosts.
    pub address: SocketAddr,
    /// How many runtime threads it has.
    pub threads: u32,
}

/// What a process of a job needs to know of itself and the others.
///
/// The certificates are made for this job alone: `ca` signed one for each host, with the DNS name
/// that [`certificate_name`](crate::certificate_name) says.
///
/// ```no_run
/// use gossamer_job::JobDescription;
///
/// match JobDescription::from_environment()? {
///     Some(job) => println!("host {} of {}", job.host, job.hosts.len()),
///     None => println!("not started by a daemon"),
/// }
/// # Ok::<(), gossamer_job::JobError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobDescription {
    /// The rack's name.
    pub rack: String,
    /// The job.
    pub job: JobId,
    /// Which of `hosts` this process is. `main` runs on host 0.
    pub host: u32,
    /// All hosts of the job, this one among them.
    pub hosts: Vec<JobHost>,
    /// This host's certificate, in PEM.
    pub certificate: String,
    /// The private key of `certificate`.
    pub key: SecretPem,
    /// The certificate of the authority that signed those of all hosts of this job, in PEM.
    pub ca: String,
    /// Known only to the processes of this job; those of one machine find each other by it.
    pub secret: Secret,
    /// Milliseconds without traffic after which a host counts as lost.
    pub loss_bound_ms: u64,
    /// Whether to pin each runtime thread to a core of its own.
    pub pin: bool,
    /// The authority of the rack, whose signers may sign code for this job. The daemon sets it,
    /// whatever the controller says; `None` if no daemon has started the process.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signing: Option<SigningAuthority>,
}

impl JobDescription {
    /// The description that this process was started with; `None` if no daemon started it. It can
    /// be called any number of times.
    ///
    /// # Errors
    /// [`JobError`], if the environment names a description that cannot be read or is invalid.
    pub fn from_environment() -> Result<Option<Self>, JobError> {
        let Some(fd) = descriptor(JOB_FD)? else { return Ok(None) };
        let read = || {
            // Opened anew, so that no other reader's position matters.
            let file = File::open(format!("/proc/self/fd/{fd}"))?;
            let mut json = Vec::new();
            file.take(LARGEST + 1).read_to_end(&mut json)?;
            Ok(json)
        };
        let json = read().map_err(|error| JobError::Read { variable: JOB_FD, error })?;
        Self::from_json(&json).map(Some)
    }

    /// Parses and validates a description.
    ///
    /// # Errors
    /// [`JobError::Invalid`].
    pub fn from_json(json: &[u8]) -> Result<Self, JobError> {
        let invalid = |what: String| Err(JobError::Invalid(what));
        if json.len() as u64 > LARGEST {
            return invalid(format!("larger than {LARGEST} bytes"));
        }
        let job: Self = match serde_json::from_slice(json) {
            Ok(job) => job,
            // An error of serde may quote a value, which may be the key.
            Err(error) => {
                return invalid(format!(
                    "unexpected JSON at line {}, column {}",
                    error.line(),
                    error.column()
                ));
            }
        };
        if job.host as usize >= job.hosts.len() {
            return invalid(format!(
                "host is {}, expected a number below {}",
                job.host,
                job.hosts.len()
            ));
        }
        if let Some(host) = job.hosts.iter().find(|host| host.threads == 0) {
            return invalid(format!("host {} has no threads", host.name));
        }
        Ok(job)
    }

    /// The description as [`from_json`](Self::from_json) reads it.
    pub fn to_json(&self) -> String {
        serde_json::to_string(self).expect("strings and numbers can always be serialised")
    }

    /// The listening socket that this process inherited; `None` if no daemon started it. Its
    /// address is that of `hosts[host]`. To be called once: each call makes another descriptor of
    /// the same socket.
    ///
    /// # Errors
    /// [`JobError`], if the environment names a descriptor that is not a socket.
    pub fn listener_from_environment() -> Result<Option<TcpListener>, JobError> {
        let Some(fd) = take_descriptor(LISTEN_FD)? else { return Ok(None) };
        let listener = TcpListener::from(fd);
        match listener.local_addr() {
            Ok(_) => Ok(Some(listener)),
            Err(error) => Err(JobError::Read { variable: LISTEN_FD, error }),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn job() -> JobDescription {
        let host = |name: &str, port| JobHost {
            name: name.into(),
            address: SocketAddr::from(([127, 0, 0, 1], port)),
            threads: 2,
        };
        JobDescription {
            rack: "r".into(),
            job: JobId(7),
            host: 1,
            hosts: vec![host("a", 1000), host("b", 1001)],
            certificate: "certificate".into(),
            key: SecretPem("private words".into()),
            ca: "ca".into(),
            secret: Secret::new([9; 32]),
            loss_bound_ms: 1000,
            pin: false,
            signing: Some(SigningAuthority {
                ca: vec![1, 2],
                revoked: vec![3],
                signers: vec![vec![4]],
            }),
        }
    }

    #[test]
    fn a_description_survives_json() {
        assert_eq!(JobDescription::from_json(job().to_json().as_bytes()).unwrap(), job());
    }

    #[test]
    fn the_key_is_not_shown() {
        assert!(!format!("{:?}", job()).contains("private words"));
        let json = job().to_json().replace("\"private words\"", "[\"private words\"]");
        let error = JobDescription::from_json(json.as_bytes()).unwrap_err();
        assert!(!format!("{error} {error:?}").contains("private words"), "{error}");
        let json = job().to_json().replace("09090909", "private");
        let error = JobDescription::from_json(json.as_bytes()).unwrap_err();
        assert!(!format!("{error} {error:?}").contains("private"), "{error}");
    }

    #[test]
    fn invalid_descriptions_are_refused() {
        let refused = |job: JobDescription| {
            JobDescription::from_json(job.to_json().as_bytes()).unwrap_err().to_string()
        };
        assert!(
            refused(JobDescription { host: 2, ..job() })
                .contains("host is 2, expected a number below 2")
        );
        let mut idle = job();
        idle.hosts[0].threads = 0;
        assert!(refused(idle).contains("no threads"));
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            let _ = JobDescription::from_json(&bytes);
        }
    }
}
