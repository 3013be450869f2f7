//! [`Cgroup`]: the cgroup of one process of a job, which the kernel kills at once.

use std::ffi::CString;
use std::os::fd::OwnedFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, Instant};
use std::{fs, io};

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, openat, unlinkat};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

/// Interval at which a cgroup that is being killed is checked.
const PAUSE: Duration = Duration::from_millis(2);

/// The cgroup of a process of a job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Cgroup {
    path: PathBuf,
}

impl Cgroup {
    /// The cgroup at `path`.
    pub(crate) fn at(path: &Path) -> Self {
        Self { path: path.to_owned() }
    }

    /// Its directory.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Moves this process into it.
    ///
    /// # Errors
    /// The error of the kernel.
    pub(crate) fn join(&self) -> io::Result<()> {
        fs::write(self.path.join("cgroup.procs"), "0")
    }

    /// Kills all its processes at once.
    ///
    /// # Errors
    /// The error of the kernel.
    pub(crate) fn kill(&self) -> io::Result<()> {
        fs::write(self.path.join("cgroup.kill"), "1")
    }

    /// Kills all its processes, and removes it when it is empty. If the job has removed it, it was
    /// empty: the kernel removes no other.
    ///
    /// # Errors
    /// The error of the kernel, or that a process in it does not end.
    pub(crate) fn end(&self, timeout: Duration) -> io::Result<()> {
        match self.try_end(timeout) {
            Err(error) if is_gone(&error) && !self.path.try_exists()? => Ok(()),
            ended => ended,
        }
    }

    fn try_end(&self, timeout: Duration) -> io::Result<()> {
        let deadline = Instant::now() + timeout;
        loop {
            self.kill()?;
            let events = fs::read_to_string(self.path.join("cgroup.events"))?;
            if !events.lines().any(|line| line == "populated 1") {
                return remove(&self.path, deadline);
            }
            if Instant::now() >= deadline {
                let shown = self.path.display();
                return Err(io::Error::other(format!(
                    "killed processes in {shown} have not ended"
                )));
            }
            sleep(PAUSE);
        }
    }
}

/// Whether an error of a file of a cgroup can mean that the cgroup was removed, before or after the
/// file was opened.
fn is_gone(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::NotFound
        || error.raw_os_error() == Some(Errno::NODEV.raw_os_error())
}

/// Removes a cgroup and those that a job has made in it; the files of a cgroup need not be removed.
/// Walks by descriptors, since a job can nest directories deeper than a path can be long. Stops at
/// `deadline`; the next call continues.
fn remove(path: &Path, deadline: Instant) -> io::Result<()> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let top = fs::OpenOptions::new().read(true).custom_flags(flags.bits() as i32).open(path)?;
    let mut current = OwnedFd::from(top);
    // The directories from `path` to `current`.
    let mut names: Vec<CString> = Vec::new();
    loop {
        if let Some(name) = directory_in(&current)? {
            current = openat(&current, &name, flags, Mode::empty())?;
            names.push(name);
        } else if let Some(name) = names.pop() {
            current = openat(&current, c"..", flags, Mode::empty())?;
            unlinkat(&current, &name, AtFlags::REMOVEDIR)?;
        } else {
            return fs::remove_dir(path);
        }
        if Instant::now() >= deadline {
            let shown = path.display();
            return Err(io::Error::other(format!("cgroups in {shown} remain")));
        }
    }
}

/// The name of one of the directories in a directory.
fn directory_in(directory: &OwnedFd) -> io::Result<Option<CString>> {
    for entry in Dir::read_from(directory)? {
        let entry = entry?;
        let name = entry.file_name();
        if entry.file_type() == FileType::Directory && ![c".", c".."].contains(&name) {
            return Ok(Some(name.to_owned()));
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIMEOUT: Duration = Duration::from_secs(60);

    #[test]
    fn cgroups_that_a_job_has_made_are_removed_with_its_own() {
        let place = tempfile::tempdir().unwrap();
        let job = place.path().join("job.1.0");
        fs::create_dir_all(job.join("a/b/c")).unwrap();
        fs::create_dir_all(job.join("d")).unwrap();
        remove(&job, Instant::now() + TIMEOUT).unwrap();
        assert!(!job.exists());
    }

    #[test]
    fn cgroups_may_be_nested_deeper_than_a_path_can_hold() {
        let place = tempfile::tempdir().unwrap();
        // Built from the innermost outwards, since no path is long enough to reach that.
        let (job, other) = (place.path().join("job.1.0"), place.path().join("other"));
        fs::create_dir(&job).unwrap();
        for _ in 0..3000 {
            fs::create_dir(&other).unwrap();
            fs::rename(&job, other.join("d")).unwrap();
            fs::rename(&other, &job).unwrap();
        }
        remove(&job, Instant::now() + TIMEOUT).unwrap();
        assert!(!job.exists());
    }
}
