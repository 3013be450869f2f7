//! Server-side puts without a trustee: one process has a table in a mailbox, another one sends it calls of
//! `indirect_put`. The first call carries the code, the others its digest.
//!
//! `cargo run --release -p gossamer-jam-tests --example reactive_mailbox -- --hosts 2`

use std::time::{Duration, Instant};

use gossamer::jam::mailbox::{JamSender, Mailbox, ReactiveMailbox};
use gossamer::{Rack, RackError};
use gossamer_jam_tests::Table;
use gossamer_jam_tests::jams::indirect_put::{INDIRECT_PUT, PutArgs};

const CALLS: u64 = 100_000;

fn main() -> Result<(), RackError> {
    Rack::from_args()?.run(|| put(CALLS))
}

/// On any rack: makes so many calls of the mailbox of the last thread.
pub(crate) fn put(calls: u64) {
    let thread = gossamer::threads().last().expect("a thread");
    let receiving = gossamer::spawn_on_with(thread, receive, calls);

    let segments = gossamer::segments();
    let mut sender =
        JamSender::open(&segments, "puts", Duration::from_secs(10)).expect("its mailbox");
    let start = Instant::now();
    for key in 0..calls {
        let args = PutArgs { key: key % 100, offset: 0 };
        sender.send(&INDIRECT_PUT, args, b"ten of the best").expect("a call");
    }
    let report = sender.close(Duration::from_secs(10)).expect("all calls run");
    let each = start.elapsed() / calls as u32;

    let (ran, bytes) = receiving.join().expect("no panic");
    assert_eq!((report.handled, report.failed, ran), (calls, 0, calls));
    assert_eq!(bytes, b"ten of the best");
    println!("{ran} calls ran, one in {each:?}");
}

/// Runs what comes until all calls have; how many ran, and the bytes of the first key.
fn receive(calls: u64) -> (u64, Vec<u8>) {
    let frames = Mailbox::builder("puts").banks(4).frames(8).frame_bytes(4096);
    let frames = frames.export(&gossamer::segments()).expect("a mailbox");
    let mut inbox = ReactiveMailbox::new(frames).with(Table::new(1 << 16));
    inbox.run_while(|inbox| inbox.stats().ran() < calls).expect("a rack that has not ended");
    let table = inbox.get::<Table>().expect("the property");
    (inbox.stats().ran(), table.bytes()[..15].to_vec())
}
