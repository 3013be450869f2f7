//! Guests that run: their processes, what they print, and how they end. Whatever ends this process,
//! the guests end too, and a folder with their files goes.

use super::guest::{Task, Work};
use super::kernel::Kernel;
use super::packages::qemu;
use super::qemu::{Accelerator, CABLE, Machine, PORTS, file};
use crate::deploy::interrupt::Interrupt;
use anyhow::{Context, Result, bail, ensure};
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread::{self, JoinHandle, sleep};
use std::time::{Duration, Instant};
use std::{env, process};

/// How long the guests may take until they are ready. Emulated ones take four seconds on a machine
/// that has nothing else to do.
const TO_BOOT: Duration = Duration::from_secs(180);
/// How long a QEMU may take to connect its ports.
const TO_START: Duration = Duration::from_secs(60);
/// How long the other guest may go on when one has failed, so that it can say what it saw.
const AFTER_FAILURE: Duration = Duration::from_secs(10);
/// How often to look whether a signal has come.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// The exit status of a command that was cut off, as of the program `timeout`.
pub(super) const CUT_OFF: u8 = 124;
/// What the folders of runs are called, in front of the number of their process.
const PREFIX: &str = "gossamer-rdma-vm-";

/// The folder of a run, removed when it is dropped.
struct Place(PathBuf);

impl Place {
    /// Makes the folder of this process, and removes those of processes that were killed.
    fn new() -> Result<Self> {
        let all = env::temp_dir();
        for entry in fs::read_dir(&all).into_iter().flatten().flatten() {
            let name = entry.file_name();
            let number = name.to_str().and_then(|name| name.strip_prefix(PREFIX));
            if number.is_some_and(|number| !Path::new("/proc").join(number).exists()) {
                // Another process may be removing it as well.
                let _ = fs::remove_dir_all(entry.path());
            }
        }
        let place = all.join(format!("{PREFIX}{}", process::id()));
        fs::create_dir(&place).with_context(|| format!("cannot make {}", place.display()))?;
        Ok(Self(place))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        // A message about it would hide the one that says why it is dropped.
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// What a guest has said over its control port, by its number; nothing when the port has closed.
type Event = (usize, Option<String>);

/// A guest that runs, killed when it is dropped.
struct Guest {
    number: u32,
    place: PathBuf,
    process: Child,
    control: UnixStream,
    readers: Vec<JoinHandle<()>>,
    status: Option<u8>,
}

/// What all guests of a run share with each other.
pub(super) struct Rack<'a> {
    pub(super) task: &'a Task,
    pub(super) kernel: &'a Kernel,
    /// The folder of unpacked packages.
    pub(super) packages: &'a Path,
    pub(super) accelerator: Accelerator,
    /// How long the work may take; a shell may take for ever.
    pub(super) patience: Option<Duration>,
}

impl Rack<'_> {
    /// Runs the work in all guests; the first exit status that is not 0.
    pub(super) fn run(&self, interrupt: &Interrupt) -> Result<u8> {
        let place = Place::new()?;
        let (sender, events) = mpsc::channel();
        let mut guests = Vec::new();
        for number in 0..self.task.layout.guests {
            guests.push(self.start(number, &place.0, interrupt, &sender)?);
        }
        drop(sender);
        let status = self.supervise(&mut guests, &events, interrupt);
        // With their machines gone, the rest of what they have printed is read to its end.
        guests.into_iter().for_each(Guest::end);
        status
    }

    fn start(
        &self,
        number: u32,
        place: &Path,
        interrupt: &Interrupt,
        events: &Sender<Event>,
    ) -> Result<Guest> {
        let archive = self.task.archive(number, self.kernel, self.packages)?;
        fs::write(place.join(file(number, "initrd")), archive)?;
        let mut listeners = Vec::new();
        for port in PORTS {
            let listener = UnixListener::bind(place.join(file(number, port)))?;
            listener.set_nonblocking(true)?;
            listeners.push(listener);
        }
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
        let log = File::create(place.join(file(number, "qemu")))?;
        let mut command = qemu(self.packages);
        command.args(machine.arguments()?).current_dir(place).stderr(log.try_clone()?);
        if has_terminal {
            command.stdin(Stdio::inherit()).stdout(Stdio::inherit());
        } else {
            command.stdin(Stdio::null()).stdout(log);
        }
        let mut process = command.spawn().context("cannot start QEMU")?;
        let mut accept = || -> Result<(Vec<UnixStream>, UnixStream)> {
            let mut streams = listeners
                .iter()
                .map(|listener| accept(listener, &mut process, interrupt))
                .collect::<Result<Vec<_>>>()?;
            if self.task.layout.guests > 1 && number == 0 {
                // The next one connects to it.
                until(interrupt, || Ok(place.join(CABLE).exists().then_some(())))?;
            }
            let control = streams.pop().context("there are three ports")?;
            Ok((streams, control))
        };
        let (outputs, control) = match accept() {
            Ok(streams) => streams,
            Err(error) => {
                let _ = process.kill().and_then(|()| process.wait());
                let said = last_lines(&place.join(file(number, "qemu")));
                return Err(error).with_context(|| format!("QEMU does not start:\n{said}"));
            }
        };
        let prefix = if machine.guests > 1 { format!("{number}| ") } else { String::new() };
        let [stdout, stderr] = <[UnixStream; 2]>::try_from(outputs)
            .map_err(|_| anyhow::anyhow!("there are three ports"))?;
        let lines = BufReader::new(control.try_clone()?);
        let events = events.clone();
        let readers = vec![
            copy(stdout, std::io::stdout(), prefix.clone()),
            copy(stderr, std::io::stderr(), prefix),
            thread::spawn(move || report(number as usize, lines, &events)),
        ];
        let place = place.to_owned();
        Ok(Guest { number, place, process, control, readers, status: None })
    }

    /// Waits until all guests have ended, one has failed, or the time is over.
    fn supervise(
        &self,
        guests: &mut [Guest],
        events: &Receiver<Event>,
        interrupt: &Interrupt,
    ) -> Result<u8> {
        let mut ready = 0;
        let mut end = Some(Instant::now() + TO_BOOT);
        let mut failed = None;
        while guests.iter().any(|guest| guest.status.is_none()) {
            interrupt.check()?;
            let event = match events.recv_timeout(LOOK_EVERY) {
                Ok(event) => Some(event),
                Err(RecvTimeoutError::Timeout) => None,
                Err(RecvTimeoutError::Disconnected) => bail!("the guests have gone silent"),
            };
            if let Some((number, said)) = event {
                let guest = &mut guests[number];
                match said.as_deref().map(|line| line.split_once(' ').unwrap_or((line, ""))) {
                    Some(("ready", _)) => {
                        ready += 1;
                        if ready == guests.len() {
                            end = self.patience.map(|patience| Instant::now() + patience);
                            for guest in &mut *guests {
                                guest.control.write_all(b"go\n")?;
                            }
                        }
                    }
                    Some(("status", status)) => {
                        let status = status.parse().context("a status that is no number")?;
                        guest.status = Some(status);
                        guest.kill();
                        if status != 0 && failed.is_none() {
                            failed = Some(status);
                            let soon = Instant::now() + AFTER_FAILURE;
                            end = Some(end.map_or(soon, |end| end.min(soon)));
                        }
                    }
                    Some(("kernel", line)) => {
                        eprintln!("rdma-vm: the kernel of guest {number} says: {line}");
                    }
                    Some((word, _)) => bail!("guest {number} says {word:?}, which means nothing"),
                    None if guest.status.is_some() => {}
                    None => bail!("guest {number} has stopped:\n{}", guest.console()),
                }
            }
            if end.is_some_and(|end| Instant::now() >= end) {
                if let Some(status) = failed {
                    eprintln!("rdma-vm: a guest has failed, and the other was ended");
                    return Ok(status);
                }
                let console: String = guests.iter().map(Guest::console).collect();
                ensure!(
                    ready == guests.len(),
                    "after {TO_BOOT:?} the guests are not ready:\n{console}"
                );
                eprintln!(
                    "rdma-vm: not done in {:?} (--timeout), so it was cut off\n{console}",
                    self.patience.unwrap_or_default()
                );
                return Ok(CUT_OFF);
            }
        }
        Ok(failed.unwrap_or(0))
    }
}

impl Guest {
    /// The last lines that its kernel and its scripts have written to its console.
    fn console(&self) -> String {
        last_lines(&self.place.join(file(self.number, "console")))
    }

    fn kill(&mut self) {
        // One that has ended already is what is wanted.
        let _ = self.process.kill().and_then(|()| self.process.wait());
    }

    /// Kills it and waits until its output has been read.
    fn end(mut self) {
        self.kill();
        for reader in self.readers.drain(..) {
            // What it has read is shown; there is nothing left to do if it has panicked.
            let _ = reader.join();
        }
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Waits until `happened` has something.
fn until<T>(interrupt: &Interrupt, mut happened: impl FnMut() -> Result<Option<T>>) -> Result<T> {
    let deadline = Instant::now() + TO_START;
    loop {
        if let Some(value) = happened()? {
            return Ok(value);
        }
        interrupt.check()?;
        ensure!(Instant::now() < deadline, "it was not ready in {TO_START:?}");
        sleep(Duration::from_millis(5));
    }
}

/// The connection that a QEMU makes to a port.
fn accept(
    listener: &UnixListener,
    process: &mut Child,
    interrupt: &Interrupt,
) -> Result<UnixStream> {
    let stream = until(interrupt, || match listener.accept() {
        Ok((stream, _)) => Ok(Some(stream)),
        Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {
            match process.try_wait()? {
                Some(status) => bail!("it has ended with {status}"),
                None => Ok(None),
            }
        }
        Err(error) => Err(error.into()),
    })?;
    stream.set_nonblocking(false)?;
    Ok(stream)
}

/// Copies what a guest prints to an output of ours, as it comes, until the guest is gone.
fn copy(
    mut from: UnixStream,
    mut to: impl Write + Send + 'static,
    prefix: String,
) -> JoinHandle<()> {
    thread::spawn(move || {
        // If nobody reads ours any more, the guest's is still emptied, so that it can end.
        let mut is_open = true;
        let mut show = |bytes: &[u8]| {
            is_open = is_open && to.write_all(bytes).and_then(|()| to.flush()).is_ok();
        };
        if prefix.is_empty() {
            let mut bytes = [0; 1 << 16];
            while let Ok(count @ 1..) = from.read(&mut bytes) {
                show(&bytes[..count]);
            }
            return;
        }
        let mut lines = BufReader::new(from);
        let mut line = prefix.clone().into_bytes();
        while let Ok(1..) = lines.read_until(b'\n', &mut line) {
            show(&line);
            line.truncate(prefix.len());
        }
    })
}

/// Passes on the lines of a guest's control port, and that it has closed.
fn report(guest: usize, lines: impl BufRead, events: &Sender<Event>) {
    for line in lines.lines().map_while(Result::ok) {
        if events.send((guest, Some(line))).is_err() {
            return;
        }
    }
    // Nobody waits for it any more once all guests have ended.
    let _ = events.send((guest, None));
}

/// The last lines of a text file, for a message.
fn last_lines(file: &Path) -> String {
    const LINES: usize = 25;
    let text = fs::read(file).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let lines: Vec<_> = text.lines().filter(|line| !line.trim().is_empty()).collect();
    let last = &lines[lines.len().saturating_sub(LINES)..];
    last.iter().map(|line| format!("  | {line}\n")).collect()
}
