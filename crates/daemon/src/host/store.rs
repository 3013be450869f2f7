//! The programs that a host has, by their content: a file's name is the BLAKE3 digest of what is
//! in it. A program is there whole or not at all, and nobody but the daemon's user can change it.
//!
//! Jobs run as that user. So a program is read and compared with its digest each time that it is
//! started, and what is executed is the file that was read, not what has its name by then. It is
//! not copied to where nothing can change it: a panic in it could not name lines, which are read
//! from the file. So a job that runs on the same host at the same time could still write to the file
//! in the moment between; it could as well change the process that is started.

use crate::{
    files,
    protocol::Program,
    quarantine::{self, Aside},
};
use parking_lot::Mutex;
use rustix::{fs::OFlags, io::Errno};
use std::{
    collections::HashMap,
    ffi::OsStr,
    fs::{self, File, OpenOptions, Permissions},
    io::{self, Write},
    os::unix::fs::{FileExt, OpenOptionsExt, PermissionsExt},
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
    aside: Aside,
    /// Who receives which program, by its digest.
    turns: Arc<Mutex<HashMap<[u8; 32], Weak<Turn>>>>,
}

type Turn = tokio::sync::Mutex<()>;

impl Store {
    /// Opens the store in `directory`, and makes it if it is not there. Files that are not programs
    /// are set aside next to it.
    ///
    /// # Errors
    /// What the file system says.
    pub fn open(directory: &Path, limit: u64) -> io::Result<Self> {
        let aside = Aside::within(directory.parent().unwrap_or(directory));
        aside.put_if(directory, |kind| !kind.is_dir())?;
        quarantine::own_directory(directory)?;
        for file in fs::read_dir(directory)? {
            let file = file?;
            // It may have been on its way when a daemon was killed.
            let is_program = file.file_type()?.is_file() && is_digest(&file.file_name());
            if !is_program && let Err(error) = aside.put(&file.path()) {
                let path = file.path();
                tracing::warn!(path = %path.display(), %error, "cannot set aside");
            }
        }
        Ok(Self { directory: directory.to_owned(), limit, aside, turns: Arc::default() })
    }

    /// The file of `program`, if it is there and, by its digest, what it should be. Another file in
    /// its place is set aside.
    ///
    /// # Errors
    /// What the file system says, if that does not show whether the program is intact (out of file
    /// descriptors, say): the file then stays.
    pub fn find(&self, program: &Program) -> io::Result<Option<File>> {
        let path = self.path(program);
        let why = match open_program(&path, program) {
            Ok(Some(file)) => return Ok(Some(file)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Ok(None) => "its type, length or digest does not match".to_owned(),
            Err(error) if shows_change(&error) => error.to_string(),
            Err(error) => return Err(error),
        };
        let shown = path.display();
        tracing::warn!(path = %shown, why, "a stored program was changed: set aside");
        if let Err(error) = self.aside.put(&path) {
            tracing::warn!(path = %shown, %error, "cannot set aside a changed program");
        }
        Ok(None)
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
            match fs::remove_file(&path) {
                // Another program was stored at the same time, and this one removed for that.
                Err(error) if error.kind() != io::ErrorKind::NotFound => self.aside.put(&path)?,
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

    /// Checks that it is what was announced, gives it its name, and opens it.
    ///
    /// # Errors
    /// [`StoreError`], if it is something else.
    pub fn finish(self) -> Result<File, StoreError> {
        if *self.hasher.finalize().as_bytes() != self.program.digest {
            return Err(StoreError::OtherContent);
        }
        let settle = || {
            // By the name that nothing else removes.
            let file = open(&self.temporary)?;
            self.store.aside.put_if(&self.path, |kind| !kind.is_file())?;
            files::settle(&self.file, &self.temporary, &self.path)?;
            self.store.shrink(&self.path)?;
            Ok(file)
        };
        settle().map_err(self.store.failed())
    }
}

impl Drop for Incoming {
    fn drop(&mut self) {
        // Gone already if it was finished.
        let _ = fs::remove_file(&self.temporary);
    }
}

/// Whether a file is, by its digest, `program`. Reads all of it, but not much more than the program
/// is long: a job may append to the file all the time.
///
/// # Errors
/// What the file system says.
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

/// Opens the file at `path`, not what it may link to; does not wait, should it be a pipe.
fn open(path: &Path) -> io::Result<File> {
    let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits() as i32;
    OpenOptions::new().read(true).custom_flags(flags).open(path)
}

/// Opens the file at `path`, if it is `program`, and marks it as used.
fn open_program(path: &Path, program: &Program) -> io::Result<Option<File>> {
    // Opening a socket, for one, fails with an error that shows nothing.
    if !fs::symlink_metadata(path)?.is_file() {
        return Ok(None);
    }
    let file = open(path)?;
    if !file.metadata()?.is_file() || !is_program(&file, program)? {
        return Ok(None);
    }
    file.set_permissions(Permissions::from_mode(0o500))?;
    // What was used last is kept longest. If the time cannot be set it only goes earlier.
    let _ = file.set_modified(SystemTime::now());
    Ok(Some(file))
}

/// Whether an error says that a stored program is not as the daemon left it: a link in its place, or
/// permissions taken away.
fn shows_change(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::PermissionDenied
        || error.raw_os_error() == Some(Errno::LOOP.raw_os_error())
}

/// Whether a file has the name of a program.
fn is_digest(name: &OsStr) -> bool {
    name.len() == 64 && name.as_encoded_bytes().iter().all(u8::is_ascii_hexdigit)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::process::{Resource, Rlimit};

    fn program(content: &[u8]) -> Program {
        let digest = *blake3::hash(content).as_bytes();
        Program { digest, bytes: content.len() as u64, name: "p".into() }
    }

    fn put(store: &Store, content: &[u8]) -> PathBuf {
        let mut incoming = store.receive(&program(content)).unwrap();
        incoming.write(content).unwrap();
        incoming.finish().unwrap();
        store.path(&program(content))
    }

    fn store(limit: u64) -> (tempfile::TempDir, Store) {
        let place = tempfile::tempdir().unwrap();
        let store = Store::open(&place.path().join("store"), limit).unwrap();
        (place, store)
    }

    #[test]
    fn what_was_stored_is_found_by_its_content() {
        let (_place, store) = store(1000);
        assert!(store.find(&program(b"one")).unwrap().is_none());
        let path = put(&store, b"one");
        assert!(
            is_program(&store.find(&program(b"one")).unwrap().unwrap(), &program(b"one")).unwrap()
        );
        assert_eq!(fs::read(&path).unwrap(), b"one");
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o500);
        let directory = fs::metadata(path.parent().unwrap()).unwrap();
        assert_eq!(directory.permissions().mode() & 0o777, 0o700);
    }

    #[test]
    fn a_program_that_was_changed_is_none() {
        type Change = fn(&Path);
        let changes: [Change; 5] = [
            |path| {
                fs::set_permissions(path, Permissions::from_mode(0o700)).unwrap();
                fs::write(path, b"two").unwrap();
            },
            |path| {
                fs::remove_file(path).unwrap();
                fs::create_dir(path).unwrap();
            },
            |path| {
                fs::remove_file(path).unwrap();
                std::os::unix::fs::symlink("/bin/sh", path).unwrap();
            },
            |path| {
                let file = store_file(path);
                file.set_len(7).unwrap();
            },
            |path| {
                fs::remove_file(path).unwrap();
                std::os::unix::net::UnixListener::bind(path).unwrap();
            },
        ];
        for change in changes {
            let (place, store) = store(1000);
            let path = put(&store, b"one");
            change(&path);
            assert!(store.find(&program(b"one")).unwrap().is_none());
            assert!(fs::symlink_metadata(&path).is_err(), "it is still in the way");
            assert_eq!(fs::read_dir(place.path()).unwrap().count(), 2, "it was set aside");
            put(&store, b"one");
            assert!(store.find(&program(b"one")).unwrap().is_some());
        }
    }

    /// Set in a process of its own, in which the test may use up all descriptors.
    const OWN_PROCESS: &str = "GOSSAMER_TEST_OWN_PROCESS";

    #[test]
    fn a_program_that_cannot_be_opened_for_want_of_descriptors_stays() {
        const NAME: &str =
            "host::store::tests::a_program_that_cannot_be_opened_for_want_of_descriptors_stays";
        if std::env::var_os(OWN_PROCESS).is_none() {
            let mut own = std::process::Command::new(std::env::current_exe().unwrap());
            let ran = own.args(["--exact", NAME]).env(OWN_PROCESS, "1").output().unwrap();
            let said = String::from_utf8_lossy(&ran.stdout);
            assert!(ran.status.success() && said.contains("1 passed"), "{said}");
            return;
        }
        let (_place, store) = store(1000);
        let path = put(&store, b"one");
        let maximum = rustix::process::getrlimit(Resource::Nofile).maximum;
        rustix::process::setrlimit(Resource::Nofile, Rlimit { current: Some(64), maximum })
            .unwrap();
        let mut open = Vec::new();
        let error = loop {
            match File::open("/dev/null") {
                Ok(file) => open.push(file),
                Err(error) => break error,
            }
        };
        assert_eq!(error.raw_os_error(), Some(Errno::MFILE.raw_os_error()));
        let found = store.find(&program(b"one"));
        drop(open);
        assert_eq!(found.unwrap_err().raw_os_error(), Some(Errno::MFILE.raw_os_error()));
        assert!(path.exists(), "a good program was set aside");
        assert!(store.find(&program(b"one")).unwrap().is_some());
    }

    #[test]
    fn a_file_without_end_is_no_program() {
        // Its metadata says 0 bytes, and it is never read to its end.
        let endless = File::open("/dev/zero").unwrap();
        assert!(!is_program(&endless, &program(b"")).unwrap());
    }

    fn store_file(path: &Path) -> File {
        fs::set_permissions(path, Permissions::from_mode(0o700)).unwrap();
        OpenOptions::new().write(true).open(path).unwrap()
    }

    #[test]
    fn what_is_no_program_keeps_no_store_from_opening() {
        let (_place, store) = store(1000);
        put(&store, b"one");
        fs::create_dir_all(store.directory.join("x.part/y")).unwrap();
        fs::create_dir(store.directory.join("0".repeat(64))).unwrap();
        fs::write(store.directory.join("other"), b"").unwrap();
        let again = Store::open(&store.directory, 1000).unwrap();
        assert_eq!(fs::read_dir(&store.directory).unwrap().count(), 1);
        assert!(again.find(&program(b"one")).unwrap().is_some());
        fs::remove_dir_all(&store.directory).unwrap();
        fs::write(&store.directory, b"").unwrap();
        Store::open(&store.directory, 1000).unwrap();
    }

    #[test]
    fn other_content_is_refused_and_leaves_nothing() {
        let (_place, store) = store(1000);
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
        let (_place, store) = store(1000);
        std::mem::forget(store.receive(&program(b"one")).unwrap());
        assert_eq!(fs::read_dir(&store.directory).unwrap().count(), 1);
        Store::open(&store.directory, 1000).unwrap();
        assert_eq!(fs::read_dir(&store.directory).unwrap().count(), 0);
    }

    #[test]
    fn programs_may_be_stored_at_the_same_time_where_there_is_no_room() {
        let (_place, store) = store(0);
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
        let (_place, store) = store(1000);
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
        let (_place, store) = store(3);
        for content in [b"one", b"two"] {
            let path = put(&store, content);
            let long_ago = SystemTime::UNIX_EPOCH;
            File::open(path).unwrap().set_modified(long_ago).unwrap();
        }
        assert!(store.find(&program(b"one")).unwrap().is_some(), "and is used");
        put(&store, b"six");
        assert!(store.find(&program(b"one")).unwrap().is_some());
        assert!(store.find(&program(b"two")).unwrap().is_none());
        assert!(store.find(&program(b"six")).unwrap().is_some());
    }
}
