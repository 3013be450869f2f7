//! Guests from start to end: their files, the QEMU of each, and its ports. However this process
//! ends, its guests end too, and the folder with their files is removed.

use std::fs::{self, DirBuilder, File};
use std::io::ErrorKind;
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::sync::mpsc::{self, Sender};
use std::thread::sleep;
use std::time::{Duration, Instant};
use std::{env, process};

use anyhow::{Context, Result, bail, ensure};
use gossamer_deploy::interrupt::Interrupt;

use crate::kernel::Kernel;
use crate::packages::qemu;
use crate::qemu::{Accelerator, CABLE, Machine, PORTS, file};
use crate::task::{Task, Work};
use crate::watch::{Event, Guest, last_lines, supervise};

/// The time that a QEMU has to connect its ports.
const START_TIMEOUT: Duration = Duration::from_secs(60);
/// The start of the names of run folders; the number of the process follows.
const PREFIX: &str = "gossamer-rdma-vm-";

/// The folder of a run, removed when it is dropped.
struct RunFolder(PathBuf);

impl RunFolder {
    /// Makes the folder of this process in `all`, and removes those of processes that were killed.
    fn new(all: &Path) -> Result<Self> {
        for entry in fs::read_dir(all).into_iter().flatten().flatten() {
            let name = entry.file_name();
            let number = name.to_str().and_then(|name| name.strip_prefix(PREFIX));
            let process: Option<u32> = number.and_then(|number| number.parse().ok());
            // An earlier process may have had the number of this one.
            let is_gone = |process: &u32| {
                *process == process::id() || !Path::new(&format!("/proc/{process}")).exists()
            };
            if process.as_ref().is_some_and(is_gone) {
                // Another process may be removing it as well.
                let _ = fs::remove_dir_all(entry.path());
            }
        }
        let folder = all.join(format!("{PREFIX}{}", process::id()));
        // Private, since the environment of the command is in it.
        let made = DirBuilder::new().mode(0o700).create(&folder);
        made.with_context(|| format!("cannot make {}", folder.display()))?;
        Ok(Self(folder))
    }
}

impl Drop for RunFolder {
    fn drop(&mut self) {
        // An error here would hide the one that ended the run.
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// What all guests of a run share with each other.
pub(crate) struct Run<'a> {
    pub(crate) task: &'a Task,
    pub(crate) kernel: &'a Kernel,
    /// The folder of unpacked packages.
    pub(crate) packages: &'a Path,
    pub(crate) accelerator: Accelerator,
    /// The time that the work may take; none for a shell.
    pub(crate) timeout: Option<Duration>,
}

impl Run<'_> {
    /// Runs the work in all guests; the first exit status that is not 0.
    pub(crate) fn run(&self, interrupt: &Interrupt) -> Result<u8> {
        let folder = RunFolder::new(&env::temp_dir())?;
        let (sender, events) = mpsc::channel();
        let mut guests = Vec::new();
        for number in 0..self.task.layout.guests {
            guests.push(self.start(number, &folder.0, interrupt, sender.clone())?);
        }
        supervise(&mut guests, &events, self.timeout, interrupt)
    }

    fn start(
        &self,
        number: u32,
        folder: &Path,
        interrupt: &Interrupt,
        events: Sender<Event>,
    ) -> Result<Guest> {
        let archive = self.task.archive(number, self.kernel, self.packages)?;
        fs::write(folder.join(file(number, "initrd")), archive)?;
        let listeners = PORTS.map(|port| UnixListener::bind(folder.join(file(number, port))));
        let [stdout, stderr, control] = listeners;
        let listeners = [stdout?, stderr?, control?];
        let log = folder.join(file(number, "qemu"));
        let mut process = self.spawn(number, folder, File::create(&log)?)?;
        let connect = |listener: &UnixListener| accept(listener, &mut process, interrupt);
        let [stdout, stderr, control] = listeners.each_ref().map(connect);
        let is_cabled = || Ok(self.is_last(number) || folder.join(CABLE).exists());
        let connected = || Ok([stdout?, stderr?, control?]);
        // The next guest connects to the socket of this one.
        let ports = connected().and_then(|ports| until(interrupt, is_cabled).map(|()| ports));
        let ports = match ports {
            Ok(ports) => ports,
            Err(error) => {
                // Fails only if it has ended already.
                let _ = process.kill().and_then(|()| process.wait());
                let printed = last_lines(&log);
                return Err(error).with_context(|| format!("QEMU does not start:\n{printed}"));
            }
        };
        let is_alone = self.task.layout.guests == 1;
        let prefix = if is_alone { String::new() } else { format!("{number}| ") };
        let console = folder.join(file(number, "console"));
        Guest::new(number as usize, process, console, ports, &prefix, events)
    }

    fn is_last(&self, number: u32) -> bool {
        number + 1 == self.task.layout.guests
    }

    fn spawn(&self, number: u32, folder: &Path, log: File) -> Result<Child> {
        let has_terminal = matches!(self.task.work, Work::Shell(_));
        let machine = Machine {
            guest: number,
            guests: self.task.layout.guests,
            accelerator: self.accelerator,
            kernel: &self.kernel.image(),
            packages: self.packages,
            out: &self.task.out,
            has_terminal,
        };
        let mut command = qemu(self.packages);
        command.args(machine.arguments()?).current_dir(folder).stderr(log.try_clone()?);
        if has_terminal {
            command.stdin(Stdio::inherit()).stdout(Stdio::inherit());
        } else {
            command.stdin(Stdio::null()).stdout(log);
        }
        command.spawn().context("cannot start QEMU")
    }
}

/// Waits until `has_happened` returns true.
fn until(interrupt: &Interrupt, mut has_happened: impl FnMut() -> Result<bool>) -> Result<()> {
    let deadline = Instant::now() + START_TIMEOUT;
    while !has_happened()? {
        interrupt.check()?;
        ensure!(Instant::now() < deadline, "not ready within {START_TIMEOUT:?}");
        sleep(Duration::from_millis(5));
    }
    Ok(())
}

/// The connection that a QEMU makes to a port.
fn accept(
    listener: &UnixListener,
    process: &mut Child,
    interrupt: &Interrupt,
) -> Result<UnixStream> {
    listener.set_nonblocking(true)?;
    let mut accepted = None;
    until(interrupt, || match listener.accept() {
        Ok((stream, _)) => {
            accepted = Some(stream);
            Ok(true)
        }
        Err(error) if error.kind() == ErrorKind::WouldBlock => match process.try_wait()? {
            Some(status) => bail!("ended with {status}"),
            None => Ok(false),
        },
        Err(error) => Err(error.into()),
    })?;
    let stream = accepted.context("a port was connected")?;
    stream.set_nonblocking(false)?;
    Ok(stream)
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn what_killed_processes_left_is_removed() {
        let all = env::temp_dir().join(format!("gossamer-runs-{}", process::id()));
        let mut ended = Command::new("true").spawn().unwrap();
        ended.wait().unwrap();
        let left =
            [ended.id(), process::id()].map(|process| all.join(format!("{PREFIX}{process}")));
        // Of a process that runs, and of no process.
        let kept = ["1", "notes"].map(|end| all.join(format!("{PREFIX}{end}")));
        for folder in left.iter().chain(&kept) {
            fs::create_dir_all(folder.join("0.console")).unwrap();
        }
        let folder = RunFolder::new(&all).unwrap();
        assert!(!left[0].exists() && !folder.0.join("0.console").exists());
        assert!(kept.iter().all(|folder| folder.exists()));
        let own = folder.0.clone();
        drop(folder);
        assert!(!own.exists());
        fs::remove_dir_all(&all).unwrap();
    }

    #[test]
    fn a_qemu_that_ends_at_once_is_not_waited_for() {
        let socket = env::temp_dir().join(format!("gossamer-port-{}", process::id()));
        let listener = UnixListener::bind(&socket).unwrap();
        let mut qemu = Command::new("false").spawn().unwrap();
        let error = accept(&listener, &mut qemu, &Interrupt::never()).unwrap_err().to_string();
        let _own = UnixStream::connect(&socket).unwrap();
        assert!(accept(&listener, &mut qemu, &Interrupt::never()).is_ok());
        fs::remove_file(&socket).unwrap();
        assert!(error.contains("exit status: 1"), "{error}");
    }
}
