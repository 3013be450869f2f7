//! What a daemon does that has been given a cgroup: nothing of a job leaves it, even if the job
//! ends its supervisor and its daemon, and the limits hold.
//!
//! The tests make a cgroup below the first mounted cgroup2 file system, as systemd would, hand it to
//! the user as whom the daemon runs, and start that there.

mod common;

use std::fs;
use std::os::unix::fs::chown;
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::Duration;

use common::{Rack, USER, eventually, finish, is_root};

/// A cgroup that belongs to the user of the daemon.
struct Delegated(PathBuf);

impl Delegated {
    fn new(name: &str) -> Self {
        assert!(is_root(), "only root makes cgroups: run this as root");
        let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
        let mount = mounts.lines().find_map(|line| {
            let mut words = line.split(' ').skip(1);
            let (place, kind) = (words.next()?, words.next()?);
            (kind == "cgroup2").then(|| PathBuf::from(place))
        });
        let mount = mount.expect("no cgroup2 file system: mount -t cgroup2 none /sys/fs/cgroup");
        for controller in ["memory", "pids"] {
            // Not there where they belong to cgroups of version 1.
            let _ = fs::write(mount.join("cgroup.subtree_control"), format!("+{controller}"));
        }
        let path = mount.join(format!("gossamer-test-{name}-{}", std::process::id()));
        fs::create_dir(&path).unwrap();
        for file in ["", "cgroup.procs", "cgroup.subtree_control", "cgroup.threads"] {
            chown(path.join(file), Some(USER), Some(USER)).unwrap();
        }
        Self(path)
    }

    /// The cgroups of processes of jobs.
    fn jobs(&self) -> Vec<PathBuf> {
        let entries = fs::read_dir(&self.0).unwrap().map(|entry| entry.unwrap().path());
        let is_job =
            |path: &PathBuf| path.file_name().unwrap().to_string_lossy().starts_with("job.");
        entries.filter(is_job).collect()
    }
}

impl Drop for Delegated {
    fn drop(&mut self) {
        // Whatever a failed test has left.
        let _ = fs::write(self.0.join("cgroup.kill"), "1");
        sleep(Duration::from_millis(100));
        for below in fs::read_dir(&self.0).into_iter().flatten().flatten() {
            let _ = fs::remove_dir(below.path());
        }
        let _ = fs::remove_dir(&self.0);
    }
}

/// The processes in a cgroup.
fn inside(cgroup: &Path) -> Vec<u32> {
    let text = fs::read_to_string(cgroup.join("cgroup.procs")).unwrap_or_default();
    text.lines().filter_map(|line| line.parse().ok()).collect()
}

#[test]
#[ignore = "needs root and a cgroup2 file system: cargo test -p gossamer-daemon --test cgroup -- \
            --ignored"]
fn nothing_of_a_job_leaves_its_cgroup() {
    let cgroup = Delegated::new("kill");
    let mut rack = Rack::in_cgroup("a", &cgroup.0);
    assert_eq!(inside(&cgroup.0.join("daemon")), [rack.daemon_pid(0)]);
    let hide = "env -i setsid sleep 1000 & chain() { chain & }; (chain) & ";

    // The program ends.
    let ran = rack.script("a", &format!("{hide} sleep 0.5; cat /proc/self/cgroup"));
    assert_eq!(ran.status, Some(0), "{ran:?}");
    assert!(ran.out.contains("/job."), "{ran:?}");
    assert_eq!(cgroup.jobs(), [""; 0].map(PathBuf::from), "the job has ended");

    // The program has made cgroups that no path leads to.
    let nest = format!(
        "cd {}/job.* && for i in $(seq 30); do mkdir {name} && cd -P {name} || exit 9; done",
        cgroup.0.display(),
        name = "n".repeat(200)
    );
    let ran = rack.script("a", &nest);
    assert_eq!(ran.status, Some(0), "{ran:?}");
    assert_eq!(cgroup.jobs(), [""; 0].map(PathBuf::from), "the job has ended");

    // The program leaves its cgroup and removes that.
    let root = cgroup.0.display();
    let leave = format!("set -- {root}/job.*; echo 0 >{root}/daemon/cgroup.procs; rmdir $1");
    let ran = rack.script("a", &format!("{leave} && echo removed"));
    assert_eq!(ran.out, "[a] removed\n", "{ran:?}");
    let log = fs::read_to_string(rack.log_file(0)).unwrap();
    assert!(!log.contains("cannot kill"), "{log}");

    // Its supervisor is killed.
    let ran = rack.script("a", &format!("{hide} sleep 0.5; kill -9 $PPID; sleep 1000"));
    assert_eq!(ran.status, Some(137), "{ran:?}");
    assert_eq!(cgroup.jobs(), [""; 0].map(PathBuf::from), "the job has ended");

    // Its daemon and its supervisor are killed, and what is left has no mark and no parent.
    let script = format!("{hide} sleep 0.5; kill -9 $(cat {}) $PPID", rack.path("pid"));
    fs::write(rack.path("pid"), rack.daemon_pid(0).to_string()).unwrap();
    let child = rack.start("a", &script);
    assert_eq!(finish(child).status, Some(125));
    rack.end_daemon(0, "KILL");
    let left = cgroup.jobs();
    assert!(left.len() == 1 && !inside(&left[0]).is_empty(), "{left:?}");
    // As systemd does, which starts a unit where it has always been.
    rack.start_daemon(0);
    eventually("what was left is ended", || cgroup.jobs().is_empty().then_some(()));
    let ran = rack.script("a", "echo works again");
    assert_eq!(ran.out, "[a] works again\n", "{ran:?}");
}

#[test]
#[ignore = "needs root and the controllers memory and pids in a cgroup2 file system: cargo test -p \
            gossamer-daemon --test cgroup -- --ignored"]
fn limits_hold() {
    let cgroup = Delegated::new("limits");
    let there = fs::read_to_string(cgroup.0.join("cgroup.controllers")).unwrap();
    assert!(
        there.contains("memory") && there.contains("pids"),
        "this machine's cgroup2 has only the controllers {there:?}: boot with \
         systemd.unified_cgroup_hierarchy=1"
    );
    let rack = Rack::in_cgroup("a", &cgroup.0);
    let run = |limits: &[&str], script: &str| {
        let words = [&["run", "--hosts", "a"], limits, &["--", "sh", "-c", script]].concat();
        common::Ran::from(rack.gossamer(&words).output().unwrap())
    };
    // A pipe's reader that keeps what it reads.
    let greedy = "head -c 200M /dev/zero | tail -c 200M | wc -c";
    let ran = run(&["--memory", "1G"], greedy);
    assert_eq!((ran.status, ran.out.trim()), (Some(0), "[a] 209715200"), "{ran:?}");
    let ran = run(&["--memory", "32M"], greedy);
    assert!(!ran.out.contains("209715200"), "{ran:?}");
    let many = "for i in 1 2 3 4 5 6 7 8 9; do sleep 1 & done && echo all";
    let ran = run(&["--pids", "50"], many);
    assert!(ran.out.contains("all"), "{ran:?}");
    let ran = run(&["--pids", "5"], many);
    assert!(!ran.out.contains("all"), "{ran:?}");
}
