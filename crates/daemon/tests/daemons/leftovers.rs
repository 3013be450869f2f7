//! Jobs that try to outlive their end, or to be in the way of what comes after them. They run as
//! the daemon's user, who is not root.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread::sleep;
use std::time::Duration;

use crate::common::{
    self, Rack, as_user, entries, eventually, finish, gossamerd, is_root, parent, send,
};

/// Counts what a chain of processes, each of which forks and ends, has done: each adds a byte to
/// the file.
struct Chain(PathBuf);

impl Chain {
    fn new(rack: &Rack) -> Self {
        let file = rack.place.path().join("chain");
        fs::write(&file, "").unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o666)).unwrap();
        Self(file)
    }

    fn length(&self) -> u64 {
        fs::metadata(&self.0).unwrap().len()
    }

    /// A shell function `chain`, which forks itself in its process group.
    fn in_its_group(&self) -> String {
        let file = self.0.display();
        format!("chain() {{ printf . >>{file} || exit; chain & }};")
    }

    /// A command that makes a session with each step.
    fn in_sessions(&self) -> String {
        let step = r#"printf . >>"$1" || exit; setsid sh -c "$0" "$0" "$1" &"#;
        let file = self.0.display();
        format!("env -i PATH=\"$PATH\" setsid sh -c '{step}' '{step}' {file}")
    }

    fn wait_begun(&self) {
        eventually("the chain has begun", || (self.length() > 10).then_some(()));
    }

    fn assert_over(&self) {
        let length = self.length();
        assert!(length > 10, "the chain has not even begun");
        sleep(Duration::from_millis(500));
        assert_eq!(self.length(), length, "the chain goes on");
    }
}

impl Drop for Chain {
    fn drop(&mut self) {
        // A chain that a failed test has left ends when it cannot write.
        while fs::create_dir(&self.0).is_err() {
            let _ = fs::remove_file(&self.0);
        }
    }
}

/// The processes with a word among their arguments.
fn with_word(word: &str) -> Vec<String> {
    let entries = fs::read_dir("/proc").unwrap().flatten();
    let words = entries.filter_map(|entry| fs::read_to_string(entry.path().join("cmdline")).ok());
    words.filter(|words| words.split('\0').any(|other| other == word)).collect()
}

#[test]
fn a_process_without_a_mark_does_not_survive_its_supervisor() {
    let rack = Rack::new(&["a"]);
    // Nothing else sleeps for so long.
    let time = format!("77{}", std::process::id());
    let script = format!("env -i setsid sleep {time} & sleep 0.2; kill -9 $PPID; sleep 1000");
    let ran = rack.script("a", &script);
    assert_eq!(ran.status, Some(137), "{ran:?}");
    assert_eq!(with_word(&time), [""; 0], "the job has ended");
}

#[test]
fn a_process_whose_name_is_not_text_ends_with_its_job() {
    let rack = Rack::new(&["a"]);
    // The kernel names a process after its file.
    let named = r#"shell=$(printf '\377'); ln -s /bin/sh "$shell";"#;
    let script = format!("{named} {} exec \"./$shell\" -c 'sleep 1000; true'", rack.ready());
    let mut child = rack.start("a", &script);
    rack.wait_ready(1);
    send(child.id(), "INT");
    eventually("the job ends", || child.try_wait().unwrap());
    assert_eq!(finish(child).status, Some(130));
    rack.assert_nothing_left();
}

#[test]
fn a_chain_that_only_forks_and_ends_is_ended_with_its_job() {
    let rack = Rack::new(&["a"]);
    let chain = Chain::new(&rack);
    let mut child = rack.start("a", &format!("{} chain; sleep 1000", chain.in_its_group()));
    chain.wait_begun();
    send(child.id(), "INT");
    assert_eq!(child.wait().unwrap().code(), Some(130));
    chain.assert_over();
}

#[test]
fn a_chain_of_sessions_is_ended_when_the_program_ends() {
    let rack = Rack::new(&["a"]);
    let chain = Chain::new(&rack);
    let ran = rack.script("a", &format!("{} & sleep 1; exit 0", chain.in_sessions()));
    assert_eq!(ran.status, Some(0), "{ran:?}");
    chain.assert_over();
}

#[test]
fn a_chain_does_not_survive_its_supervisor() {
    for script in [|chain: &Chain| format!("{} (chain)", chain.in_its_group()), Chain::in_sessions]
    {
        let rack = Rack::new(&["a"]);
        let chain = Chain::new(&rack);
        let script = format!("{} & sleep 1; kill -9 $PPID; sleep 1000", script(&chain));
        let ran = rack.script("a", &script);
        assert_eq!(ran.status, Some(137), "{ran:?}");
        chain.assert_over();
        let again = rack.script("a", "echo still serving");
        assert_eq!(again.out, "[a] still serving\n", "{again:?}");
    }
}

#[test]
fn processes_that_replace_each_other_are_ended() {
    let rack = Rack::new(&["a"]);
    let chain = Chain::new(&rack);
    // Each starts the other when that has ended.
    let watch = r#"while kill -0 $2 2>/dev/null; do sleep 0.01; done; printf . >>"$1" || exit; \
                   setsid sh -c "$0" "$0" "$1" $$ & exec sh -c "$0" "$0" "$1" $!"#;
    let script = format!(
        "env -i PATH=\"$PATH\" setsid sh -c '{watch}' '{watch}' {} 1000000 & sleep 1; exit 0",
        chain.0.display()
    );
    let ran = rack.script("a", &script);
    assert_eq!(ran.status, Some(0), "{ran:?}");
    let length = chain.length();
    assert!(length >= 1, "they have not even begun");
    sleep(Duration::from_millis(500));
    assert_eq!(chain.length(), length, "they go on");
}

#[test]
fn nothing_that_a_job_leaves_keeps_a_daemon_from_starting() {
    let mut rack = Rack::new(&["a"]);
    let state = rack.state(0);
    // The same as in its own end.
    let fortress = "mkdir -p d/e; touch d/f d/e/f; chmod 555 d/e d .;";
    let ran = rack.script("a", &format!("{fortress} echo done"));
    assert_eq!(ran.out, "[a] done\n", "{ran:?}");
    let work = |state: &Path| entries(&state.join("work"));
    assert_eq!(work(&state), 0, "the job has ended");
    let trap = format!("cd {}; touch work/file; mkdir -p store/x.part/y jobs/x;", state.display());
    let child = rack.start("a", &format!("{fortress} {trap} {} sleep 1000", rack.ready()));
    rack.wait_ready(1);
    let program = rack.processes_on(0).into_iter().find(|pid| {
        fs::read_to_string(format!("/proc/{}/cmdline", parent(*pid)))
            .is_ok_and(|words| words.starts_with("gossamer-supervisor"))
    });
    let supervisor = parent(program.expect("the job runs"));
    send(supervisor, "STOP");
    rack.end_daemon(0, "KILL");
    send(supervisor, "KILL");
    assert_eq!(finish(child).status, Some(125));
    rack.start_daemon(0);
    rack.assert_nothing_left();
    assert_eq!((work(&state), entries(&state.join("jobs"))), (0, 0));
    eventually("quarantined files are removed", || {
        let names = fs::read_dir(&state).unwrap().map(|entry| entry.unwrap().file_name());
        let mut names = names.filter(|name| name.to_string_lossy().starts_with("aside."));
        names.next().is_none().then_some(())
    });
    let ran = rack.script("a", "echo works again");
    assert_eq!(ran.out, "[a] works again\n", "{ran:?}");
}

#[test]
fn a_pipe_in_place_of_the_kept_list_keeps_no_daemon_from_starting() {
    let mut rack = Rack::new(&["a"]);
    let kept = rack.state(0).join("revoked.crl");
    let ran = rack.script("a", &format!("mkfifo {} && echo made", kept.display()));
    assert_eq!(ran.out, "[a] made\n", "{ran:?}");
    rack.end_daemon(0, "KILL");
    rack.start_daemon(0);
    assert!(!kept.exists(), "the pipe was quarantined");
    let ran = rack.script("a", "echo works again");
    assert_eq!(ran.out, "[a] works again\n", "{ran:?}");
}

#[test]
fn a_job_that_replaces_the_directory_of_jobs_by_a_pipe_ends() {
    let mut rack = Rack::new(&["a"]);
    let state = rack.state(0);
    let script = format!("cd {} && mv work x && mkfifo work && echo made", state.display());
    let mut child = rack.start("a", &script);
    eventually("the job ends", || child.try_wait().unwrap());
    let ran = finish(child);
    assert_eq!((ran.status, ran.out.as_str()), (Some(0), "[a] made\n"), "{ran:?}");
    rack.end_daemon(0, "KILL");
    rack.start_daemon(0);
    let ran = rack.script("a", "echo works again");
    assert_eq!(ran.out, "[a] works again\n", "{ran:?}");
}

#[test]
fn a_stored_program_that_was_changed_is_sent_again_and_not_run() {
    let rack = Rack::new(&["a"]);
    let ran = rack.script("a", "echo good");
    assert_eq!(ran.out, "[a] good\n", "{ran:?}");
    let stored =
        || fs::read_dir(rack.state(0).join("store")).unwrap().next().unwrap().unwrap().path();
    let (path, good) = (stored(), fs::read(stored()).unwrap());
    // As long as it was, and another program.
    let mut bad = b"#!/bin/sh\necho bad\nexit\n".to_vec();
    bad.resize(good.len(), b'\n');
    fs::set_permissions(&path, fs::Permissions::from_mode(0o700)).unwrap();
    fs::write(&path, bad).unwrap();
    let ran = rack.script("a", "echo good");
    assert_eq!((ran.status, ran.out.as_str()), (Some(0), "[a] good\n"), "{ran:?}");
    assert_eq!(fs::read(stored()).unwrap(), good);
    let log = fs::read_to_string(rack.log_file(0)).unwrap();
    assert!(log.contains("quarantined a stored program that was changed"), "{log}");
}

#[test]
fn a_script_is_a_program_too() {
    let rack = Rack::new(&["a"]);
    let script = rack.path("script");
    fs::write(&script, "#!/bin/sh\necho \"script $1\"; cat\n").unwrap();
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
    let output = rack.run("a", &[&script, "runs"]).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout), "[a] script runs\n", "{output:?}");
}

#[test]
fn limits_need_a_cgroup() {
    let rack = Rack::new(&["a"]);
    for limit in [["--memory", "4G"], ["--pids", "100"]] {
        let run = rack.gossamer(&["run", "--hosts", "a", limit[0], limit[1], "--", "true"]);
        let ran = common::Ran::from({ run }.output().unwrap());
        assert_eq!(ran.status, Some(125), "{ran:?}");
        assert!(ran.err.contains("need cgroups, which this daemon cannot use"), "{ran:?}");
    }
    let run = rack.gossamer(&["run", "--hosts", "a", "--memory", "4 GiB", "--", "true"]);
    let ran = common::Ran::from({ run }.output().unwrap());
    assert!(ran.err.contains("invalid size \"4 GiB\""), "{ran:?}");
}

#[test]
fn a_daemon_does_not_run_as_root_unless_that_is_allowed() {
    // Root in a user namespace is root enough.
    let words = if is_root() { &[][..] } else { &["unshare", "--user", "--map-root-user"] };
    let words: Vec<&str> = words.iter().copied().chain([gossamerd()]).collect();
    let run = |more: &[&str]| {
        let mut command = Command::new(words[0]);
        command.args(&words[1..]).args(["--config", "/nowhere"]).args(more);
        common::Ran::from(command.output().unwrap())
    };
    let ran = run(&[]);
    assert_eq!(ran.status, Some(125), "{ran:?}");
    assert!(
        ran.err.starts_with("gossamerd: refusing to run as root")
            && ran.err.contains("--allow-root"),
        "{ran:?}"
    );
    for ran in [
        run(&["--allow-root"]),
        as_user(gossamerd()).args(["--config", "/nowhere"]).output().unwrap().into(),
    ] {
        let expected = "gossamerd: cannot load the configuration (set its path with --config): cannot read /nowhere: No such file";
        assert!(ran.err.starts_with(expected) && ran.err.contains("--config"), "{ran:?}");
    }
}
