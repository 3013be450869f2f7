//! Jobs that end badly: whichever process is killed, the job ends on every host, the report names the first
//! cause, and no process is left.

use std::fs;

use crate::common::{self, Rack, Ran, eventually, finish, parent, read_until, send, with_variable};

const FOR_EVER: &str = "while :; do sleep 0.1; done";
/// Leaves a process in a session of its own, which parents and groups do not reveal.
const HIDDEN_CHILD: &str = "(setsid sh -c 'sleep 1000 & wait' &) ; ";

#[test]
fn a_bad_exit_status_ends_the_job_everywhere() {
    let rack = Rack::new(&["a", "b", "c"]);
    let script = format!(
        "case $GOSSAMER_JOB in *.1) echo the reason >&2; exit 7;; *) {HIDDEN_CHILD}{FOR_EVER};; esac"
    );
    let ran = rack.script("a,b,c", &script);
    assert_eq!(ran.status, Some(7), "{ran:?}");
    assert!(ran.err.contains("because of b: the program exited with status 7"), "{ran:?}");
    assert!(ran.err.contains("last lines of b:\n  | the reason\n"), "{ran:?}");
    rack.assert_nothing_left();
}

#[test]
fn a_panic_is_reported_with_its_message() {
    let rack = Rack::new(&["a", "b"]);
    let script = format!(
        "case $GOSSAMER_JOB in *.1) echo \"thread 'main' panicked at src/main.rs:2:3:\" >&2; \
         echo no such key >&2; exit 101;; *) {FOR_EVER};; esac"
    );
    let ran = rack.script("a,b", &script);
    assert_eq!(ran.status, Some(101), "{ran:?}");
    let expected = "b: the program exited with status 101, \
                    thread 'main' panicked at src/main.rs:2:3: no such key";
    assert!(ran.err.contains(expected), "{ran:?}");
}

#[test]
fn a_process_that_is_killed_takes_the_job_with_it() {
    let rack = Rack::new(&["a", "b", "c"]);
    let script = format!("{HIDDEN_CHILD}echo last line; {}{FOR_EVER}", rack.ready());
    let child = rack.start("a,b,c", &script);
    rack.wait_ready(3);
    let program = program(&rack, 2);
    send(program, "KILL");
    let ran = finish(child);
    assert_eq!(ran.status, Some(137), "{ran:?}");
    assert!(
        ran.err.contains("because of c: the program was killed by signal 9 (SIGKILL)"),
        "{ran:?}"
    );
    assert!(ran.err.contains("last lines of c:\n  | last line\n"), "{ran:?}");
    rack.assert_nothing_left();
}

#[test]
fn a_killed_process_is_the_cause_even_if_its_host_hears_of_the_end_first() {
    let rack = Rack::new(&["a", "b"]);
    let fail = rack.place.path().join("fail");
    let script = format!(
        "{} while ! [ -e {} ]; do sleep 0.01; done; echo a peer is gone >&2; exit 1",
        rack.ready(),
        fail.display()
    );
    let child = rack.start("a,b", &script);
    rack.wait_ready(2);
    // The daemon of b finds the news of its process and the order to end it side by side.
    send(rack.daemon_pid(1), "STOP");
    send(program(&rack, 1), "KILL");
    fs::write(fail, "").unwrap();
    eventually("a has ended", || rack.processes_on(0).is_empty().then_some(()));
    std::thread::sleep(std::time::Duration::from_millis(200));
    send(rack.daemon_pid(1), "CONT");
    let ran = finish(child);
    assert_eq!(ran.status, Some(137), "{ran:?}");
    assert!(ran.err.contains("because of b: the program was killed by signal 9"), "{ran:?}");
    rack.assert_nothing_left();
}

#[test]
fn what_a_program_leaves_behind_is_ended_with_it() {
    let rack = Rack::new(&["a"]);
    let ran = rack.script("a", &format!("{HIDDEN_CHILD}echo done"));
    assert_eq!((ran.status, ran.out.as_str()), (Some(0), "[a] done\n"), "{ran:?}");
    rack.assert_nothing_left();
}

#[test]
fn ctrl_c_ends_the_job_everywhere() {
    let rack = Rack::new(&["a", "b"]);
    let child = rack.start("a,b", &format!("{HIDDEN_CHILD}{}{FOR_EVER}", rack.ready()));
    rack.wait_ready(2);
    send(child.id(), "INT");
    let ran = finish(child);
    assert_eq!(ran.status, Some(130), "{ran:?}");
    rack.assert_nothing_left();
}

#[test]
fn who_ignores_ctrl_c_is_killed() {
    let rack = Rack::new(&["a", "b"]);
    let child = rack.start("a,b", &format!("trap '' INT TERM; {}{FOR_EVER}", rack.ready()));
    rack.wait_ready(2);
    send(child.id(), "INT");
    assert_eq!(finish(child).status, Some(130));
    rack.assert_nothing_left();
}

#[test]
fn a_job_does_not_outlive_its_controller() {
    let rack = Rack::new(&["a", "b"]);
    let mut child = rack.start("a,b", &format!("{HIDDEN_CHILD}{}{FOR_EVER}", rack.ready()));
    rack.wait_ready(2);
    child.kill().unwrap();
    child.wait().unwrap();
    rack.assert_nothing_left();
}

#[test]
fn a_daemon_that_is_killed_takes_its_processes_and_the_job_with_it() {
    let mut rack = Rack::new(&["a", "b"]);
    let child = rack.start("a,b", &format!("{HIDDEN_CHILD}{}{FOR_EVER}", rack.ready()));
    rack.wait_ready(2);
    rack.end_daemon(1, "KILL");
    let ran = finish(child);
    assert_eq!(ran.status, Some(125), "{ran:?}");
    assert!(ran.err.contains("because of b: lost its daemon"), "{ran:?}");
    rack.assert_nothing_left();
}

#[test]
fn a_daemon_that_is_stopped_ends_its_jobs() {
    let mut rack = Rack::new(&["a", "b"]);
    let child = rack.start("a,b", &format!("{HIDDEN_CHILD}{}{FOR_EVER}", rack.ready()));
    rack.wait_ready(2);
    rack.end_daemon(1, "TERM");
    let ran = finish(child);
    assert_ne!(ran.status, Some(0), "{ran:?}");
    assert!(ran.err.contains("the daemon (it is stopping)"), "{ran:?}");
    rack.assert_nothing_left();
    assert_eq!(common::entries(&rack.state(1).join("jobs")), 0, "nothing is left to clean up");
}

/// The program of a job on a host: the child of its supervisor.
fn program(rack: &Rack, host: u32) -> u32 {
    let words_of = |pid| fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let is_program = |pid: &u32| {
        // The supervisor also becomes the parent of the hidden child, whose number is the lower one
        // if numbers have begun again in between.
        let is_hidden = words_of(*pid) == "sh\0-c\0sleep 1000 & wait\0";
        !is_hidden && words_of(parent(*pid)).starts_with("gossamer-supervisor")
    };
    rack.processes_on(host).into_iter().find(is_program).expect("the job runs")
}

#[test]
fn a_supervisor_that_is_killed_leaves_nothing() {
    let rack = Rack::new(&["a", "b"]);
    let child = rack.start("a,b", &format!("{HIDDEN_CHILD}{}{FOR_EVER}", rack.ready()));
    rack.wait_ready(2);
    send(parent(program(&rack, 0)), "KILL");
    let ran = finish(child);
    assert_eq!(ran.status, Some(137), "{ran:?}");
    assert!(ran.err.contains("because of a: the program was killed"), "{ran:?}");
    rack.assert_nothing_left();
}

#[test]
fn a_daemon_that_is_restarted_ends_what_was_left() {
    let mut rack = Rack::new(&["a"]);
    let child = rack.start("a", &format!("{HIDDEN_CHILD}{}{FOR_EVER}", rack.ready()));
    rack.wait_ready(1);
    let supervisor = parent(program(&rack, 0));
    // The supervisor is stopped, so that it cannot act before it is killed, too.
    send(supervisor, "STOP");
    rack.end_daemon(0, "KILL");
    send(supervisor, "KILL");
    assert_eq!(finish(child).status, Some(125));
    eventually("only the hidden process is left", || (rack.processes().len() == 2).then_some(()));
    // A process that has another job's mark is not touched.
    let mut other = std::process::Command::new("sleep");
    let mut other = other.arg("1000").env("GOSSAMER_JOB", "other.0").spawn().unwrap();
    rack.start_daemon(0);
    rack.assert_nothing_left();
    assert!(with_variable("GOSSAMER_JOB", "other.0").contains(&other.id()));
    other.kill().unwrap();
    other.wait().unwrap();
    let ran = rack.script("a", "echo works again");
    assert_eq!(ran.out, "[a] works again\n", "{ran:?}");
}

#[test]
fn a_daemon_that_hangs_is_lost_and_cleans_up_when_it_goes_on() {
    let rack = Rack::new(&["a", "b"]);
    let child = rack.start("a,b", &format!("{HIDDEN_CHILD}{}{FOR_EVER}", rack.ready()));
    rack.wait_ready(2);
    send(rack.daemon_pid(1), "STOP");
    let ran = finish(child);
    assert_eq!(ran.status, Some(125), "{ran:?}");
    assert!(ran.err.contains("because of b: lost its daemon: no message within"), "{ran:?}");
    send(rack.daemon_pid(1), "CONT");
    rack.assert_nothing_left();
}

#[test]
fn a_process_that_is_stopped_and_continued_is_no_loss() {
    let rack = Rack::new(&["a", "b"]);
    let go_on = rack.place.path().join("go-on");
    let script = format!(
        "{}while ! [ -e {} ]; do sleep 0.05; done; echo done",
        rack.ready(),
        go_on.display()
    );
    let child = rack.start("a,b", &script);
    rack.wait_ready(2);
    let stopped = program(&rack, 1);
    send(stopped, "STOP");
    fs::write(go_on, "").unwrap();
    eventually("the other is done", || rack.processes_on(0).is_empty().then_some(()));
    send(stopped, "CONT");
    let ran = finish(child);
    assert_eq!(ran.status, Some(0), "{ran:?}");
    assert!(ran.out.contains("[b] done\n"), "{ran:?}");
}

#[test]
fn host_0_ends_the_job_when_it_is_done() {
    let rack = Rack::new(&["a", "b"]);
    let ran =
        rack.script("a,b", &format!("case $GOSSAMER_JOB in *.0) exit 0;; *) {FOR_EVER};; esac"));
    assert_eq!(ran.status, Some(0), "{ran:?}");
    rack.assert_nothing_left();
}

#[test]
fn a_reader_who_does_not_read_does_not_hold_the_job_up() {
    let rack = Rack::new(&["a", "b"]);
    // Host 1 says more than any buffer on the way takes; host 0 then fails.
    let ready = rack.ready();
    let script = format!(
        "case $GOSSAMER_JOB in *.0) {ready} while ! [ -e {0}/fail ]; do sleep 0.05; done; exit 3;; \
         *) {ready} yes;; esac",
        rack.place.path().display()
    );
    let mut child = rack.start("a,b", &script);
    rack.wait_ready(2);
    let mut out = child.stdout.take().unwrap();
    read_until(&mut out, "[b] y");
    fs::write(rack.place.path().join("fail"), "").unwrap();
    rack.assert_nothing_left();
    std::thread::spawn(move || std::io::copy(&mut out, &mut std::io::sink()));
    let ran: Ran = finish(child);
    assert_eq!(ran.status, Some(3), "{ran:?}");
}
