//! What must hold for any bytes that a peer sends: the bodies of fuzz targets.
//!
//! Only there when the crate is built for fuzzing (`cargo xtask fuzz`), and in its own tests, which
//! run them on the committed corpus, `fuzz/corpus/rdma`.

use primitive::SharedBytes;
use transport_api::{Event, HostId, RegionKey, ThreadId};

use crate::immediate::{
    Immediate, NOTIFICATION_CREDITS, Notifications, RECORD, Record, WINDOW, payload_credits,
};
use crate::message::Message;
use crate::payloads::{BLOCKS, Fetches, Offers, WINDOW as WINDOW_OF_PAYLOADS, cost_of};

/// Runtime threads of this host.
const THREADS: u32 = 3;

/// A message of a service thread, or what the other end of a queue pair sends; the first byte selects
/// which.
///
/// # Panics
/// When what must hold does not.
pub fn rdma(data: &[u8]) {
    let Some((kind, bytes)) = data.split_first() else { return };
    match kind % 3 {
        0 => message(bytes),
        1 => notifications(bytes),
        _ => payloads(bytes),
    }
}

/// A message that is understood is encoded in one way, which is understood as the same.
fn message(bytes: &[u8]) {
    let Ok(message) = Message::decode(bytes) else { return };
    let encoded = message.encode();
    let again = Message::decode(&encoded).expect("what is encoded can be decoded");
    assert_eq!(again.encode(), encoded, "a message has lost something");
}

/// Of a peer's notifications at most a window is kept, all for threads that exist; of this side's it
/// takes no more than were sent.
///
/// Each byte says what comes next: 0 immediate data, of 4 bytes; 1 a record; 2 this side takes what it was
/// sent; everything else, this side sends a notification.
fn notifications(mut bytes: &[u8]) {
    let peer = ThreadId { host: HostId(1), thread: 0 };
    let mut notifications = Notifications::new(peer, THREADS);
    let (mut untaken, mut sent, mut taken_there) = (0, 0, 0);
    while let Some((what, rest)) = bytes.split_first() {
        bytes = rest;
        match what {
            0 => {
                let Some((word, rest)) = bytes.split_first_chunk() else { return };
                bytes = rest;
                match notifications.receive_immediate(u32::from_le_bytes(*word)) {
                    Ok(Immediate::Wake(thread)) => assert!(thread < THREADS, "a thread of no host"),
                    Ok(Immediate::NotificationCredits) => {
                        taken_there += u32::from_le_bytes(*word) & !NOTIFICATION_CREDITS;
                        assert!(taken_there <= sent, "more are taken than were sent");
                    }
                    Ok(_) => {}
                    // The connection endpoints.
                    Err(_) => return,
                }
            }
            1 => {
                let Some((record, rest)) = bytes.split_first_chunk::<RECORD>() else { return };
                bytes = rest;
                let Ok((record, event)) = notifications.receive_record(record, RECORD) else {
                    return;
                };
                assert!(record.thread < THREADS, "a notification for a thread of no host");
                assert!(matches!(event, Event::Notified { from, .. } if from == peer));
                untaken += 1;
                assert!(untaken <= WINDOW, "notifications pile up");
            }
            2 => {
                let _ = notifications.taken(std::mem::take(&mut untaken));
            }
            other => {
                let (key, at) = (RegionKey(1), u64::from(*other));
                let record = Record { key, at, len: 8, value: 0, thread: 0, generation: 0 };
                notifications.notify(record, None);
                sent += u32::from(notifications.pop().is_some());
                assert!(sent - taken_there <= WINDOW, "more are under way than the peer keeps");
            }
        }
    }
}

/// A peer announces no more pieces than it has blocks, of which READs stay inside; it acknowledges no more
/// than were offered, and returns no more credits than it was charged. Payloads are for threads that exist,
/// and of those that are not taken, little more than a window is kept for each thread.
///
/// Each byte says what comes next: 0 a record; 1 the next READ ends; 2 acknowledged pieces, 4 bytes; 3
/// credits for a thread, 1 byte and 4; 4 this side's threads take what has come; everything else, this side
/// pushes a payload of five bytes less than that, and offers what it may.
fn payloads(mut bytes: &[u8]) {
    const BLOCK: usize = 16;
    let peer = ThreadId { host: HostId(1), thread: 0 };
    let memory = |blocks| SharedBytes::heap(blocks * BLOCK);
    let (mut offers, staging) = (Offers::new(Some(memory(BLOCKS))), memory(1));
    let mut fetches = Fetches::new(peer, THREADS);
    fetches.blocks_of(BLOCK);
    let (mut unread, mut reading, mut open, mut owed) = (0, 0, 0, 0);
    let (mut untaken, mut charged) = ([0; THREADS as usize], [0u64; THREADS as usize]);
    while let Some((what, rest)) = bytes.split_first() {
        bytes = rest;
        match what {
            0 => {
                let Some((record, rest)) = bytes.split_first_chunk::<RECORD>() else { return };
                bytes = rest;
                // The connection ends with a violation, here and below.
                let Ok(()) = fetches.announced(record, RECORD) else { return };
                unread += 1;
                assert!(unread <= BLOCKS, "announced pieces pile up");
            }
            1 => {
                while let Some((at, len)) = fetches.read() {
                    assert!(at + len <= BLOCKS * BLOCK, "a READ outside of the blocks");
                    reading += 1;
                }
                if reading > 0 {
                    (unread, reading, owed) = (unread - 1, reading - 1, owed + 1);
                    match fetches.arrived(&staging, 0) {
                        Ok(Some((thread, Event::Bulk { from, payload, .. }))) => {
                            assert!(from == peer, "a payload of another peer");
                            let untaken = &mut untaken[thread as usize];
                            *untaken += cost_of(payload.len());
                            assert!(*untaken <= 2 * WINDOW_OF_PAYLOADS, "payloads pile up");
                        }
                        Ok(Some(other)) => panic!("expected a payload, got {other:?}"),
                        Ok(None) => {}
                        Err(_) => return,
                    }
                    if let Some(count) = fetches.acknowledge() {
                        assert_eq!(count, owed, "pieces that have arrived are all acknowledged");
                        owed = 0;
                    }
                }
            }
            2 => {
                let Some((count, rest)) = bytes.split_first_chunk() else { return };
                bytes = rest;
                let count = u32::from_le_bytes(*count);
                let Ok(()) = offers.blocks_fetched(count) else { return };
                open -= count;
            }
            3 => {
                let Some(([thread, cost @ ..], rest)) = bytes.split_first_chunk::<5>() else {
                    return;
                };
                bytes = rest;
                let cost = u32::from_le_bytes(*cost);
                let Ok(()) = offers.add_credits((*thread).into(), cost) else { return };
                let left = charged[usize::from(*thread)].checked_sub(cost.into());
                charged[usize::from(*thread)] = left.expect("no more than was charged");
            }
            4 => {
                for (thread, untaken) in (0..).zip(&mut untaken) {
                    if let Some(cost) = fetches.taken(thread, std::mem::take(untaken)) {
                        payload_credits(thread, cost);
                    }
                }
            }
            other => {
                let (thread, len) = (u32::from(*other) % THREADS, usize::from(other - 5));
                offers.push(thread, 7, vec![0; len]);
                charged[thread as usize] += u64::from(cost_of(len));
                open += std::iter::from_fn(|| offers.offer()).count() as u32;
                assert!(open as usize <= BLOCKS, "more pieces are offered than there are blocks");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use fuzz_corpus::Corpus;
    use transport_api::Rights;

    use super::*;
    use crate::address::{Endpoint, MemoryDescriptor};
    use crate::payloads::Piece;

    const TARGET: &str = "rdma";

    #[test]
    fn the_corpus_does_no_harm() {
        Corpus::of(TARGET).run(rdma);
    }

    #[test]
    #[ignore = "writes seeds: cargo test -p gossamer-rdma-protocol --lib write_seeds -- --ignored"]
    fn write_seeds() {
        let put = |name: &str, kind: u8, bytes: &[u8]| {
            Corpus::of(TARGET).write(name, [&[kind], bytes].concat());
        };
        let sleep_flags = MemoryDescriptor {
            rights: Rights::READ,
            len: 4096,
            address: 0x7f00_0000_0000,
            remote_key: 7,
        };
        let end = Endpoint { gid: [1; 16], lid: 0, mtu: 3, qp: 17, first: 5 };
        let hello = Message::Hello {
            responder_resources: 16,
            sleep_flags,
            payloads: Some(sleep_flags),
            endpoints: vec![end; 2],
        };
        put("hello", 0, &hello.encode());
        put("ready", 0, &Message::Ready.encode());
        put("control", 0, &Message::Control(vec![3, 5, 0, 0, 0, 0, 0, 0, 0]).encode());
        let key = RegionKey(9);
        let record = Record { key, at: 8, len: 64, value: 1, thread: 2, generation: 0 };
        let mut said = vec![7, 7, 0];
        said.extend_from_slice(&(NOTIFICATION_CREDITS | 2).to_le_bytes());
        said.push(1);
        said.extend_from_slice(&record.encode());
        said.extend_from_slice(&[2, 0, 1, 0, 0, 0]);
        put("immediate", 1, &said);
        let piece = Piece { tag: 7, total: 20, len: 16, thread: 2 };
        let mut handed_over = vec![40, 2, 1, 0, 0, 0, 3, 1, 1, 0, 0, 0];
        for piece in [piece, Piece { len: 4, ..piece }] {
            handed_over.push(0);
            handed_over.extend_from_slice(&piece.encode());
            handed_over.push(1);
        }
        handed_over.push(4);
        put("payloads", 2, &handed_over);
    }
}
