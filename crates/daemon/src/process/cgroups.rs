//! Cgroups (version 2): one for each process of a job, if the daemon has a delegated part of the
//! hierarchy (`Delegate=yes` in its unit).
//!
//! ```text
//!   DAEMON'S CGROUP/           has no process, so that it can delegate controllers
//!     daemon/                  the daemon and its supervisors
//!     job.MARK/                a process of a job, and all that it starts
//! ```
//!
//! The kernel kills all processes of a cgroup at once, even if they fork meanwhile, and limits their
//! memory and number. A job runs as the daemon's user, so a malicious program can move itself to
//! another cgroup of the daemon. There it has no limits, but is still a descendant of the daemon and
//! killed as such ([`kill`](crate::process::kill)).

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::time::Duration;
use std::{fs, io};

use daemon_protocol::Limits;
use parking_lot::Mutex;

use crate::process::cgroup::Cgroup;

/// The cgroup of the daemon itself.
const DAEMON: &str = "daemon";
/// The prefix of the names of processes' cgroups.
const JOB: &str = "job.";
/// How long to wait for killed processes to end.
const REMOVAL_TIMEOUT: Duration = Duration::from_secs(60);
/// The same, for processes that did not end in that time.
const ONCE_MORE: Duration = Duration::from_secs(1);

/// The part of the hierarchy that is delegated to a daemon.
#[derive(Debug)]
pub(crate) struct Cgroups {
    root: PathBuf,
    /// For each controller that cannot be used, by name: why not.
    missing: Vec<(&'static str, String)>,
    /// Those that could not be ended.
    stuck: Mutex<Vec<Cgroup>>,
}

impl Cgroups {
    /// The cgroup of this process, if the process may create cgroups in it.
    ///
    /// # Errors
    /// Why cgroups cannot be used, as a clause for messages.
    pub(crate) fn take() -> Result<Self, String> {
        Self::divide(own_in(Path::new("/proc/self"))?, std::process::id())
    }

    /// Moves process `pid` from the cgroup `root`, in which it must be alone, to a new one in it, and
    /// enables the controllers of `root` for those in it.
    fn divide(root: PathBuf, pid: u32) -> Result<Self, String> {
        let shown = root.display().to_string();
        // Missing only in the root of the whole hierarchy, which is never delegated.
        if !root.join("cgroup.kill").exists() {
            return Err(format!(
                "{shown} has no cgroup.kill: it is the root of all cgroups, or the kernel is older than 5.14"
            ));
        }
        let failed = |error| format!("{shown}: {error}");
        let inside = fs::read_to_string(root.join("cgroup.procs")).map_err(failed)?;
        if inside.split_whitespace().any(|other| other != pid.to_string()) {
            return Err(format!("{shown} contains other processes than the daemon"));
        }
        let daemon = root.join(DAEMON);
        make(&daemon).map_err(failed)?;
        if let Err(error) = fs::write(daemon.join("cgroup.procs"), pid.to_string()) {
            let _ = fs::remove_dir(&daemon);
            return Err(failed(error));
        }
        let available = fs::read_to_string(root.join("cgroup.controllers")).unwrap_or_default();
        let mut missing = Vec::new();
        for controller in ["memory", "pids"] {
            if !available.split_whitespace().any(|name| name == controller) {
                missing.push((controller, "not delegated to the daemon".to_owned()));
            } else if let Err(error) =
                fs::write(root.join("cgroup.subtree_control"), format!("+{controller}"))
            {
                missing.push((controller, error.to_string()));
            }
        }
        Ok(Self { root, missing, stuck: Mutex::default() })
    }

    /// Where they are.
    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    /// Whether there are controllers for `limits`.
    ///
    /// # Errors
    /// Why not, as a clause for messages.
    pub(crate) fn check(&self, limits: &Limits) -> Result<(), String> {
        for (controller, limit) in [("memory", limits.memory), ("pids", limits.pids)] {
            let missing = self.missing.iter().find(|(name, _)| *name == controller);
            if let (Some(_), Some((_, why))) = (limit, missing) {
                return Err(format!("no cgroup controller {controller:?}: {why}"));
            }
        }
        Ok(())
    }

    /// Makes a cgroup for the processes with `mark`.
    ///
    /// # Errors
    /// The error of the file system.
    pub(crate) fn create(&self, mark: &str, limits: &Limits) -> io::Result<Cgroup> {
        let cgroup = Cgroup::at(&self.root.join(format!("{JOB}{mark}")));
        make(cgroup.path())?;
        // The limit is for memory and swap together; a kernel without swap has no such file.
        let has_swap = cgroup.path().join("memory.swap.max").exists();
        let swap = limits.memory.filter(|_| has_swap).map(|_| 0);
        let limits =
            [("memory.max", limits.memory), ("memory.swap.max", swap), ("pids.max", limits.pids)];
        let limited = limits.into_iter().try_for_each(|(file, limit)| match limit {
            Some(limit) => fs::write(cgroup.path().join(file), limit.to_string()),
            None => Ok(()),
        });
        if let Err(error) = limited {
            // It is empty.
            let _ = fs::remove_dir(cgroup.path());
            return Err(error);
        }
        Ok(cgroup)
    }

    /// Kills the processes of a cgroup and removes it. If that fails, [`retry`](Self::retry) tries it
    /// again.
    ///
    /// # Errors
    /// The error of the kernel, or that a process in it does not end.
    pub(crate) fn end(&self, cgroup: Cgroup) -> io::Result<()> {
        let ended = cgroup.end(REMOVAL_TIMEOUT);
        if ended.is_err() {
            self.stuck.lock().push(cgroup);
        }
        ended
    }

    /// Ends the cgroups that an earlier daemon has left. Call this before any other is made.
    pub(crate) fn clean(&self) -> io::Result<()> {
        let left = self.left_over()?;
        for cgroup in &left {
            tracing::warn!(cgroup = %cgroup.path().display(), "killing a cgroup of a killed daemon");
            // The loop below checks whether it has ended.
            let _ = cgroup.kill();
        }
        self.stuck.lock().extend(left);
        self.retry();
        Ok(())
    }

    /// Tries once more to end the cgroups that did not end before; logs those that still do not.
    pub(crate) fn retry(&self) {
        let stuck = std::mem::take(&mut *self.stuck.lock());
        for cgroup in stuck {
            if let Err(error) = cgroup.end(ONCE_MORE) {
                tracing::warn!(%error, "cannot kill the cgroup of a job; trying again later");
                self.stuck.lock().push(cgroup);
            }
        }
    }

    fn left_over(&self) -> io::Result<Vec<Cgroup>> {
        let entries = fs::read_dir(&self.root)?.flatten();
        let is_job = |path: &PathBuf| {
            path.is_dir()
                && path
                    .file_name()
                    .is_some_and(|name| name.as_encoded_bytes().starts_with(JOB.as_bytes()))
        };
        Ok(entries.map(|entry| entry.path()).filter(is_job).map(|path| Cgroup::at(&path)).collect())
    }
}

/// The directory of the cgroup of the process whose directory in `/proc` is `process`.
fn own_in(process: &Path) -> Result<PathBuf, String> {
    let read = |name: &str| {
        let path = process.join(name);
        fs::read(&path).map_err(|error| format!("{}: {error}", path.display()))
    };
    let (mounts, cgroups) = (read("mountinfo")?, read("cgroup")?);
    // Other mounts may have names that are not UTF-8.
    own(&String::from_utf8_lossy(&mounts), &String::from_utf8_lossy(&cgroups))
}

/// The directory of the cgroup of a process, by its mounts and cgroups in `/proc`.
fn own(mounts: &str, cgroups: &str) -> Result<PathBuf, String> {
    let none = || "no cgroup2 file system is mounted".to_owned();
    // NUMBER PARENT DEVICE ROOT PLACE OPTIONS.. - TYPE ..
    let mount = mounts.lines().find_map(|line| {
        let (place, kind) = line.split_once(" - ")?;
        let mut place = place.split(' ').skip(3);
        kind.starts_with("cgroup2 ").then_some((place.next()?, place.next()?))
    });
    let (from, place) = mount.ok_or_else(none)?;
    let (from, place) = (unescape(from), unescape(place));
    let path = cgroups.lines().find_map(|line| line.strip_prefix("0::")).ok_or_else(none)?;
    let shown = place.display();
    let outside =
        || format!("the daemon's cgroup {path} is outside of the hierarchy mounted at {shown}");
    // Compares whole names: /machine2 is not below /machine.
    let below = Path::new(path).strip_prefix(&from).map_err(|_| outside())?;
    if below.starts_with("..") {
        return Err(outside());
    }
    Ok(place.join(below))
}

/// A path as `mountinfo` shows it: spaces, tabs, line feeds and backslashes are `\040` and the like.
fn unescape(shown: &str) -> PathBuf {
    let mut bytes = Vec::with_capacity(shown.len());
    let mut rest = shown.as_bytes();
    loop {
        let (byte, after) = match rest {
            [] => return PathBuf::from(OsString::from_vec(bytes)),
            [b'\\', a @ b'0'..=b'3', b @ b'0'..=b'7', c @ b'0'..=b'7', after @ ..] => {
                ((a - b'0') << 6 | (b - b'0') << 3 | (c - b'0'), after)
            }
            [byte, after @ ..] => (*byte, after),
        };
        bytes.push(byte);
        rest = after;
    }
}

fn make(path: &Path) -> io::Result<()> {
    match fs::create_dir(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        made => made,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOUNTS: &str = "\
    29 24 0:26 / /sys/fs/cgroup/unified rw,relatime shared:9 - cgroup2 cgroup2 rw
    30 24 0:27 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory
    ";

    #[test]
    fn the_own_cgroup_is_found_where_it_is_mounted() {
        let found = own(MOUNTS, "4:memory:/other\n0::/system.slice/gossamerd.service\n");
        let expected = "/sys/fs/cgroup/unified/system.slice/gossamerd.service";
        assert_eq!(found.unwrap(), Path::new(expected));
        let part = MOUNTS.replace("0:26 / ", "0:26 /machine ");
        assert_eq!(own(&part, "0::/machine/d\n").unwrap(), Path::new("/sys/fs/cgroup/unified/d"));
        assert_eq!(own(&part, "0::/machine\n").unwrap(), Path::new("/sys/fs/cgroup/unified"));
        let escaped =
            MOUNTS.replace("0:26 / ", "0:26 /a\\040b ").replace("unified", "u\\134\\011v");
        let found = own(&escaped, "0::/a b/d\n").unwrap();
        assert_eq!(found, Path::new("/sys/fs/cgroup/u\\\tv/d"));
        for (mounts, cgroups, reason) in [
            ("", "0::/\n", "no cgroup2 file system is mounted"),
            (MOUNTS, "4:memory:/\n", "no cgroup2 file system is mounted"),
            (MOUNTS, "0::/../above\n", "outside of the hierarchy mounted"),
            (&part, "0::/other\n", "outside of the hierarchy mounted"),
            (&part, "0::/machine2/d\n", "outside of the hierarchy mounted"),
        ] {
            let error = own(mounts, cgroups).unwrap_err();
            assert!(error.contains(reason), "{error}");
        }
    }

    #[test]
    fn a_mount_whose_name_is_not_text_hides_no_cgroup() {
        let process = tempfile::tempdir().unwrap();
        let other = b"28 24 0:25 / /mnt/\xff rw - tmpfs tmpfs rw\n";
        fs::write(process.path().join("mountinfo"), [other, MOUNTS.as_bytes()].concat()).unwrap();
        fs::write(process.path().join("cgroup"), "0::/d\n").unwrap();
        let found = own_in(process.path()).unwrap();
        assert_eq!(found, Path::new("/sys/fs/cgroup/unified/d"));
    }

    /// A directory with the files of a cgroup in which `inside` are.
    fn fake(controllers: &str, inside: &str) -> tempfile::TempDir {
        let place = tempfile::tempdir().unwrap();
        for (name, text) in [
            ("cgroup.kill", ""),
            ("cgroup.procs", inside),
            ("cgroup.controllers", controllers),
            ("cgroup.subtree_control", ""),
        ] {
            fs::write(place.path().join(name), text).unwrap();
        }
        place
    }

    #[test]
    fn a_cgroup_is_divided_and_its_parts_are_limited() {
        let place = fake("cpu memory pids", "7\n");
        let read = |name: &str| fs::read_to_string(place.path().join(name)).unwrap();
        let cgroups = Cgroups::divide(place.path().to_owned(), 7).unwrap();
        assert_eq!(read("daemon/cgroup.procs"), "7");
        assert_eq!(read("cgroup.subtree_control"), "+pids", "and +memory before that");
        let limits = Limits { memory: Some(1 << 30), pids: Some(99) };
        let cgroup = cgroups.create("1.0", &limits).unwrap();
        assert_eq!(read("job.1.0/memory.max"), "1073741824");
        assert_eq!(read("job.1.0/pids.max"), "99");
        cgroup.join().unwrap();
        assert_eq!(read("job.1.0/cgroup.procs"), "0");
        assert_eq!(cgroups.left_over().unwrap(), [cgroup]);
        assert!(!place.path().join("job.1.0/memory.swap.max").exists());
    }

    #[test]
    fn what_exceeds_its_memory_is_not_swapped_out() {
        let place = fake("memory pids", "7\n");
        let cgroups = Cgroups::divide(place.path().to_owned(), 7).unwrap();
        for (mark, memory, expected) in [("1.0", Some(1 << 30), "0"), ("1.1", None, "max\n")] {
            // The kernel makes it with the cgroup.
            let job = place.path().join(format!("job.{mark}"));
            fs::create_dir(&job).unwrap();
            fs::write(job.join("memory.swap.max"), "max\n").unwrap();
            cgroups.create(mark, &Limits { memory, pids: None }).unwrap();
            assert_eq!(fs::read_to_string(job.join("memory.swap.max")).unwrap(), expected);
        }
    }

    #[test]
    fn a_limit_without_a_controller_is_refused() {
        let place = fake("pids", "7\n");
        let cgroups = Cgroups::divide(place.path().to_owned(), 7).unwrap();
        cgroups.check(&Limits { memory: None, pids: Some(9) }).unwrap();
        let error = cgroups.check(&Limits { memory: Some(9), pids: None }).unwrap_err();
        assert_eq!(error, "no cgroup controller \"memory\": not delegated to the daemon");
    }

    #[test]
    fn a_cgroup_that_is_not_for_the_daemon_alone_is_left_as_it_is() {
        let place = fake("memory", "7\n8\n");
        let error = Cgroups::divide(place.path().to_owned(), 7).unwrap_err();
        assert!(error.contains("contains other processes"), "{error}");
        fs::remove_file(place.path().join("cgroup.kill")).unwrap();
        let error = Cgroups::divide(place.path().to_owned(), 7).unwrap_err();
        assert!(error.contains("root of all cgroups"), "{error}");
        assert!(!place.path().join("daemon").exists());
    }

    #[test]
    fn a_cgroup_that_its_job_has_removed_has_ended() {
        let place = fake("memory", "7\n");
        let cgroups = Cgroups::divide(place.path().to_owned(), 7).unwrap();
        let none = Limits { memory: None, pids: None };
        let cgroup = cgroups.create("1.0", &none).unwrap();
        fs::remove_dir(cgroup.path()).unwrap();
        cgroups.end(cgroup).unwrap();
        assert_eq!(*cgroups.stuck.lock(), []);
        // A cgroup that exists and cannot be ended is tried again.
        let cgroup = cgroups.create("1.1", &none).unwrap();
        cgroups.end(cgroup.clone()).unwrap_err();
        assert_eq!(*cgroups.stuck.lock(), [cgroup]);
    }
}
