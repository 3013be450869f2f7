//! Racks of which a process dies while they start: the errors of the others name that process, and
//! no other that it took along.

use std::io::{self, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::process::{Child, ExitCode, Stdio, abort};
use std::thread;
use std::time::Duration;

use gossamer_transport_shm::{JoinError, Leader};
use rustix::net::RecvFlags;

use crate::{BUILD, Children, LOOK, refused, this};

/// Plays a part in one of the tests below, if `role` is one.
pub(crate) fn play(role: &str) -> Option<ExitCode> {
    let code = match role {
        "say hello and die" => {
            // The same as the leader's, which stays unread.
            let mut hello = [0; 256];
            let length = loop {
                match rustix::net::recv(io::stdin(), &mut hello, RecvFlags::PEEK) {
                    Ok((_, length)) => break length,
                    Err(_) => thread::sleep(LOOK),
                }
            };
            assert_eq!(rustix::io::write(io::stdin(), &hello[..length]), Ok(length));
            // So that the leader finds out by sending: this hello is then all it has received.
            thread::sleep(Duration::from_millis(50));
            die()
        }
        "join when the sibling is dead" => {
            await_end_of_sibling();
            refused(&BUILD, |error| matches!(error, JoinError::HungUp(_) | JoinError::Ended { .. }))
        }
        "fail when the sibling is up" => {
            sibling().read_exact(&mut [0]).expect("a word of the sibling");
            ExitCode::FAILURE
        }
        "die when the sibling has failed" => {
            sibling().write_all(&[1]).expect("a word to the sibling");
            await_end_of_sibling();
            die()
        }
        "dying leader" => {
            let mut leader = Leader::new(2).expect("a leader");
            let _orphan = leader.spawn(&mut this("orphan")).expect("a child");
            abort()
        }
        "orphan" => {
            let leader = rustix::net::sockopt::socket_peercred(io::stdin()).expect("a leader").pid;
            while rustix::process::getppid() == Some(leader) {
                thread::sleep(LOOK);
            }
            refused(&BUILD, |error| {
                eprintln!("{error}");
                matches!(error, JoinError::Ended { .. })
            })
        }
        _ => return None,
    };
    Some(code)
}

/// Ends this process as a signal from outside would.
fn die() -> ! {
    let this = rustix::process::getpid();
    let _ = rustix::process::kill_process(this, rustix::process::Signal::KILL);
    unreachable!("SIGKILL cannot be caught")
}

/// The standard output of this process, which is a socket to the other child of the leader.
fn sibling() -> UnixStream {
    UnixStream::from(io::stdout().as_fd().try_clone_to_owned().expect("a descriptor"))
}

/// Waits until the other child of the leader has ended, and a little longer: the kernel closes the
/// descriptors of a process one after the other.
fn await_end_of_sibling() {
    assert_eq!(sibling().read(&mut [0]).expect("a socket"), 0, "it says nothing");
    thread::sleep(Duration::from_millis(30));
}

/// A rack of three that must not come up; the children can talk to each other.
fn rack_of_siblings(roles: [&str; 2]) -> (JoinError, Children) {
    let mut leader = Leader::new(3).expect("a leader");
    let (one, other) = UnixStream::pair().expect("sockets");
    let start =
        |(role, socket)| leader.spawn(this(role).stdout(OwnedFd::from(socket))).expect("a child");
    let children = Children(roles.into_iter().zip([one, other]).map(start).collect());
    match leader.lead(2, &BUILD) {
        Err(error) => (error, children),
        Ok(_) => panic!("a rack without host 1 or 2"),
    }
}

/// That `error` says that `host`, which is `process`, was killed.
fn assert_names(error: &JoinError, host: u32, process: &Child) {
    let expected =
        format!("host {host} (pid {}) ended before the rack was complete: signal 9", process.id());
    assert!(error.to_string().starts_with(&expected), "{error}");
}

pub(crate) fn a_process_killed_in_the_handshake_is_named() {
    // What the leader sent it stays unread, so that the connection is reset.
    let (error, mut children) =
        rack_of_siblings(["say hello and die", "join when the sibling is dead"]);
    assert_names(&error, 1, &children.0[0]);
    assert_eq!(children.exits(), [None, Some(0)]);
}

pub(crate) fn a_killed_process_is_named_before_those_it_took_along() {
    // Host 1 fails first, as if it knew already what happens to host 2.
    let (error, children) =
        rack_of_siblings(["fail when the sibling is up", "die when the sibling has failed"]);
    assert_names(&error, 2, &children.0[1]);
}

pub(crate) fn a_leader_that_died_before_the_handshake_is_named() {
    let mut leader = this("dying leader");
    leader.stdin(Stdio::null()).stderr(Stdio::piped());
    let mut leader = leader.spawn().expect("a leader");
    let mut said = String::new();
    // It ends when the leader and its orphan have ended.
    let mut errors = leader.stderr.take().expect("a pipe");
    errors.read_to_string(&mut said).expect("to hear what they say");
    assert_eq!(leader.wait().expect("an exit").code(), None, "the leader crashes: {said}");
    let expected = format!("the leader (pid {}) ended before the rack was complete", leader.id());
    assert!(said.contains(&expected), "{said}");
}
