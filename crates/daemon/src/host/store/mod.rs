//! The programs that a host has, by content: the name of a file is the BLAKE3 digest of its bytes. A
//! stored program is always complete, and only the daemon's user can change it.
//!
//! Jobs run as that user. So a program is read and compared with its digest each time it is started,
//! and the daemon executes the file that was read, even if its name refers to another one by then. The
//! program is not copied to a place that no job can change, because a panic in it reads line numbers
//! from its file. So a job on the same host could still write to the file between check and start; but
//! such a job could as well change the started process.

#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};
use std::time::SystemTime;

use daemon_protocol::Program;
use parking_lot::Mutex;
use rustix::fs::OFlags;
use rustix::io::Errno;
use thiserror::Error;
use tokio::sync::OwnedMutexGuard;

use crate::files;
use crate::quarantine::{self, Quarantine};

/// Bytes of the largest program.
pub const LARGEST_PROGRAM: u64 = 4 << 30;

/// Why a program was not stored.
#[derive(Debug, Error)]
pub enum StoreError {
    /// It is larger than allowed, or than announced.
    #[error("the program is larger than {0} bytes")]
    TooLarge(u64),
    /// The received program differs from the announced digest.
    #[error(
        "the received program does not match its digest: check that its file is not being changed"
    )]
    OtherContent,
    /// A system call failed.
    #[error("cannot store the program in {}", path.display())]
    File {
        /// The store.
        path: PathBuf,
        /// The error of the system.
        #[source]
        error: io::Error,
    },
}

/// A directory of programs.
#[derive(Clone, Debug)]
pub struct Store {
    directory: PathBuf,
    /// Most bytes of programs to keep, in addition to the last one received.
    limit: u64,
    quarantine: Quarantine,
    /// The sessions that receive programs now, by digest.
    turns: Arc<Mutex<HashMap<[u8; 32], Weak<Turn>>>>,
}

type Turn = tokio::sync::Mutex<()>;

impl Store {
    /// Opens the store in `directory`, and makes it if it does not exist. Files that are not programs
    /// are quarantined next to it.
    ///
    /// # Errors
    /// The error of the file system.
    pub fn open(directory: &Path, limit: u64) -> io::Result<Self> {
        let quarantine = Quarantine::within(directory.parent().unwrap_or(directory));
        quarantine.put_if(directory, |kind| !kind.is_dir())?;
        quarantine::own_directory(directory)?;
        for file in fs::read_dir(directory)? {
            let file = file?;
            // Perhaps half received when a daemon was killed.
            let is_program = file.file_type()?.is_file() && is_digest(&file.file_name());
            if !is_program && let Err(error) = quarantine.put(&file.path()) {
                let path = file.path();
                tracing::warn!(path = %path.display(), %error, "cannot quarantine the file");
            }
        }
        Ok(Self { directory: directory.to_owned(), limit, quarantine, turns: Arc::default() })
    }

    /// The file of `program`, if it exists and has the right digest. Any other file in its place is
    /// quarantined.
    ///
    /// # Errors
    /// The error of the file system, if that does not show whether the program is intact (out of
    /// file descriptors, say): the file then stays.
    pub fn find(&self, program: &Program) -> io::Result<Option<File>> {
        let path = self.path(program);
        let why = match open_program(&path, program) {
            Ok(Some(file)) => return Ok(Some(file)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Ok(None) => "type, length or digest does not match".to_owned(),
            Err(error) if shows_change(&error) => error.to_string(),
            Err(error) => return Err(error),
        };
        let shown = path.display();
        tracing::warn!(path = %shown, why, "quarantined a stored program that was changed");
        if let Err(error) = self.quarantine.put(&path) {
            tracing::warn!(path = %shown, %error, "cannot quarantine a changed program");
        }
        Ok(None)
    }

    fn path(&self, program: &Program) -> PathBuf {
        self.directory.join(blake3::Hash::from_bytes(program.digest).to_hex().as_str())
    }

    /// Waits until no other session receives `program`; it may be in the store then. Hold the guard
    /// while receiving it.
    pub(crate) async fn turn(&self, program: &Program) -> OwnedMutexGuard<()> {
        let turn = {
            let mut turns = self.turns.lock();
            turns.retain(|_, turn| turn.strong_count() > 0);
            let turn = turns.entry(program.digest).or_default();
            turn.upgrade().unwrap_or_else(|| {
                let new = Arc::default();
                *turn = Arc::downgrade(&new);
                new
            })
        };
        turn.lock_owned().await
    }

    /// Begins to store `program`.
    ///
    /// # Errors
    /// [`StoreError`], if it is too large or no file can be made.
    pub fn receive(&self, program: &Program) -> Result<Incoming, StoreError> {
        if program.bytes > LARGEST_PROGRAM {
            return Err(StoreError::TooLarge(LARGEST_PROGRAM));
        }
        let path = self.path(program);
        let (file, temporary) = files::temporary(&path, 0o500).map_err(self.failed())?;
        let hasher = blake3::Hasher::new();
        let (program, store, left) = (program.clone(), self.clone(), program.bytes);
        Ok(Incoming { store, program, file, temporary, path, hasher, left })
    }

    fn failed(&self) -> impl FnOnce(io::Error) -> StoreError {
        let path = self.directory.clone();
        move |error| StoreError::File { path, error }
    }

    /// Removes the least recently used programs until the others, without `kept`, are within the limit.
    /// A running program is not affected: its file exists until it ends.
    fn shrink(&self, kept: &Path) -> io::Result<()> {
        let mut programs = Vec::new();
        for file in fs::read_dir(&self.directory)? {
            let file = file?;
            let Ok(metadata) = file.metadata() else { continue };
            let is_part = file.file_name().as_encoded_bytes().ends_with(b".part");
            if file.path() != kept && !is_part {
                programs.push((metadata.modified()?, metadata.len(), file.path()));
            }
        }
        programs.sort();
        let mut total: u64 = programs.iter().map(|(_, bytes, _)| bytes).sum();
        for (_, bytes, path) in programs {
            if total <= self.limit {
                break;
            }
            match fs::remove_file(&path) {
                // Another session stored a program at the same time and removed this one.
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    self.quarantine.put(&path)?
                }
                _ => {}
            }
            total -= bytes;
        }
        Ok(())
    }
}

/// A program that is being received. If it is dropped before it is finished, no file is left.
#[derive(Debug)]
pub struct Incoming {
    store: Store,
    program: Program,
    file: File,
    temporary: PathBuf,
    path: PathBuf,
    hasher: blake3::Hasher,
    /// Bytes still expected.
    left: u64,
}

impl Incoming {
    /// Takes the next bytes.
    ///
    /// # Errors
    /// [`StoreError`], if there are more than announced or they cannot be written.
    pub fn write(&mut self, bytes: &[u8]) -> Result<(), StoreError> {
        let left = self.left.checked_sub(bytes.len() as u64);
        self.left = left.ok_or(StoreError::TooLarge(self.program.bytes))?;
        self.hasher.update(bytes);
        self.file.write_all(bytes).map_err(self.store.failed())
    }

    /// Checks that it has the announced digest, gives it its name, and opens it.
    ///
    /// # Errors
    /// [`StoreError`], if the digest differs.
    pub fn finish(self) -> Result<File, StoreError> {
        if *self.hasher.finalize().as_bytes() != self.program.digest {
            return Err(StoreError::OtherContent);
        }
        let settle = || {
            // Under a name that the cleanup does not remove.
            let file = open(&self.temporary)?;
            self.store.quarantine.put_if(&self.path, |kind| !kind.is_file())?;
            files::settle(&self.file, &self.temporary, &self.path)?;
            self.store.shrink(&self.path)?;
            Ok(file)
        };
        settle().map_err(self.store.failed())
    }
}

impl Drop for Incoming {
    fn drop(&mut self) {
        // Fails if it was finished, and so renamed.
        let _ = fs::remove_file(&self.temporary);
    }
}

/// Whether a file has the digest of `program`. Reads little more than the length of the program,
/// because a job may append to the file without end.
///
/// # Errors
/// The error of the file system.
pub fn is_program(file: &File, program: &Program) -> io::Result<bool> {
    if file.metadata()?.len() != program.bytes {
        return Ok(false);
    }
    let mut hasher = blake3::Hasher::new();
    let mut chunk = vec![0; 256 << 10];
    let mut at = 0;
    loop {
        if at > program.bytes {
            return Ok(false);
        }
        match file.read_at(&mut chunk, at) {
            Ok(0) => return Ok(*hasher.finalize().as_bytes() == program.digest),
            Ok(bytes) => {
                hasher.update(&chunk[..bytes]);
                at += bytes as u64;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

/// Opens the file at `path` without following a link, and without waiting if it is a pipe.
fn open(path: &Path) -> io::Result<File> {
    let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits() as i32;
    OpenOptions::new().read(true).custom_flags(flags).open(path)
}

/// Opens the file at `path`, if it is `program`, and marks it as used.
fn open_program(path: &Path, program: &Program) -> io::Result<Option<File>> {
    // For example, opening a socket fails with an error that does not name the reason.
    if !fs::symlink_metadata(path)?.is_file() {
        return Ok(None);
    }
    let file = open(path)?;
    if !file.metadata()?.is_file() || !is_program(&file, program)? {
        return Ok(None);
    }
    file.set_permissions(Permissions::from_mode(0o500))?;
    // The time orders programs by their last use. If it cannot be set, the program is removed earlier.
    let _ = file.set_modified(SystemTime::now());
    Ok(Some(file))
}

/// Whether an error shows that a job has changed a stored program: replaced it by a link, or removed
/// permissions.
fn shows_change(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::PermissionDenied
        || error.raw_os_error() == Some(Errno::LOOP.raw_os_error())
}

/// Whether `name` can be that of a stored program.
fn is_digest(name: &OsStr) -> bool {
    name.len() == 64 && name.as_encoded_bytes().iter().all(u8::is_ascii_hexdigit)
}
