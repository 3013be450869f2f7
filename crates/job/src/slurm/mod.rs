//! Racks under Slurm: `srun -N 4 ./program` is one rack of four hosts, without a Gossamer daemon.
//!
//! ```sh
//! export GOSSAMER_SECRET=$(gossamer secret)
//! srun -N 4 ./program
//! ```
//!
//! Slurm's variables state which task of which step a process is ([`Step`], `nodes`). All tasks
//! have the secret in their environment; from it each derives the same authority (`derived`) and
//! signs a certificate for itself. Then they connect to task 0, under TLS, and exchange their
//! addresses (`rendezvous`). The rack that follows is the same as in a job of a Gossamer daemon.
//!
//! A user who can read the environment of the job's processes can join the job: its owner, and
//! root. Slurm keeps the environment in which `sbatch` was called on its controller's disk; a
//! secret that is made inside the batch script never gets there. `srun` sends its environment to
//! the nodes over the network, protected only as Slurm's own configuration protects its messages. A
//! secret in a file that all nodes can read ([`SECRET_FILE`], `file`) stays out of all of these.

mod derived;
mod file;
#[cfg(any(test, fuzzing))]
pub mod fuzzing;
mod nodes;
mod rendezvous;
mod step;

use std::ffi::OsString;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::{env, io};

use thiserror::Error;
use transport_api::HostId;

use crate::authority::{AuthorityError, JobAuthority};
use crate::description::JobDescription;
use crate::secret::{Secret, SecretError};
use crate::slurm::derived::Derived;
pub use crate::slurm::file::SecretFileError;
pub use crate::slurm::nodes::NodesError;
use crate::slurm::rendezvous::Introduction;
pub use crate::slurm::rendezvous::{RENDEZVOUS, RendezvousError};
pub use crate::slurm::step::{Step, StepError};
use crate::tls::{Tls, TlsError};

/// The environment variable with the secret of a job; `gossamer secret` makes one.
pub const SECRET: &str = "GOSSAMER_SECRET";

/// The environment variable with the path of a file that holds the secret of a job, instead of
/// [`SECRET`]; `gossamer secret --file PATH` makes one. The file must belong to the user of the
/// process, with mode 0600 or stricter, and every task must be able to read it.
pub const SECRET_FILE: &str = "GOSSAMER_SECRET_FILE";

/// Milliseconds without traffic after which a host counts as lost.
const LOSS_BOUND_MS: u64 = 1000;

/// The tasks of a step did not become a rack.
#[derive(Debug, Error)]
pub enum SlurmError {
    /// Slurm's variables about the step are invalid.
    #[error(transparent)]
    Step(#[from] StepError),
    /// The tasks have no secret to authenticate each other with.
    #[error(
        "no secret for the {tasks} tasks of this Slurm step: run \
         `export {SECRET}=$(gossamer secret)` before `srun`, or set {SECRET_FILE} to a file that \
         `gossamer secret --file PATH` has made"
    )]
    NoSecret {
        /// How many tasks there are.
        tasks: u32,
    },
    /// The variable with the secret does not hold one. The error does not quote it.
    #[error("invalid {SECRET}: set it with `export {SECRET}=$(gossamer secret)`")]
    BadSecret(#[source] SecretError),
    /// Two variables offer a secret.
    #[error("both {SECRET} and {SECRET_FILE} are set: unset one of them")]
    TwoSecrets,
    /// The file with the secret does not give one.
    #[error("cannot take the secret from {} (set in {SECRET_FILE})", path.display())]
    SecretFile {
        /// The file.
        path: PathBuf,
        /// Why it was refused.
        #[source]
        error: SecretFileError,
    },
    /// No certificate could be made.
    #[error(transparent)]
    Authority(#[from] AuthorityError),
    /// TLS refuses the certificate.
    #[error("cannot use the certificate of this task")]
    Tls(#[from] TlsError),
    /// The tasks did not find each other.
    #[error(transparent)]
    Rendezvous(#[from] RendezvousError),
    /// A system call failed.
    #[error("a system call failed while joining")]
    System(#[from] io::Error),
}

/// The secret of a job of `tasks` tasks, from one of two variables.
fn find_secret(
    variable: impl Fn(&str) -> Option<OsString>,
    tasks: u32,
) -> Result<Secret, SlurmError> {
    match (variable(SECRET), variable(SECRET_FILE)) {
        (None, None) => Err(SlurmError::NoSecret { tasks }),
        (Some(_), Some(_)) => Err(SlurmError::TwoSecrets),
        (Some(secret), None) => {
            secret.to_str().ok_or(SecretError).and_then(str::parse).map_err(SlurmError::BadSecret)
        }
        (None, Some(path)) => {
            let path = Path::new(&path);
            file::read(path)
                .map_err(|error| SlurmError::SecretFile { path: path.to_owned(), error })
        }
    }
}

/// Finds the other tasks of `step`. `threads` is how many runtime threads this process asks for, if
/// the user has set that; all tasks get the smallest number that one of them asks for.
///
/// # Errors
/// [`SlurmError`], if the tasks do not become a rack.
pub fn join(
    step: &Step,
    threads: Option<u32>,
) -> Result<(JobDescription, TcpListener), SlurmError> {
    let secret = find_secret(|name| env::var_os(name), step.tasks)?;
    let derived = Derived::new(&secret, &step.job, &step.step);
    let authority = JobAuthority::derived(derived.job, &derived.seed)?;
    let (certificate, key) = authority.certificate(HostId(step.rank))?;
    let ca = authority.ca();
    let tls = Tls::new(derived.job, &certificate, &key.0, &ca)?;
    let listener = rendezvous::listen(0)?;
    let introduction = Introduction {
        rank: step.rank,
        tasks: step.tasks,
        node: step.node.clone(),
        threads: threads.unwrap_or(step.cpus),
        port: listener.local_addr()?.port(),
    };
    let endpoints = step.rendezvous(derived.ports)?;
    let hosts = rendezvous::join(&tls, &endpoints, &introduction)?;
    let description = JobDescription {
        rack: "slurm".into(),
        job: derived.job,
        host: step.rank,
        hosts,
        certificate,
        key,
        ca,
        secret: derived.secret,
        loss_bound_ms: LOSS_BOUND_MS,
        pin: false,
        signing: None,
    };
    Ok((description, listener))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The secret that these values of the two variables lead to.
    fn found(secret: Option<&str>, file: Option<&str>) -> Result<Secret, SlurmError> {
        let value = |name: &str| match name {
            SECRET => secret,
            SECRET_FILE => file,
            other => panic!("{other} does not hold the secret"),
        };
        find_secret(|name| value(name).map(OsString::from), 4)
    }

    #[test]
    fn one_of_two_variables_leads_to_the_secret() {
        let hex = Secret::new([5; 32]).to_hex();
        assert_eq!(found(Some(&hex), None).expect("a secret"), Secret::new([5; 32]));
        assert!(matches!(found(None, None), Err(SlurmError::NoSecret { tasks: 4 })));
        let both = found(Some(&hex), Some("/nonexistent/secret")).expect_err("two secrets");
        assert!(both.to_string().contains("both GOSSAMER_SECRET and GOSSAMER_SECRET_FILE"));
        let missing = found(None, Some("/nonexistent/secret")).expect_err("no file");
        let text = missing.to_string();
        assert!(text.contains("/nonexistent/secret (set in GOSSAMER_SECRET_FILE)"), "{text}");
        let SlurmError::SecretFile { error: SecretFileError::Read(cause), .. } = &missing else {
            panic!("{missing:?}");
        };
        assert_eq!(cause.kind(), io::ErrorKind::NotFound);
    }
}
