//! The programs that a host has, by their content: a file's name is the BLAKE3 digest of what is
//! in it. A program is there whole or not at all, and nobody but the daemon's user can change it.

use crate::{files, message::Program};
use parking_lot::Mutex;
use std::{
    collections::HashMap,
    fs::{self, File},
    io::{self, Write},
    path::{Path, PathBuf},
    sync::{Arc, Weak},
    time::SystemTime,
};
use thiserror::Error;
use tokio::sync::OwnedMutexGuard;

/// Bytes of the largest program.
pub const LARGEST_PROGRAM: u64 = 4 << 30;

/// Why a program was not stored.
#[derive(Debug, Error)]
pub enum StoreError {
    /// It is larger than allowed, or than was said.
    #[error("a program of more than {0} bytes")]
    TooLarge(u64),
    /// What arrived is not what was announced.
    #[error("what arrived is not the program that was announced; was the file changed meanwhile?")]
    OtherContent,
    /// The file system says why.
    #[error("cannot store the program in {}: {error}", path.display())]
    File {
        /// The store.
        path: PathBuf,
        /// What the system says.
        error: io::Error,
    },
}

/// A directory of programs.
#[derive(Clone, Debug)]
pub struct Store {
    directory: PathBuf,
    /// How many bytes of programs are kept, at most, beside the one that came last.
    limit: u64,
    /// Who receives which program, by its digest.
    turns: Arc<Mutex<HashMap<[u8; 32], Weak<Turn>>>>,
}

type Turn = tokio::sync::Mutex<()>;

impl Store {
    /// Opens the store in `directory`, and makes it if it is not there.
    ///
    /// # Errors
    /// What the file system says.
    pub fn open(directory: &Path, limit: u64) -> io::Result<Self> {
        files::private_directory(directory)?;
        for file in fs::read_dir(directory)? {
            let file = file?;
            // What was on its way when a daemon was killed.
            if file.file_name().as_encoded_bytes().ends_with(b".part") {
                fs::remove_file(file.path())?;
            }
        }
        Ok(Self { directory: directory.to_owned(), limit, turns: Arc::default() })
    }

    /// Where `program` lies, if it is there.
    pub fn find(&self, program: &Program) -> Option<PathBuf> {
        let path = self.path(program);
        let file = File::open(&path).ok()?;
        if file.metadata().ok()?.len() != program.bytes {
            return None;
        }
        // What was used last is kept longest. If the time cannot be set it only goes earlier.
        let _ = file.set_modified(SystemTime::now());
        Some(path)
    }

    fn path(&self, program: &Program) -> PathBuf {
        self.directory.join(blake3::Hash::from_bytes(program.digest).to_hex().as_str())
    }

    /// Waits until nobody else receives `program`, which may then be there. What this returns is to
    /// be held while it is received.
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

    /// Removes what was not used for longest until what is left, without `kept`, is within the
    /// limit. A program that runs goes on: its file lives until it ends.
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
            match fs::remove_file(path) {
                // Another program was stored at the same time, and this one removed for that.
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
            total -= bytes;
        }
        Ok(())
    }
}

/// A program on its way. Dropped before it is finished, it leaves nothing.
#[derive(Debug)]
pub struct Incoming {
    store: Store,
    program: Program,
    file: File,
    temporary: PathBuf,
    path: PathBuf,
    hasher: blake3::Hasher,
    /// Bytes that may still come.
    left: u64,
}

impl Incoming {
    /// Takes the next bytes.
    ///
    /// # Errors
    /// [`StoreError`], if there are more than was said or they cannot be written.
    pub fn write(&mut self, bytes: &[u8]) -> Result<(), StoreError> {
        let left = self.left.checked_sub(bytes.len() as u64);
        self.left = left.ok_or(StoreError::TooLarge(self.program.bytes))?;
        self.hasher.update(bytes);
        self.file.write_all(bytes).map_err(self.store.failed())
    }

    /// Checks that it is what was announced, and gives it its name.
    ///
    /// # Errors
    /// [`StoreError`], if it is something else.
    pub fn finish(self) -> Result<PathBuf, StoreError> {
        if *self.hasher.finalize().as_bytes() != self.program.digest {
            return Err(StoreError::OtherContent);
        }
        files::settle(&self.file, &self.temporary, &self.path).map_err(self.store.failed())?;
        self.store.shrink(&self.path).map_err(self.store.failed())?;
        Ok(self.path.clone())
    }
}

impl Drop for Incoming {
    fn drop(&mut self) {
        // Gone already if it was finished.
        let _ = fs::remove_file(&self.temporary);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    fn program(content: &[u8]) -> Program {
        let digest = *blake3::hash(content).as_bytes();
        Program { digest, bytes: content.len() as u64, name: "p".into() }
    }

    fn put(store: &Store, content: &[u8]) -> PathBuf {
        let mut incoming = store.receive(&program(content)).unwrap();
        incoming.write(content).unwrap();
        incoming.finish().unwrap()
    }

    fn open(limit: u64) -> (tempfile::TempDir, Store) {
        let place = tempfile::tempdir().unwrap();
        let store = Store::open(&place.path().join("store"), limit).unwrap();
        (place, store)
    }

    #[test]
    fn what_was_stored_is_found_by_its_content() {
        let (_place, store) = open(1000);
        assert_eq!(store.find(&program(b"one")), None);
        let path = put(&store, b"one");
        assert_eq!(store.find(&program(b"one")), Some(path.clone()));
        assert_eq!(fs::read(&path).unwrap(), b"one");
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o500);
        let directory = fs::metadata(path.parent().unwrap()).unwrap();
        assert_eq!(directory.permissions().mode() & 0o777, 0o700);
    }

    #[test]
    fn other_content_is_refused_and_leaves_nothing() {
        let (_place, store) = open(1000);
        let mut incoming = store.receive(&program(b"one")).unwrap();
        incoming.write(b"two").unwrap();
        assert!(matches!(incoming.finish(), Err(StoreError::OtherContent)));
        let mut incoming = store.receive(&program(b"one")).unwrap();
        assert!(matches!(incoming.write(b"three"), Err(StoreError::TooLarge(3))));
        drop(incoming);
        assert_eq!(fs::read_dir(&store.directory).unwrap().count(), 0);
        let huge = Program { bytes: u64::MAX, ..program(b"") };
        assert!(matches!(store.receive(&huge), Err(StoreError::TooLarge(_))));
    }

    #[test]
    fn what_was_on_its_way_when_a_daemon_was_killed_is_removed() {
        let (_place, store) = open(1000);
        std::mem::forget(store.receive(&program(b"one")).unwrap());
        assert_eq!(fs::read_dir(&store.directory).unwrap().count(), 1);
        Store::open(&store.directory, 1000).unwrap();
        assert_eq!(fs::read_dir(&store.directory).unwrap().count(), 0);
    }

    #[test]
    fn programs_may_be_stored_at_the_same_time_where_there_is_no_room() {
        let (_place, store) = open(0);
        std::thread::scope(|scope| {
            for number in 0..4 {
                let store = &store;
                scope.spawn(move || {
                    for round in 0..50 {
                        put(store, format!("{number} {round}").as_bytes());
                    }
                });
            }
        });
    }

    #[tokio::test]
    async fn a_program_is_received_by_one_at_a_time() {
        let (_place, store) = open(1000);
        let one = program(b"one");
        let first = store.turn(&one).await;
        let _other = store.turn(&program(b"two")).await;
        let mut second = std::pin::pin!(store.turn(&one));
        tokio::select! {
            biased;
            _ = &mut second => panic!("it is another's turn"),
            () = std::future::ready(()) => {}
        }
        drop(first);
        drop(second.await);
        let _third = store.turn(&one).await;
        assert_eq!(store.turns.lock().len(), 2, "what is over is forgotten");
    }

    #[test]
    fn what_was_not_used_for_longest_goes_first() {
        let (_place, store) = open(3);
        for content in [b"one", b"two"] {
            let path = put(&store, content);
            let long_ago = SystemTime::UNIX_EPOCH;
            File::open(path).unwrap().set_modified(long_ago).unwrap();
        }
        assert!(store.find(&program(b"one")).is_some(), "and is used");
        put(&store, b"six");
        assert!(store.find(&program(b"one")).is_some());
        assert!(store.find(&program(b"two")).is_none());
        assert!(store.find(&program(b"six")).is_some());
    }
}
