//! A host that was taken over: the `gossamer` command calls a daemon that has the host's certificate
//! and does not keep to the protocol. It can fail its own part of a job, and nothing else.

use std::process::Child;

use daemon_protocol::{CHUNK, FromController, FromDaemon, OUTPUT_WINDOW, Stream};
use gossamer_daemon::connection::ConnectionError;
use tokio::time::timeout;

use crate::common::calls::{TIMEOUT, runtime};
use crate::common::false_daemon::{FalseDaemon, prepared};
use crate::common::{Rack, Ran, finish};

/// Starts `gossamer run`. Its outputs are pipes that are not read yet.
fn run(rack: &Rack) -> Child {
    rack.run("a", &["true"]).spawn().unwrap()
}

#[test]
fn output_beyond_the_window_ends_the_connection() {
    const ATTEMPTED: usize = 400 << 20;
    let rack = Rack::new(&["a"]);
    let (job, sent) = runtime().block_on(async {
        let daemon = FalseDaemon::new(&rack).await;
        let job = run(&rack);
        let (_from, mut to) = daemon.start().await;
        let output = FromDaemon::Output(Stream::Out, vec![b'x'; CHUNK]);
        let mut sent = 0;
        while sent < ATTEMPTED {
            match timeout(TIMEOUT, to.send(&output)).await {
                Ok(Ok(())) => sent += CHUNK,
                Ok(Err(ConnectionError::Closed)) => break,
                other => panic!("neither taken nor closed: {other:?}"),
            }
        }
        (job, sent)
    });
    // What does not come from the window is in the buffers of the sockets.
    assert!(sent < 64 << 20, "{sent} bytes were taken by a controller that prints nothing");
    let ran = finish(job);
    assert_eq!(ran.status, Some(125), "{}", ran.err);
    let expected = format!("unprinted bytes: at most {OUTPUT_WINDOW} are allowed");
    assert!(ran.err.contains("a: lost its daemon: protocol violation: "), "{}", ran.err);
    assert!(ran.err.contains(&expected), "{}", ran.err);
}

#[test]
fn what_a_daemon_says_out_of_turn_ends_the_connection() {
    let rack = Rack::new(&["a"]);
    let violation = |messages: &[FromDaemon]| {
        let job = runtime().block_on(async {
            let daemon = FalseDaemon::new(&rack).await;
            let job = run(&rack);
            let (mut from, mut to) = daemon.start().await;
            for message in messages {
                to.send(message).await.unwrap();
            }
            // The controller closes; it would send that it is alive for ever.
            let closed = timeout(TIMEOUT, async {
                while from.receive::<FromController>(TIMEOUT).await.is_ok() {}
            });
            assert!(closed.await.is_ok(), "the connection stays open after {messages:?}");
            job
        });
        let Ran { status, err, .. } = finish(job);
        assert_eq!(status, Some(125), "{err}");
        let (_, violation) = err.split_once("protocol violation: ").expect(&err);
        violation.trim().to_owned()
    };
    // Input that was never sent would make room for more than the window.
    let taken = violation(&[FromDaemon::Taken(u32::MAX)]);
    assert!(taken.ends_with("bytes of input acknowledged, but only 0 are outstanding"), "{taken}");
    assert_eq!(violation(&[FromDaemon::SendProgram]), "SendProgram after Started");
    assert_eq!(violation(&[prepared()]), "Prepared after Started");
}
