//! The files of a daemon: its store of programs, and a note of each running job, so that the next
//! daemon can clean up after one that was killed.
//!
//! ```text
//!   STATE/lock                 held by the running daemon
//!   STATE/address              where it listens
//!   STATE/revoked.crl          the newest list of revoked certificates that a daemon has seen
//!   STATE/store/DIGEST         programs
//!   STATE/jobs/MARK            a running job; the mark identifies its processes
//!   STATE/work/MARK/           their working directory, if none was requested
//!   STATE/aside.NUMBER         quarantined files of jobs, until they are removed
//! ```
//!
//! Jobs run as the daemon's user and can change these files in any way. Nothing that they leave
//! prevents a daemon from starting: a file in the way is quarantined, and a process that cannot be
//! killed is left running.

use std::fs::{self, File, Permissions};
use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rustix::fs::{FlockOperation, flock};
use thiserror::Error;

use crate::files;
use crate::host::store::Store;
use crate::process::kill;
use crate::quarantine::{self, Quarantine};

/// How long to wait for all processes of an earlier daemon to end when they are killed.
const TIMEOUT: Duration = Duration::from_secs(10);
/// The same, for a process that did not end in that time.
const ONCE_MORE: Duration = Duration::from_secs(1);

/// A daemon cannot use its directory.
#[derive(Debug, Error)]
pub enum StateError {
    /// Another daemon runs.
    #[error("{} is in use by another daemon: set another `state` for this one", .0.display())]
    InUse(PathBuf),
    /// A system call failed.
    #[error("cannot use the state directory {}", path.display())]
    File {
        /// The directory.
        path: PathBuf,
        /// The error of the system.
        #[source]
        error: io::Error,
    },
}

/// A daemon's directory, while it runs.
#[derive(Debug)]
pub struct State {
    directory: PathBuf,
    store: Store,
    quarantine: Quarantine,
    /// The marks of an earlier daemon's processes that could not be ended.
    left: Mutex<Vec<String>>,
    /// Locked as long as it is open.
    _lock: File,
}

impl State {
    /// Locks the directory for this daemon, and cleans up what an earlier daemon has left there.
    ///
    /// # Errors
    /// [`StateError`], if another daemon runs there or the directory is not usable.
    pub fn open(directory: &Path, store_bytes: u64) -> Result<Self, StateError> {
        let failed = |error| StateError::File { path: directory.to_owned(), error };
        quarantine::own_directory(directory).map_err(failed)?;
        let quarantine = Quarantine::within(directory);
        let lock = lock_file(&directory.join("lock"), &quarantine).map_err(failed)?;
        match flock(&lock, FlockOperation::NonBlockingLockExclusive) {
            Err(rustix::io::Errno::WOULDBLOCK) => {
                return Err(StateError::InUse(directory.to_owned()));
            }
            locked => locked.map_err(|error| failed(error.into()))?,
        }
        for folder in ["jobs", "work"] {
            let path = directory.join(folder);
            let made = quarantine.put_if(&path, |kind| !kind.is_dir());
            made.and_then(|()| quarantine::own_directory(&path)).map_err(failed)?;
        }
        let store = Store::open(&directory.join("store"), store_bytes).map_err(failed)?;
        let left = Mutex::default();
        let state = Self { directory: directory.to_owned(), store, quarantine, left, _lock: lock };
        let deadline = Instant::now() + TIMEOUT;
        let end = |mark: &str| {
            let timeout = deadline.saturating_duration_since(Instant::now()).max(ONCE_MORE);
            kill::kill_all(timeout, kill::looks_for_marked(mark))
        };
        state.clean(end).map_err(failed)?;
        Ok(state)
    }

    /// Calls `end` for each mark that an earlier daemon has left, and forgets those that have ended.
    fn clean(&self, mut end: impl FnMut(&str) -> io::Result<usize>) -> io::Result<()> {
        for note in fs::read_dir(self.directory.join("jobs"))? {
            let note = note?;
            let mark = note.file_name().into_string();
            let (Ok(mark), true) = (mark, note.file_type()?.is_file()) else {
                self.quarantine_entry(&note.path());
                continue;
            };
            let job = job_of(&mark);
            match end(&mark) {
                Ok(killed) => {
                    tracing::warn!(job, killed, "ended the processes of a job of a killed daemon");
                    self.forget_note(&mark);
                }
                Err(error) => {
                    tracing::warn!(job, %error, "cannot end a job of an earlier daemon");
                    self.left.lock().push(mark);
                }
            }
        }
        for work in fs::read_dir(self.directory.join("work"))? {
            self.quarantine_entry(&work?.path());
        }
        Ok(())
    }

    /// Quarantines an entry; one that cannot be moved is logged, and stays.
    fn quarantine_entry(&self, path: &Path) {
        match self.quarantine.put(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                tracing::warn!(path = %path.display(), %error, "cannot quarantine the file");
            }
            _ => {}
        }
    }

    /// Removes quarantined files, and tries again to end processes that did not end before. May take
    /// long.
    pub(crate) fn sweep(&self) {
        let left = std::mem::take(&mut *self.left.lock());
        for mark in left {
            match kill::kill_all(ONCE_MORE, kill::looks_for_marked(&mark)) {
                Ok(_) => self.forget_note(&mark),
                Err(error) => {
                    tracing::warn!(job = job_of(&mark), %error, "cannot end a job of an earlier daemon");
                    self.left.lock().push(mark);
                }
            }
        }
        self.quarantine.sweep();
    }

    /// The programs.
    pub fn store(&self) -> &Store {
        &self.store
    }

    /// Writes down where the daemon listens.
    ///
    /// # Errors
    /// The error of the file system.
    pub fn note_address(&self, address: SocketAddr) -> io::Result<()> {
        let path = self.directory.join("address");
        self.quarantine.put_if(&path, |kind| !kind.is_file())?;
        files::write(&path, address.to_string().as_bytes(), 0o644)
    }

    /// Notes that the processes with `mark` run, before the first is started. Makes them a
    /// directory.
    ///
    /// # Errors
    /// The error of the file system.
    pub(crate) fn note(&self, mark: &str) -> io::Result<PathBuf> {
        files::write(&self.directory.join("jobs").join(mark), b"", 0o600)?;
        let work = self.directory.join("work").join(mark);
        if let Err(error) = files::private_directory(&work) {
            self.forget(mark);
            return Err(error);
        }
        Ok(work)
    }

    /// Forgets the processes with `mark`, of which none is left, and quarantines their directory;
    /// [`sweep`](Self::sweep) removes it.
    pub(crate) fn forget(&self, mark: &str) {
        self.quarantine_entry(&self.directory.join("work").join(mark));
        self.forget_note(mark);
    }

    fn forget_note(&self, mark: &str) {
        let note = self.directory.join("jobs").join(mark);
        match fs::remove_file(&note) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => self.quarantine_entry(&note),
            _ => {}
        }
    }
}

/// The job in a mark.
fn job_of(mark: &str) -> &str {
    mark.split_once('.').map_or(mark, |(job, _)| job)
}

/// Opens the file that the daemon locks.
fn lock_file(path: &Path, quarantine: &Quarantine) -> io::Result<File> {
    quarantine.put_if(path, |kind| !kind.is_file())?;
    match File::create(path) {
        // Not replaced if it exists: another daemon may hold the lock.
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            fs::set_permissions(path, Permissions::from_mode(0o600))?;
            File::create(path)
        }
        made => made,
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn one_daemon_at_a_time() {
        let place = tempfile::tempdir().unwrap();
        let state = State::open(place.path(), 0).unwrap();
        assert!(matches!(State::open(place.path(), 0), Err(StateError::InUse(_))));
        drop(state);
        State::open(place.path(), 0).unwrap();
    }

    #[test]
    fn what_cannot_be_noted_leaves_no_note() {
        let place = tempfile::tempdir().unwrap();
        let state = State::open(place.path(), 0).unwrap();
        fs::remove_dir(place.path().join("work")).unwrap();
        fs::write(place.path().join("work"), b"").unwrap();
        state.note("job.0").unwrap_err();
        assert_eq!(fs::read_dir(place.path().join("jobs")).unwrap().count(), 0);
    }

    #[test]
    fn nothing_that_a_job_puts_in_the_way_keeps_a_daemon_from_starting() {
        let place = tempfile::tempdir().unwrap();
        let path = |name: &str| place.path().join(name);
        let state = State::open(place.path(), 0).unwrap();
        let work = state.note("job.0").unwrap();
        fs::create_dir(work.join("d")).unwrap();
        fs::write(work.join("d/f"), b"").unwrap();
        fs::set_permissions(work.join("d"), Permissions::from_mode(0o555)).unwrap();
        drop(state);
        fs::write(path("work/file"), b"").unwrap();
        fs::create_dir_all(path("jobs/directory/inner")).unwrap();
        fs::create_dir_all(path("store/x.part/inner")).unwrap();
        for name in ["address", "lock"] {
            let _ = fs::remove_file(path(name));
            fs::create_dir(path(name)).unwrap();
        }
        let address = "10.0.0.1:7474".parse().unwrap();
        let state = State::open(place.path(), 0).unwrap();
        state.note_address(address).unwrap();
        drop(state);
        let folders = ["jobs", "store", "work"];
        for folder in folders {
            assert_eq!(fs::read_dir(path(folder)).unwrap().count(), 0);
            fs::set_permissions(path(folder), Permissions::from_mode(0o000)).unwrap();
        }
        fs::set_permissions(path("lock"), Permissions::from_mode(0o000)).unwrap();
        fs::set_permissions(place.path(), Permissions::from_mode(0o500)).unwrap();
        State::open(place.path(), 0).unwrap();
        for folder in folders {
            fs::remove_dir(path(folder)).unwrap();
            fs::write(path(folder), b"").unwrap();
        }
        let state = State::open(place.path(), 0).unwrap();
        state.note_address(address).unwrap();
        state.sweep();
        let left = fs::read_dir(place.path()).unwrap();
        let mut left: Vec<_> = left.map(|entry| entry.unwrap().file_name()).collect();
        left.sort();
        assert_eq!(left, ["address", "jobs", "lock", "store", "work"]);
    }

    #[test]
    fn a_process_that_does_not_end_keeps_no_daemon_from_starting() {
        let place = tempfile::tempdir().unwrap();
        let state = State::open(place.path(), 0).unwrap();
        let (stuck, other) = (format!("stuck-{}.0", std::process::id()), "other.0");
        state.note(&stuck).unwrap();
        state.note(other).unwrap();
        let end = |mark: &str| match mark {
            "other.0" => Ok(1),
            _ => Err(io::Error::other("processes [1] do not end")),
        };
        state.clean(end).unwrap();
        let noted = || fs::read_dir(place.path().join("jobs")).unwrap().count();
        assert_eq!((noted(), state.left.lock().as_slice()), (1, &[stuck][..]));
        // The process has ended meanwhile.
        state.sweep();
        assert_eq!((noted(), state.left.lock().len()), (0, 0));
    }

    #[test]
    fn what_a_killed_daemon_left_is_ended_and_nothing_else() {
        let place = tempfile::tempdir().unwrap();
        let state = State::open(place.path(), 0).unwrap();
        let mark = format!("state-{}.0", std::process::id());
        let work = state.note(&mark).unwrap();
        fs::write(work.join("scratch"), b"").unwrap();
        drop(state);
        let sleeper = |mark: &str| {
            let mut command = Command::new("sleep");
            let child = command.arg("1000").env(kill::MARK, mark).spawn().unwrap();
            // For a moment after the start, the system does not show the environment yet.
            while kill::marked(mark).unwrap().is_empty() {
                std::thread::yield_now();
            }
            child
        };
        let (mut ours, mut other) = (sleeper(&mark), sleeper("state-other"));
        State::open(place.path(), 0).unwrap();
        ours.wait().unwrap();
        assert!(other.try_wait().unwrap().is_none());
        other.kill().unwrap();
        other.wait().unwrap();
        for folder in ["jobs", "work"] {
            assert_eq!(fs::read_dir(place.path().join(folder)).unwrap().count(), 0);
        }
    }
}
