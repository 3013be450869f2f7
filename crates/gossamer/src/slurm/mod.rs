//! Racks under Slurm: `srun -N 4 ./program` is one rack of four hosts, without any daemon of ours.
//!
//! ```sh
//! export GOSSAMER_SECRET=$(gossamer secret)
//! srun -N 4 ./program
//! ```
//!
//! Slurm says which task of which step a process is (`environment`, `nodes`). The secret, which the
//! environment carries from whoever submits the job to its tasks, makes them know each other
//! (`secret`): from it each derives the same authority, and signs a certificate for itself. Then
//! they meet at task 0, under TLS, and tell each other where they listen (`meeting`). The rack that
//! follows is the same as in a job of our daemons.
//!
//! Who can read the environment of the job's processes can join the job: its user, and root. Slurm
//! keeps the environment in which `sbatch` was called on its controller's disk; a secret that is
//! made inside the batch script never gets there. `srun` sends its environment to the nodes over the
//! network, protected only as Slurm's own configuration protects its messages. A secret in a file
//! that all nodes can read ([`SECRET_FILE`], `file`) stays out of all of these.

mod environment;
mod file;
#[cfg(any(test, fuzzing))]
pub mod fuzzing;
mod meeting;
mod nodes;
mod secret;

use self::{environment::Step, meeting::Introduction};
pub use self::{file::SecretFileError, meeting::MeetingError, nodes::NodesError, secret::Secret};
use crate::{
    authority::{AuthorityError, JobAuthority},
    job::JobDescription,
};
use std::{
    env,
    ffi::OsString,
    io,
    net::TcpListener,
    path::{Path, PathBuf},
};
use thiserror::Error;
use transport_api::HostId;
use transport_tcp::{Credentials, Tls, TlsError};

/// The environment variable with the secret of a job; `gossamer secret` makes one.
pub const SECRET: &str = "GOSSAMER_SECRET";

/// The environment variable with the path of a file that holds the secret of a job, instead of
/// [`SECRET`]; `gossamer secret --file PATH` makes one. The file must belong to the user of the
/// process, with mode 0600 or stricter, and every task must be able to read it.
pub const SECRET_FILE: &str = "GOSSAMER_SECRET_FILE";

/// The environment variable that says where the tasks of a step meet, as `HOST` or `HOST:PORT`, if
/// that is not to be the step's first node and a port that follows from the secret.
pub const RENDEZVOUS: &str = "GOSSAMER_RENDEZVOUS";

/// After how many milliseconds of silence a host counts as lost.
const LOSS_BOUND_MS: u64 = 1000;

/// Why the tasks of a step did not become a rack.
#[derive(Debug, Error)]
pub enum SlurmError {
    /// What Slurm says about the step makes no sense.
    #[error("this seems to be a task of a Slurm step, but {variable} is {value:?}: {expected}")]
    Variable {
        /// The variable.
        variable: &'static str,
        /// What it says; nothing, if it is not there.
        value: String,
        /// What it should say.
        expected: &'static str,
    },
    /// The nodes of the step cannot be read.
    #[error(transparent)]
    Nodes(#[from] NodesError),
    /// There is no secret by which the tasks could know each other.
    #[error(
        "this is one of {tasks} tasks of a Slurm step, which need a secret to know each other: \
         `export {SECRET}=$(gossamer secret)` before `srun`, or name a file that \
         `gossamer secret --file PATH` has made in {SECRET_FILE}"
    )]
    NoSecret {
        /// How many tasks there are.
        tasks: u32,
    },
    /// The secret is none.
    #[error(
        "{SECRET} is to be 64 hexadecimal digits; `export {SECRET}=$(gossamer secret)` makes one \
         that nobody can guess"
    )]
    BadSecret,
    /// Two variables offer a secret.
    #[error("both {SECRET} and {SECRET_FILE} are set: unset one of them")]
    TwoSecrets,
    /// The file with the secret is of no use.
    #[error("cannot use {}, the file that {SECRET_FILE} names: {error}", path.display())]
    SecretFile {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        error: SecretFileError,
    },
    /// No certificate could be made.
    #[error(transparent)]
    Authority(#[from] AuthorityError),
    /// The certificate is of no use.
    #[error("cannot use the certificate of this task: {0}")]
    Tls(#[from] TlsError),
    /// The tasks did not meet.
    #[error(transparent)]
    Meeting(#[from] MeetingError),
    /// The system refused something.
    #[error("the system refused what joining needs: {0}")]
    System(#[from] io::Error),
}

/// The step that this process is a task of; `None` if it is not, or the only one.
pub(crate) fn step() -> Result<Option<Step>, SlurmError> {
    let step =
        Step::from_variables(|name| Some(env::var_os(name)?.to_string_lossy().into_owned()))?;
    Ok(step.filter(|step| step.tasks > 1))
}

/// The secret of a job of `tasks` tasks, from one of two variables.
fn find_secret(
    variable: impl Fn(&str) -> Option<OsString>,
    tasks: u32,
) -> Result<Secret, SlurmError> {
    match (variable(SECRET), variable(SECRET_FILE)) {
        (None, None) => Err(SlurmError::NoSecret { tasks }),
        (Some(_), Some(_)) => Err(SlurmError::TwoSecrets),
        (Some(secret), None) => secret.to_str().ok_or(SlurmError::BadSecret)?.parse(),
        (None, Some(path)) => {
            let path = Path::new(&path);
            file::read(path)
                .map_err(|error| SlurmError::SecretFile { path: path.to_owned(), error })
        }
    }
}

/// Meets the other tasks of `step`. `threads` is how many this process would like to have, if the
/// user has said so.
pub(crate) fn meet(
    step: &Step,
    threads: Option<u32>,
) -> Result<(JobDescription, TcpListener), SlurmError> {
    let secret = find_secret(|name| env::var_os(name), step.tasks)?;
    let derived = secret.derive(&step.job, &step.step);
    let authority = JobAuthority::derived(derived.job, &derived.seed)?;
    let (certificate, key) = authority.certificate(HostId(step.rank))?;
    let ca = authority.ca();
    let credentials =
        Credentials::Tls { certificate: certificate.clone(), key: key.0.clone(), ca: ca.clone() };
    let Some(tls) = Tls::new(derived.job, &credentials)? else {
        unreachable!("these are credentials for TLS");
    };
    let listener = meeting::listen(0)?;
    let introduction = Introduction {
        rank: step.rank,
        tasks: step.tasks,
        node: step.node.clone(),
        threads: threads.unwrap_or(step.cpus),
        port: listener.local_addr()?.port(),
    };
    let place = step.rendezvous(derived.ports)?;
    let hosts = meeting::meet(&tls, &place, &introduction)?;
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
            other => panic!("{other} says nothing about the secret"),
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
        assert!(text.contains("/nonexistent/secret, the file that GOSSAMER_SECRET_FILE"), "{text}");
        assert!(text.contains("No such file"), "{text}");
    }
}
