//! What the tests of racks share: racks of every kind, and deadlines.
//!
//! Each test program uses a part of this.
#![allow(dead_code)]

#[cfg(feature = "rdma")]
pub(crate) mod rdma;
pub(crate) mod tcp;

use std::sync::{Arc, mpsc};
use std::{panic, thread};

#[allow(unused_imports, reason = "each test program uses a part")]
pub(crate) use behaviours::support::{Counted, DEADLINE, message_of, panic_in, wait_until};
use gossamer::{Rack, RackError};
use transport_api::Transport;
use transport_api::conformance::Altered;
use transport_shm::ShmTransport;
use transport_tcp::{Credentials, TcpTransport};

/// Racks that one process can make.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// One host with three threads.
    Threads,
    /// Two hosts with two threads each, which share memory.
    Hosts,
    /// Two hosts with two threads each, whose transport copies what they write.
    Copies,
    /// Two hosts with two threads each, over TCP without encryption.
    Tcp,
    /// Two hosts with two threads each, over TCP and TLS.
    Tls,
    /// Two hosts with two threads each, over RDMA devices of this machine.
    #[cfg(feature = "rdma")]
    Rdma,
}

/// All that need no device.
pub(crate) const KINDS: [Kind; 5] =
    [Kind::Threads, Kind::Hosts, Kind::Copies, Kind::Tcp, Kind::Tls];

/// The hosts of a rack of a kind that has more than one.
fn hosts(kind: Kind) -> Vec<Arc<dyn Transport>> {
    let shm = || ShmTransport::in_process(2, 2).expect("a rack in one process").into_iter();
    let tcp = |hosts: Vec<Arc<TcpTransport>>| {
        hosts.into_iter().map(|host| host as Arc<dyn Transport>).collect()
    };
    match kind {
        Kind::Threads => unreachable!("it has one host"),
        Kind::Hosts => shm().map(|host| host as Arc<dyn Transport>).collect(),
        Kind::Copies => shm().map(|host| Altered::unmapped(host)).collect(),
        Kind::Tcp => tcp(tcp::hosts(2, 2, |_| Credentials::InsecureLoopback)),
        Kind::Tls => tcp(tcp::hosts(2, 2, tcp::of_a_job())),
        #[cfg(feature = "rdma")]
        Kind::Rdma => {
            rdma::joined(2, 2).into_iter().map(|host| host as Arc<dyn Transport>).collect()
        }
    }
}

/// Runs `main` on a rack of this kind, and looks for leaks afterwards.
pub(crate) fn run<R: Send + 'static>(
    kind: Kind,
    main: impl FnOnce() -> R + Send + 'static,
) -> Result<R, RackError> {
    run_as(kind, Rack::new().check_leaks(true), main)
}

/// Runs `main` on a rack of this kind with these settings; an error of any host is the result's.
pub(crate) fn run_as<R: Send + 'static>(
    kind: Kind,
    settings: Rack,
    main: impl FnOnce() -> R + Send + 'static,
) -> Result<R, RackError> {
    if kind == Kind::Threads {
        return settings.threads(3).run(main);
    }
    // These programs optimise what they stand on, but not the behaviours, which get large frames then.
    #[cfg(feature = "rdma")]
    let settings = if kind == Kind::Rdma { settings.stack_bytes(1 << 20) } else { settings };
    let mut main = Some(main);
    let hosts: Vec<_> = hosts(kind)
        .into_iter()
        .map(|transport| {
            let (settings, main) = (settings.clone(), main.take());
            thread::spawn(move || match main {
                Some(main) => settings.run_on(transport, main),
                None => settings.run_on(transport, || unreachable!("main runs on host 0")),
            })
        })
        .collect();
    let mut results: Vec<_> = hosts.into_iter().map(thread::JoinHandle::join).collect();
    let others = results.split_off(1);
    let result = match results.remove(0) {
        Ok(result) => result?.expect("host 0 runs main"),
        Err(panicked) => panic::resume_unwind(panicked),
    };
    for other in others {
        other.expect("a host that does not panic")?;
    }
    Ok(result)
}

/// Runs `test`, and ends the whole program with its name if it hangs.
pub(crate) fn within_deadline<R: Send + 'static>(
    name: &str,
    test: impl FnOnce() -> R + Send + 'static,
) -> R {
    let (done, finished) = mpsc::channel();
    let thread = thread::Builder::new().name(name.to_owned());
    let running = thread.spawn(move || {
        let result = test();
        // The receiver is gone if the deadline has passed.
        let _ = done.send(());
        result
    });
    let running = running.expect("a thread");
    if let Err(mpsc::RecvTimeoutError::Timeout) = finished.recv_timeout(DEADLINE) {
        eprintln!("{name} hangs");
        std::process::abort();
    }
    running.join().unwrap_or_else(|panicked| panic::resume_unwind(panicked))
}

/// Runs a behaviour on a rack of this kind, with a deadline. As a function, not a closure, each is
/// not one more type for which the compiler makes a rack.
pub(crate) fn behaves(kind: Kind, name: &str, behaviour: fn()) {
    within_deadline(name, move || run(kind, behaviour).unwrap());
}
