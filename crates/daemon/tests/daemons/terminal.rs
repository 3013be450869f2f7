//! Output and names of jobs, users and hosts do not drive the terminal of their reader.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::process::Command;

use daemon_protocol::FromDaemon;
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};

use crate::common::calls::runtime;
use crate::common::false_daemon::FalseDaemon;
use crate::common::{Rack, Ran, finish};

/// Sets the clipboard of a terminal; colours; text that reads backwards; a control character in one
/// byte.
const SAID: &[u8] = b"\x1b]52;c;aGk=\x07\x1b[31mred\x1b[0m\xe2\x80\xae\xc2\x9b2J";

/// A script that says that.
const SAY: &str =
    r"printf '\033]52;c;aGk=\007\033[31mred\033[0m\342\200\256\302\2332J\n'; exit ${STATUS:-0}";

/// What a command writes to a terminal, as its output and error.
fn on_terminal(mut command: Command) -> String {
    let mut terminal = File::from(openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap());
    grantpt(&terminal).unwrap();
    unlockpt(&terminal).unwrap();
    let name = ptsname(&terminal, Vec::new()).unwrap();
    let open = || File::options().write(true).open(OsStr::from_bytes(name.to_bytes())).unwrap();
    command.stdout(open()).stderr(open());
    let mut child = command.spawn().unwrap();
    drop(command);
    let (mut shown, mut chunk) = (Vec::new(), [0; 1024]);
    // An error when the command has closed it.
    while let Ok(bytes @ 1..) = terminal.read(&mut chunk) {
        shown.extend_from_slice(&chunk[..bytes]);
    }
    child.wait().unwrap();
    String::from_utf8(shown).unwrap().replace("\r\n", "\n")
}

#[test]
fn output_is_shown_on_a_terminal_and_passed_on_to_files() {
    let rack = Rack::new(&["a"]);
    let shown = on_terminal(rack.run("a", &["sh", "-c", SAY]));
    // Of one's own program the colours pass, and end with the line.
    let coloured = "[a] \\x1b]52;c;aGk=\\x07\x1b[31mred\x1b[0m\\u{202e}\\u{9b}2J\x1b[0m\n";
    assert_eq!(shown, coloured);
    let output = rack.run("a", &["sh", "-c", SAY]).output().unwrap();
    assert_eq!(output.stdout, [b"[a] ", SAID, b"\n"].concat(), "every byte as it is");

    // Logs are those of other people's programs, too.
    let list = Ran::from(rack.gossamer(&["ps", "--json"]).output().unwrap());
    let jobs: serde_json::Value = serde_json::from_str(&list.out).unwrap();
    let job = jobs[0]["job"].as_str().unwrap();
    let plain = "\\x1b]52;c;aGk=\\x07\\x1b[31mred\\x1b[0m\\u{202e}\\u{9b}2J\n";
    assert_eq!(on_terminal(rack.gossamer(&["logs", job])), format!("[a] {plain}"));
    let output = rack.gossamer(&["logs", job]).output().unwrap();
    assert_eq!(output.stdout, [b"[a] ", SAID, b"\n"].concat(), "every byte as it is");

    // The report of a bad end quotes the last lines.
    let mut failing = rack.gossamer(&["run", "--hosts", "a", "--env", "STATUS=3", "--"]);
    let shown = on_terminal({
        failing.args(["sh", "-c", SAY]);
        failing
    });
    assert!(shown.ends_with(&format!("  | {plain}")), "{shown:?}");
}

#[test]
fn names_are_shown_wherever_they_go() {
    let rack = Rack::new(&["a"]);
    let name = "./\x1b]0;title\x07\u{202e}\u{9b}\nJOB";
    fs::copy("/bin/true", rack.place.path().join(&name[2..])).unwrap();
    let mut run = rack.run("a", &[name]);
    assert_eq!(Ran::from(run.current_dir(rack.place.path()).output().unwrap()).status, Some(0));
    let ps = Ran::from(rack.gossamer(&["ps"]).output().unwrap());
    assert_eq!(ps.out.lines().count(), 2, "{ps:?}");
    assert!(ps.out.contains(" ./\\x1b]0;title\\x07\\u{202e}\\u{9b}\\nJOB "), "{ps:?}");
    let list = Ran::from(rack.gossamer(&["ps", "--json"]).output().unwrap());
    let jobs: serde_json::Value = serde_json::from_str(&list.out).unwrap();
    assert_eq!(jobs[0]["program"], name, "as JSON escapes it: {list:?}");
    assert!(!list.out.contains(['\x1b', '\u{9b}', '\u{202e}']), "{list:?}");
}

#[test]
fn a_host_that_was_taken_over_drives_no_terminal() {
    let rack = Rack::new(&["a"]);
    let job = runtime().block_on(async {
        let daemon = FalseDaemon::new(&rack).await;
        let job = rack.run("a", &["true"]).spawn().unwrap();
        let (_, _from, mut to) = daemon.accept().await;
        let reason = "no\x1b[2J\ngossamer: job well done".to_owned();
        to.send(&FromDaemon::Refused(reason)).await.unwrap();
        to.close().await.unwrap();
        job
    });
    let ran = finish(job);
    let expected = "gossamer: the job was not started: a: no\\x1b[2J\\ngossamer: job well done\n";
    assert_eq!((ran.status, ran.err.as_str()), (Some(125), expected));
}
