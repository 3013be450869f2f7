//! Hosts that leave a rack: before its end, and at its end.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::thread;

use gossamer::{
    HostId, OnPeerLoss, Rack, Receiver, RecvError, Sender, Trustee, channel, channel_on,
};
use transport_api::Transport;
use transport_tcp::TcpTransport;

use crate::common::{self, tcp, within_deadline};

/// Runs `main` on host 0 of three with a thread each, which go on when they lose another. `main` gets the
/// transport of the last one.
fn run(main: impl FnOnce(Arc<TcpTransport>) + Send + 'static) {
    let hosts = tcp::hosts(3, 1, tcp::of_a_job());
    let last = hosts[2].clone();
    let mut main = Some(move || main(last));
    let start = |transport: Arc<TcpTransport>| {
        let settings = Rack::new().on_peer_loss(OnPeerLoss::Return);
        let main = main.take_if(|_| transport.local() == HostId(0));
        thread::spawn(move || settings.run_on(transport, || main.map(|main| main())))
    };
    let mut ended = hosts.into_iter().map(start).collect::<Vec<_>>().into_iter();
    let first = ended.next().expect("host 0").join().expect("no panic");
    first.expect("it ends well");
    ended.for_each(|other| drop(other.join().expect("no panic")));
}

/// The thread of a host.
fn at(host: u32) -> Trustee {
    gossamer::threads().nth(host as usize).expect("a thread")
}

#[test]
fn a_host_that_leaves_early_is_lost_on_every_host() {
    within_deadline("a_host_that_leaves_early_is_lost_on_every_host", || {
        run(|last| {
            let (sender, receiver) = channel_on::<u64>(at(1), 4);
            let (ready, mut is_ready) = channel::<()>(1);
            let sends = |sender: Sender<u64>| {
                sender.send(1).unwrap();
                gossamer::sleep(common::DEADLINE);
                drop(sender);
            };
            let receives = |(mut receiver, ready): (Receiver<u64>, Sender<()>)| {
                assert_eq!(receiver.recv().unwrap(), 1);
                ready.send(()).unwrap();
                let error = receiver.recv().unwrap_err();
                (error.to_string(), gossamer::live_hosts().map(|host| host.0).collect::<Vec<_>>())
            };
            drop(gossamer::spawn_on_with(at(2), sends, sender));
            let receiving = gossamer::spawn_on_with(at(1), receives, (receiver, ready));
            is_ready.recv().unwrap();
            // As a host does that has failed. This waits for its peers, of which one is this thread.
            thread::spawn(move || last.leave());
            let (error, live) = receiving.join().unwrap();
            assert_eq!(error, RecvError::HostLost(HostId(2)).to_string());
            assert_eq!(live, [0, 1]);
        });
    });
}

#[test]
fn hosts_that_leave_at_the_end_are_not_lost() {
    static LOST: AtomicU32 = AtomicU32::new(0);
    within_deadline("hosts_that_leave_at_the_end_are_not_lost", || {
        run(|_| {
            let listen = |()| gossamer::on_host_lost(|_| _ = LOST.fetch_add(1, Relaxed));
            let listening = gossamer::threads().map(|thread| thread.entrust_with(listen, ()));
            std::mem::forget(listening.collect::<Vec<_>>());
        });
        assert_eq!(LOST.load(Relaxed), 0);
    });
}
