//! Starts the processes of a rack: the leader, which starts the others; or those of a job, as a daemon
//! would.

use std::fs::File;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::{env, fs, io};

use gossamer::HostId;
use gossamer_job::{JOB_FD, JobAuthority, JobDescription, JobHost, JobId, LISTEN_FD, Secret};

use crate::{Plan, procfs};

/// Milliseconds of silence after which a host of a job is lost. A process that is killed is lost at
/// once, because its connections are closed.
const LOSS_BOUND_MS: u64 = 5_000;

/// The processes that were started: that of host 0 first, which leads their process group.
pub(super) fn start(plan: &Plan, folder: &Path, descriptors: &str) -> io::Result<Vec<Child>> {
    if plan.over_tcp() {
        return start_job(plan, folder, descriptors);
    }
    let mut leader = command(plan, folder)?;
    Ok(vec![leader.process_group(0).env(procfs::DESCRIPTORS, descriptors).spawn()?])
}

/// The command of a process of the rack.
fn command(plan: &Plan, folder: &Path) -> io::Result<Command> {
    let mut command = Command::new(env::current_exe()?);
    command
        .args(["--rack", &plan.seed.to_string(), "--workload", &plan.workload.to_string()])
        .current_dir(folder)
        .env("TMPDIR", folder)
        .env("XDG_RUNTIME_DIR", folder)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    Ok(command)
}

/// Starts the processes of a job whose hosts behave as if each had its own machine: they connect over
/// TCP and TLS.
fn start_job(plan: &Plan, folder: &Path, descriptors: &str) -> io::Result<Vec<Child>> {
    let job = JobId(u128::from(plan.seed));
    let authority = JobAuthority::random(job).map_err(io::Error::other)?;
    let listeners = (0..Plan::HOSTS).map(|_| TcpListener::bind(("127.0.0.1", 0)));
    let listeners: Vec<_> = listeners.collect::<Result<_, _>>()?;
    let address = |listener: &TcpListener| listener.local_addr();
    let addresses: Vec<SocketAddr> = listeners.iter().map(address).collect::<Result<_, _>>()?;
    let host = |(number, address)| JobHost {
        name: format!("machine-{number}"),
        address,
        threads: Plan::THREADS,
    };
    let hosts: Vec<_> = addresses.into_iter().enumerate().map(host).collect();
    let mut children: Vec<Child> = Vec::new();
    for (number, listener) in (0..).zip(&listeners) {
        let certificate = authority.certificate(HostId(number)).map_err(io::Error::other)?;
        let description = JobDescription {
            rack: "chaos".to_owned(),
            job,
            host: number,
            hosts: hosts.clone(),
            certificate: certificate.0,
            key: certificate.1,
            ca: authority.ca(),
            secret: Secret::new([7; 32]),
            loss_bound_ms: LOSS_BOUND_MS,
            pin: false,
            signing: None,
        };
        // These two are inherited, because `dup` clears the flag that closes descriptors.
        let file = rustix::io::dup(unnamed_file(folder, &description.to_json())?)?;
        let listener = rustix::io::dup(listener.as_fd())?;
        let (file_fd, listener_fd) = (file.as_raw_fd(), listener.as_raw_fd());
        let group = children.first().map_or(0, |leader| leader.id() as i32);
        let mut command = command(plan, folder)?;
        command
            .process_group(group)
            .env(procfs::DESCRIPTORS, format!("{descriptors},{file_fd},{listener_fd}"))
            .env(JOB_FD, file_fd.to_string())
            .env(LISTEN_FD, listener_fd.to_string());
        match command.spawn() {
            Ok(child) => children.push(child),
            Err(error) => {
                for mut child in children {
                    child.kill()?;
                    child.wait()?;
                }
                return Err(error);
            }
        }
    }
    Ok(children)
}

/// A file with this content whose name is gone.
fn unnamed_file(folder: &Path, content: &str) -> io::Result<File> {
    let path = folder.join("job");
    fs::write(&path, content)?;
    let file = File::open(&path)?;
    fs::remove_file(&path)?;
    Ok(file)
}
