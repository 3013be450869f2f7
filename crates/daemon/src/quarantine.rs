//! [`Quarantine`]: files of jobs that are in the way in a daemon's directory are *quarantined*
//! (renamed), which takes a moment, and removed later, which may take long or fail.
//!
//! A job runs as the daemon's user, so it may leave directories without permissions, directories
//! nested deeper than a path can be long or a stack deep, or links to other places. The removal
//!
//! 1. walks by descriptors, follows no link and enters no other file system, so that no file outside is
//!    touched, even while a process of the job still runs;
//! 2. gives this user all permissions on a directory before it enters it;
//! 3. moves inner directories up to the outermost one, so that it never follows a path and needs only
//!    two descriptors.

use std::ffi::CString;
use std::fs::{self, Permissions};
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::{
    AtFlags, Dir, Mode, OFlags, ResolveFlags, open, openat, openat2, renameat, unlinkat,
};
use rustix::io::Errno;

use crate::files;

/// The prefix of the names of quarantined files.
const ASIDE: &str = "aside.";
/// How long to try to remove one file or directory. The rest is left for the next pass: a process may
/// still be writing there.
const REMOVAL_TIMEOUT: Duration = Duration::from_secs(60);
/// The most names of a directory to read at a time: a job may have made any number of files.
const NAMES: usize = 4096;

/// The directory in which files are quarantined.
#[derive(Clone, Debug)]
pub(crate) struct Quarantine {
    directory: PathBuf,
}

impl Quarantine {
    /// Quarantines files in `directory`, under unique names.
    pub(crate) fn within(directory: &Path) -> Self {
        Self { directory: directory.to_owned() }
    }

    /// Quarantines the file of any type at `path`; of a link the link itself, not its target.
    ///
    /// # Errors
    /// The error of the file system: [`io::ErrorKind::NotFound`] if there is nothing.
    pub(crate) fn put(&self, path: &Path) -> io::Result<()> {
        let name = format!("{ASIDE}{:032x}", files::random_number()?);
        if let (Some(parent), Some(last)) = (path.parent(), path.file_name()) {
            // A directory can be moved only if this user may write to it. An error is fine: it may be no
            // directory, or another user's.
            let last = CString::new(last.as_bytes())?;
            let _ = open_directory(parent, OFlags::PATH).map(|parent| enter(parent, &last));
        }
        fs::rename(path, self.directory.join(name))
    }

    /// Quarantines the file at `path` if `is_wrong` for its type.
    ///
    /// # Errors
    /// The error of the file system.
    pub(crate) fn put_if(
        &self,
        path: &Path,
        is_wrong: impl Fn(&fs::FileType) -> bool,
    ) -> io::Result<()> {
        match fs::symlink_metadata(path) {
            Ok(there) if is_wrong(&there.file_type()) => {
                tracing::warn!(path = %path.display(), "quarantined a file of unexpected type");
                self.put(path)
            }
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    /// Removes the quarantined files. Logs those that it cannot remove, and leaves them for
    /// the next time.
    pub(crate) fn sweep(&self) {
        let swept = open_directory(&self.directory, OFlags::RDONLY).and_then(|directory| {
            // Removing files while reading the directory may skip some: the next pass finds them.
            for entry in Dir::read_from(&directory)? {
                let name = entry?.file_name().to_owned();
                if name.as_bytes().starts_with(ASIDE.as_bytes())
                    && let Err(error) = remove(&directory, &name)
                {
                    let path = self.directory.join(name.to_string_lossy().as_ref());
                    tracing::warn!(path = %path.display(), %error, "cannot remove a quarantined file");
                }
            }
            Ok(())
        });
        if let Err(error) = swept {
            tracing::warn!(%error, "cannot list quarantined files");
        }
    }
}

/// Makes a directory that only this user can read, unless it exists; gives this user all permissions
/// on it, which a job may have removed.
pub(crate) fn own_directory(path: &Path) -> io::Result<()> {
    files::private_directory(path)?;
    let mode = fs::metadata(path)?.mode();
    if mode & 0o700 != 0o700 {
        fs::set_permissions(path, Permissions::from_mode(mode & 0o777 | 0o700))?;
    }
    Ok(())
}

/// Removes `name` in the directory `parent`, with its contents.
fn remove(parent: impl AsFd, name: &CString) -> io::Result<()> {
    let parent = parent.as_fd();
    if is_unlinked(parent, name)? {
        return Ok(());
    }
    empty(&enter(parent, name)?)?;
    Ok(unlinkat(parent, name, AtFlags::REMOVEDIR)?)
}

/// Removes a file of any type but a directory; false if it is a directory.
fn is_unlinked(parent: impl AsFd, name: &CString) -> io::Result<bool> {
    match unlinkat(parent, name, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => Ok(true),
        Err(Errno::ISDIR) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// Removes the contents of a directory.
fn empty(top: &OwnedFd) -> io::Result<()> {
    let deadline = Instant::now() + REMOVAL_TIMEOUT;
    loop {
        let entries = names(top)?;
        if entries.is_empty() {
            return Ok(());
        }
        let mut failed = None;
        let mut is_any_gone = false;
        for name in entries {
            match is_unlinked(top, &name)
                .and_then(|gone| if gone { Ok(()) } else { lift(top, &name) })
            {
                Ok(()) => is_any_gone = true,
                Err(error) => failed = Some(error),
            }
        }
        match failed {
            Some(error) if !is_any_gone => return Err(error),
            _ if Instant::now() >= deadline => {
                return Err(io::Error::other("not empty: a process still writes there"));
            }
            _ => {}
        }
    }
}

/// Removes the directory `name` in `top`; moves the directories in it to `top`. Of a large directory
/// it removes a part, and leaves the rest for the next pass.
fn lift(top: &OwnedFd, name: &CString) -> io::Result<()> {
    let directory = enter(top, name)?;
    let entries = names(&directory)?;
    let is_all = entries.len() < NAMES;
    for inner in entries {
        if !is_unlinked(&directory, &inner)? {
            drop(enter(&directory, &inner)?);
            let unique = CString::new(format!("{:032x}", files::random_number()?))?;
            renameat(&directory, &inner, top, &unique)?;
        }
    }
    if is_all {
        unlinkat(top, name, AtFlags::REMOVEDIR)?;
    }
    Ok(())
}

/// Opens the directory at `path`. Any other file there is an error at once: a job may have replaced
/// the directory by a pipe, for which a plain `open` would wait.
fn open_directory(path: &Path, access: OFlags) -> io::Result<OwnedFd> {
    Ok(open(path, access | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?)
}

/// Opens a directory to read it, with all permissions on it for this user.
fn enter(parent: impl AsFd, name: &CString) -> io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_XDEV;
    let found = openat2(parent, name, flags, Mode::empty(), resolve)?;
    let path = format!("/proc/self/fd/{}", found.as_raw_fd());
    let mode = fs::metadata(&path)?.mode();
    if mode & 0o700 != 0o700 {
        fs::set_permissions(&path, Permissions::from_mode(mode & 0o777 | 0o700))?;
    }
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    Ok(openat(&found, c".", flags, Mode::empty())?)
}

/// The names in a directory, or [`NAMES`] of them if there are more.
fn names(directory: impl AsFd) -> io::Result<Vec<CString>> {
    let mut names = Vec::new();
    for entry in Dir::read_from(directory)? {
        let entry = entry?;
        let name = entry.file_name();
        if ![c".", c".."].contains(&name) {
            names.push(name.to_owned());
        }
        if names.len() == NAMES {
            break;
        }
    }
    Ok(names)
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::unix::fs::symlink;
    use std::sync::mpsc;
    use std::thread;

    use rustix::fs::{CWD, FileType, mknodat};

    use super::*;

    fn place() -> (tempfile::TempDir, Quarantine) {
        let place = tempfile::tempdir().unwrap();
        let quarantine = Quarantine::within(place.path());
        (place, quarantine)
    }

    fn entries(path: &Path) -> usize {
        fs::read_dir(path).unwrap().count()
    }

    #[test]
    fn what_is_set_aside_is_out_of_the_way_at_once_and_removed_later() {
        let (place, quarantine) = place();
        let work = place.path().join("work");
        fs::create_dir_all(work.join("d/e")).unwrap();
        fs::write(work.join("d/f"), "").unwrap();
        for (path, mode) in [("d/e", 0o000), ("d", 0o555), ("", 0o000)] {
            fs::set_permissions(work.join(path), Permissions::from_mode(mode)).unwrap();
        }
        quarantine.put(&work).unwrap();
        assert!(!work.exists());
        assert_eq!(entries(place.path()), 1);
        quarantine.sweep();
        assert_eq!(entries(place.path()), 0);
        let none = quarantine.put(&work).unwrap_err();
        assert_eq!(none.kind(), io::ErrorKind::NotFound);
    }

    #[test]
    fn nothing_behind_a_link_is_touched() {
        let (place, quarantine) = place();
        let outside = tempfile::tempdir().unwrap();
        fs::write(outside.path().join("precious"), "").unwrap();
        fs::set_permissions(outside.path(), Permissions::from_mode(0o555)).unwrap();
        let work = place.path().join("work");
        fs::create_dir_all(work.join("d")).unwrap();
        symlink(outside.path(), work.join("d/link")).unwrap();
        symlink(outside.path(), place.path().join("link")).unwrap();
        quarantine.put(&place.path().join("link")).unwrap();
        quarantine.put(&work).unwrap();
        quarantine.sweep();
        assert_eq!(entries(place.path()), 0);
        assert_eq!(entries(outside.path()), 1);
        assert_eq!(fs::metadata(outside.path()).unwrap().mode() & 0o777, 0o555);
        let parent = File::open(place.path()).unwrap();
        symlink(outside.path(), place.path().join("link")).unwrap();
        enter(&parent, &c"link".to_owned()).unwrap_err();
    }

    #[test]
    fn directories_may_be_nested_deeper_than_a_path_or_a_stack_can_hold() {
        let (place, quarantine) = place();
        // Built from the inside, since no path leads to the innermost.
        let (one, other) = (place.path().join("one"), place.path().join("other"));
        fs::create_dir(&one).unwrap();
        for _ in 0..5000 {
            fs::create_dir(&other).unwrap();
            fs::rename(&one, other.join("d")).unwrap();
            fs::rename(&other, &one).unwrap();
        }
        quarantine.put(&one).unwrap();
        quarantine.sweep();
        assert_eq!(entries(place.path()), 0);
    }

    #[test]
    fn of_a_large_directory_a_part_at_a_time_is_held_in_memory() {
        let (place, quarantine) = place();
        let work = place.path().join("work");
        fs::create_dir_all(work.join("d/e")).unwrap();
        for number in 0..2 * NAMES {
            fs::write(work.join(number.to_string()), "").unwrap();
            fs::write(work.join("d").join(number.to_string()), "").unwrap();
        }
        for path in [&work, &work.join("d")] {
            assert_eq!(names(File::open(path).unwrap()).unwrap().len(), NAMES);
        }
        quarantine.put(&work).unwrap();
        quarantine.sweep();
        assert_eq!(entries(place.path()), 0);
    }

    #[test]
    fn a_pipe_in_place_of_a_directory_is_an_error_and_not_waited_for() {
        let (place, quarantine) = place();
        let pipe = place.path().join("work");
        mknodat(CWD, &pipe, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
        let (sender, receiver) = mpsc::channel();
        let path = pipe.join("job.0");
        let within = Quarantine::within(&pipe);
        thread::spawn(move || {
            let put = quarantine.put(&path).unwrap_err();
            within.sweep();
            sender.send(put.kind())
        });
        let put = receiver
            .recv_timeout(REMOVAL_TIMEOUT)
            .expect("an answer, instead of waiting for a writer");
        assert_eq!(put, io::ErrorKind::NotADirectory);
    }

    #[test]
    fn only_what_is_wrong_is_set_aside() {
        let (place, quarantine) = place();
        let path = place.path().join("store");
        quarantine.put_if(&path, |kind| !kind.is_dir()).unwrap();
        fs::create_dir(&path).unwrap();
        quarantine.put_if(&path, |kind| !kind.is_dir()).unwrap();
        assert!(path.exists());
        fs::remove_dir(&path).unwrap();
        fs::write(&path, "").unwrap();
        quarantine.put_if(&path, |kind| !kind.is_dir()).unwrap();
        assert!(!path.exists());
    }
}
