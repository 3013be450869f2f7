//! What a daemon keeps on disk: its store of programs, and a note of each job that runs, so that
//! the next daemon can clean up after one that was killed.
//!
//! ```text
//!   STATE/lock                 held by the daemon that runs
//!   STATE/address              where it listens
//!   STATE/store/DIGEST         programs
//!   STATE/jobs/MARK            a job that runs; its processes are known by the mark
//!   STATE/work/MARK/           the directory that they run in, if none was asked for
//! ```

use crate::{files, processes, store::Store};
use rustix::fs::{FlockOperation, flock};
use std::{
    fs::{self, File},
    io,
    net::SocketAddr,
    path::{Path, PathBuf},
    time::Duration,
};
use thiserror::Error;

/// How long what is killed may take to be gone.
const PATIENCE: Duration = Duration::from_secs(10);

/// Why a daemon cannot use its directory.
#[derive(Debug, Error)]
pub enum StateError {
    /// Another daemon runs.
    #[error("another daemon uses {}; give this one a `state` of its own", .0.display())]
    InUse(PathBuf),
    /// The file system says why.
    #[error("cannot use {}: {error}", path.display())]
    File {
        /// The directory.
        path: PathBuf,
        /// What the system says.
        error: io::Error,
    },
}

/// A daemon's directory, while it runs.
#[derive(Debug)]
pub struct State {
    directory: PathBuf,
    store: Store,
    /// Locked as long as it is open.
    _lock: File,
}

impl State {
    /// Takes the directory for this daemon, and cleans up what another has left there.
    ///
    /// # Errors
    /// [`StateError`], if another daemon runs there or the directory is not usable.
    pub fn open(directory: &Path, store_bytes: u64) -> Result<Self, StateError> {
        let failed = |error| StateError::File { path: directory.to_owned(), error };
        let open = || {
            files::private_directory(directory)?;
            File::create(directory.join("lock"))
        };
        let lock = open().map_err(failed)?;
        match flock(&lock, FlockOperation::NonBlockingLockExclusive) {
            Err(rustix::io::Errno::WOULDBLOCK) => {
                return Err(StateError::InUse(directory.to_owned()));
            }
            locked => locked.map_err(|error| failed(error.into()))?,
        }
        let store = Store::open(&directory.join("store"), store_bytes).map_err(failed)?;
        let state = Self { directory: directory.to_owned(), store, _lock: lock };
        state.clean().map_err(failed)?;
        Ok(state)
    }

    /// Ends what an earlier daemon has left, and forgets it.
    fn clean(&self) -> io::Result<()> {
        for folder in ["jobs", "work"] {
            files::private_directory(&self.directory.join(folder))?;
        }
        for note in fs::read_dir(self.directory.join("jobs"))? {
            let Ok(mark) = note?.file_name().into_string() else { continue };
            let killed = processes::kill_all(PATIENCE, || processes::marked(&mark))?;
            let job = mark.split_once('.').map_or(&*mark, |(job, _)| job);
            tracing::warn!(job, killed, "cleaned up after a daemon that was killed");
            self.forget(&mark)?;
        }
        for work in fs::read_dir(self.directory.join("work"))? {
            fs::remove_dir_all(work?.path())?;
        }
        Ok(())
    }

    /// The programs.
    pub fn store(&self) -> &Store {
        &self.store
    }

    /// Writes down where the daemon listens.
    ///
    /// # Errors
    /// What the file system says.
    pub fn note_address(&self, address: SocketAddr) -> io::Result<()> {
        files::write(&self.directory.join("address"), address.to_string().as_bytes(), 0o644)
    }

    /// Notes that the processes with `mark` run, before the first is started. Makes them a
    /// directory.
    ///
    /// # Errors
    /// What the file system says.
    pub(crate) fn note(&self, mark: &str) -> io::Result<PathBuf> {
        files::write(&self.directory.join("jobs").join(mark), b"", 0o600)?;
        let work = self.directory.join("work").join(mark);
        if let Err(error) = files::private_directory(&work) {
            // What goes wrong now, too, is the next daemon's to clean up.
            let _ = self.forget(mark);
            return Err(error);
        }
        Ok(work)
    }

    /// Forgets the processes with `mark`, when none is left.
    ///
    /// # Errors
    /// What the file system says.
    pub(crate) fn forget(&self, mark: &str) -> io::Result<()> {
        for removed in [
            fs::remove_dir_all(self.directory.join("work").join(mark)),
            fs::remove_file(self.directory.join("jobs").join(mark)),
        ] {
            match removed {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

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
    fn what_a_killed_daemon_left_is_ended_and_nothing_else() {
        let place = tempfile::tempdir().unwrap();
        let state = State::open(place.path(), 0).unwrap();
        let mark = format!("state-{}.0", std::process::id());
        let work = state.note(&mark).unwrap();
        fs::write(work.join("scratch"), b"").unwrap();
        drop(state);
        let sleeper = |mark: &str| {
            let mut command = Command::new("sleep");
            let child = command.arg("1000").env(processes::MARK, mark).spawn().unwrap();
            // A moment after it has begun, the system does not show its environment yet.
            while processes::marked(mark).unwrap().is_empty() {
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
