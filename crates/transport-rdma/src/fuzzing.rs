//! What must hold for any bytes that a peer sends: the bodies of fuzz targets.
//!
//! Only there when the crate is built for fuzzing (`cargo xtask fuzz`), and in its own tests, which
//! run them on the committed corpus, `fuzz/corpus/rdma`.

use crate::{
    message::Message,
    notices::{Notice, Notices, RECORD, Record, TAKEN, WINDOW},
};
use transport_api::{Event, HostId, RegionKey, ThreadId};

/// Runtime threads of this host.
const THREADS: u32 = 3;

/// A message of a service thread, or what the other end of a queue pair sends; the first byte selects
/// which.
///
/// # Panics
/// When what must hold does not.
pub fn rdma(data: &[u8]) {
    let Some((kind, bytes)) = data.split_first() else { return };
    if kind % 2 == 0 { message(bytes) } else { notices(bytes) }
}

/// A message that is understood is encoded in one way, which is understood as the same.
fn message(bytes: &[u8]) {
    let Ok(message) = Message::decode(bytes) else { return };
    let encoded = message.encode();
    // Of a text only the beginning is sent.
    let again = Message::decode(&encoded).expect("what is encoded can be decoded");
    assert_eq!(again.encode(), encoded, "a message has lost something");
}

/// Of a peer's notifications at most a window is kept, all for threads that exist; of this side's it
/// takes no more than were sent.
///
/// Each byte says what comes next: 0 a notice, of 4 bytes; 1 a record; 2 this side takes what it was
/// sent; everything else, this side sends a notification.
fn notices(mut bytes: &[u8]) {
    let peer = ThreadId { host: HostId(1), thread: 0 };
    let mut notices = Notices::new(peer, THREADS);
    let (mut untaken, mut sent, mut taken_there) = (0, 0, 0);
    while let Some((what, rest)) = bytes.split_first() {
        bytes = rest;
        match what {
            0 => {
                let Some((word, rest)) = bytes.split_first_chunk() else { return };
                bytes = rest;
                match notices.noticed(u32::from_le_bytes(*word)) {
                    Ok(Notice::Wake(thread)) => assert!(thread < THREADS, "a thread of no host"),
                    Ok(Notice::Room) => {
                        taken_there += u32::from_le_bytes(*word) & !TAKEN;
                        assert!(taken_there <= sent, "more are taken than were sent");
                    }
                    Ok(_) => {}
                    // The connection ends.
                    Err(_) => return,
                }
            }
            1 => {
                let Some((record, rest)) = bytes.split_first_chunk::<RECORD>() else { return };
                bytes = rest;
                let Ok((record, event)) = notices.notified(record, RECORD) else { return };
                assert!(record.thread < THREADS, "a notification for a thread of no host");
                assert!(matches!(event, Event::Notified { from, .. } if from == peer));
                untaken += 1;
                assert!(untaken <= WINDOW, "notifications pile up");
            }
            2 => {
                let _ = notices.taken(std::mem::take(&mut untaken));
            }
            other => {
                let (key, at) = (RegionKey(1), u64::from(*other));
                notices.notify(Record { key, at, len: 8, value: 0, thread: 0, generation: 0 });
                sent += u32::from(notices.next().is_some());
                assert!(sent - taken_there <= WINDOW, "more are under way than the peer keeps");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{message::Told, verbs::Endpoint};
    use std::{fs, path::PathBuf};
    use transport_api::Rights;

    fn corpus() -> PathBuf {
        PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/rdma")
    }

    #[test]
    fn the_corpus_does_no_harm() {
        let mut count = 0;
        for entry in fs::read_dir(corpus()).expect("a committed corpus") {
            let path = entry.expect("an entry").path();
            println!("{}", path.display());
            rdma(&fs::read(path).expect("a seed"));
            count += 1;
        }
        assert!(count > 0, "no seeds");
    }

    #[test]
    #[ignore = "writes seeds: cargo test -p gossamer-transport-rdma --features verbs --lib write_seeds -- --ignored"]
    fn write_seeds() {
        fs::create_dir_all(corpus()).expect("a folder");
        let put = |name: &str, kind: u8, bytes: &[u8]| {
            fs::write(corpus().join(name), [&[kind], bytes].concat()).expect("a seed");
        };
        let row = Told {
            rights: Rights::READ,
            generation: 1,
            len: 4096,
            address: 0x7f00_0000_0000,
            remote_key: 7,
        };
        let end = Endpoint { gid: [1; 16], lid: 0, mtu: 3, qp: 17, first: 5 };
        let hello = Message::Hello { answering: 16, row, payloads: Some(row), ends: vec![end; 2] };
        put("hello", 0, &hello.encode());
        let (number, key) = (5, RegionKey(9));
        put("ask", 0, &Message::Ask { number, key, timeout: 1000 }.encode());
        put("told", 0, &Message::Told { number, region: Some(row) }.encode());
        put("revoke", 0, &Message::Revoke { number, key, generation: 2 }.encode());
        put("forgotten", 0, &Message::Forgotten { number }.encode());
        put("given-up", 0, &Message::GivenUp("the link is down".into()).encode());
        let record = Record { key, at: 8, len: 8, value: 1, thread: 2, generation: 0 };
        let mut said = vec![7, 7, 0];
        said.extend_from_slice(&(TAKEN | 2).to_le_bytes());
        said.push(1);
        said.extend_from_slice(&record.encode());
        said.extend_from_slice(&[2, 0, 1, 0, 0, 0]);
        put("notices", 1, &said);
    }
}
