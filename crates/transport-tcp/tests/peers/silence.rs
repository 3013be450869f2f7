//! A network that stops carrying anything, without an error and without an end: a proxy between two
//! hosts that stops forwarding. Both hosts report the other as lost, and not before.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use transport_api::{Event, HostId, Lane, LossReason, PeerEvent, Transport};

use crate::common::{Authority, configs, join_all};

const DEADLINE: Duration = Duration::from_secs(60);
const BOUND: Duration = Duration::from_millis(800);

/// Forwards everything between each client and `to`, until `stopped`; keeps the connections
/// open then. Returns where it listens.
fn proxy(to: SocketAddr, stopped: Arc<AtomicBool>) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a listener");
    let address = listener.local_addr().expect("an address");
    thread::spawn(move || {
        for client in listener.incoming() {
            let client = client.expect("a connection");
            let server = TcpStream::connect(to).expect("a connection");
            for (from, to) in [(&client, &server), (&server, &client)] {
                let (from, to) =
                    (from.try_clone().expect("a copy"), to.try_clone().expect("a copy"));
                let stopped = stopped.clone();
                thread::spawn(move || forward(from, to, &stopped));
            }
        }
    });
    address
}

fn forward(mut from: TcpStream, mut to: TcpStream, stopped: &AtomicBool) {
    from.set_read_timeout(Some(Duration::from_millis(20))).expect("a timeout");
    let mut buffer = [0; 4096];
    loop {
        match from.read(&mut buffer) {
            Ok(count) if count > 0 && !stopped.load(Ordering::Relaxed) => {
                if to.write_all(&buffer[..count]).is_err() {
                    return;
                }
            }
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {}
            // What comes now is swallowed, and an end is not passed on.
            _ if stopped.load(Ordering::Relaxed) => thread::sleep(Duration::from_millis(20)),
            _ => return,
        }
    }
}

fn events(lane: &mut dyn Lane) -> Vec<Event> {
    let mut events = Vec::new();
    lane.poll(&mut |event| events.push(event));
    events
}

#[test]
fn a_network_that_carries_nothing_loses_both_sides() {
    let authority = Authority::new();
    let stopped = Arc::new(AtomicBool::new(false));
    let mut configs = configs(2, 1, |host| authority.of(host));
    configs[1].addresses[0] = proxy(configs[0].addresses[0], stopped.clone());
    configs.iter_mut().for_each(|config| config.loss_bound = BOUND);
    let hosts: Vec<_> = join_all(configs).into_iter().map(|host| host.expect("a rack")).collect();
    let mut lanes = [0, 1].map(|host| {
        let peer = HostId(1 - host);
        hosts[host as usize].lane(0, peer).expect("a lane")
    });
    // Idle for longer than the bound: signs of life are all there is, and they are enough.
    let start = Instant::now();
    while start.elapsed() < 2 * BOUND {
        for lane in &mut lanes {
            assert!(events(&mut **lane).is_empty());
        }
        thread::sleep(Duration::from_millis(10));
    }
    stopped.store(true, Ordering::Relaxed);
    let start = Instant::now();
    for (lane, peer) in lanes.iter_mut().zip([1, 0]) {
        let lost = loop {
            if let Some(event) = events(&mut **lane).pop() {
                break event;
            }
            assert!(start.elapsed() < DEADLINE, "no host notices");
            thread::sleep(Duration::from_millis(5));
        };
        let Event::Peer(PeerEvent::Lost(host, LossReason::Connection(why))) = lost else {
            panic!("{lost:?} is no loss")
        };
        assert_eq!(host, HostId(peer));
        assert!(why.contains("silent"), "{why}");
    }
}
